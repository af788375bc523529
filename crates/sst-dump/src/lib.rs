//! Inspection of the files of an esker database.
