//! Images and their cursors against a sorted vector; blocks of which no image is made.

use super::*;
use crate::block::Block;
use crate::block_builder::BlockBuilder;
use crate::image_builder::Workbench;
use crate::image_cursor::ImageCursor;
use esker_base::{InternalKey, MAX_SEQUENCE, SplitMix64, common_prefix_len, key_hash};

const SEED: u64 = 7;

type Version = (InternalKey, Vec<u8>);

fn block(versions: &[Version], restart_interval: usize) -> Block {
    let mut builder = BlockBuilder::new(restart_interval);
    let mut last: &[u8] = &[];
    for (key, value) in versions {
        builder.add(common_prefix_len(last, &key.user_key), key.as_ref(), value);
        last = &key.user_key;
    }
    let payload: Arc<[u8]> = Arc::from(builder.finish());
    let len = payload.len();
    Block::parse(payload, len).unwrap()
}

fn built(block: &Block) -> Option<Image> {
    Image::build(block, SEED, &mut Workbench::default())
}

fn put(key: impl Into<Vec<u8>>, seq: u64) -> Version {
    let key = InternalKey::new(key, seq, ValueKind::Put);
    let value = format!("{key:?}").into_bytes();
    (key, value)
}

fn here(cursor: &ImageCursor) -> Option<Version> {
    assert_eq!(cursor.value(), &cursor.value_slice()[..]);
    cursor.valid().then(|| (cursor.key().to_owned(), cursor.value().to_vec()))
}

/// Every lookup and seek over keys like those of the versions, and `moves` steps after each seek in every combination.
fn check(versions: &[Version], targets: &[Vec<u8>], restart_interval: usize, moves: u32) {
    let block = block(versions, restart_interval);
    let image = built(&block).unwrap();
    assert_eq!(image.len(), versions.len());
    let mut cursor = ImageCursor::new();
    cursor.set_image(image.clone());
    for target in targets {
        for seq in [0, 1, 3, MAX_SEQUENCE] {
            let lookup = Lookup { user_key: target, hash: key_hash(SEED, target), seq };
            let wanted = versions.iter().find(|(key, _)| key.user_key == *target && key.seq <= seq);
            let found = image.get(&lookup).unwrap();
            let found = found.map(|hit| (hit.seq, hit.kind, image.value(&hit.spot).to_vec()));
            assert_eq!(
                found,
                wanted.map(|(key, value)| (key.seq, key.kind, value.clone())),
                "{target:?} {seq}"
            );

            let sought = InternalKeyRef::seek_to(target, seq);
            let start = versions.partition_point(|(key, _)| key.as_ref() < sought);
            for steps in 0..1_u32 << moves {
                cursor.seek(sought).unwrap();
                let mut at = (start < versions.len()).then_some(start);
                for step in 0..moves {
                    assert_eq!(
                        here(&cursor),
                        at.map(|at| versions[at].clone()),
                        "{sought:?} {steps:b} {step}"
                    );
                    let Some(place) = at else { break };
                    let newer = place.checked_sub(1).map(|before| &versions[before].0.user_key);
                    let newest = newer != Some(&versions[place].0.user_key);
                    assert!(newest || !cursor.is_newest(), "{sought:?}");
                    assert!(!newest || place == 0 || cursor.is_newest(), "{sought:?}");
                    if steps >> step & 1 == 0 {
                        cursor.next().unwrap();
                        at = (place + 1 < versions.len()).then_some(place + 1);
                    } else {
                        cursor.prev().unwrap();
                        at = place.checked_sub(1);
                    }
                }
            }
        }
    }
    cursor.seek_to_last().unwrap();
    assert_eq!(here(&cursor), versions.last().cloned());
    cursor.seek_to_first().unwrap();
    assert_eq!(here(&cursor), versions.first().cloned());
}

/// Fails when heads are compared the wrong way round, ties of heads are not settled by the keys, versions are taken in
/// another order, or a step back goes elsewhere.
#[test]
fn random_images_answer_as_a_vector() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut rng = SplitMix64::new(seed);
        let prefix = vec![b'p'; rng.below(30) as usize * usize::from(rng.percent(50))];
        let (alphabet, longest) = (1 + rng.below(3), 1 + rng.below(20));
        let zeros = rng.percent(30);
        let mut versions = Vec::new();
        for _ in 0..1 + rng.below(40) {
            let mut key = prefix.clone();
            key.extend((0..rng.below(longest)).map(|_| [0, b'a', 0xff][rng.below(alphabet) as usize]));
            for _ in 0..1 + rng.below(3) {
                let seq = if zeros { 0 } else { rng.below(5) };
                versions.push(put(key.clone(), seq));
            }
        }
        versions.sort();
        versions.dedup();
        if !zeros && rng.percent(50) {
            versions[0].0.kind = ValueKind::Delete;
        }
        let mut targets: Vec<Vec<u8>> = versions.iter().map(|(key, _)| key.user_key.clone()).collect();
        for at in 0..targets.len() {
            let mut longer = targets[at].clone();
            longer.push([0, b'b'][rng.below(2) as usize]);
            let shorter = targets[at][..rng.below(targets[at].len() as u64 + 1) as usize].to_vec();
            targets.extend([longer, shorter]);
        }
        check(&versions, &targets, 1 + rng.below(16) as usize, if seed < 6 { 4 } else { 2 });
    }
}

