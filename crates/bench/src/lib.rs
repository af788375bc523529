//! What the benches of esker share: data sets, databases in a known state, and the arithmetic of rounds.
//!
//! | part | what it is |
//! |---|---|
//! | [`data`] | the keys and values that everything is measured with |
//! | [`fixture`] | databases whose data is in one known place, which is asserted |
//! | [`table`] | single tables, without an engine |
//! | [`measure`] | a stopwatch, interleaved rounds, medians |
//!
//! The criterion benches are in `benches/`, one file a layer. Two programs print figures: `figures` (speed and
//! allocations, against the floors) and `table-sizes` (bytes of tables, against the published ones). How to read all of
//! them is in `docs/BENCHMARKS.md`.

pub mod data;
pub mod fixture;
pub mod measure;
pub mod table;
