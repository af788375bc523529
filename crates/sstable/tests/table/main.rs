//! Tests of the table as its users see it: sizes, a model, faults of other engines, hostile files, golden files.

mod filter;
mod golden;
mod hostile;
mod io;
mod model;
mod recipes;
mod sizes;
mod support;
