//! The group commit under random schedules.
//!
//! `CommitQueue` is the real one: its file is included here, with shuttle's primitives in place of std's. What it
//! commits to is a miniature that stalls, fails, panics and closes; see [`group_commit`].

#![cfg(feature = "shuttle")]

// The included files name the crate; here it is this one.
extern crate self as esker_base;

pub use esker::{Durability, Error, Result};
pub use real_base::{SequenceNumber, planted};

#[path = "../../base/src/sync.rs"]
#[allow(dead_code, reason = "not everything in it is modelled")]
pub mod sync;

#[path = "../../engine/src/commit.rs"]
#[allow(dead_code, reason = "not everything in it is modelled")]
mod commit;

mod group;

pub use group::{Plan, Told, group_commit};
