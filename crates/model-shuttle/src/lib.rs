//! The group commit, and the lock of the log, under random schedules.
//!
//! `CommitQueue` is the real one: its file is included here, with shuttle's primitives in place of std's. What it
//! syncs is a miniature that stalls, fails and panics; see [`group_commit`]. `TurnLock` is the real one too; see [`turns`].

#![cfg(feature = "shuttle")]

// The included files name the crate; here it is this one.
extern crate self as esker_base;

pub use esker::{Durability, Error, Result};
pub use real_base::{Clock, SequenceNumber, planted};

#[path = "../../base/src/sync.rs"]
#[allow(dead_code, reason = "not everything in it is modelled")]
pub mod sync;

#[path = "../../engine/src/commit.rs"]
#[allow(dead_code, reason = "not everything in it is modelled")]
mod commit;

#[path = "../../engine/src/turn_lock.rs"]
mod turn_lock;

mod group;
mod turns;

pub use group::{Plan, Wrong, group_commit};
pub use turns::turns;
