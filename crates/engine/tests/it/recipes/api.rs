//! AP: surprises in the interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker::scheduler::InlineScheduler;
use esker::{Clock, Components, Db};

use crate::support::{Rig, assert_sound, content, key, small, value};

/// A clock whose wall time jumps at every look.
#[derive(Debug, Default)]
struct Jumping(AtomicU64);

impl Clock for Jumping {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn unix_millis(&self) -> u64 {
        let hour = 3_600_000;
        [0, 1 << 40, (1 << 40) - hour, u64::MAX, (1 << 40) + 10 * 365 * 24 * hour, 1]
            [(self.0.fetch_add(1, Ordering::Relaxed) % 6) as usize]
    }
}

/// AP05. Wall time jumps back and far ahead: no file goes early, nothing panics or sleeps. Mutation: an age is the
/// difference of two wall times.
#[test]
fn ap05_wall_time_jumps() {
    let rig = Rig::new();
    for round in 0..5_u64 {
        // Without a seed, tables carry the time of their creation.
        let options = small();
        let components = Components {
            scheduler: Arc::new(InlineScheduler::new()),
            clock: Arc::new(Jumping::default()),
            ..rig.components(&options)
        };
        let db = Db::open_with("/db", options, components).unwrap();
        (0..300_u64).for_each(|number| db.put(key(number), value(round, 100)).unwrap());
        db.compact_range::<&[u8], _>(..).unwrap();
        assert_eq!(content(&db).unwrap().len(), 300);
        assert_sound(&db);
        if round % 2 == 0 {
            db.close().unwrap();
        }
    }
}

/// AP07, AP08. What comes from a database keeps it alive: the handle is dropped first, and everything still reads. That it
/// can't be otherwise is a matter of the types, which hold no lifetimes. Mutation: a snapshot holds no handle.
#[test]
fn ap07_readers_keep_the_database_alive() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    (0..300_u64).for_each(|number| db.put(key(number), value(number, 100)).unwrap());
    let (snapshot, iter, mut cursor) = (db.snapshot(), db.iter(), db.cursor().unwrap());
    let slice = db.get(key(7_u64)).unwrap().unwrap();
    drop(db);
    assert!(rig.open_inline(&small()).is_err(), "it is still open");
    assert_eq!(iter.count(), 300);
    cursor.seek(key(8_u64)).unwrap();
    assert_eq!(cursor.value(), value(8_u64, 100));
    drop(cursor);
    assert_eq!(snapshot.get(key(9_u64)).unwrap().unwrap(), value(9_u64, 100));
    drop(snapshot);
    let db = rig.open_inline(&small()).expect("the last reader has closed it");
    assert_eq!(slice, value(7_u64, 100), "a value outlives everything");
    assert_eq!(db.iter().count(), 300);
}

/// AP13. No name is stored, only numbers: a CURRENT that names a path is refused, also with a right checksum. Mutation: the
/// line is taken for a file name.
#[test]
fn ap13_no_path_is_taken_from_a_file() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    let number = String::from_utf8(rig.read("CURRENT")).unwrap().lines().nth(1).unwrap().to_owned();
    for path in [
        "../MANIFEST-000002",
        "/etc/passwd",
        "a/../../x",
        "C:\\x",
        "MANIFEST-000002",
        "+2",
        "02",
        "2 ",
        "-1",
        "",
    ] {
        let body = format!("esker current 1\nmanifest {path}\nopen\n");
        let text = format!("{body}crc {:08x}\n", esker_base::checksum(&[], body.as_bytes()));
        let next = rig.copied();
        next.write("CURRENT", text.as_bytes());
        let error = next.open_inline(&small()).unwrap_err();
        assert!(error.is_corruption(), "{path:?}: {error:?}");
    }
    let body = format!("esker current 1\n{number}\nopen\n");
    rig.write(
        "CURRENT",
        format!("{body}crc {:08x}\n", esker_base::checksum(&[], body.as_bytes())).as_bytes(),
    );
    rig.copied().open_inline(&small()).unwrap();
}
