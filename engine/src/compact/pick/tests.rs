//! Tables of trees and the jobs they call for, and a tree that is run by the picker.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::compact::testing::sublevels;
use crate::sst::Share;
use proptest::prelude::*;

fn options() -> PickOptions {
    PickOptions { base_bytes: 100, target_file_bytes: 20, max_job_bytes: 400, ..PickOptions::default() }
}

/// `d` is key "d" of index 1, `3d` of index 3.
fn parse_key(text: &str) -> Vec<u8> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let index = text[..split].parse().unwrap_or(1);
    [&IndexId(index).prefix()[..], &text.as_bytes()[split..]].concat()
}

fn show_key(key: &[u8]) -> String {
    let index = IndexId::of(key).0;
    let name = String::from_utf8_lossy(&key[4..]);
    if index == 1 { name.into_owned() } else { format!("{index}{name}") }
}

/// `7[a-c]*20#900~50@3-9`: number, keys, bytes, versions, percent of tombstones among them, sequence numbers. A file whose
/// keys are of two indexes has the same of each from the one to the other. `^40<30`: percent of its bytes that are superseded, and until
/// when.
fn parse_file(word: &str) -> SstMeta {
    let (no, rest) = word.split_once('[').expect(word);
    let (keys, rest) = rest.split_once(']').expect(word);
    let (small, large) = keys.split_once('-').unwrap_or((keys, keys));
    let no: u64 = no.parse().expect(word);
    let attribute = |mark: char| {
        let from = rest.find(mark)? + 1;
        let end = rest[from..].find(['*', '#', '~', '@', '^', '<']).map_or(rest.len(), |n| from + n);
        Some(&rest[from..end])
    };
    let number = |mark, default: u64| attribute(mark).map_or(default, |n: &str| n.parse().expect(word));
    let (min, max) = attribute('@').map_or((no, no), |seqs| {
        let (min, max) = seqs.split_once('-').expect(word);
        (min.parse().expect(word), max.parse().expect(word))
    });
    let smallest = parse_key(small);
    let largest = parse_key(large);
    let indexes = IndexId::of(&smallest).0..=IndexId::of(&largest).0;
    let count = indexes.clone().count() as u64;
    let share = |index| Share {
        index: IndexId(index),
        entries: (number('#', 100) / count) as u32,
        tombstones: 0,
        raw_bytes: (number('*', 10) / count) as u32,
    };
    let shares = if count > 1 { indexes.map(share).collect() } else { Arc::default() };
    SstMeta {
        no: FileNo(no),
        index: IndexId::of(&smallest),
        file_bytes: number('*', 10),
        smallest,
        largest,
        min_seq: SeqNo(min),
        max_seq: SeqNo(max),
        entries: number('#', 100),
        tombstones: number('#', 100) * number('~', 0) / 100,
        raw_bytes: number('*', 10),
        stamped: false,
        key: None,
        superseded: Superseded { bytes: number('*', 10) * number('^', 0) / 100, until: SeqNo(number('<', 0)) },
        shares,
    }
}

fn show_job(job: &CompactionJob) -> String {
    let inputs: Vec<String> = job
        .inputs
        .iter()
        .map(|(level, files)| {
            let files: Vec<String> = files.iter().map(|no| no.to_string()).collect();
            format!("L{level}: {}", files.join(" "))
        })
        .collect();
    let ranges: Vec<String> =
        job.ranges.iter().map(|(low, high)| format!("{}-{}", show_key(low), show_key(high))).collect();
    let bottom = if job.bottommost { " bottommost" } else { "" };
    format!(
        "{:?} {:?} ({}) to L{} [{}]{bottom}",
        job.reason,
        job.action,
        inputs.join("; "),
        job.output_level,
        ranges.join(" ")
    )
}

