//! Benches of esker, layer by layer, and the table-sizes tool.
