//! Sustained mixed load: what `stress` and `compare stress` put on an engine, and what they see of it.
//!
//! | part | what it is |
//! |---|---|
//! | [`kind`] | the loads: which thread does which operation |
//! | [`store`] | [`Store`], the few calls that a load needs of an engine |
//! | [`arguments`] | the command line |
//! | [`keys`] | keys, values that can be checked, a skewed choice |
//! | [`recorder`] | a histogram for each operation |
//! | `run` | threads, the time series, what came out |
//! | [`verdict`] | what is aimed at, and whether it holds |
//! | [`text`], [`plot`] | tables, CSV, a picture |
//! | [`process`] | what the system says about this process |

pub mod arguments;
pub mod keys;
pub mod kind;
pub mod plot;
pub mod process;
pub mod recorder;
pub mod run;
pub mod store;
pub mod text;
pub mod verdict;

pub use arguments::Arguments;
pub use kind::Load;
pub use run::{Outcome, Setting, Soak, run};
pub use store::{Inside, Result, Store};
