//! redb.

use crate::engine::{Change, Direction, Engine, Reader, Result, Settings, Settle, walk};
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("entries");

pub(crate) struct Redb {
    db: Database,
    durability: Durability,
}

impl Engine for Redb {
    const NAME: &'static str = "redb";
    const LSM: bool = false;
    const NOTE: &'static str = "`Durability::None` where the others hand writes to the system: weaker, a crash of the \
         process loses all since the last durable commit; no compression; reads within one read transaction";
    type Reader<'a> = RedbReader;

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

    fn write(&self, changes: &[Change<'_>]) -> Result<()> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(self.durability)?;
        let mut table = transaction.open_table(TABLE)?;
        for (key, value) in changes {
            match value {
                Some(value) => drop(table.insert(*key, *value)?),
                None => drop(table.remove(*key)?),
            }
        }
        drop(table);
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
        let entries = match from {
            Some(from) => self.table.range(from..)?,
            None => self.table.iter()?,
        };
        walk(entries, direction, limit, |entry| {
            let (key, value) = entry?;
            each(key.value(), value.value());
            Ok(())
        })
    }
}
