//! Scripts in `testdata/`: a shape of the tree in text, and what is picked for it. `REWRITE=1` writes the results anew.
#![allow(clippy::disallowed_methods, reason = "the scripts are files of this crate")]
