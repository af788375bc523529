//! Runs the real `sst-dump` on databases made with the engine, and on damaged copies of them.
#![allow(clippy::disallowed_methods, reason = "the tests prepare and damage files behind the tool's back")]

mod damage;
mod directory;
mod hostile;
mod output;
mod salvage;
mod scan;
mod tables;
mod util;