/// Eight equal bytes and more in many keys: all heads are equal, so whole keys decide.
#[test]
fn equal_heads_are_settled_by_the_keys() {
    let mut versions: Vec<Version> =
        (0..40_u8).map(|number| put([&[0; 9][..], &[number]].concat(), 1)).collect();
    versions.insert(0, put("", 1));
    versions.push(put([0xff; 20], 1));
    let targets: Vec<Vec<u8>> = versions.iter().map(|(key, _)| key.user_key.clone()).collect();
    check(&versions, &targets, 16, 3);
}

/// Keys of one length and values of one length have no places, 64 tags and a prefix of 16 bytes are in the head, and one
/// more of either is not; one odd entry brings the places back.
///
/// Fails when an entry of even ones is sought one too far, or the head is asked for what it has no room for.
#[test]
fn even_entries_and_what_fits_into_the_head() {
    for (count, prefix) in [(1, 0), (2, 15), (63, 16), (64, 16), (64, 17), (65, 16), (65, 17), (66, 30)] {
        for seq in [0, 2] {
            let put = |number: u8, len| {
                let key = [&vec![b'p'; prefix][..], &[number / 10, number % 10]].concat();
                (InternalKey::new(key, seq, ValueKind::Put), vec![number; len])
            };
            let mut versions: Vec<Version> = (0..count).map(|number| put(number, 20)).collect();
            let targets: Vec<Vec<u8>> = (0..70).map(|number| put(number, 0).0.user_key.to_vec()).collect();
            check(&versions, &targets, 16, 2);
            let image = built(&block(&versions, 16)).unwrap();
            assert_eq!((image.stride > 0, image.places_at > 0), (true, count > 64), "{count}");
            assert!(image.spot(usize::from(count)).is_err());
            versions.last_mut().unwrap().1.push(1);
            check(&versions, &targets, 16, 2);
            assert_eq!(built(&block(&versions, 16)).unwrap().stride > 0, count == 1);
        }
    }
}

/// Whether a scan need not look at each entry: not where a key has two versions, or an entry is no put.
///
/// Fails when equal keys are not seen, within an interval of restarts or between two.
#[test]
fn a_span_is_of_puts_of_different_keys() {
    for restart_interval in [1, 2, 16] {
        let mut versions: Vec<Version> = (0..9_u8).map(|number| put([b'k', number], 4)).collect();
        let span = |versions: &[Version]| built(&block(versions, restart_interval)).unwrap().span;
        assert_eq!(span(&versions).map(|span| span.newest), Some(4));
        for at in 0..versions.len() {
            versions[at].0.kind = ValueKind::Delete;
            assert!(span(&versions).is_none(), "{at}");
            versions[at].0.kind = ValueKind::Put;
            let older = put(versions[at].0.user_key.to_vec(), 3);
            versions.insert(at + 1, older);
            assert!(span(&versions).is_none(), "{at}");
            versions.remove(at + 1);
        }
    }
}

/// Three bytes an entry stand for a long key: an image would be many times the block.
#[test]
fn no_image_is_much_larger_than_its_block() {
    let long = |last: [u8; 2]| put([&[b'k'; 3000][..], &last].concat(), 0);
    let mut versions: Vec<Version> = (0..200_u8).map(|number| long([number, 0])).collect();
    assert!(built(&block(&versions, 16)).is_none());
    // The same where one short key leaves no prefix to all of them.
    versions.insert(0, put("a", 0));
    assert!(built(&block(&versions, 16)).is_none());
    let large = [(put("k", 0).0, vec![1; 70_000])];
    assert!(built(&block(&large, 16)).is_none());
    let fits = [(put("k", 0).0, vec![1; 65_000])];
    assert!(built(&block(&fits, 16)).is_some());
}

/// Fails when the order is not checked, within an interval of restarts or between two.
#[test]
fn no_image_is_made_of_what_is_out_of_order() {
    for restart_interval in [1, 2, 16] {
        let mut versions: Vec<Version> = ["a", "b", "c", "d"].into_iter().map(|key| put(key, 1)).collect();
        assert!(built(&block(&versions, restart_interval)).is_some());
        for (one, other) in [(0, 1), (1, 2), (2, 3)] {
            versions.swap(one, other);
            assert!(built(&block(&versions, restart_interval)).is_none(), "{one} {other}");
            versions.swap(one, other);
        }
        let twice = [put("a", 1), put("a", 1)];
        assert!(built(&block(&twice, restart_interval)).is_none());
    }
}
