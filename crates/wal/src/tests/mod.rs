//! Tests of the crate that need more than one module.

mod round_trip;
