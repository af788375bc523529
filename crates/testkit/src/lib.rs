//! Test support for esker: what a database should answer, what to ask it, and who watches the disk meanwhile.
//!
//! Nothing here knows the engine, so the same parts serve its integration tests, fuzz targets and tools:
//!
//! | part | what it is |
//! |---|---|
//! | [`Model`], [`ModelCursor`] | a sorted map of versions with snapshots: the right answers |
//! | [`Workload`] | a seeded stream of operations over a small, nasty key space |
//! | [`Preset`] | sets of options that make small databases do much |
//! | [`History`] | what was written and acknowledged: which states may follow a crash |
//! | [`OrderVfs`] | a file system layer that checks the order of syncs, edits and removals (rules M1-M3, M7, D1, W8) |
//! | [`Coverage`] | counts of what a test exercised, and the demand that nothing was left out |
//! | [`within`] | a watchdog |
//!
//! Used by one thread at a time unless a type says otherwise.

mod coverage;
mod history;
mod keys;
mod model;
mod model_cursor;
mod op;
mod order;
mod preset;
mod watchdog;
mod workload;

pub use coverage::Coverage;
pub use history::{History, Verdict};
pub use keys::KeySpace;
pub use model::{KeyRange, Model, is_empty_range, prefix_range};
pub use model_cursor::ModelCursor;
pub use op::{Direction, Move, Op, Promise, View, WriteOp, value_for};
pub use order::{OrderChecker, OrderVfs};
pub use preset::{Preset, presets};
pub use watchdog::{Patience, within};
pub use workload::{Mix, Workload};