/// Cases are separated by blank lines: lines of levels, running jobs and settings, then what is expected.
#[test]
fn table() {
    let text = include_str!("../../../testdata/compaction_pick.txt");
    let (mut cases, mut wrong) = (0, Vec::new());
    for case in text.split("\n\n") {
        let lines: Vec<&str> = case.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).collect();
        if lines.is_empty() {
            continue;
        }
        let mut files: Vec<(u8, usize, SstMeta)> = Vec::new();
        let mut running: Vec<CompactionJob> = Vec::new();
        let (mut oldest_read, mut dropped, mut ahead_of) = (SeqNo(1000), None, None);
        let mut void: BTreeMap<FileNo, u64> = BTreeMap::new();
        let mut quarantine: Vec<FileNo> = Vec::new();
        let mut checked = 0;
        for line in &lines {
            let (name, rest) = line.split_once(':').expect(line);
            let rest = rest.trim();
            let shape = || {
                let mut shape = Shape::default();
                for (level, sublevel, file) in &files {
                    if *level == 0 {
                        shape.sublevels.resize(shape.sublevels.len().max(sublevel + 1), Vec::new());
                        shape.sublevels[*sublevel].push(file);
                    } else {
                        shape.levels[usize::from(*level)].push(file);
                    }
                }
                shape
            };
            let all: Vec<&CompactionJob> = running.iter().collect();
            match name.trim() {
                "oldest read" => oldest_read = SeqNo(rest.parse().expect(line)),
                "ahead of" => {
                    ahead_of = match rest {
                        "L0" => Some(Reason::L0),
                        "Size" => Some(Reason::Size),
                        "Garbage" => Some(Reason::Garbage),
                        _ => panic!("{line}"),
                    }
                }
                "quarantine" => {
                    quarantine = rest.split_whitespace().map(|no| FileNo(no.parse().expect(line))).collect()
                }
                // File and percent of its bytes, `void: 4 50 7 80`
                "void" => {
                    let words: Vec<u64> = rest.split_whitespace().map(|word| word.parse().expect(line)).collect();
                    for pair in words.chunks(2) {
                        let file = files.iter().find(|(_, _, file)| file.no.0 == pair[0]).expect(line);
                        void.insert(file.2.no, file.2.raw_bytes * pair[1] / 100);
                    }
                }
                "dropped" => dropped = Some(IndexId(rest.parse().expect(line))),
                // Files, output level, range: `running: 4 5 to 6 a-f`
                "running" => {
                    let (inputs, output) = rest.split_once(" to ").expect(line);
                    let inputs = inputs.split_whitespace().map(|no| FileNo(no.parse().expect(line))).collect();
                    let (level, range) = output.split_once(' ').expect(line);
                    let (low, high) = range.split_once('-').expect(line);
                    running.push(CompactionJob {
                        inputs: vec![(0, inputs)],
                        output_level: level.parse().expect(line),
                        reason: Reason::Size,
                        action: Action::Merge,
                        bottommost: false,
                        ranges: vec![(parse_key(low), parse_key(high))],
                        bytes: 0,
                    });
                }
                "job" | "scores" => {
                    checked += 1;
                    let shape = shape();
                    let input = PickInput {
                        shape: &shape,
                        running: &all,
                        oldest_read,
                        is_dropped: &|index| Some(index) == dropped,
                        void_bytes: &|no| void.get(&no).copied().unwrap_or(0),
                        is_quarantined: &|no| quarantine.contains(&no),
                        ahead_of,
                    };
                    let found = if name.trim() == "job" {
                        pick(&input, &options()).map_or("none".to_owned(), |job| show_job(&job))
                    } else {
                        let scores = scores(&input, &options());
                        let mut out = format!("base={} sublevels={}", scores.base, scores.sublevels);
                        for level in 0..LEVELS {
                            if scores.levels[level] > 0.0 {
                                out += &format!(" L{level}={:.2}", scores.levels[level]);
                            }
                        }
                        for level in 0..LEVELS {
                            if scores.targets[level] > 0 {
                                out += &format!(" T{level}={}", scores.targets[level]);
                            }
                        }
                        out + &format!(" debt={:.0}", scores.debt_bytes)
                    };
                    if found != rest {
                        wrong.push(format!("{case}\nfound: {found}"));
                    }
                }
                level => {
                    let (level, sublevel) =
                        level.strip_prefix('L').expect(line).split_once('.').unwrap_or((&level[1..], "0"));
                    let (level, sublevel) = (level.parse().expect(line), sublevel.parse().expect(line));
                    files.extend(rest.split_whitespace().map(|word| (level, sublevel, parse_file(word))));
                }
            }
        }
        assert!(checked > 0, "nothing expected in\n{case}");
        cases += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(cases > 15);
}

