//! Makes an [`Image`] of a block: decodes each entry once, and believes nothing that it has not checked.
//!
//! No image is made of a block that is not sound, or whose image would be much larger than it.

use crate::block::Block;
use crate::entry::{Entry, ascends};
use crate::image::{HEAD_EVERY, HEAD_PREFIX, HEAD_TAGS, Image, Span, head, tag};
use esker_base::{InternalKeyRef, ValueKind, key_hash, key_head};
use std::ops::Deref;
use std::sync::Arc;

/// Keys and values in an image may take this part of the block more than the block: neighbours' prefixes are not left out
/// here.
const GROWTH_DIVISOR: usize = 4;

/// Larger blocks are not even looked at: their images would be beyond what 16 bits can say.
const BLOCK_BYTES_MAX: usize = 2 * u16::MAX as usize;

/// All keys of the block, whole, may take so many times its bytes: they are rebuilt and hashed once.
const KEY_BYTES_MAX: usize = 8;

/// What is needed while an image is made; used again for the next one.
#[derive(Debug, Default)]
pub(crate) struct Workbench {
    entries: Vec<Entry>,
    tags: Vec<u8>,
    out: Vec<u8>,
    key: Vec<u8>,
    /// The key before, where a key is rebuilt as a whole.
    last_key: Vec<u8>,
}

impl Image {
    /// The image of `block`; `None` when the block is not sound, or its image would be too large.
    pub(crate) fn build<D: Deref<Target = [u8]>>(
        block: &Block<D>,
        hash_seed: u64,
        bench: &mut Workbench,
    ) -> Option<Self> {
        if block.payload_len() > BLOCK_BYTES_MAX {
            return None;
        }
        let traits = bench.decode_all(block)?;
        let plan = Plan::of(&bench.entries, &traits, block)?;
        let distinct = bench.fill(&plan, block, hash_seed)?;
        let u16_of = |number: usize| u16::try_from(number).ok();
        let mut image = Image {
            data: Arc::from(bench.out.get(..plan.len)?),
            entries: u16_of(bench.entries.len())?,
            stride: u16_of(plan.stride)?,
            rest_len: u16_of(traits.first_len.checked_sub(plan.prefix_len)?)?,
            places_at: u16_of(plan.places_at)?,
            heads_at: u16_of(plan.heads_at)?,
            stamps_at: u16_of(plan.stamps_at)?,
            prefix_at: u16_of(plan.prefix_at)?,
            prefix_end: u16_of(plan.prefix_at + plan.prefix_len)?,
            head_prefix: [0; HEAD_PREFIX],
            head_tags: [0; HEAD_TAGS],
            seal: None,
            span: None,
        };
        if let Some(room) = image.head_tags.get_mut(..bench.tags.len()) {
            room.copy_from_slice(&bench.tags);
        }
        if let Some(room) = image.head_prefix.get_mut(..plan.prefix_len) {
            room.copy_from_slice(bench.key.get(..plan.prefix_len)?);
        }
        image.span = (distinct && traits.all_puts).then(|| Span {
            newest: traits.newest,
            first: key_head(block.first_key()).to_be_bytes(),
            last: key_head(&bench.key).to_be_bytes(),
        });
        Some(image)
    }
}

/// What the entries of a block have in common.
#[derive(Debug)]
struct Traits {
    first_len: usize,
    longest_key: usize,
    /// Leading bytes that all keys share.
    prefix_len: usize,
    /// Bytes of all keys, and of all values.
    key_bytes: usize,
    value_bytes: usize,
    /// All keys are of one length, and all values are.
    even: bool,
    /// All are puts, and what is more of number 0.
    all_puts: bool,
    plain: bool,
    newest: u64,
}

impl Traits {
    fn add(&mut self, entry: &Entry, first: &Entry) {
        // What an entry shares with the one before, or with the first one, is what all before it share, or less.
        self.prefix_len = self.prefix_len.min(entry.shared as usize);
        self.add_lens(entry);
        self.even &= (entry.key_len, entry.value_len) == (first.key_len, first.value_len);
    }

