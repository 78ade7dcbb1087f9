//! Garbage collection of versions: which versions of a key a merge or a flush keeps.
//!
//! # Rule
//! A reader at point `R` sees the newest version with a number `<= R`. The points that matter are those of the live
//! readers and `visible`, the point at which the next reader starts. Of the versions at or below `visible`, the newest
//! one at or below each such point is kept, and nothing else: an old snapshot costs what it can see, not everything
//! written since. Versions above `visible` are all kept, for a reader may yet start at any point among them.
//!
//! At the bottom (no older data of the key exists outside the merge) two more things hold. A tombstone is needed only if
//! an older version is kept that it must hide; of several tombstones in a row the oldest one does. And a put that every
//! point sees gets number zero, which packs best and tells cursors that no older version follows.
//!
//! That a key is at the bottom may also be found out when its first tombstone is met, which is the first version that it
//! matters for. In level 0 numbers stay as they are: its files are ordered by them.
//!
//! `visible` must be sampled *before* the list of live points: a reader that registers in between then starts at or
//! above `visible`, whose version is kept.
//!
//! Readers of the past may come too, while the store keeps a history: the points of its marks ([`crate::timeline`]) matter like those
//! of live readers. There is one for each second, so what was overwritten within a second costs nothing. A version that a newer one in
//! the merge has replaced is *superseded*; its bytes are what the history costs, and go once the oldest point has passed the newer one.
//!
//! # Rejected
//! One more pinned number, the oldest moment that may be read: each version above it would be kept, also of rows that change a thousand
//! times in a second.
//!
//! Keeping each version that any live point is older than (dropping only below the oldest point): a day-old snapshot
//! would then pin every version written during the day.

use crate::base::{Kind, SeqNo};

/// What becomes of a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retention {
    /// Nobody can see it.
    Drop,
    /// It is kept.
    Keep {
        /// Its number from now on.
        seq: SeqNo,
        /// A tombstone of the same key, held back until now, that must be written before it.
        hidden_by: Option<SeqNo>,
    },
}

/// The rule, fed key by key with versions newest first.
#[derive(Clone, Debug)]
pub struct VersionGc {
    /// Points that matter, newest first; the first one is `visible`.
    points: Vec<SeqNo>,
    /// Points before this index have found their version of the current key.
    served: usize,
    bottommost: bool,
    numbers_stay: bool,
    /// At the bottom: a tombstone that is written only if an older version is kept.
    held: Option<SeqNo>,
    /// Whether superseded versions are told apart.
    counts_superseded: bool,
    /// Of the current key, the numbers of the last visible version that was decided on and of the one before it; zero: none.
    newer: [SeqNo; 2],
}

impl VersionGc {
    /// The rule for live readers at `read_points` (any order) and `visible` (sampled before them).
    pub fn new(read_points: &[SeqNo], visible: SeqNo) -> VersionGc {
        let mut points: Vec<SeqNo> = read_points.iter().copied().filter(|point| *point < visible).collect();
        points.push(visible);
        points.sort_unstable_by(|a, b| b.cmp(a));
        points.dedup();
        VersionGc {
            points,
            served: 0,
            bottommost: false,
            numbers_stay: false,
            held: None,
            counts_superseded: false,
            newer: [SeqNo::ZERO; 2],
        }
    }

    /// The rule for files whose order follows from the numbers in them.
    pub fn with_numbers(self) -> VersionGc {
        VersionGc { numbers_stay: true, ..self }
    }

    /// The same rule, which tells superseded versions.
    pub fn counting_superseded(self) -> VersionGc {
        VersionGc { counts_superseded: true, ..self }
    }

    /// The number of the version by which the one that was just decided on is superseded; zero if it is the newest visible one, or if
    /// these are not told apart.
    #[inline]
    pub fn superseded_by(&self) -> SeqNo {
        self.newer[1]
    }

    /// The versions that follow are those of another key; `bottommost` says that no version of it that is older than
    /// those in the merge exists elsewhere.
    #[inline]
    pub fn start_key(&mut self, bottommost: bool) {
        self.served = 0;
        self.bottommost = bottommost;
        self.held = None;
        self.newer = [SeqNo::ZERO; 2];
    }

