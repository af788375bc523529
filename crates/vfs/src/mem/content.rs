//! `Content`: the bytes of one file in memory, in shared chunks.
//!
//! An append copies only its own bytes, and a clone copies only pointers: the first write after a clone copies the one
//! chunk that it changes. This is what makes a crash image at every call of a workload cheap.
//!
//! Invariant: every chunk but the last holds exactly [`CHUNK_SIZE`] bytes, and the last one at least one byte.

use std::ops::Range;
use std::sync::Arc;

/// Bytes in a full chunk.
pub(super) const CHUNK_SIZE: usize = 64 * 1024;

/// A growable byte string whose clones share memory.
#[derive(Clone, Default)]
pub(super) struct Content {
    chunks: Vec<Arc<Vec<u8>>>,
    len: usize,
}

impl Content {
    /// A content with these bytes.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut content = Content::default();
        content.append(bytes);
        content
    }

    /// Length in bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds bytes at the end.
    pub(super) fn append(&mut self, mut data: &[u8]) {
        self.len += data.len();
        while !data.is_empty() {
            let room = match self.chunks.last() {
                Some(last) => CHUNK_SIZE - last.len(),
                None => 0,
            };
            if room == 0 {
                // The first chunk grows as needed, since most files of a test are small; later ones never move.
                let capacity = if self.chunks.is_empty() { 0 } else { CHUNK_SIZE };
                self.chunks.push(Arc::new(Vec::with_capacity(capacity)));
                continue;
            }
            let (now, later) = data.split_at(room.min(data.len()));
            let last = self.chunks.last_mut().expect("a chunk with room was just seen");
            Arc::make_mut(last).extend_from_slice(now);
            data = later;
        }
    }

    /// Cuts to `len` bytes; a longer `len` changes nothing.
    pub(super) fn truncate(&mut self, len: usize) {
        if len >= self.len {
            return;
        }
        self.chunks.truncate(len.div_ceil(CHUNK_SIZE));
        if let Some(last) = self.chunks.last_mut() {
            let rest = len - (len - 1) / CHUNK_SIZE * CHUNK_SIZE;
            match Arc::get_mut(last) {
                Some(bytes) => bytes.truncate(rest),
                None => *last = Arc::new(last[..rest].to_vec()),
            }
        }
        self.len = len;
    }

    /// Copies bytes from `offset` into `buf`; returns how many there were.
    pub(super) fn read_at(&self, offset: usize, buf: &mut [u8]) -> usize {
        let wanted = buf.len().min(self.len.saturating_sub(offset));
        let mut done = 0;
        while done < wanted {
            let at = offset + done;
            let chunk = &self.chunks[at / CHUNK_SIZE][at % CHUNK_SIZE..];
            let count = chunk.len().min(wanted - done);
            buf[done..done + count].copy_from_slice(&chunk[..count]);
            done += count;
        }
        wanted
    }

    /// The bytes of a range that lies inside the content.
    pub(super) fn slice(&self, range: Range<usize>) -> Vec<u8> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} bytes", self.len);
        let mut bytes = vec![0; range.len()];
        self.read_at(range.start, &mut bytes);
        bytes
    }

    /// All bytes.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        self.slice(0..self.len)
    }

    /// Puts bytes in the place of others, inside the content.
    pub(super) fn write_at(&mut self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= self.len, "{} bytes at {offset} of {} bytes", data.len(), self.len);
        let mut done = 0;
        while done < data.len() {
            let at = offset + done;
            let chunk = &mut Arc::make_mut(&mut self.chunks[at / CHUNK_SIZE])[at % CHUNK_SIZE..];
            let count = chunk.len().min(data.len() - done);
            chunk[..count].copy_from_slice(&data[done..done + count]);
            done += count;
        }
    }

    /// Passes every byte of a range that lies inside the content, with its offset, through `change`.
    pub(super) fn change(&mut self, range: Range<usize>, mut change: impl FnMut(usize, u8) -> u8) {
        assert!(range.end <= self.len, "{range:?} of {} bytes", self.len);
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / CHUNK_SIZE + 1) * CHUNK_SIZE);
            let base = at / CHUNK_SIZE * CHUNK_SIZE;
            let chunk = Arc::make_mut(&mut self.chunks[base / CHUNK_SIZE]);
            for offset in at..end {
                chunk[offset - base] = change(offset, chunk[offset - base]);
            }
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// The content behaves like a plain vector under appends, cuts, changes and reads, also across chunk borders and
    /// while clones share the chunks; and no clone ever sees a later change.
    #[test]
    fn behaves_like_a_vector() {
        for seed in 0..30 {
            println!("seed {seed}");
            let mut rng = Rng::new(seed);
            let (mut content, mut model) = (Content::default(), Vec::<u8>::new());
            let mut clones = Vec::new();
            for step in 0..60 {
                match rng.below(5) {
                    4 => {
                        let start = rng.below(model.len() + 1);
                        let data = vec![step as u8; rng.below(model.len() - start + 1)];
                        content.write_at(start, &data);
                        model[start..start + data.len()].copy_from_slice(&data);
                    }
                    0 | 1 => {
                        let data: Vec<u8> =
                            (0..rng.below(3 * CHUNK_SIZE)).map(|i| (i * 7 + step) as u8).collect();
                        content.append(&data);
                        model.extend_from_slice(&data);
                    }
                    2 => {
                        let mut len = rng.below(model.len() + 1);
                        if rng.percent(30) {
                            len = len / CHUNK_SIZE * CHUNK_SIZE;
                        }
                        content.truncate(len);
                        model.truncate(len);
                    }
                    _ => {
                        let end = rng.below(model.len() + 1);
                        let start = rng.below(end + 1);
                        content.change(start..end, |_, byte| byte ^ 0x55);
                        model[start..end].iter_mut().for_each(|byte| *byte ^= 0x55);
                    }
                }
                if rng.percent(30) {
                    clones.push((content.clone(), model.clone()));
                }
                assert_eq!(content.len(), model.len());
                let offset = rng.below(model.len() + 10);
                let mut buf = vec![0; rng.below(2 * CHUNK_SIZE)];
                let read = content.read_at(offset, &mut buf);
                let expected = model.get(offset..).unwrap_or_default();
                assert_eq!(buf[..read], expected[..expected.len().min(buf.len())]);
            }
            for (content, model) in clones {
                assert!(content.to_vec() == model);
            }
        }
    }
}
