//! `kill`: a child process writes to the real disk and is killed at a random moment; what it had acknowledged on a pipe
//! must be there. The same directory lives through several children, with other options each time.

#![allow(clippy::disallowed_methods, reason = "processes, real files, real time")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use esker::{Background, Db, Durability, WriteBatch, WriteOptions};
use esker_base::SplitMix64;

use crate::lab::{Case, Harness};
use crate::preset::Setup;
use crate::session::assert_sound;

/// Kills.
pub const KILL: Harness = Harness {
    name: "kill",
    unit: "kill",
    parts: &["kill"],
    demands: &[
        "kill",
        "acknowledged",
        "acknowledged by a ticket",
        "killed before the first acknowledgement",
        "checked",
    ],
    part_demands: &[],
    demand_after: 20,
    case,
};

/// Children in one directory.
const ROUNDS: u64 = 8;
const WRITERS: u64 = 4;
/// Data keys of a writer, which it writes in turn.
const KEYS: u64 = 100;

/// What a writer asks for: one in four asks for a sync, the others hand over to the system.
fn durability(writer: u64) -> Durability {
    if writer == 0 { Durability::Sync } else { Durability::Buffered }
}

fn last_key(writer: u64, copy: u64) -> Vec<u8> {
    format!("{copy}/last of {writer}").into_bytes()
}

fn data_key(writer: u64, number: u64) -> Vec<u8> {
    format!("data {writer} {:04}", number % KEYS).into_bytes()
}

fn number_at(db: &Db, key: &[u8]) -> u64 {
    let value = db.get(key).unwrap_or_else(|error| panic!("get: {error}"));
    value.map_or(0, |value| {
        let text = String::from_utf8_lossy(&value).into_owned();
        text.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    })
}

fn setup(seed: u64) -> Setup {
    Setup::choose(None, seed)
}

/// The child: opens, and writes until it is killed. Every acknowledged write is a line on the output.
///
/// # Errors
///
/// What the database says.
pub fn child(dir: &Path, seed: u64) -> Result<(), esker::Error> {
    let options = setup(seed).options.background(Background::Threads(2));
    let db = options.open(dir)?;
    println!("open");
    let write = |writer: u64| -> Result<(), esker::Error> {
        let mut rng = SplitMix64::new(seed ^ (writer << 32));
        let mut number = number_at(&db, &last_key(writer, 0));
        let settings = WriteOptions::new().with_durability(durability(writer));
        loop {
            number += 1;
            let value = format!("{number} {}", "v".repeat(rng.below(400) as usize));
            let mut batch = WriteBatch::new();
            batch.put(last_key(writer, 0), value.as_bytes());
            batch.put(data_key(writer, number), value.as_bytes());
            batch.put(last_key(writer, 1), value.as_bytes());
            // One call of the system, so a whole line or nothing.
            let acknowledge = move |how: &str| {
                let _ = std::io::stdout().lock().write_all(format!("{how} {writer} {number}\n").as_bytes());
            };
            if durability(writer) == Durability::Sync && rng.percent(50) {
                // Several may be in flight. Nobody may say so before it is synced.
                db.submit(batch, &settings)?.on_synced(move |synced| {
                    if synced.is_ok() {
                        acknowledge("ticket");
                    }
                });
            } else {
                db.write_with(batch, &settings)?;
                acknowledge("write");
            }
            if rng.below(200) == 0 {
                db.flush()?;
            }
            if rng.below(800) == 0 {
                db.compact_range::<&[u8], _>(..)?;
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        let mut result = Ok(());
        for thread in threads {
            result = result.and(thread.join().unwrap_or_else(|_| panic!("a writer panicked")));
        }
        result
    })
}

fn case(case: &mut Case<'_>) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let mut rng = case.rng(1);
    let mut acknowledged: BTreeMap<u64, u64> = BTreeMap::new();
    for _ in 0..case.ops(ROUNDS) {
        let seed = rng.next_u64();
        let exe = std::env::current_exe().expect("this program");
        let mut child = Command::new(exe)
            .arg("kill-child")
            .arg(&path)
            .arg(seed.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a child process");
        let mut output = child.stdout.take().expect("a pipe");
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            output.read_to_end(&mut text).map(|_| text)
        });
        std::thread::sleep(Duration::from_millis(1 + rng.below(400)));
        // A child that has ended by itself has met an error, which shows below.
        let ended = child.try_wait().expect("a state");
        child.kill().expect("the kill");
        let mut errors = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("its errors");
        child.wait().expect("its end");
        let text = reader.join().expect("the reader").expect("the pipe");
        assert!(ended.is_none() && errors.is_empty(), "the child has failed: {errors}");
        let text = String::from_utf8(text).expect("lines of text");
        case.coverage.hit("kill");
        let mut count = 0;
        for line in text.lines().filter(|line| *line != "open") {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("how, which writer, and a number");
            let (how, writer, number) = (word(), word(), word().parse::<u64>().expect("a number"));
            // A write that was waited for may be told before the callbacks of those before it.
            let largest = acknowledged.entry(writer.parse().expect("a writer")).or_insert(0);
            *largest = number.max(*largest);
            count += 1;
            case.coverage.add("acknowledged by a ticket", u64::from(how == "ticket"));
        }
        case.coverage.add("acknowledged", count);
        case.coverage.add("killed before the first acknowledgement", u64::from(count == 0));
        // Half of the time the next child is the first to open it.
        if rng.percent(50) {
            check(&path, seed ^ 1, &acknowledged);
            case.coverage.hit("checked");
        }
    }
    check(&path, case.seed, &acknowledged);
}

/// Opens what is left, and compares it with what was acknowledged.
fn check(path: &Path, seed: u64, acknowledged: &BTreeMap<u64, u64>) {
    let options = setup(seed).options.background(Background::Inline);
    let db = options.open(path).expect("it opens after a kill");
    for writer in 0..WRITERS {
        let (last, copy) = (number_at(&db, &last_key(writer, 0)), number_at(&db, &last_key(writer, 1)));
        let least = acknowledged.get(&writer).copied().unwrap_or(0);
        assert!(last >= least, "writer {writer}: {least} was acknowledged, {last} is there");
        assert_eq!(last, copy, "half a batch of writer {writer}");
        for back in 0..KEYS.min(last) {
            let wanted = last - back;
            let found = number_at(&db, &data_key(writer, wanted));
            assert_eq!(found, wanted, "writer {writer}: a hole below {last}");
        }
    }
    assert_sound(&db);
}
