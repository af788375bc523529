//! Tests of the whole crate through its public interface.

mod histories;
mod recipes;

mod tree;
