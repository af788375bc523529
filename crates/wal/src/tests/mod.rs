//! Tests of the crate that need more than one module.

mod crash;
mod damage;
mod extents;
mod golden;
mod patched;
mod property;
mod recipes;
mod round_trip;
mod rules;
mod util;
