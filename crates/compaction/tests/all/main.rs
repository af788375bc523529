//! Tests of the whole crate through its public interface.

mod histories;
mod job;
mod recipes;
mod scripts;

mod tree;
