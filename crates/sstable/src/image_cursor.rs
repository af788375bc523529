//! [`ImageCursor`]: a position in an [`Image`], with the key in one reusable buffer. Both directions cost the same.

use crate::block::Damage;
use crate::image::{Image, Spot};
use esker_base::{InternalKeyRef, OUTLINE_LEN, Outline, SequenceNumber, Slice, ValueKind};

/// Bytes of a key behind the prefix that are copied in one piece, needed or not: cheaper than to copy as many as there
/// are.
pub(crate) const CHUNK: usize = 16;

/// A position in an image.
///
/// # Invariants
///
/// - `key` starts with the prefix of the image, and is at least [`CHUNK`] bytes longer than that.
/// - When `valid`, the other fields describe entry `index`, and the first `key_len` bytes of `key` are its key.
#[derive(Debug)]
pub(crate) struct ImageCursor {
    image: Option<Image>,
    valid: bool,
    kind: ValueKind,
    spot: Spot,
    index: usize,
    seq: SequenceNumber,
    key: Vec<u8>,
    key_len: usize,
    prefix_len: usize,
}

impl ImageCursor {
    /// A cursor over no image.
    pub(crate) fn new() -> Self {
        ImageCursor {
            image: None,
            valid: false,
            kind: ValueKind::Put,
            spot: Spot::default(),
            index: 0,
            seq: 0,
            key: Vec::new(),
            key_len: 0,
            prefix_len: 0,
        }
    }

    /// Takes an image, and is not valid.
    pub(crate) fn set_image(&mut self, image: Image) {
        self.valid = false;
        self.prefix_len = image.prefix().len();
        self.key.clear();
        // One allocation for most tables, whose blocks have prefixes of about one length.
        self.key.reserve(self.prefix_len + 2 * CHUNK);
        self.key.extend_from_slice(image.prefix());
        self.key.resize(self.prefix_len + CHUNK, 0);
        self.image = Some(image);
    }

    /// Lets go of the image.
    pub(crate) fn clear(&mut self) {
        self.valid = false;
        self.image = None;
    }

    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.valid
    }

    #[inline]
    pub(crate) fn key(&self) -> InternalKeyRef<'_> {
        InternalKeyRef::new(&self.key[..self.key_len], self.seq, self.kind)
    }

    /// What can be said of the key at a glance.
    #[inline]
    pub(crate) fn outline(&self) -> Option<Outline> {
        // What follows the key in its buffer is shifted out, and zeros in.
        let head = u128::from_be_bytes(*self.key.first_chunk()?);
        let rest = 8 * OUTLINE_LEN.saturating_sub(self.key_len) as u32;
        let head = head.checked_shr(rest).map_or(0, |head| head << rest);
        self.valid.then_some(Outline { head, len: self.key_len, seq: self.seq, kind: self.kind })
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match &self.image {
            Some(image) => image.value(&self.spot),
            None => &[],
        }
    }

    #[inline]
    pub(crate) fn value_slice(&self) -> Slice {
        match &self.image {
            Some(image) => image.value_slice(&self.spot),
            None => Slice::empty(),
        }
    }

    /// The image that the cursor is in.
    #[inline]
    pub(crate) fn image(&self) -> Option<&Image> {
        self.image.as_ref()
    }

    /// The number of the entry here.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn seek_to_first(&mut self) -> Result<(), Damage> {
        self.go(0)
    }

    pub(crate) fn seek_to_last(&mut self) -> Result<(), Damage> {
        self.go(self.image.as_ref().map_or(0, |image| image.len() - 1))
    }

    /// Goes to the first entry at or after `target`; not valid when there is none.
    pub(crate) fn seek(&mut self, target: InternalKeyRef<'_>) -> Result<(), Damage> {
        self.valid = false;
        let Some(image) = &self.image else { return Ok(()) };
        let index = image.seek(target)?;
        self.go(index)
    }

    /// Steps to the following entry; not valid behind the last one.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<(), Damage> {
        self.go(self.index + 1)
    }

    /// Steps to the preceding entry; not valid before the first one.
    #[inline]
    pub(crate) fn prev(&mut self) -> Result<(), Damage> {
        match self.index.checked_sub(1) {
            Some(index) => self.go(index),
            None => {
                self.valid = false;
                Ok(())
            }
        }
    }

    /// Whether the block surely has no newer version of the key here.
    #[inline]
    pub(crate) fn is_newest(&self) -> bool {
        let Some(image) = &self.image else { return false };
        // The first entry may have a newer version in the block before.
        let Some(before) = self.index.checked_sub(1) else { return false };
        image.is_plain()
            || image.spot(before).is_ok_and(|before| image.rest(&before) != image.rest(&self.spot))
    }

    /// Goes to entry `index`, if there is one.
    #[inline]
    fn go(&mut self, index: usize) -> Result<(), Damage> {
        self.valid = false;
        self.valid = self.move_to(index)?;
        Ok(())
    }

    /// Moves to entry `index`. Stays where it is if there is none, or on an error.
    #[inline]
    pub(crate) fn move_to(&mut self, index: usize) -> Result<bool, Damage> {
        let Some(image) = &self.image else { return Ok(false) };
        if index >= image.len() {
            return Ok(false);
        }
        let spot = image.spot(index)?;
        let (seq, kind) = image.stamp(index)?;
        let rest = image.rest(&spot);
        let room = self.key[self.prefix_len..].first_chunk_mut::<CHUNK>();
        match (image.chunk(&spot), room) {
            (Some(chunk), Some(room)) if rest.len() <= CHUNK => {
                *room = *chunk;
                self.key_len = self.prefix_len + rest.len();
            }
            _ => self.take_long(&spot),
        }
        (self.seq, self.kind) = (seq, kind);
        self.spot = spot;
        self.index = index;
        Ok(true)
    }

    /// Takes the key at `spot`, which is long or near the end of the image.
    #[inline(never)]
    fn take_long(&mut self, spot: &Spot) {
        let rest = self.image.as_ref().map_or(&[][..], |image| image.rest(spot));
        self.key.truncate(self.prefix_len);
        self.key.extend_from_slice(rest);
        self.key_len = self.key.len();
        self.key.resize(self.key_len.max(self.prefix_len + CHUNK), 0);
    }
}