/// A file and the newest number of each of its keys.
type SimFile = (SstMeta, BTreeMap<Vec<u8>, u64>);

/// What keys in order have of each index.
fn shares<'k>(keys: impl Iterator<Item = &'k Vec<u8>>) -> Arc<[Share]> {
    let mut counts: BTreeMap<IndexId, u32> = BTreeMap::new();
    keys.for_each(|key| *counts.entry(IndexId::of(key)).or_default() += 1);
    if counts.len() < 2 {
        return Arc::default();
    }
    counts.into_iter().map(|(index, entries)| Share { index, entries, tombstones: 0, raw_bytes: entries }).collect()
}

/// A tree of such files, run by the picker.
#[derive(Default)]
struct Sim {
    l0: Vec<SimFile>,
    levels: [Vec<SimFile>; LEVELS],
    next: u64,
    newest: BTreeMap<Vec<u8>, u64>,
}

impl Sim {
    fn file(&mut self, data: BTreeMap<Vec<u8>, u64>) -> SimFile {
        self.next += 1;
        let smallest = data.keys().next().unwrap().clone();
        let shares = shares(data.keys());
        let meta = SstMeta {
            no: FileNo(self.next),
            index: IndexId::of(&smallest),
            file_bytes: data.len() as u64 * 2,
            smallest,
            largest: data.keys().next_back().unwrap().clone(),
            min_seq: SeqNo(*data.values().min().unwrap()),
            max_seq: SeqNo(*data.values().max().unwrap()),
            entries: data.len() as u64,
            tombstones: 0,
            raw_bytes: 0,
            stamped: false,
            key: None,
            superseded: Superseded::default(),
            shares,
        };
        (meta, data)
    }

    fn sublevels(&self) -> Vec<Vec<&SstMeta>> {
        sublevels(self.l0.iter().map(|(meta, _)| meta))
    }

