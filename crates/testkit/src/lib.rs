//! Test support for esker: models, workloads, scripted tests, counting allocator.
