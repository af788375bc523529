//! What the benches of esker share: data sets, databases in a known state, and the arithmetic of rounds.
//!
//! | part | what it is |
//! |---|---|
//! | [`data`] | the keys and values that everything is measured with |
//! | [`fixture`] | databases whose data is in one known place, which is asserted |
//! | [`table`] | single tables, without an engine |
//! | [`load`] | sustained mixed loads, for `stress` and for the comparison with other engines |
//! | [`measure`] | a stopwatch, interleaved rounds, medians |
//!
//! The criterion benches are in `benches/`, one file a layer. Four programs print figures: `figures` (speed and
//! allocations, against the floors), `table-sizes` (bytes of tables, against the published ones), `instructions` (counted
//! by callgrind, against a baseline) and `stress` (a sustained load on a disk). How to read all of them is in
//! `docs/BENCHMARKS.md`.

pub mod data;
pub mod fixture;
pub mod load;
pub mod measure;
pub mod table;