    fn add_lens(&mut self, entry: &Entry) {
        self.key_bytes += entry.key_len as usize;
        self.longest_key = self.longest_key.max(entry.key_len as usize);
        self.value_bytes += entry.value_len as usize;
        self.all_puts &= entry.kind == ValueKind::Put;
        self.plain &= (entry.seq, entry.kind) == (0, ValueKind::Put);
        self.newest = self.newest.max(entry.seq);
    }
}

impl Workbench {
    /// All entries of a block, if they end where the block says. At least one.
    fn decode_all<D: Deref<Target = [u8]>>(&mut self, block: &Block<D>) -> Option<Traits> {
        let entries = &mut self.entries;
        entries.clear();
        // No more than the bytes of the block allow, as `parse` has checked.
        entries.reserve(block.entry_count());
        let first = block.first()?.entry;
        let first_len = first.key_len as usize;
        let mut traits = Traits {
            first_len,
            longest_key: 0,
            prefix_len: first_len,
            key_bytes: 0,
            value_bytes: 0,
            even: true,
            all_puts: true,
            plain: true,
            newest: 0,
        };
        let mut at = 0;
        for restart in 0..block.restart_count() {
            let position = block.restart(restart).ok()?;
            let end = block.restart_at(restart + 1).ok()?;
            if position.at != at || end <= at {
                return None;
            }
            let mut entry = position.entry;
            loop {
                match entries.is_empty() {
                    true => traits.add_lens(&entry),
                    false => traits.add(&entry, &first),
                }
                entries.push(entry);
                at = entry.end();
                if at >= end {
                    break;
                }
                entry = block.entry(at, &entry).ok()?;
            }
            if at != end {
                return None;
            }
        }
        (entries.len() == block.entry_count()).then_some(traits)
    }

    /// Writes the image to `out`, and all tags to `tags`; leaves the last key in `key`. Returns whether no two entries are of
    /// one key. `None` when the keys do not ascend.
    fn fill<D: Deref<Target = [u8]>>(
        &mut self,
        plan: &Plan,
        block: &Block<D>,
        hash_seed: u64,
    ) -> Option<bool> {
        let Workbench { entries, tags, out, key, last_key } = self;
        let bytes = block.entries();
        if out.len() < plan.len {
            out.resize(plan.len, 0);
        }
        let out = &mut out[..plan.len];
        tags.clear();
        tags.reserve(entries.len());
        key.clear();
        key.resize(plan.key_room, 0);
        let mut at = plan.prefix_at + plan.prefix_len;
        let mut last = &Entry::ZERO;
        let mut distinct = true;
        let (mut restart, mut restart_at) = (0, 0);
        for (index, entry) in entries.iter().enumerate() {
            let shared = entry.shared as usize;
            let suffix = entry.suffix(bytes);
            if last.end() == restart_at {
                restart += 1;
                restart_at = block.restart_at(restart).ok()?;
                last_key.clear();
                last_key.extend_from_slice(&key[..last.key_len as usize]);
                key[..shared].copy_from_slice(&block.first_key()[..shared]);
                copy(key, shared, bytes, entry.suffix_at as usize, suffix.len());
                let whole = &key[..entry.key_len as usize];
                let before = InternalKeyRef::new(last_key, last.seq, last.kind);
                if index > 0 && before >= InternalKeyRef::new(whole, entry.seq, entry.kind) {
                    return None;
                }
                distinct &= index == 0 || last_key != whole;
            } else {
                if !ascends(&key[..last.key_len as usize], last, suffix, entry) {
                    return None;
                }
                // In ascending order only an equal key adds nothing to all of the one before.
                distinct &= !(suffix.is_empty() && entry.shared == last.key_len);
                copy(key, shared, bytes, entry.suffix_at as usize, suffix.len());
            }
            let whole = &key[..entry.key_len as usize];
            let rest = whole.get(plan.prefix_len..)?;
            tags.push(tag(key_hash(hash_seed, whole)));
            let value_at = at + rest.len();
            let end = value_at + entry.value_len as usize;
            if plan.stride == 0 {
                let place = plan.places_at + 4 * index;
                out[place..place + 2].copy_from_slice(&u16::try_from(at).ok()?.to_le_bytes());
                out[place + 2..place + 4].copy_from_slice(&u16::try_from(value_at).ok()?.to_le_bytes());
                out[place + 4..place + 6].copy_from_slice(&u16::try_from(end).ok()?.to_le_bytes());
            }
            if index % HEAD_EVERY == 0 {
                let place = plan.heads_at + 8 * (index / HEAD_EVERY);
                out[place..place + 8].copy_from_slice(&head(rest).to_le_bytes());
            }
            if plan.stamps_at != plan.prefix_at {
                let place = plan.stamps_at + 8 * index;
                let stamp = entry.seq << 8 | entry.kind as u64;
                out[place..place + 8].copy_from_slice(&stamp.to_le_bytes());
            }
            copy(out, at, key, plan.prefix_len, rest.len());
            out[value_at..end].copy_from_slice(entry.value(bytes));
            at = end;
            last = entry;
        }
        if plan.places_at > 0 {
            out[..plan.places_at].copy_from_slice(tags);
        }
        out[plan.prefix_at..plan.prefix_at + plan.prefix_len].copy_from_slice(key.get(..plan.prefix_len)?);
        key.truncate(last.key_len as usize);
        (at == out.len()).then_some(distinct)
    }
}

