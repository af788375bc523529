//! The manifest of esker: versions, edits and the file that records them.
