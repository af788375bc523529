//! The engine's orders between threads, in every interleaving and with every value that the memory model allows.
//!
//! `Visible` and `SnapshotRegistry` are the real ones: their files are included here, with loom's primitives in place
//! of std's. What is around them is a miniature, and says what it mirrors. Each model takes the order of its steps as a
//! parameter, and has a twin in the tests that fails when the order is reversed.

#![cfg(feature = "loom")]

// The included files name the crate; here it is this one.
extern crate self as esker_base;

pub use esker::{Durability, Error, Result};
pub use real_base::{SequenceNumber, planted, points};

#[path = "../../base/src/sync.rs"]
#[allow(dead_code, reason = "not everything in it is modelled")]
pub mod sync;

#[path = "../../engine/src/commit.rs"]
#[allow(dead_code, reason = "the queue is modelled with shuttle")]
mod commit;

#[path = "../../engine/src/registry.rs"]
#[allow(dead_code, reason = "not everything in it is modelled")]
mod registry;

mod picture;
mod publish;
mod snapshots;

pub use picture::{ReadOrder, picture_and_sequence};
pub use publish::{PublishOrder, batches_are_whole};
pub use snapshots::{TakeOrder, snapshots_keep_what_they_see};
