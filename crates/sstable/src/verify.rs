//! [`TableReader::verify`]: reads a whole table again and reports everything that is wrong with it, not only the first.

use crate::block::Damage;
use crate::block_cursor::BlockCursor;
use crate::format::{FOOTER_LEN, Footer, HEADER_LEN};
use crate::table_reader::TableReader;
use esker_base::{Error, InternalKey, InternalKeyRef, ValueKind, common_prefix_len, key_hash};
use std::ops::Range;

/// What the entries add up to, to be compared with the properties.
#[derive(Debug, Default)]
struct Sums {
    entries: u64,
    deletes: u64,
    user_keys: u64,
    raw_key_bytes: u64,
    raw_value_bytes: u64,
    raw_block_bytes: u64,
    smallest_seq: Option<u64>,
    largest_seq: u64,
    first: Option<InternalKey>,
    last: InternalKey,
    /// Whether a block could not be read to its end: then the sums say nothing.
    incomplete: bool,
}

impl TableReader {
    /// Checks the whole file: every checksum, the order of the keys, that separators separate, that counts and bounds are
    /// those of the properties, and that the filter knows every key. Gives each fault to `report`, and goes on.
    ///
    /// Reads from the file, not from the cache.
    pub fn verify(&self, report: &mut dyn FnMut(Error)) {
        self.verify_fixed_parts(report);
        let mut sums = Sums::default();
        let mut before: Option<InternalKey> = None;
        let walked = self.index.for_each_separator(|number, separator| {
            let bounds = (before.as_ref().map(InternalKey::as_ref), separator);
            if let Err(error) = self.verify_block(number, bounds, &mut sums, report) {
                sums.incomplete = true;
                report(error);
            }
            before.get_or_insert_default().assign(separator);
        });
        if let Err(damage) = walked {
            report(self.index_damage(damage));
        } else if !sums.incomplete {
            self.compare(&sums, report);
        }
    }

    /// Header, footer, and the checksums of the metadata blocks, from the file.
    fn verify_fixed_parts(&self, report: &mut dyn FnMut(Error)) {
        let mut header = [0; HEADER_LEN];
        match self.blocks.read_bytes(0, &mut header) {
            Ok(()) if header == self.properties.identity().header() => {}
            Ok(()) => report(self.blocks.damage(0, Damage("the header is not the table's"))),
            Err(error) => report(error),
        }
        let mut footer = [0; FOOTER_LEN];
        let read = self.blocks.read_bytes(self.footer.footer_offset(), &mut footer);
        match read.and_then(|()| Footer::decode(&footer, self.path(), self.file_size)) {
            Ok(footer) if footer == self.footer => {}
            Ok(_) => {
                report(self.blocks.damage(self.footer.footer_offset(), Damage("the footer has changed")))
            }
            Err(error) => report(error),
        }
        if let Some(fault) = &self.filter_fault {
            report(fault.clone());
        }
        let footer = &self.footer;
        let mut sections: Vec<Range<u64>> = self.index.partitions().collect();
        sections.push(footer.index_offset()..footer.properties_offset());
        sections.push(footer.properties_offset()..footer.footer_offset());
        if footer.filter_len > 0 && self.filter_fault.is_none() {
            sections.push(footer.filter_offset..footer.partitions_offset());
        }
        for range in sections {
            let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            if let Err(error) = self.blocks.read(range.start, len) {
                report(error);
            }
        }
        match self.index.levels_agree() {
            Ok(true) => {}
            Ok(false) => report(self.index_damage(Damage("the levels of the index disagree"))),
            Err(damage) => report(self.index_damage(damage)),
        }
    }

