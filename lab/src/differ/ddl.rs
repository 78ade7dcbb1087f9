//! What becomes of the tables of a program.

use super::schema::{Column, Partitions};
use super::statement::Author;
use rand::RngExt;
use rand::seq::IndexedRandom;

impl Author<'_> {
    /// Changes a table of the session that writes.
    pub(super) fn ddl(&mut self, t: usize) {
        let name = self.table(t).name.clone();
        self.free(&name);
        match self.rng.random_range(0..21) {
            0 => self.write(format!("TRUNCATE TABLE {name}")),
            1 => {
                let mut table = self.tables[t].clone();
                let column = table.random_column(self.rng);
                self.write(format!(
                    "ALTER TABLE {name} ADD COLUMN {} {}, ALGORITHM=COPY",
                    column.name, column.definition
                ));
                table.columns.push(column);
                self.tables[t] = table;
            }
            2 | 3 => {
                let mut table = self.tables[t].clone();
                if let Some(key) = table.random_key(self.rng) {
                    self.write(format!("ALTER TABLE {name} ADD {}, ALGORITHM=COPY", key.definition));
                    table.keys.push(key);
                    self.tables[t] = table;
                }
            }
            4 => {
                let droppable: Vec<usize> =
                    (0..self.table(t).keys.len()).filter(|&n| self.table(t).keys[n].name != "uid").collect();
                if let Some(&n) = droppable.choose(self.rng) {
                    let key = self.tables[t].keys.remove(n);
                    self.write(format!("ALTER TABLE {name} DROP KEY {}, ALGORITHM=COPY", key.name));
                }
            }
            5 => self.write(format!("ALTER TABLE {name} FORCE, ALGORITHM=COPY")),
            6 => self.write(format!("ANALYZE TABLE {name}")),
            7 if self.table(t).partitions.is_some() => {
                self.write(format!("ALTER TABLE {name} REMOVE PARTITIONING, ALGORITHM=COPY"));
                self.tables[t].partitions = None;
            }
            8 if !self.table(t).has_virtual() => {
                let new = self.name("r");
                self.write(format!("RENAME TABLE {name} TO {new}"));
                self.tables[t].name = new;
            }
            9 => {
                let copy = self.name("copy");
                self.write(format!("CREATE TABLE {copy} AS SELECT * FROM {name}"));
                self.write(format!("SELECT * FROM {copy}"));
                self.write(format!("DROP TABLE {copy}"));
            }
            10..=14 if self.table(t).partitions.is_some() => self.partitions(t),
            20 if self.table(t).partitions.is_none() => self.number_rows(t),
            15..=18 if !self.table(t).has_virtual() => self.alter_column(t),
            _ => self.write(format!("CHECK TABLE {name}")),
        }
    }

    /// The rows get numbers for a while, in the order in which they lie.
    fn number_rows(&mut self, t: usize) {
        let name = self.table(t).name.clone();
        let (place, key) =
            ([" FIRST", ""][self.rng.random_range(0..2)], ["KEY", "UNIQUE KEY"][self.rng.random_range(0..2)]);
        self.write(format!(
            "ALTER TABLE {name} ADD COLUMN number SMALLINT AUTO_INCREMENT{place}, ADD {key} number (number)"
        ));
        self.write(format!("SELECT id, number FROM {name}"));
        self.write(format!("ALTER TABLE {name} DROP COLUMN number"));
    }

    /// A column comes, goes, or changes its place or name, and the engines choose how: in place, if they can.
    fn alter_column(&mut self, t: usize) {
        let mut table = self.tables[t].clone();
        let name = table.name.clone();
        let free: Vec<usize> = (1..table.columns.len()).filter(|&n| table.is_free(n)).collect();
        let place = match self.rng.random_range(0..3) {
            0 => " FIRST".to_owned(),
            1 => format!(" AFTER {}", table.column(self.rng).name),
            _ => String::new(),
        };
        let change = match (self.rng.random_range(0..4), free.choose(self.rng)) {
            (1, Some(&n)) if table.columns.len() > 3 => {
                let column = table.drop_column(n);
                format!("DROP COLUMN {}", column.name)
            }
            (2, Some(&n)) => {
                let old = table.columns[n].name.clone();
                table.columns[n].name = self.name("n");
                format!("RENAME COLUMN {old} TO {}", table.columns[n].name)
            }
            (3, Some(&n)) if !place.ends_with(&format!(" {}", table.columns[n].name)) => {
                let column = &table.columns[n];
                format!("MODIFY {} {}{place}", column.name, column.definition)
            }
            _ => {
                let column = loop {
                    let column = table.random_column(self.rng);
                    if !column.definition.ends_with("VIRTUAL") {
                        break column;
                    }
                };
                let change = format!("ADD COLUMN {} {}{place}", column.name, column.definition);
                table.columns.push(column);
                change
            }
        };
        self.write(format!("ALTER TABLE {name} {change}"));
        self.tables[t] = table;
        self.select(self.me, t);
    }

    fn partitions(&mut self, t: usize) {
        let table = self.table(t).clone();
        let name = &table.name;
        let Some(partitions) = table.partitions else { return };
        match (self.rng.random_range(0..5), &partitions) {
            (0, _) => self.write(format!("ALTER TABLE {name} REBUILD PARTITION ALL")),
            (1, Partitions::Range) => {
                let bound = self.rng.random_range(2..30);
                self.write(format!(
                    "ALTER TABLE {name} REORGANIZE PARTITION p0, p1 INTO (PARTITION p0 VALUES LESS THAN ({bound}), \
                     PARTITION p1 VALUES LESS THAN (30))"
                ));
            }
            (1, _) => {
                let change = ["ADD PARTITION PARTITIONS 2", "COALESCE PARTITION 1"][self.rng.random_range(0..2)];
                self.write(format!("ALTER TABLE {name} {change}"));
            }
            (2, _) => {
                let partition = partitions.one(self.rng);
                self.write(format!("ALTER TABLE {name} TRUNCATE PARTITION {partition}"));
            }
            _ => {
                let partition = partitions.one(self.rng);
                self.exchange(t, &partition);
            }
        }
    }

    /// A partition changes places with a table, and back again with what was done to either.
    fn exchange(&mut self, t: usize, partition: &str) {
        let name = self.table(t).name.clone();
        let other = self.name("e");
        self.write(format!("CREATE TABLE {other} LIKE {name}"));
        self.write(format!("ALTER TABLE {other} REMOVE PARTITIONING, ALGORITHM=COPY"));
        let exchange = format!("ALTER TABLE {name} EXCHANGE PARTITION {partition} WITH TABLE {other}");
        self.write(exchange.clone());
        self.write(format!("SELECT * FROM {other}"));
        self.select(self.me, t);
        let columns: Vec<Column> = self.table(t).columns.iter().filter(|c| !c.generated).cloned().collect();
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        let names = names.join(", ");
        match self.rng.random_range(0..4) {
            0 => self.write(format!("INSERT IGNORE INTO {name} ({names}) SELECT {names} FROM {other} ORDER BY id")),
            1 => self.write(format!("DELETE FROM {other} WHERE id % 2 = 0")),
            2 => self.write(exchange),
            _ => {
                self.insert(t);
                self.write(exchange);
            }
        }
        self.write(format!("CHECK TABLE {other} EXTENDED"));
        self.write(format!("DROP TABLE {other}"));
    }
}
