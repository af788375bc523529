//! Runs the real `sst-dump` on databases made with the engine, and on damaged copies of them.
#![allow(clippy::disallowed_methods, reason = "the tests prepare and damage files behind the tool's back")]

mod util;
#[test]
fn play() {
    let dir = std::path::Path::new("/tmp/sstdump-play");
    let _ = std::fs::remove_dir_all(dir);
    util::closed(&dir.join("closed"));
    util::crashed(&dir.join("crashed"));
    util::table(&dir.join("000001.sst"), 100);
}
