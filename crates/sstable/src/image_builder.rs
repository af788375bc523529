//! Makes an [`Image`] of a block: decodes each entry once, and believes nothing that it has not checked.
//!
//! No image is made of a block that is not sound, or whose image would be much larger than it.

use crate::block::Block;
use crate::compression::zeroed;
use crate::entry::{Entry, ascends};
use crate::image::{HEAD_EVERY, Image, Span, head, tag};
use esker_base::{InternalKeyRef, ValueKind, key_hash, key_head};
use std::sync::Arc;

/// Keys and values in an image may take this part of the block more than the block: neighbours' prefixes are not left out
/// here.
const GROWTH_DIVISOR: usize = 4;

/// Larger blocks are not even looked at: their images would be beyond what 16 bits can say.
const BLOCK_BYTES_MAX: usize = 2 * u16::MAX as usize;

/// All keys of the block, whole, may take so many times its bytes: they are rebuilt and hashed once.
const KEY_BYTES_MAX: usize = 8;

impl Image {
    /// The image of `block`; `None` when the block is not sound, or its image would be too large.
    pub(crate) fn build(block: &Block, hash_seed: u64) -> Option<Self> {
        if block.payload_len() > BLOCK_BYTES_MAX {
            return None;
        }
        let entries = decode_all(block)?;
        let plan = Plan::of(&entries, block)?;
        let mut data = zeroed(plan.len);
        plan.fill(Arc::get_mut(&mut data)?, &entries, block, hash_seed)?;
        let mut image = Image {
            data,
            seal: None,
            entries: u16::try_from(entries.len()).ok()?,
            places_at: u16::try_from(plan.places_at).ok()?,
            heads_at: u16::try_from(plan.heads_at).ok()?,
            stamps_at: u16::try_from(plan.stamps_at).ok()?,
            prefix_at: u16::try_from(plan.prefix_at).ok()?,
            prefix_end: u16::try_from(plan.prefix_at + plan.prefix_len).ok()?,
            span: None,
        };
        image.span = Span::of(&image, &entries);
        Some(image)
    }
}

impl Span {
    /// `None` when an entry is no put, or has the key of the one before.
    fn of(image: &Image, entries: &[Entry]) -> Option<Self> {
        let (mut newest, mut last) = (0, None);
        for (index, entry) in entries.iter().enumerate() {
            let spot = image.spot(index).ok()?;
            let rest = image.rest(&spot);
            if entry.kind != ValueKind::Put || last == Some(rest) {
                return None;
            }
            newest = entry.seq.max(newest);
            last = Some(rest);
        }
        let head = |index| {
            let key = [image.prefix(), image.rest(&image.spot(index).ok()?)].concat();
            Some(key_head(&key).to_be_bytes())
        };
        Some(Span { newest, first: head(0)?, last: head(entries.len() - 1)? })
    }
}

/// All entries of a block, if they end where the block says.
fn decode_all(block: &Block) -> Option<Vec<Entry>> {
    // No more than the bytes of the block allow, as `parse` has checked.
    let mut entries = Vec::with_capacity(block.entry_count());
    let mut at = 0;
    for restart in 0..block.restart_count() {
        let position = block.restart(restart).ok()?;
        let end = block.restart_at(restart + 1).ok()?;
        if position.at != at || end <= at {
            return None;
        }
        let mut entry = position.entry;
        loop {
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
    (!entries.is_empty() && entries.len() == block.entry_count()).then_some(entries)
}

/// Where the parts of an image go.
struct Plan {
    places_at: usize,
    heads_at: usize,
    stamps_at: usize,
    prefix_at: usize,
    prefix_len: usize,
    len: usize,
}

impl Plan {
    /// `None` when the image would be too large.
    fn of(entries: &[Entry], block: &Block) -> Option<Self> {
        let count = entries.len();
        // What an entry shares with the one before, or with the first one, is what all before it share, or less.
        let first_len = entries[0].key_len as usize;
        let prefix_len = entries[1..].iter().fold(first_len, |least, entry| least.min(entry.shared as usize));
        let plain = entries.iter().all(|entry| (entry.seq, entry.kind) == (0, ValueKind::Put));
        let places_at = count;
        let heads_at = places_at + 4 * count + 2;
        let stamps_at = heads_at + 8 * count.div_ceil(HEAD_EVERY);
        let prefix_at = stamps_at + if plain { 0 } else { 8 * count };
        let fixed = prefix_at + prefix_len;
        let limit = block.payload_len() + block.payload_len() / GROWTH_DIVISOR;
        let (mut bytes, mut key_bytes) = (0, 0);
        for entry in entries {
            bytes += entry.key_len as usize - prefix_len + entry.value_len as usize;
            key_bytes += entry.key_len as usize;
            if bytes > limit || key_bytes > KEY_BYTES_MAX * block.payload_len() {
                return None;
            }
        }
        let len = fixed + bytes;
        (len <= usize::from(u16::MAX)).then_some(Plan {
            places_at,
            heads_at,
            stamps_at,
            prefix_at,
            prefix_len,
            len,
        })
    }

    /// Writes the image to `out`, which has room for exactly it. `None` when the keys do not ascend.
    fn fill(&self, out: &mut [u8], entries: &[Entry], block: &Block, hash_seed: u64) -> Option<()> {
        let bytes = block.entries();
        let prefix_len = self.prefix_len;
        let mut key: Vec<u8> = Vec::new();
        let mut at = self.prefix_at + prefix_len;
        let mut last = &Entry::ZERO;
        let (mut restart, mut restart_at) = (0, 0);
        for (index, entry) in entries.iter().enumerate() {
            let shared = entry.shared as usize;
            let suffix = entry.suffix(bytes);
            if last.end() == restart_at {
                restart += 1;
                restart_at = block.restart_at(restart).ok()?;
                let whole = [&block.first_key()[..shared], suffix].concat();
                let before = InternalKeyRef::new(&key, last.seq, last.kind);
                if index > 0 && before >= InternalKeyRef::new(&whole, entry.seq, entry.kind) {
                    return None;
                }
                key = whole;
            } else {
                if !ascends(&key, last, suffix, entry) {
                    return None;
                }
                key.truncate(shared);
                key.extend_from_slice(suffix);
            }
            let rest = key.get(prefix_len..)?;
            out[index] = tag(key_hash(hash_seed, &key));
            let value_at = at + rest.len();
            let end = value_at + entry.value_len as usize;
            let place = self.places_at + 4 * index;
            out[place..place + 2].copy_from_slice(&u16::try_from(at).ok()?.to_le_bytes());
            out[place + 2..place + 4].copy_from_slice(&u16::try_from(value_at).ok()?.to_le_bytes());
            out[place + 4..place + 6].copy_from_slice(&u16::try_from(end).ok()?.to_le_bytes());
            if index % HEAD_EVERY == 0 {
                let place = self.heads_at + 8 * (index / HEAD_EVERY);
                out[place..place + 8].copy_from_slice(&head(rest).to_le_bytes());
            }
            if self.stamps_at != self.prefix_at {
                let place = self.stamps_at + 8 * index;
                let stamp = entry.seq << 8 | entry.kind as u64;
                out[place..place + 8].copy_from_slice(&stamp.to_le_bytes());
            }
            out[at..value_at].copy_from_slice(rest);
            out[value_at..end].copy_from_slice(entry.value(bytes));
            at = end;
            last = entry;
        }
        out[self.prefix_at..self.prefix_at + prefix_len].copy_from_slice(key.get(..prefix_len)?);
        (at == out.len()).then_some(())
    }
}
