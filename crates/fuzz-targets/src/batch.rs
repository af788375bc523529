//! `batch`: what is decoded encodes again, to bytes that decode to the same.

use esker_base::{BatchReader, WriteBatch};

pub(crate) fn batch(bytes: &[u8]) {
    let mut again = WriteBatch::new();
    let mut ops = Vec::new();
    for op in BatchReader::new(bytes) {
        let Ok(op) = op.inspect_err(|offset| assert!(*offset < bytes.len())) else { break };
        let (key, value) = (&bytes[op.key.clone()], &bytes[op.value.clone()]);
        again.push(op.keyspace, op.kind, key, value);
        ops.push((op.keyspace, op.kind, key, value));
    }
    again.check().expect("what can be decoded is within the limits");
    assert_eq!(again.len() as usize, ops.len());
    let encoded = again.encoded();
    let decoded: Vec<_> = again
        .iter()
        .map(|op| op.expect("an encoded operation"))
        .map(|op| (op.keyspace, op.kind, &encoded[op.key], &encoded[op.value]))
        .collect();
    assert_eq!(decoded, ops);
}
