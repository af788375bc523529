//! The write-ahead log of esker: record framing, writer and reader.
