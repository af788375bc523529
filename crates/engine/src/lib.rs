//! An embedded LSM-tree storage engine: ordered byte-string keys to byte-string values in one directory.
