//! The tests of the whole engine, one module a theme.
//!
//! Everything runs on file systems that check the order of calls (see `esker_testkit::OrderVfs`), and ends with
//! `Db::verify`. Random tests print, when they fail, one command that replays them. Lengths scale by environment:
//!
//! | variable | default | what |
//! |---|---|---|
//! | `ESKER_MODEL_OPS` | 1,000,000 | operations of `model`, in all |
//! | `ESKER_CRASH_IMAGES` | 40,000 | crash images of `crash`, in all |
//! | `ESKER_SCALE` | 1 | factor for the others |

#![allow(clippy::disallowed_methods, reason = "tests start threads, wait, and look at real files")]

mod allocations;
mod attack;
mod checkpoint;
mod commits;
mod concurrency;
mod corruption;
mod crash;
mod determinism;
mod fault;
mod flow;
mod flush;
mod health;
mod limits;
mod log_sink;
mod memory;
mod model;
mod odd_input;
mod recipes;
mod repair;
mod replay;
mod review;
mod scanned;
mod support;
mod swapped;
