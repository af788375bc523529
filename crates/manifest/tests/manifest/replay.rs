//! Replay: the state that recovery finds is the one that the live edits made, in linear time.

use crate::{content, create, dir, empty_disk, recovered, table, write_table};
use esker_base::{FileNumber, SplitMix64};
use esker_manifest::{ManifestState, ManifestWriter, TableMetadata, VersionEdit};
use esker_vfs::MemVfs;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// DM17: after every one of some hundred random edits (flushes, compactions, moves, cursors), recovery finds the live
/// state; now and then a new manifest is rolled.
#[test]
fn dm17_replay_equals_the_live_state_after_every_edit() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut rng = SplitMix64::new(seed);
        let mem = empty_disk();
        let mut state = ManifestState::new(seed.into(), seed);
        state.next_file = FileNumber(2);
        let mut writer = create(&mem, 1, &state);
        for step in 0..150 {
            if rng.percent(5) {
                let number = state.next_file.0;
                state.next_file = FileNumber(number + 1);
                writer = create(&mem, number, &state);
            }
            let edit = random_edit(&mut rng, &mem, &state, step);
            state = state.apply(&edit).unwrap();
            writer.append(&edit).unwrap();
            let found = recovered(&mem);
            assert_eq!(content(&found.state), content(&state), "step {step}");
            assert!(found.state.next_file >= state.next_file);
            state.keyspaces[&0].version.check_invariants().unwrap();
        }
        assert!(state.keyspaces[&0].version.table_count() > 3);
    }
}

/// A flush of a random range, or a compaction of one key range from a level to the next, with what overlaps.
fn random_edit(rng: &mut SplitMix64, mem: &MemVfs, state: &ManifestState, step: u64) -> VersionEdit {
    let version = &state.keyspaces[&0].version;
    let mut edit = VersionEdit::new();
    let number = state.next_file.0;
    let level = rng.below(3) as usize;
    let picked = version.level(level).tables().last();
    let (Some(picked), false) = (picked, rng.percent(50)) else {
        let low = rng.below(90);
        let (low, high) = (format!("{low:03}"), format!("{:03}", low + rng.below(10)));
        let seq = 1_000 + step * 10;
        edit.add_table(0, 0, table(number, (&low, seq + 5), (&high, seq)));
        write_table(mem, number);
        return edit;
    };
    let mut inputs: Vec<(usize, &Arc<TableMetadata>)> = vec![(level, picked)];
    let (mut low, mut high) = (picked.smallest.clone(), picked.largest.clone());
    loop {
        let (begin, end) = (Some(low.user_key.as_slice()), Some(high.user_key.as_slice()));
        let upper = version.level(level).overlapping(begin, end).map(|table| (level, table));
        let lower = version.level(level + 1).overlapping(begin, end).map(|table| (level + 1, table));
        let all: Vec<_> = upper.chain(lower).collect();
        let grown = all.len() > inputs.len();
        inputs = all;
        low = inputs.iter().map(|(_, table)| &table.smallest).min().unwrap().clone();
        high = inputs.iter().map(|(_, table)| &table.largest).max().unwrap().clone();
        if !grown {
            break;
        }
    }
    let seqs = inputs.iter().map(|(_, table)| (table.smallest_seq, table.largest_seq));
    let (first, last) = seqs.fold((u64::MAX, 0), |(first, last), seq| (first.min(seq.0), last.max(seq.1)));
    for (level, table) in &inputs {
        edit.delete_table(0, *level, table.number);
    }
    let output = TableMetadata {
        number: FileNumber(number),
        file_size: 100 + number,
        smallest: low,
        largest: high.clone(),
        smallest_seq: first,
        largest_seq: last,
        ..(**picked).clone()
    };
    write_table(mem, number);
    edit.add_table(0, level + 1, Arc::new(output)).set_cursor(0, level, Some(high.user_key));
    edit
}

