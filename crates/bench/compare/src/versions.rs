//! The versions of the crates that were built in: those of the lock file.

/// The lock file of this package.
const LOCK: &str = include_str!("../Cargo.lock");

/// The version of a package in the lock file, or `?`.
pub(crate) fn locked(package: &str) -> String {
    let name = format!("name = \"{package}\"");
    let mut lines = LOCK.lines().skip_while(|line| *line != name);
    lines.next();
    let version = lines.next().and_then(|line| line.strip_prefix("version = \""));
    version.map_or("?", |version| version.trim_end_matches('"')).to_owned()
}
