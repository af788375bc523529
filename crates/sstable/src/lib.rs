//! The sorted string table of esker, format version 3: builder, reader, iterator, cache.
