//! [`LogInfo`]: the sums over a log segment or a manifest.

use crate::fault::Fault;
use crate::target::Target;
use crate::wal::{Ending, LogContext, LogItem, walk_log};
use esker_base::FileNumber;
use esker_wal::LogKind;
use serde::Serialize;
use std::fmt;

/// What there is to know about a log.
#[derive(Clone, Debug, Serialize)]
pub struct LogInfo {
    /// The store, in hexadecimal digits; empty when the header is damaged.
    pub store_id: String,
    /// The number in the header; 0 when it is damaged.
    pub number: u64,
    /// Intact records.
    pub records: u64,
    /// The first number in them.
    pub first: Option<u64>,
    /// The last number in them.
    pub last: Option<u64>,
    /// The highest number that a record says was durable.
    pub durable: u64,
    /// How it ends.
    pub end: Ending,
    /// Where the last record ends, in bytes.
    pub end_offset: u64,
}

impl LogInfo {
    pub(crate) fn read(target: &Target, kind: LogKind, faults: &mut Vec<Fault>) -> Option<LogInfo> {
        Self::read_with(target, kind, LogContext::default(), faults)
    }

    pub(crate) fn read_with(
        target: &Target,
        kind: LogKind,
        context: LogContext,
        faults: &mut Vec<Fault>,
    ) -> Option<LogInfo> {
        let mut info = LogInfo {
            store_id: String::new(),
            number: 0,
            records: 0,
            first: None,
            last: None,
            durable: 0,
            end: Ending::Clean,
            end_offset: 0,
        };
        let walked = walk_log(target, kind, context, None, &mut |item| {
            info.add(item, faults);
            Ok(())
        });
        walked.ok()?;
        Some(info)
    }

    fn add(&mut self, item: LogItem<'_>, faults: &mut Vec<Fault>) {
        match item {
            LogItem::Header { store_id, number, .. } => (self.store_id, self.number) = (store_id, number),
            LogItem::Record { first, last, durable, .. } => {
                self.first.get_or_insert(first);
                self.last = Some(last);
                self.durable = self.durable.max(durable);
            }
            LogItem::Fault(fault) => faults.push(fault),
            LogItem::Discarded { .. } => {}
            LogItem::End(ending) => {
                (self.records, self.end, self.end_offset) = (ending.records, ending.end, ending.offset);
            }
        }
    }
}

impl fmt::Display for LogInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.number != 0 {
            writeln!(f, "  {} of store {}", FileNumber(self.number), self.store_id)?;
        }
        write!(f, "  {} records", self.records)?;
        if let (Some(first), Some(last)) = (self.first, self.last) {
            write!(f, ", {first} .. {last}, durable up to {}", self.durable)?;
        }
        writeln!(f, "; ends {} at {}", self.end.name(), self.end_offset)
    }
}
