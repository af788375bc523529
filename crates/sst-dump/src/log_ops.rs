//! [`Ops`]: the operations of a batch in a log record.

use crate::text::{Form, Shown};
use esker_base::BatchReader;
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use std::fmt;

/// The operations of a batch, read when they are shown.
#[derive(Clone, Copy, Debug)]
pub struct Ops<'a> {
    payload: &'a [u8],
    form: Form,
}

/// One operation of a batch.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Op<'a> {
    /// `put`, `delete` and so on.
    pub kind: &'static str,
    /// The keyspace.
    pub keyspace: u32,
    /// The key.
    pub key: Shown<'a>,
    /// The value, for kinds that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Shown<'a>>,
}

impl<'a> Ops<'a> {
    pub(crate) fn new(payload: &'a [u8], form: Form) -> Self {
        Ops { payload, form }
    }

    /// The operations up to the first that can't be read.
    pub fn iter(&self) -> impl Iterator<Item = Op<'a>> + use<'a> {
        let Ops { payload, form } = *self;
        BatchReader::new(payload).map_while(Result::ok).map(move |op| {
            let shown = |range| Shown::new(payload.get(range).unwrap_or_default(), form);
            let has_value = !matches!(op.kind.name(), "delete" | "single-delete");
            let value = has_value.then(|| shown(op.value.clone()));
            Op { kind: op.kind.name(), keyspace: op.keyspace, key: shown(op.key.clone()), value }
        })
    }

    /// What is wrong with a batch that should have `count` operations.
    pub(crate) fn fault(&self, count: u64) -> Option<String> {
        let mut found = 0_u64;
        for op in BatchReader::new(self.payload) {
            if let Err(error) = op {
                return Some(format!("operation {found} of the batch: {error}"));
            }
            found += 1;
        }
        (found != count).then(|| format!("{found} operations, the record says {count}"))
    }
}

impl Serialize for Ops<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for op in self.iter() {
            list.serialize_element(&op)?;
        }
        list.end()
    }
}

impl fmt::Display for Op<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)?;
        if let Some(value) = &self.value {
            write!(f, " => {value}")?;
        }
        match self.keyspace {
            0 => Ok(()),
            keyspace => write!(f, " in keyspace {keyspace}"),
        }
    }
}
