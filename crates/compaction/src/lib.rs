//! Compaction for esker: a pure leveled picker, the rewriting iterator, a resumable job.
