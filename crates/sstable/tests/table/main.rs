//! Tests of the table as its users see it: sizes, a model, hostile files, golden files.

mod model;
mod sizes;
mod support;
