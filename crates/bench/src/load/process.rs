//! What Linux says about this process. Elsewhere there is nothing to read, and every number is 0.

use std::path::Path;

/// MiB of resident memory.
pub fn resident_mib() -> f64 {
    number("status", "VmRSS:") / 1024.0
}

/// Bytes that were given to write calls, whatever file they went to.
pub fn written_bytes() -> f64 {
    number("io", "wchar:")
}

/// Files, sockets and the like that are open.
#[expect(
    clippy::disallowed_methods,
    reason = "no file of a database: what the system says about this process"
)]
pub fn open_files() -> u64 {
    // One of them is the directory that is read.
    std::fs::read_dir("/proc/self/fd").map_or(0, |files| (files.count() as u64).saturating_sub(1))
}

#[expect(
    clippy::disallowed_methods,
    reason = "no file of a database: what the system says about this process"
)]
fn number(file: &str, line: &str) -> f64 {
    let text = std::fs::read_to_string(Path::new("/proc/self").join(file)).unwrap_or_default();
    let found = text.lines().find_map(|found| found.strip_prefix(line));
    found.and_then(|found| found.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_something() {
        assert!(resident_mib() > 0.1 && written_bytes() >= 0.0 && open_files() >= 3);
    }
}
