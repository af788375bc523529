//! The in-memory table of esker: recent writes, ordered, with an exact hash index beside the order.
//!
//! ```
//! use esker_base::{Lookup, ValueKind, key_hash};
//! use esker_memtable::Memtable;
//! use std::sync::Arc;
//!
//! let table = Memtable::new(7, 64 << 10);
//! let batch: Arc<[u8]> = Arc::from(&b"key-value"[..]);
//! let hash = key_hash(7, b"key");
//! table.writer().insert(&batch, 0..3, 4..9, 1, ValueKind::Put, hash);
//!
//! let found = table.get(&Lookup { user_key: b"key", hash, seq: 1 }).unwrap();
//! assert_eq!((found.seq, found.value), (1, b"value"[..].into()));
//! ```
//!
//! | file | noun |
//! |---|---|
//! | `memtable` | [`Memtable`]: what the engine sees |
//! | `writer` | [`MemtableWriter`]: the right to insert |
//! | `iter` | [`MemtableIterator`] |
//! | `entries` | the entries themselves, appended and never moved |
//! | `hash_index` | from the hash of a key to its newest entry |
//! | `ordered` | the order of the entries, as a trait |
//! | `leaf_list`, `leaf` | what is behind it: a skiplist of leaves |
//! | `directory` | where the writer finds a leaf |
//! | `mem_key` | what is compared |

mod directory;
mod entries;
mod hash_index;
mod iter;
mod leaf;
mod leaf_list;
mod mem_key;
mod memtable;
mod ordered;
mod writer;

pub use iter::MemtableIterator;
pub use memtable::{Found, FoundRef, Memtable};
pub use writer::MemtableWriter;
