//! The bodies of the fuzz targets: plain functions from bytes to nothing, that fail by a panic.
//!
//! The binaries in `fuzz/` call them, and so does the test that replays the corpus in `fuzz/corpus`; see
//! `docs/TESTING.md`. Checksums don't stop a fuzzer here: [`seal`] computes them anew for what the input says, so what
//! is tested is what a stranger could build.
//!
//! | target | what its input is |
//! |---|---|
//! | `wal_segment` | one or two log segments, and what the manifest would say of them |
//! | `manifest` | a manifest, and the text of a `CURRENT` |
//! | `table` | a table: a whole file, or its blocks |
//! | `filter` | the payload of a filter block |
//! | `batch` | encoded operations |
//! | `directory` | all files of a database |
//! | `ops` | operations, compared with the model |

mod batch;
pub mod directory;
mod input;
mod log;
mod manifest;
mod ops;
pub mod seal;
mod table;
mod table_bytes;

pub use input::Input;

/// A target: its name, which is that of its folder in the corpus, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 7] = [
    ("wal_segment", log::wal_segment),
    ("manifest", manifest::manifest),
    ("table", table::table),
    ("filter", table::filter),
    ("batch", batch::batch),
    ("directory", directory::directory),
    ("ops", ops::ops),
];

/// Most bytes that a target may hold at once: buffers of a fixed size, and what an input gives reason for. A compressed
/// block may be 22 times as large in memory, and several are held.
fn allocation_max(input: usize) -> u64 {
    (16 << 20) + 256 * input as u64
}

/// Runs a target on an input.
///
/// # Panics
///
/// When the target fails or holds too much memory at once, and when no target has the name.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, body) = target.unwrap_or_else(|| panic!("no target has the name {name}"));
    let info = allocation_counter::measure(|| body(bytes));
    let limit = allocation_max(bytes.len());
    assert!(
        info.bytes_max < limit,
        "{} bytes held at once, for an input of {}: the limit is {limit}",
        info.bytes_max,
        bytes.len()
    );
}

/// Fails unless an error is one that bytes of a file can cause.
fn assert_of_bytes(error: &esker::Error) {
    use esker::ErrorKind;
    let named = matches!(error.kind(), ErrorKind::Corruption { .. } | ErrorKind::UnsupportedFormat { .. });
    assert!(named, "not an error of a file's content: {error:?}");
}