/// Time to recover a manifest of `edits` edits. With `churn` each edit replaces a table, else it adds one.
fn time_to_recover(edits: u64, churn: bool) -> Duration {
    let mem = empty_disk();
    let mut state = ManifestState::new(1, 2);
    state.next_file = FileNumber(edits + 10);
    let mut writer = create(&mem, 1, &state);
    for number in 2..edits + 2 {
        let mut edit = VersionEdit::new();
        let key = format!("key-{number:08}");
        edit.add_table(0, 1 + (number % 6) as usize, table(number, (&key, number), (&key, number)));
        if churn && number > 2 {
            edit.delete_table(0, 1 + ((number - 1) % 6) as usize, FileNumber(number - 1));
        }
        writer.append(&edit).unwrap();
        if !churn || number == edits + 1 {
            create_table(&mem, number);
        }
    }
    let best = (0..3).map(|_| {
        let start = Instant::now();
        let found = recovered(&mem);
        let elapsed = start.elapsed();
        let count = found.state.keyspaces[&0].version.table_count() as u64;
        assert_eq!(count, if churn { 1 } else { edits });
        elapsed
    });
    best.min().unwrap()
}

/// Like `write_table`, without making the directory durable each time.
fn create_table(mem: &MemVfs, number: u64) {
    use esker_vfs::Vfs;
    let path = esker_base::FileKind::Table.path(dir(), FileNumber(number));
    mem.create_new(&path).unwrap().append(&vec![7; 100 + number as usize]).unwrap();
}

/// PF05: 1,000 to 100,000 edits. Quadratic replay would take 10,000 times longer at the end; cache misses and a busy
/// machine may cost a factor of 15.
#[test]
fn pf05_replay_is_linear() {
    // Tables that stay need files, which take most of this test's time.
    for (churn, sizes) in [(true, [1_000, 10_000, 100_000]), (false, [300, 3_000, 20_000])] {
        let times: Vec<_> = sizes.iter().map(|&edits| time_to_recover(edits, churn)).collect();
        println!("churn {churn}: {sizes:?} edits in {times:?}");
        let growth = (sizes[2] / sizes[0]) as u32;
        let limit = times[0].max(Duration::from_millis(1)) * growth * 15;
        assert!(times[2] < limit, "{times:?}");
    }
}

/// A new manifest is advised once the file has outgrown its snapshot.
#[test]
fn a_roll_is_advised_by_size() {
    let mem = empty_disk();
    let mut state = ManifestState::new(1, 2);
    state.next_file = FileNumber(3);
    let mut writer = create(&mem, 1, &state);
    let mut edit = VersionEdit::new();
    edit.set_cursor(0, 1, Some(vec![b'k'; 60_000]));
    let mut edits = 0;
    while !writer.is_oversized() {
        writer.append(&edit).unwrap();
        edits += 1;
    }
    assert!((17..20).contains(&edits), "{edits}");
    assert_eq!(writer.len(), mem.read_file(crate::manifest_path(1)).unwrap().len() as u64);
    let writer: ManifestWriter = create(&mem, 2, &state.apply(&edit).unwrap());
    assert!(!writer.is_oversized());
}

/// An edit of a large store costs little more than copying the pointers of the level that it touches.
#[test]
fn a_live_edit_of_a_large_store_is_cheap() {
    let mut edit = VersionEdit::new();
    for number in 2..20_002 {
        let key = format!("key-{number:08}");
        edit.add_table(0, 6, table(number, (&key, number), (&key, number)));
    }
    let mut state = ManifestState::new(1, 2).apply(&edit).unwrap();
    let start = Instant::now();
    for number in 20_002..20_052 {
        let mut edit = VersionEdit::new();
        edit.add_table(0, 0, table(number, ("a", number), ("z", number)));
        state = state.apply(&edit).unwrap();
    }
    let each = start.elapsed() / 50;
    println!("{each:?} for an edit at 20,000 tables");
    assert!(each < Duration::from_millis(20));
}
