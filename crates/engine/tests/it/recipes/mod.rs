//! The recipes: faults that other engines had, tried on this one. Each test carries the recipe's id and names a mutation
//! that makes it fail.
//!
//! Recipes about threads and processes are in `concurrency`, about damage in `corruption`, about faults at every call in
//! `fault` and `health`, about crashes at every call in `crash`, about limits in `odd_input`. Those that concern one layer
//! only are tests of that layer. `docs/RELIABILITY.md` lists where each one is, and which are open.

mod api;
mod errors;
mod filters;
mod iterators;
mod log;
mod manifest;
mod performance;
mod snapshots;
mod space;
