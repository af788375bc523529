//! Keys, batches, iterators, codecs and errors that the layers of esker agree on.