    fn verify_block(
        &self,
        number: usize,
        (before, separator): (Option<InternalKeyRef<'_>>, InternalKeyRef<'_>),
        sums: &mut Sums,
        report: &mut dyn FnMut(Error),
    ) -> Result<(), Error> {
        let block = self.read_block(number)?;
        let offset = self.index.block(number).start;
        let mut fault = |what: String| report(Error::corruption(self.path(), offset, what));
        let damage = |damage| self.block_damage(number, damage);
        let (claimed, payload_len) = (block.entry_count(), block.payload_len());
        let first_key = block.first_key().to_vec();
        let restarts = block.restart_count();
        let mut cursor = BlockCursor::new();
        cursor.set_block(Some(block));
        cursor.seek_to_first().map_err(damage)?;
        if before.is_some_and(|before| cursor.key() <= before) {
            fault(format!("{:?} is not behind the separator before its block", cursor.key()));
        }
        let (mut entries, mut restarts_met) = (0, 0);
        while cursor.valid() {
            let key = cursor.key();
            if sums.entries > 0 && sums.last.as_ref() >= key {
                fault(format!("keys out of order: {key:?} after {:?}", sums.last));
            }
            let restart = cursor.at_restart().map_err(damage)?;
            restarts_met += usize::from(restart);
            let base = if restart { &first_key } else { &sums.last.user_key };
            let shares = if entries == 0 { 0 } else { common_prefix_len(base, key.user_key) };
            if cursor.entry().shared as usize != shares {
                fault(format!("{key:?} shares {shares} bytes, not {}", cursor.entry().shared));
            }
            if key.kind == ValueKind::Delete && !cursor.value().is_empty() {
                fault(format!("the tombstone {key:?} has a value"));
            }
            if sums.entries == 0 || sums.last.user_key != key.user_key {
                sums.user_keys += 1;
                if !self.may_contain(key_hash(self.properties.hash_seed, key.user_key)) {
                    fault(format!("the filter excludes {key:?}"));
                }
            }
            sums.add(&cursor);
            entries += 1;
            cursor.next().map_err(damage)?;
        }
        sums.raw_block_bytes += payload_len as u64;
        if entries != claimed || restarts_met != restarts {
            fault(format!(
                "{entries} entries and {restarts_met} restarts, where the block claims {claimed} and {restarts}"
            ));
        }
        if sums.last.as_ref() > separator {
            fault(format!("{:?} is behind the separator of its block", sums.last));
        }
        Ok(())
    }

    fn compare(&self, sums: &Sums, report: &mut dyn FnMut(Error)) {
        let properties = &self.properties;
        let offset = self.footer.properties_offset();
        let numbers = [
            ("entries", sums.entries, properties.entries),
            ("deletes", sums.deletes, properties.deletes),
            ("user keys", sums.user_keys, properties.user_keys),
            ("raw key bytes", sums.raw_key_bytes, properties.raw_key_bytes),
            ("raw value bytes", sums.raw_value_bytes, properties.raw_value_bytes),
            ("raw block bytes", sums.raw_block_bytes, properties.raw_block_bytes),
            ("data blocks", self.index.len() as u64, properties.data_blocks),
            ("index partitions", self.index.partitions().count() as u64, properties.index_partitions),
            ("smallest sequence", sums.smallest_seq.unwrap_or(0), properties.smallest_seq),
            ("largest sequence", sums.largest_seq, properties.largest_seq),
        ];
        for (name, found, stated) in numbers {
            if found != stated {
                report(Error::corruption(
                    self.path(),
                    offset,
                    format!("{name}: {found}, the properties say {stated}"),
                ));
            }
        }
        let first = sums.first.clone().unwrap_or_default();
        for (name, found, stated) in
            [("smallest", &first, &properties.smallest), ("largest", &sums.last, &properties.largest)]
        {
            if found != stated {
                report(Error::corruption(
                    self.path(),
                    offset,
                    format!("{name} key {found:?}, the properties say {stated:?}"),
                ));
            }
        }
    }
}

impl Sums {
    fn add(&mut self, cursor: &BlockCursor) {
        let key = cursor.key();
        if self.first.is_none() {
            self.first = Some(key.to_owned());
        }
        self.entries += 1;
        self.deletes += u64::from(key.kind == ValueKind::Delete);
        self.raw_key_bytes += key.user_key.len() as u64;
        self.raw_value_bytes += cursor.value().len() as u64;
        self.smallest_seq = Some(self.smallest_seq.map_or(key.seq, |seq| seq.min(key.seq)));
        self.largest_seq = self.largest_seq.max(key.seq);
        self.last.assign(key);
    }
}