/// Most bytes that [`copy`] copies in one piece.
const CHUNK: usize = 16;

/// Copies `len` bytes, and some behind them if both sides have them: what is behind them in `to` is written afterwards, or
/// never read. Cheaper than a call for so few.
#[inline]
fn copy(to: &mut [u8], to_at: usize, from: &[u8], from_at: usize, len: usize) {
    let (to, from) = (&mut to[to_at..], &from[from_at..]);
    match (to.first_chunk_mut::<CHUNK>(), from.first_chunk::<CHUNK>()) {
        (Some(to), Some(from)) if len <= CHUNK => *to = *from,
        _ => to[..len].copy_from_slice(&from[..len]),
    }
}

/// Where the parts of an image go.
struct Plan {
    /// As in [`Image`].
    stride: usize,
    places_at: usize,
    heads_at: usize,
    stamps_at: usize,
    prefix_at: usize,
    prefix_len: usize,
    len: usize,
    /// Bytes of a buffer in which all keys are rebuilt.
    key_room: usize,
}

impl Plan {
    /// `None` when the image would be too large.
    fn of<D: Deref<Target = [u8]>>(entries: &[Entry], traits: &Traits, block: &Block<D>) -> Option<Self> {
        let count = entries.len();
        let prefix_len = traits.prefix_len;
        let bytes = traits.key_bytes.checked_sub(count * prefix_len)? + traits.value_bytes;
        let limit = block.payload_len() + block.payload_len() / GROWTH_DIVISOR;
        if bytes > limit || traits.key_bytes > KEY_BYTES_MAX * block.payload_len() {
            return None;
        }
        let stride = if traits.even { bytes / count } else { 0 };
        let places_at = if count > HEAD_TAGS { count } else { 0 };
        let heads_at = places_at + if stride > 0 { 0 } else { 4 * count + 2 };
        let stamps_at = heads_at + 8 * count.div_ceil(HEAD_EVERY);
        let prefix_at = stamps_at + if traits.plain { 0 } else { 8 * count };
        let len = prefix_at + prefix_len + bytes;
        (len <= usize::from(u16::MAX)).then_some(Plan {
            stride,
            places_at,
            heads_at,
            stamps_at,
            prefix_at,
            prefix_len,
            len,
            key_room: traits.longest_key + CHUNK,
        })
    }
}
