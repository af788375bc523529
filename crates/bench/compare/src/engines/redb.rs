//! redb.

use crate::engine::{Direction, Engine, Family, Reader, Result, Settings, Settle};
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction,
};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("entries");

pub(crate) struct Redb {
    db: Database,
    durability: Durability,
}

impl Engine for Redb {
    const NAME: &'static str = "redb";
    const FAMILY: Family = Family::Tree;
    const NOTE: &'static str = "`Durability::None` where the others hand writes to the system: weaker, a crash of the \
         process loses all since the last durable commit; no compression; reads within one read transaction";
    type Reader<'a> = RedbReader;

    fn version() -> String {
        crate::versions::locked("redb")
    }

    fn open(settings: &Settings) -> Result<Self> {
        std::fs::create_dir_all(&settings.dir)?;
        let db = Database::builder().set_cache_size(settings.cache).create(settings.dir.join("data.redb"))?;
        let durability = if settings.sync { Durability::Immediate } else { Durability::None };
        let redb = Redb { db, durability };
        let transaction = redb.db.begin_write()?;
        transaction.open_table(TABLE)?;
        transaction.commit()?;
        Ok(redb)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let transaction = self.begin()?;
        transaction.open_table(TABLE)?.insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let transaction = self.begin()?;
        transaction.open_table(TABLE)?.remove(key)?;
        Ok(transaction.commit()?)
    }

    fn batch(&self, entries: &[(&[u8], &[u8])]) -> Result<()> {
        let transaction = self.begin()?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in entries {
                table.insert(*key, *value)?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn reader(&self) -> Result<RedbReader> {
        Ok(RedbReader { table: self.db.begin_read()?.open_table(TABLE)? })
    }

    fn settle(&self, _to: Settle) -> Result<bool> {
        self.db.begin_write()?.commit()?;
        Ok(true)
    }

    fn close(self) -> Result<()> {
        Ok(self.db.begin_write()?.commit()?)
    }
}

impl Redb {
    fn begin(&self) -> Result<WriteTransaction> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(self.durability)?;
        Ok(transaction)
    }
}

pub(crate) struct RedbReader {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

impl Reader for RedbReader {
    fn get<R>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(self.table.get(key)?.map(|value| read(value.value())))
    }

    fn scan(
        &mut self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let mut entries = match from {
            Some(from) => self.table.range(from..)?,
            None => self.table.iter()?,
        };
        let mut count = 0;
        while count < limit {
            let next = match direction {
                Direction::Forward => entries.next(),
                Direction::Reverse => entries.next_back(),
            };
            let Some(entry) = next else { break };
            let (key, value) = entry?;
            each(key.value(), value.value());
            count += 1;
        }
        Ok(count)
    }
}
