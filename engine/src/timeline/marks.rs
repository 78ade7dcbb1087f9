//! Which sequence number a moment of the past has: a pure list.
//!
//! # Rule
//! A *mark* says of a second that began: these were all commits before it. The first commit of a second makes one, in front of itself. So
//! a moment, a whole second, is the state of the first mark at or after it; if there is none, nothing was committed since. Marks are
//! ascending, in time and in sequence numbers. What was committed at or before the *floor*, a second as well, nobody knows any more:
//! the retention is over, it was off, or the clock was set back.
//!
//! The clock may go back. By a little (a daemon that corrects it): there is no mark until it has caught up, and what is
//! committed meanwhile belongs to the second of the newest mark. By more: the history has to begin anew, since the same second would
//! have come twice.
//!
//! # Rejected
//! Marks from a thread that wakes each second (commits would pass the boundary before it wakes, by as much as it sleeps over); the
//! time in each commit record (nine bytes per commit, and still a list like this one once the log is gone); finer moments than seconds (a
//! version for each is kept).

use std::collections::VecDeque;

use crate::base::SeqNo;

/// The floor of a history that has nothing.
pub const NEVER: u64 = u64::MAX;
/// Seconds by which the clock may go back without an end of the history.
pub const SET_BACK_MAX: u64 = 10;

/// All commits before the second `at`, in seconds since 1970, have numbers up to `seq`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    pub at: u64,
    pub seq: SeqNo,
}

/// What a commit has to do before it takes its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Nothing: its second has a mark.
    Nothing,
    /// The mark that was just entered goes in front of it.
    Mark(Mark),
    /// The clock was set back.
    SetBack,
}

/// What is known of a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// It is the state of this number.
    Seq(SeqNo),
    /// It is to come.
    Future,
    /// Nothing; the oldest moment that is known, if there is one.
    Forgotten(Option<u64>),
}

/// See the module.
#[derive(Default)]
pub struct Marks {
    /// Moments up to this one are unknown.
    floor: u64,
    list: VecDeque<Mark>,
}

impl Marks {
    /// A list of marks in any order, and the floor.
    pub fn new(floor: u64, mut marks: Vec<Mark>) -> Marks {
        marks.sort_by_key(|mark| mark.at);
        Marks { floor, list: marks.into() }
    }

    /// The newest second with a mark.
    pub fn newest(&self) -> Option<u64> {
        self.list.back().map(|mark| mark.at)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The seconds that have one.
    pub fn seconds(&self) -> impl Iterator<Item = u64> + '_ {
        self.list.iter().map(|mark| mark.at)
    }

    /// True if a second has one.
    pub fn has(&self, second: u64) -> bool {
        self.list.binary_search_by_key(&second, |mark| mark.at).is_ok()
    }

    /// Moments up to this one are unknown.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// True if the clock was set back so far that the history has to begin anew.
    pub fn is_set_back(&self, now: u64) -> bool {
        self.newest().is_some_and(|newest| newest > now.saturating_add(SET_BACK_MAX))
    }

    /// Enters a mark, if the second `now` has none, in front of the commit after `last`.
    pub fn due(&mut self, now: u64, last: SeqNo) -> Due {
        match self.newest() {
            Some(newest) if now > newest => {}
            Some(_) if self.is_set_back(now) => return Due::SetBack,
            Some(_) => return Due::Nothing,
            None => {}
        }
        let mark = Mark { at: now, seq: last };
        self.list.push_back(mark);
        Due::Mark(mark)
    }

    /// The oldest moment that is known `now`, when each is kept for `retention` seconds.
    pub fn oldest(&self, now: u64, retention: u64) -> Option<u64> {
        let oldest = self.floor.checked_add(1)?.max(now.saturating_sub(retention));
        (oldest <= now).then_some(oldest)
    }

    /// The state at a moment, when the newest commit is `last`.
    pub fn find(&self, moment: u64, now: u64, retention: u64, last: SeqNo) -> Found {
        let oldest = self.oldest(now, retention);
        if moment > now {
            return Found::Future;
        }
        if oldest.is_none_or(|oldest| moment < oldest) {
            return Found::Forgotten(oldest);
        }
        let at = self.list.partition_point(|mark| mark.at < moment);
        Found::Seq(self.list.get(at).map_or(last, |mark| mark.seq))
    }

    /// The second up to which moments are to be forgotten, if it is worth the write: `now` there are marks that are older than the
    /// `retention` by a sixtieth of it.
    pub fn expired(&self, now: u64, retention: u64) -> Option<u64> {
        let oldest = now.saturating_sub(retention);
        let slack = (retention / 60).clamp(1, 60);
        let front = self.list.front()?.at;
        (front.saturating_add(slack) < oldest).then(|| oldest - 1)
    }

    /// Forgets the moments up to `floor`; returns the seconds whose marks are gone.
    pub fn forget(&mut self, floor: u64) -> Vec<u64> {
        let gone = self.list.partition_point(|mark| mark.at <= floor);
        self.floor = floor;
        self.list.drain(..gone).map(|mark| mark.at).collect()
    }

    /// The numbers that readers of the past may ask for, ascending.
    pub fn pinned(&self) -> Vec<SeqNo> {
        let mut all: Vec<SeqNo> = self.list.iter().map(|mark| mark.seq).collect();
        all.dedup();
        all
    }

