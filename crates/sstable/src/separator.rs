//! Separators: short keys that part one data block from the next in the index.

use esker_base::common_prefix_len;

/// Makes `out` a shortest key that is at or after `last` and before `next`.
///
/// Requires `last < next`.
pub(crate) fn separator(out: &mut Vec<u8>, last: &[u8], next: &[u8]) {
    debug_assert!(last < next);
    out.clear();
    let shared = common_prefix_len(last, next);
    if last.len() <= shared + 1 {
        // No key is shorter than `shared + 1` bytes, except a `last` that is a prefix of `next`.
        out.extend_from_slice(last);
    } else if next.len() > shared + 1 {
        out.extend_from_slice(&next[..=shared]);
    } else if last[shared] + 1 < next[shared] {
        out.extend_from_slice(&last[..shared]);
        out.push(last[shared] + 1);
    } else {
        // `next` ends with a byte one above that of `last`: only a longer key fits between.
        match last[shared + 1..].iter().position(|&byte| byte != 0xff) {
            Some(index) => {
                let at = shared + 1 + index;
                out.extend_from_slice(&last[..at]);
                out.push(last[at] + 1);
            }
            None => out.extend_from_slice(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::SplitMix64;

    fn of(last: &[u8], next: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        separator(&mut out, last, next);
        out
    }

    #[test]
    fn examples() {
        assert_eq!(of(b"k00059", b"k00060"), b"k0006");
        assert_eq!(of(b"", b"a"), b"");
        assert_eq!(of(b"a", b"ab"), b"a");
        assert_eq!(of(b"abcdef", b"b"), b"ac");
        assert_eq!(of(b"a\xff\xff", b"b"), b"a\xff\xff");
        assert_eq!(of(b"a\xff\x01xyz", b"b"), b"a\xff\x02");
        assert_eq!(of(b"axyz", b"c"), b"b");
        assert_eq!(of(b"axyz", b"cz"), b"c");
    }

    /// Over a small alphabet with both extremes, so that prefixes and 0xff runs are common.
    #[test]
    fn a_separator_separates_and_is_never_longer_than_the_last_key() {
        let mut rng = SplitMix64::new(1);
        let mut key = || -> Vec<u8> {
            (0..rng.below(6)).map(|_| [0, 1, b'a', b'b', 0xfe, 0xff][rng.below(6) as usize]).collect()
        };
        for _ in 0..100_000 {
            let (mut a, mut b) = (key(), key());
            if a == b {
                continue;
            }
            if a > b {
                std::mem::swap(&mut a, &mut b);
            }
            let s = of(&a, &b);
            assert!(a <= s && s < b && s.len() <= a.len(), "{a:?} {s:?} {b:?}");
        }
    }
}