    fn shape(&self) -> Shape<'_> {
        Shape {
            sublevels: self.sublevels(),
            levels: std::array::from_fn(|i| self.levels[i].iter().map(|f| &f.0).collect()),
        }
    }

    fn apply(&mut self, job: &CompactionJob) {
        let taken: HashSet<FileNo> = job.files().collect();
        let mut merged: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut moved = Vec::new();
        let mut found = 0;
        for run in std::iter::once(&mut self.l0).chain(&mut self.levels) {
            run.retain(|file| {
                if !taken.contains(&file.0.no) {
                    return true;
                }
                found += 1;
                if job.action == Action::Move {
                    moved.push(file.clone());
                }
                for (key, seq) in &file.1 {
                    let newest = merged.entry(key.clone()).or_insert(*seq);
                    *newest = (*newest).max(*seq);
                }
                false
            });
        }
        assert_eq!(found, taken.len(), "inputs are in the tree");
        let mut outputs = moved;
        if job.action == Action::Merge {
            let mut data: Vec<(Vec<u8>, u64)> = merged.into_iter().collect();
            while !data.is_empty() {
                let behind = job.ranges.iter().map(|(low, _)| low).find(|low| **low > data[0].0);
                let same = data.iter().take_while(|(key, _)| behind.is_none_or(|behind| key < behind)).count();
                // Within L0 the output is one file per range; L0 files are cut nowhere here.
                let cut = if job.output_level == 0 { same } else { same.min(10) };
                let rest = data.split_off(cut);
                outputs.push(self.file(data.into_iter().collect()));
                data = rest;
            }
        }
        for output in outputs {
            let inside = job.ranges.iter().any(|(low, high)| *low <= output.0.smallest && output.0.largest <= *high);
            assert!(inside, "outputs stay within the announced ranges");
            if job.output_level == 0 {
                self.l0.push(output)
            } else {
                self.levels[usize::from(job.output_level)].push(output)
            }
        }
        for run in &mut self.levels {
            run.sort_by(|a, b| a.0.smallest.cmp(&b.0.smallest));
        }
    }

    fn check(&self) {
        for run in &self.levels {
            assert!(run.windows(2).all(|pair| pair[0].0.largest < pair[1].0.smallest), "a level overlaps");
        }
        let sublevels = self.sublevels();
        for (key, newest) in &self.newest {
            let l0 = sublevels
                .iter()
                .rev()
                .flatten()
                .find_map(|meta| self.l0.iter().find(|file| file.0.no == meta.no).unwrap().1.get(key));
            let found = l0.or_else(|| self.levels.iter().flatten().find_map(|file| file.1.get(key)));
            assert_eq!(found, Some(newest), "newest version of {key:?} is found first");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// Flushes and up to four jobs at a time, finishing in any order, never bring older data above newer data or
    /// overlap in a level; and the work ends.
    #[test]
    fn concurrent_jobs_keep_the_tree_right(
        steps in prop::collection::vec((0u8..10, any::<prop::sample::Index>(), prop::collection::vec((0u32..3, 0u8..60), 1..25)), 1..150),
    ) {
        let mut sim = Sim::default();
        let mut running: Vec<CompactionJob> = Vec::new();
        let options = PickOptions {
            base_bytes: 40,
            target_file_bytes: 20,
            max_job_bytes: 120,
            l0_trigger: 2,
            intra_l0_min: 2,
            multiplier: 3,
            ..PickOptions::default()
        };
        let mut seq = 0;
        let start = |sim: &Sim, running: &[CompactionJob]| {
            let all: Vec<&CompactionJob> = running.iter().collect();
            let shape = sim.shape();
            let input = PickInput { shape: &shape, running: &all, oldest_read: SeqNo::MAX, is_dropped: &|_| false, void_bytes: &|_| 0, is_quarantined: &|_| false, ahead_of: None };
            pick(&input, &options)
        };
        for (what, which, keys) in steps {
            match what {
                0..=3 => {
                    let mut by_index: BTreeMap<u32, BTreeMap<Vec<u8>, u64>> = BTreeMap::new();
                    for (index, key) in keys {
                        seq += 1;
                        let key = [&index.to_be_bytes()[..], &[key]].concat();
                        sim.newest.insert(key.clone(), seq);
                        by_index.entry(index).or_default().insert(key, seq);
                    }
                    // Each index in a file of its own, or all in one.
                    let files: Vec<_> = match what {
                        0 | 1 => vec![by_index.into_values().flatten().collect()],
                        _ => by_index.into_values().collect(),
                    };
                    for data in files {
                        let file = sim.file(data);
                        sim.l0.push(file);
                    }
                }
                4..=7 if running.len() < 4 => running.extend(start(&sim, &running)),
                _ if !running.is_empty() => {
                    let job = running.swap_remove(which.index(running.len()));
                    sim.apply(&job);
                }
                _ => {}
            }
            sim.check();
        }
        for job in running.drain(..) {
            sim.apply(&job);
        }
        let mut jobs = 0;
        while let Some(job) = start(&sim, &[]) {
            sim.apply(&job);
            sim.check();
            jobs += 1;
            prop_assert!(jobs < 2000, "work ends");
        }
        let shape = sim.shape();
        let input = PickInput { shape: &shape, running: &[], oldest_read: SeqNo::MAX, is_dropped: &|_| false, void_bytes: &|_| 0, is_quarantined: &|_| false, ahead_of: None };
        let quiet = scores(&input, &options);
        prop_assert!(quiet.levels.iter().all(|score| *score < 1.0), "{quiet:?}");
    }
}
