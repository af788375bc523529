//! The in-memory table of esker: recent writes, ordered.