    /// True if nothing can come of knowing whether this version of the key is at the bottom.
    #[inline]
    pub fn is_settled(&self, seq: SeqNo, kind: Kind) -> bool {
        self.bottommost || kind == Kind::Put || seq > self.points[0]
    }

    /// It turned out that no version of the key that is older than those in the merge exists elsewhere.
    #[inline]
    pub fn reached_bottom(&mut self) {
        self.bottommost = true;
    }

    /// Decides on the next older version of the key.
    #[inline]
    pub fn version(&mut self, seq: SeqNo, kind: Kind) -> Retention {
        if seq <= self.points[0] {
            if self.counts_superseded {
                self.newer = [seq, self.newer[0]];
            }
            let before = self.served;
            // Nearly every version is older than all points; and there may be thousands of them.
            self.served = match self.points.last() {
                Some(oldest) if *oldest >= seq => self.points.len(),
                _ => before + self.points[before..].partition_point(|point| *point >= seq),
            };
            if self.served == before {
                return Retention::Drop;
            }
            if self.bottommost {
                if kind == Kind::Delete {
                    // Replaces a newer one held back: whoever would see that one sees this one instead.
                    self.held = Some(seq);
                    return Retention::Drop;
                }
                let seen_by_all = self.served == self.points.len();
                let seq = if seen_by_all && !self.numbers_stay { SeqNo::ZERO } else { seq };
                return Retention::Keep { seq, hidden_by: self.held.take() };
            }
        }
        Retention::Keep { seq, hidden_by: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Versions = Vec<(u64, Kind)>;

    /// What of a key is known to be at the bottom: nothing, the key, or the key once a tombstone is met.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Bottom {
        No,
        Yes,
        FoundOut,
    }

    fn run(gc: &mut VersionGc, bottom: Bottom, versions: &[(u64, Kind)]) -> Versions {
        let mut out = Vec::new();
        gc.start_key(bottom == Bottom::Yes);
        for (seq, kind) in versions {
            if bottom == Bottom::FoundOut && !gc.is_settled(SeqNo(*seq), *kind) {
                gc.reached_bottom();
            }
            if let Retention::Keep { seq, hidden_by } = gc.version(SeqNo(*seq), *kind) {
                out.extend(hidden_by.map(|tombstone| (tombstone.0, Kind::Delete)));
                out.push((seq.0, *kind));
            }
        }
        out
    }

    /// Lines `visible=9 points=3,5 [bottom|found] [numbers] : P9 D7 P2 -> P9 D7`; see testdata/gc.txt.
    #[test]
    fn table() {
        let text = include_str!("../../testdata/gc.txt");
        let mut cases = 0;
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            let (left, expected) = line.split_once("->").expect(line);
            let (setting, versions) = left.split_once(':').expect(line);
            let (mut visible, mut points, mut bottom, mut numbers) = (0, Vec::new(), Bottom::No, false);
            for word in setting.split_whitespace() {
                match word.split_once('=') {
                    Some(("visible", number)) => visible = number.parse().expect(line),
                    Some(("points", "")) => {}
                    Some(("points", list)) => {
                        points = list.split(',').map(|p| SeqNo(p.parse().expect(line))).collect();
                    }
                    _ if word == "bottom" => bottom = Bottom::Yes,
                    _ if word == "found" => bottom = Bottom::FoundOut,
                    _ if word == "numbers" => numbers = true,
                    _ => panic!("{line}"),
                }
            }
            let versions: Versions = versions
                .split_whitespace()
                .map(|word| {
                    let kind = if word.starts_with('P') { Kind::Put } else { Kind::Delete };
                    (word[1..].parse().expect(line), kind)
                })
                .collect();
            let rule = VersionGc::new(&points, SeqNo(visible));
            let mut rule = if numbers { rule.with_numbers() } else { rule };
            let kept: Vec<String> = run(&mut rule, bottom, &versions)
                .into_iter()
                .map(|(seq, kind)| format!("{}{seq}", if kind == Kind::Put { 'P' } else { 'D' }))
                .collect();
            assert_eq!(kept.join(" "), expected.trim(), "{line}");
            cases += 1;
        }
        assert!(cases > 15);
    }

