//! [`Scratch`]: what a thread needs while it brings a block into the cache, kept for the next block.
//!
//! A block is read, decompressed and laid out in here, where memory is at hand and needs no zeros, and then copied to where
//! it stays, in one allocation of the right size.

use crate::image_builder::Workbench;
use std::cell::Cell;

/// Buffers that have grown beyond this are not kept.
const KEPT_MAX: usize = 128 << 10;

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Buffers of a thread. What is in them means nothing.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) buffers: Buffers,
    pub(crate) bench: Workbench,
}

/// Where a block is read to.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// As it is stored.
    pub(crate) stored: Vec<u8>,
    /// Decompressed.
    pub(crate) payload: Vec<u8>,
}

impl Scratch {
    /// Lends the buffers of this thread.
    pub(crate) fn with<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
        // A thread that ends may have none any more.
        let kept = SCRATCH.try_with(Cell::take).ok().flatten();
        let mut scratch = kept.unwrap_or_default();
        let result = work(&mut scratch);
        if scratch.buffers.stored.capacity().max(scratch.buffers.payload.capacity()) <= KEPT_MAX {
            let _ = SCRATCH.try_with(|place| place.set(Some(scratch)));
        }
        result
    }
}
