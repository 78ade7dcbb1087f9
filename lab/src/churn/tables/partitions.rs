//! Statements that change a table's partitions.

use super::super::world::{Grain, Parts, Table, ranged};
use super::{Change, IDS, Tables};

/// The server finds that definitions differ where the shadow sees none.
const DIFFERENT: u16 = 1736;

impl Tables {
    /// A statement on the partitions of a table, or on its rows when it has none.
    pub(super) fn partition(&mut self) -> Change {
        let divided: Vec<String> =
            self.world.iter().filter(|(_, table)| table.parts != Parts::Single).map(|(name, _)| name.clone()).collect();
        if divided.is_empty() {
            return self.divide();
        }
        let name = divided[self.at(divided.len())].clone();
        match self.world[&name].parts.clone() {
            Parts::Single => self.rows(),
            Parts::Hash(count) => self.by_hash(&name, count),
            Parts::Range(ends) => self.by_range(&name, &ends),
        }
    }

    fn at(&mut self, len: usize) -> usize {
        use rand::RngExt;
        self.rng.random_range(0..len)
    }

    /// Gives a table partitions, or takes them.
    fn divide(&mut self) -> Change {
        let name = self.any();
        let table = self.world[&name].clone();
        let parts = match table.parts {
            Parts::Single if self.at(2) == 0 => Parts::Hash(3),
            // Rows must have a place.
            Parts::Single => Parts::Range(vec![("p1".into(), IDS / 2), ("p2".into(), IDS)]),
            _ => Parts::Single,
        };
        let what = if parts == Parts::Single { "REMOVE PARTITIONING".into() } else { parts.to_string() };
        let table = Table { parts, ..table };
        Change::new(format!("ALTER TABLE {name} {what}"), self.with(&name, table))
    }

    fn by_hash(&mut self, name: &str, count: i64) -> Change {
        let table = self.world[name].clone();
        let (what, parts) = match self.at(4) {
            0 if count < 6 => ("ADD PARTITION PARTITIONS 1", Parts::Hash(count + 1)),
            1 if count > 2 => ("COALESCE PARTITION 1", Parts::Hash(count - 1)),
            2 => ("REMOVE PARTITIONING", Parts::Single),
            _ => return self.empty_part(name, count as usize, "p0", 0),
        };
        Change::new(format!("ALTER TABLE {name} {what}"), self.with(name, Table { parts, ..table }))
    }

    /// Empties one partition, or as in one case of four, all of them.
    fn empty_part(&mut self, name: &str, count: usize, part: &str, number: usize) -> Change {
        let mut table = self.world[name].clone();
        let whole = table.clone();
        let all = self.at(4) == 0;
        table.rows.retain(|id, _| !all && whole.part_of(*id) != number);
        let part = if all { "ALL" } else { part };
        let grain = if all && count > 1 { Grain::EachPartition } else { Grain::Whole };
        Change { grain, ..Change::new(format!("ALTER TABLE {name} TRUNCATE PARTITION {part}"), self.with(name, table)) }
    }

    fn by_range(&mut self, name: &str, ends: &[(String, i64)]) -> Change {
        let mut table = self.world[name].clone();
        let at = self.at(ends.len());
        let (part, end) = ends[at].clone();
        let begin = if at == 0 { 0 } else { ends[at - 1].1 };
        let mut ends = ends.to_vec();
        // Names come again, too.
        let fresh = |ends: &[(String, i64)]| {
            (1..).map(|n| format!("p{n}")).find(|name| ends.iter().all(|end| end.0 != *name)).unwrap_or_default()
        };
        let what = match self.at(9) {
            0 if ends.len() < 6 && ends.last().is_some_and(|last| last.1 < IDS) => {
                let new = (fresh(&ends), IDS);
                let what = format!("ADD PARTITION ({})", ranged(&new.0, new.1));
                ends.push(new);
                what
            }
            1 | 2 if ends.len() > 1 => {
                let whole = table.clone();
                table.rows.retain(|id, _| whole.part_of(*id) != at);
                ends.remove(at);
                format!("DROP PARTITION {part}")
            }
            3 if ends.len() < 6 && end - begin > 2 => {
                let new = (fresh(&ends), (begin + end) / 2);
                let (one, two) = (ranged(&new.0, new.1), ranged(&part, end));
                ends.insert(at, new);
                format!("REORGANIZE PARTITION {part} INTO ({one}, {two})")
            }
            4 if at > 0 => {
                let into = ranged(&part, end);
                let before = ends.remove(at - 1).0;
                format!("REORGANIZE PARTITION {before}, {part} INTO ({into})")
            }
            5 | 6 => return self.exchange(name, at, &part),
            7 => return self.empty_part(name, ends.len(), &part, at),
            8 => return self.divide(),
            _ => return self.rows(),
        };
        table.parts = Parts::Range(ends);
        Change::new(format!("ALTER TABLE {name} {what}"), self.with(name, table))
    }

    /// With a table of the same definition whose rows have a place in the partition, if there is one.
    fn exchange(&mut self, name: &str, at: usize, part: &str) -> Change {
        let table = self.world[name].clone();
        let fits = |other: &Table| {
            other.parts == Parts::Single
                && other.looks_like(&table)
                && other.rows.keys().all(|id| table.part_of(*id) == at)
        };
        let Some(other) = self.world.iter().find(|(_, other)| fits(other)).map(|(name, _)| name.clone()) else {
            return if self.world.len() < super::NAMES { self.create_select() } else { self.rows() };
        };
        let (mut one, mut two) = (table.clone(), self.world[&other].clone());
        one.rows.retain(|id, _| table.part_of(*id) != at);
        one.rows.extend(std::mem::take(&mut two.rows));
        two.rows = table.rows.iter().filter(|(id, _)| table.part_of(**id) == at).map(|(id, row)| (*id, *row)).collect();
        let mut after = self.with(name, one);
        after.insert(other.clone(), two);
        Change {
            refusals: &[DIFFERENT],
            ..Change::new(format!("ALTER TABLE {name} EXCHANGE PARTITION {part} WITH TABLE {other}"), after)
        }
    }
}