    /// What a reader sees, with the number of the version if `numbers`.
    fn read(versions: &[(u64, Kind)], point: u64, older: Option<u64>) -> Option<u64> {
        match versions.iter().find(|(seq, _)| *seq <= point) {
            Some((seq, Kind::Put)) => Some(*seq),
            Some((_, Kind::Delete)) => None,
            None => older,
        }
    }

    /// Versions, newest first, with what each is superseded by: of those that are kept.
    #[test]
    fn a_version_that_a_newer_visible_one_has_replaced_is_told() {
        let told = |points: &[u64], visible: u64, versions: &[u64]| -> Vec<(u64, u64)> {
            let points: Vec<SeqNo> = points.iter().map(|point| SeqNo(*point)).collect();
            let mut gc = VersionGc::new(&points, SeqNo(visible)).counting_superseded();
            gc.start_key(false);
            let kept = |seq: &u64| match gc.version(SeqNo(*seq), Kind::Put) {
                Retention::Keep { .. } => Some((*seq, gc.superseded_by().0)),
                Retention::Drop => None,
            };
            versions.iter().filter_map(kept).collect()
        };
        assert_eq!(told(&[3, 6], 9, &[12, 11, 8, 7, 5, 2, 1]), [(12, 0), (11, 0), (8, 0), (5, 7), (2, 5)]);
        assert_eq!(told(&[], 9, &[8, 7]), [(8, 0)]);
        // Another key begins without.
        assert_eq!(told(&[1, 2, 3, 4, 5, 6, 7], 9, &[4]), [(4, 0)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn every_reader_sees_the_same(
            versions in prop::collection::btree_map(1u64..30, any::<bool>(), 0..14),
            points in prop::collection::vec(0u64..35, 0..6),
            visible in 0u64..32,
            bottom in prop::sample::select(vec![Bottom::No, Bottom::Yes, Bottom::FoundOut]),
            numbers in any::<bool>(),
        ) {
            let versions: Versions = versions
                .into_iter()
                .rev()
                .map(|(seq, put)| (seq, if put { Kind::Put } else { Kind::Delete }))
                .collect();
            // A live point is at most the visible point of now, and later ones start there.
            let live: Vec<SeqNo> = points.iter().map(|p| SeqNo((*p).min(visible))).collect();
            let rule = VersionGc::new(&live, SeqNo(visible));
            let mut rule = if numbers { rule.with_numbers() } else { rule };
            let after = run(&mut rule, bottom, &versions);
            prop_assert!(after.windows(2).all(|pair| pair[0].0 > pair[1].0), "{after:?}");
            // Something older below that must stay hidden, unless at the bottom.
            let older = (bottom == Bottom::No).then_some(1000);
            for point in live.iter().map(|p| p.0).chain(visible..40) {
                let then = read(&versions, point, older);
                let now = read(&after, point, older);
                let number = |seen: Option<u64>| if seen == Some(0) { then } else { seen };
                prop_assert_eq!(number(now), then, "point {} {:?}", point, after);
            }
            // Zero is given only to what all points see.
            if let Some(place) = after.iter().position(|(seq, _)| *seq == 0) {
                prop_assert!(bottom != Bottom::No && !numbers && place + 1 == after.len());
                let oldest = live.iter().map(|p| p.0).chain([visible]).min().unwrap();
                prop_assert!(read(&versions, oldest, None).is_some());
            }
            // Nothing is kept in vain.
            let mut distinct: Vec<u64> = live.iter().map(|p| p.0).collect();
            distinct.push(visible);
            distinct.sort();
            distinct.dedup();
            let not_visible = versions.iter().filter(|(seq, _)| *seq > visible).count();
            let needed = after.len() - not_visible;
            prop_assert!(needed <= distinct.len());
            if bottom != Bottom::No {
                let low: Versions = after[not_visible..].to_vec();
                prop_assert!(low.last().is_none_or(|(_, kind)| *kind == Kind::Put), "{low:?}");
                prop_assert!(!low.windows(2).any(|p| p[0].1 == Kind::Delete && p[1].1 == Kind::Delete));
            }
        }
    }
}