    /// The least of them.
    pub fn oldest_pinned(&self) -> Option<SeqNo> {
        self.list.front().map(|mark| mark.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays lines: `now N` sets the clock, `commit` makes one, `retain N` sets the retention, `trim`, `forget N`, `see N` asks for a
    /// moment, `pinned`. What each says is put behind it.
    fn play(script: &str) -> String {
        let (mut marks, mut now, mut last, mut retention) = (Marks::new(0, Vec::new()), 0, 0, 1000);
        let mut out = String::new();
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let command = line.split("->").next().unwrap().trim();
            let (word, number) = command.split_once(' ').unwrap_or((command, "0"));
            let number: u64 = number.parse().unwrap();
            let said = match word {
                "now" => {
                    now = number;
                    None
                }
                "retain" => {
                    retention = number;
                    None
                }
                "commit" => {
                    let due = marks.due(now, SeqNo(last));
                    last += 1 + u64::from(matches!(due, Due::Mark(_)));
                    Some(match due {
                        Due::Nothing => format!("{last}"),
                        Due::Mark(mark) => format!("mark {} is {}, {last}", mark.at, mark.seq.0),
                        Due::SetBack => "set back".into(),
                    })
                }
                "trim" => Some(format!("{:?}", marks.expired(now, retention).map(|floor| marks.forget(floor)))),
                "forget" => Some(format!("{:?}", marks.forget(number))),
                "see" => Some(format!("{:?}", marks.find(number, now, retention, SeqNo(last)))),
                "pinned" => Some(format!("{:?}", marks.pinned().iter().map(|seq| seq.0).collect::<Vec<_>>())),
                other => panic!("{other}"),
            };
            out += command;
            out += &said.map_or(String::new(), |said| format!(" -> {said}"));
            out += "\n";
        }
        out
    }

    fn check(script: &str) {
        let want: String =
            script.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect();
        assert_eq!(play(script), want);
    }

    #[test]
    fn a_moment_is_what_was_committed_before_it() {
        check(
            "now 100
             commit -> mark 100 is 0, 2
             commit -> 3
             now 103
             see 100 -> Seq(SeqNo(0))
             see 101 -> Seq(SeqNo(3))
             see 103 -> Seq(SeqNo(3))
             commit -> mark 103 is 3, 5
             see 101 -> Seq(SeqNo(3))
             see 103 -> Seq(SeqNo(3))
             see 104 -> Future
             now 104
             see 104 -> Seq(SeqNo(5))
             pinned -> [0, 3]",
        );
    }

    #[test]
    fn moments_are_forgotten_when_the_retention_is_over() {
        check(
            "retain 10
             now 100
             commit -> mark 100 is 0, 2
             now 105
             commit -> mark 105 is 2, 4
             now 112
             see 101 -> Forgotten(Some(102))
             see 102 -> Seq(SeqNo(2))
             trim -> Some([100])
             see 102 -> Seq(SeqNo(2))
             trim -> None
             now 116
             trim -> None
             see 105 -> Forgotten(Some(106))
             see 106 -> Seq(SeqNo(4))
             now 117
             trim -> Some([105])
             pinned -> []
             see 107 -> Seq(SeqNo(4))",
        );
    }

    #[test]
    fn nothing_is_known_at_or_before_the_floor() {
        check(
            "now 100
             forget 100 -> []
             commit -> mark 100 is 0, 2
             see 100 -> Forgotten(None)
             now 101
             see 100 -> Forgotten(Some(101))
             see 101 -> Seq(SeqNo(2))
             commit -> mark 101 is 2, 4
             see 101 -> Seq(SeqNo(2))",
        );
    }

    #[test]
    fn a_clock_that_goes_back_makes_no_second_come_twice() {
        check(
            "now 100
             commit -> mark 100 is 0, 2
             now 95
             commit -> 3
             see 95 -> Seq(SeqNo(0))
             now 101
             commit -> mark 101 is 3, 5
             see 101 -> Seq(SeqNo(3))
             now 90
             commit -> set back",
        );
    }

    proptest::proptest! {
        /// While the clock goes forward, a moment shows all commits that were made before the clock came to it, and none from then on. If
        /// it goes back, by less than would end the history, later moments still show no less.
        #[test]
        fn moments_are_exact_and_monotone(
            steps in proptest::collection::vec((-2i64..4, 0u64..3), 1..60),
            goes_back in proptest::bool::ANY,
        ) {
            let mut marks = Marks::new(1000, Vec::new());
            let (mut now, mut highest, mut last) = (1000i64, 1000i64, 0u64);
            // The newest commit when the clock first came to a second.
            let mut truth = std::collections::BTreeMap::from([(1000u64, 0u64)]);
            for (step, commits) in steps {
                now = (now + if goes_back { step } else { step.max(0) }).max(highest - SET_BACK_MAX as i64);
                for second in highest + 1..=now {
                    truth.insert(second as u64, last);
                }
                highest = highest.max(now);
                for _ in 0..commits {
                    let due = marks.due(now as u64, SeqNo(last));
                    proptest::prop_assert!(due != Due::SetBack);
                    last += 1 + u64::from(matches!(due, Due::Mark(_)));
                }
            }
            let mut before = 0;
            for (&second, &seq) in truth.range(1001..) {
                let Found::Seq(found) = marks.find(second, highest as u64, 1_000_000, SeqNo(last)) else {
                    return Err(proptest::test_runner::TestCaseError::fail("not found"));
                };
                proptest::prop_assert!(found.0 >= before);
                proptest::prop_assert!(goes_back || found.0 == seq, "{} {}", second, seq);
                before = found.0;
            }
        }
    }
}
