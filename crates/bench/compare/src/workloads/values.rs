//! Large values: put one by one, then read in a random order, every byte of them.

use super::{Plan, expect, per_operation, remove};
use crate::data::{self, Rng};
use crate::engine::{Engine, Reader, Result};
use crate::rows::Figures;

/// Rows, bytes of a value, values.
const SIZES: [(&str, &str, usize, u64); 3] = [
    ("put.128k", "get.128k", 128 << 10, 256),
    ("put.1m", "get.1m", 1 << 20, 48),
    ("put.16m", "get.16m", 16 << 20, 6),
];

pub(super) fn run<E: Engine>(plan: &Plan, figures: &mut Figures) -> Result<()> {
    for (put, get, len, count) in SIZES {
        let settings = plan.settings("values");
        let engine = E::open(&settings)?;
        let mut value = content(plan.seed, len);
        let took = per_operation(count, || {
            (0..count).try_for_each(|index| {
                value[..8].copy_from_slice(&index.to_le_bytes());
                engine.put(&data::key(index), &value)
            })
        })?;
        figures.add(put, took.times(1e-3))?;

        let order = data::shuffled(count, plan.seed);
        value[..8].fill(0);
        let rest = sum(&value);
        let mut reader = engine.reader()?;
        let mut wrong = 0;
        let took = per_operation(count, || {
            for &index in &order {
                let found = reader.get(&data::key(index.into()), |value| (value.len(), sum(value)))?;
                wrong += u64::from(found != Some((len, rest.wrapping_add(index.into()))));
            }
            Ok(())
        })?;
        expect("large values", wrong, 0)?;
        figures.add(get, took.times(1e-3))?;
        drop(reader);
        engine.close()?;
        remove(&settings.dir)?;
    }
    Ok(())
}

/// Bytes of which one half is random.
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut content = vec![b'.'; len];
    for chunk in content.chunks_mut(16) {
        chunk[..8].copy_from_slice(&rng.next().to_le_bytes());
    }
    content
}

/// The sum of the words of a value whose length is a multiple of eight.
fn sum(value: &[u8]) -> u64 {
    value.as_chunks::<8>().0.iter().fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}
