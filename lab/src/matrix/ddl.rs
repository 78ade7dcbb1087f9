//! Crashes within statements that make, change and drop tables.
//!
//! The second server is the shadow: it has the same tables and runs the same statement to its end. What it shows before
//! and after (definitions, rows, what each table's check says, the files of the database's folder) are the only two
//! pictures that the crashed server may show, and at some steps only one of them: what its engine has made durable decides,
//! or the server's own record of the statement does. The second picture's counters may be ahead, never behind. One file is no
//! part of it ([`churn::is_list_of_partitions`]).

use super::{Matrix, PATIENCE};
use crate::churn;
use crate::drive::is_lost;
use crate::leaks;
use crate::server::Instance;
use anyhow::{Context, Result, bail, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;

const DATABASE: &str = "ddl";
/// What other statements must find as it was, and what the cases change.
const TABLES: &[&str] = &[
    "CREATE TABLE other (id INT PRIMARY KEY, v VARCHAR(100), KEY (v)) ENGINE=STRATA",
    "INSERT INTO other SELECT seq, REPEAT('o', seq % 90) FROM seq_1_to_500",
    "CREATE TABLE d (id INT AUTO_INCREMENT PRIMARY KEY, v INT, w VARCHAR(200), KEY (v)) ENGINE=STRATA",
    "INSERT INTO d (v, w) SELECT seq % 7, REPEAT('d', 150) FROM seq_1_to_2000",
    "CREATE TABLE e (id INT PRIMARY KEY, v INT NOT NULL) ENGINE=STRATA",
    "INSERT INTO e SELECT seq, seq FROM seq_1_to_100",
];
/// More than a write buffer holds before it goes to files.
const LARGE: &[&str] = &["INSERT INTO d (v, w) SELECT seq % 7, REPEAT('f', 190) FROM seq_1_to_30000"];
/// What a case raises the counter to; no row has such a number.
const RAISED: u64 = 50_000;

/// Steps that may come after the statement.
const LATE: &[&str] = &["drop-recorded", "indexes-dropped", "notes-removed", "takeover-begins", "taken-over"];

/// Which pictures may be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum May {
    Before,
    After,
    Either,
}

use May::{After, Before, Either};

/// All indexes are made anew, and the old ones go with the change that gives the table the new ones; the first seven where none goes.
const REBUILT: &[(&str, May)] = &[
    ("change-ordered", Before),
    ("change-durable", Before),
    ("build-begun", Before),
    ("ingest-written", Before),
    ("ingested", Before),
    ("change-ordered:2", Before),
    ("change-durable:2", After),
    ("drop-recorded", After),
    ("indexes-dropped", After),
    ("notes-removed", After),
];

struct Case {
    statement: &'static str,
    /// What comes before it, beside `TABLES`.
    more: &'static [&'static str],
    /// Step and its number, as `STRATA_CRASH_AT` takes them.
    at: &'static [(&'static str, May)],
}

fn cases() -> Vec<Case> {
    let case = |statement, at| Case { statement, more: &[], at };
    vec![
        case(
            "CREATE TABLE n (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE=STRATA",
            // The server undoes one that it has not logged.
            &[("change-ordered", Before), ("change-durable", Before)],
        ),
        case(
            "DROP TABLE d",
            // The server ends one that it has begun.
            &[
                ("change-ordered", After),
                ("change-durable", After),
                ("drop-recorded", After),
                ("indexes-dropped", After),
                ("notes-removed", After),
            ],
        ),
        case(
            "TRUNCATE TABLE d",
            // The engine alone decides.
            &[
                ("change-ordered", Before),
                ("change-durable", After),
                ("drop-recorded", After),
                ("indexes-dropped", After),
                ("notes-removed", After),
            ],
        ),
        // The server undoes it unless it is in the binary log.
        case("RENAME TABLE d TO r", &[("change-ordered", Before), ("change-durable", Before)]),
        case(
            "RENAME TABLE d TO r, e TO d, r TO e",
            &[("change-ordered:2", Before), ("change-durable:2", Before), ("change-durable:3", Before)],
        ),
        case(
            "ALTER TABLE d ADD COLUMN x INT NOT NULL DEFAULT 5, ADD KEY (w), ALGORITHM=COPY",
            &[
                ("change-ordered", Before),
                ("change-durable", Before),
                ("fill-ended", Before),
                ("commit-durable", Before),
                ("change-durable:2", Either),
                ("change-durable:3", Either),
                ("change-durable:4", Either),
                ("drop-recorded", Either),
                ("indexes-dropped", Either),
                ("notes-removed", Either),
            ],
        ),
        Case {
            statement: "ALTER TABLE d ADD COLUMN x INT NOT NULL DEFAULT 5, ALGORITHM=COPY",
            more: LARGE,
            at: &[
                ("fill-ended", Before),
                ("files-written", Before),
                ("ordered", Before),
                ("commit-durable", Before),
                // The flush runs beside the rest of the statement.
                ("takeover-begins", Either),
                ("taken-over", Either),
            ],
        },
        // The engine alone decides: after a crash the server asks it which definition it has, and ends or forgets the statement.
        case(
            "ALTER TABLE d ADD COLUMN x INT NOT NULL DEFAULT 5 FIRST, ALGORITHM=INSTANT",
            &[("change-ordered", Before), ("change-durable", After)],
        ),
        case(
            "ALTER TABLE d DROP COLUMN w, RENAME COLUMN v TO u, RENAME INDEX v TO u, ALGORITHM=INSTANT",
            &[("change-ordered", Before), ("change-durable", After)],
        ),
        case(
            "ALTER TABLE d MODIFY COLUMN w VARCHAR(250) FIRST, ALTER COLUMN v SET DEFAULT 3, ALGORITHM=INSTANT",
            &[("change-ordered", Before), ("change-durable", After)],
        ),
        // All partitions are one change.
        Case {
            statement: "ALTER TABLE d ADD COLUMN x INT DEFAULT 5 AFTER id, DROP COLUMN w, ALGORITHM=INSTANT",
            more: &["ALTER TABLE d PARTITION BY HASH (id) PARTITIONS 4"],
            at: &[("change-ordered", Before), ("change-durable", After)],
        },
        Case {
            statement: "CREATE INDEX w ON d (w)",
            more: LARGE,
            at: &[("files-written", Before), ("takeover-begins", Either), ("taken-over", Either)],
        },
        // What is made beside writers. The first change of the catalog reserves numbers, the second gives the table what was made.
        case("ALTER TABLE d ADD KEY w (w, v), ADD UNIQUE KEY u (v, id), ALGORITHM=NOCOPY, LOCK=NONE", &REBUILT[..7]),
        case(
            "ALTER TABLE e DROP PRIMARY KEY, ADD PRIMARY KEY (v DESC, id), ADD KEY i (id), ALGORITHM=INPLACE, LOCK=NONE",
            REBUILT,
        ),
        case("ALTER TABLE d COMPRESSION='none', FORCE, ALGORITHM=INPLACE, LOCK=NONE", REBUILT),
        // An index beside a change at once, which is another definition of the rows.
        case(
            "ALTER TABLE d ADD COLUMN x INT NOT NULL DEFAULT 5 FIRST, ADD KEY x (x, w(10)), ALGORITHM=NOCOPY, LOCK=NONE",
            &[
                ("build-begun", Before),
                ("ingest-written", Before),
                ("ingested", Before),
                ("change-ordered:2", Before),
                ("change-durable:2", After),
            ],
        ),
        // Of all partitions; one record decides.
        Case {
            statement: "ALTER TABLE d ADD UNIQUE KEY u (v, id), ALGORITHM=NOCOPY, LOCK=NONE",
            more: &["ALTER TABLE d PARTITION BY HASH (id) PARTITIONS 3"],
            at: &[
                ("build-begun", Before),
                ("build-begun:3", Before),
                ("ingested:2", Before),
                ("ingest-written:3", Before),
                ("change-ordered:4", Before),
                ("change-durable:4", After),
            ],
        },
        // The statement commits by itself: its rows are no part of the counter's write.
        case("INSERT INTO d (v) SELECT seq FROM seq_1_to_3000", &[("counter-ordered", Before)]),
        Case {
            statement: "ALTER TABLE d AUTO_INCREMENT = 50000",
            more: &[],
            at: &[("fill-ended", Before), ("change-durable:2", Either)],
        },
    ]
}

/// What can be seen of the database.
#[derive(PartialEq, Eq, Debug)]
struct Picture(Vec<String>);

impl Matrix {
    /// All cases whose name contains `only`.
    pub(super) fn ddl(&mut self, wanted: impl Fn(&str) -> bool) -> Result<()> {
        for case in cases().iter().filter(|case| wanted(case.statement)) {
            let (before, after) = self.shadow(case).with_context(|| format!("{}, on the shadow", case.statement))?;
            ensure!(before != after, "{} changes nothing", case.statement);
            for &(step, may) in case.at {
                self.ddl_case(case, step, may, &before, &after)
                    .with_context(|| format!("{} at {step}", case.statement))?;
            }
        }
        Ok(())
    }

    fn shadow(&self, case: &Case) -> Result<(Picture, Picture)> {
        let mut conn = self.replica.connect(None)?;
        fill(&mut conn, case)?;
        let before = picture(&mut conn, &self.replica)?;
        conn.query_drop(case.statement)?;
        let after = picture(&mut conn, &self.replica)?;
        conn.query_drop(format!("DROP DATABASE {DATABASE}"))?;
        Ok((before, after))
    }

    fn ddl_case(&mut self, case: &Case, step: &str, may: May, before: &Picture, after: &Picture) -> Result<()> {
        let server = self.start(None)?;
        let mut conn = server.connect(None)?;
        fill(&mut conn, case)?;
        drop(conn);
        server.stop()?;

        let server = self.start(Some(step))?;
        let mut conn = server.connect(Some(DATABASE))?;
        let acknowledged = match conn.query_drop(case.statement) {
            // What a drop leaves is cleared up at the latest by the housekeeping of that second; a flush takes its time.
            Ok(()) if LATE.contains(&step) => true,
            Ok(()) => bail!("the server did not end itself"),
            Err(error) if is_lost(&error) => false,
            Err(error) => return Err(error.into()),
        };
        drop(conn);
        server.wait_ended(PATIENCE)?;
        let said = self.source.log().metadata()?.len();

        let mut server = self.start(None)?;
        let mut conn = server.connect(Some(DATABASE))?;
        let found = picture(&mut conn, &self.source)?;
        let state = match (found == *before, found == *after) {
            (true, _) => "before",
            (_, true) => "after",
            _ => "something else",
        };
        let right = match may {
            Before => state == "before",
            After => state == "after",
            Either if acknowledged => state == "after",
            Either => state != "something else",
        };
        if !right {
            let what = format!("{} at {step}: what is there is {state}: {:#?}", case.statement, found.0);
            self.wrong.push(what);
        }
        let log = std::fs::read(self.source.log())?;
        let log = String::from_utf8_lossy(log.get(said as usize..).unwrap_or_default()).into_owned();
        for orphan in ["belong to no table", "[ERROR]"] {
            if let Some(line) = log.lines().find(|line| line.contains(orphan)) {
                self.wrong.push(format!("{} at {step}: the server says: {line}", case.statement));
            }
        }
        // Ids and names that the statement used must not be in the way of the next.
        if state == "before" {
            conn.query_drop(case.statement).context("the statement, once more")?;
            let again = picture(&mut conn, &self.source)?;
            if again != *after {
                self.wrong.push(format!("{} at {step}, once more: {:#?}", case.statement, again.0));
            }
        }
        println!("{} at {step}: {state}", case.statement);
        let short = case.statement.split(" (id").next().unwrap_or_default();
        self.rows.push([short.into(), step.into(), state.into(), "-".into(), String::new()]);
        conn.query_drop(format!("DROP DATABASE {DATABASE}"))?;
        drop(conn);
        leaks::at_rest(&mut server, self.conditions.budget_mb)?;
        server.kill()
    }
}

fn fill(conn: &mut Conn, case: &Case) -> Result<()> {
    conn.query_drop("SET SESSION sql_log_bin = 0")?;
    conn.query_drop(format!("DROP DATABASE IF EXISTS {DATABASE}"))?;
    conn.query_drop(format!("CREATE DATABASE {DATABASE}"))?;
    conn.query_drop(format!("USE {DATABASE}"))?;
    for statement in TABLES.iter().chain(case.more) {
        conn.query_drop(statement)?;
    }
    Ok(())
}

/// A definition with no more of its counter than whether it is past all rows: after a crash it may be some values ahead.
fn without_counter(made: &str) -> String {
    let Some((head, tail)) = made.split_once(" AUTO_INCREMENT=") else { return made.to_owned() };
    let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
    let raised = tail[..digits].parse::<u64>().is_ok_and(|next| next >= RAISED);
    format!("{head}{}{}", if raised { " (counter raised)" } else { "" }, &tail[digits..])
}

fn picture(conn: &mut Conn, instance: &Instance) -> Result<Picture> {
    let mut lines = Vec::new();
    let tables: Vec<String> = conn.query("SHOW TABLES")?;
    for table in &tables {
        let (_, made): (String, String) =
            conn.query_first(format!("SHOW CREATE TABLE {table}"))?.context("no table")?;
        lines.push(without_counter(&made));
        let columns: Vec<String> = conn.query(format!(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = '{DATABASE}' AND table_name = '{table}'"
        ))?;
        let rows: (u64, Option<u64>) = conn
            .query_first(format!(
                "SELECT COUNT(*), CAST(SUM(CRC32(CONCAT_WS(',', {}))) AS UNSIGNED) FROM {table}",
                columns.join(", ")
            ))?
            .context("no sum")?;
        lines.push(format!("{table}: {rows:?}"));
        let told: Vec<(String, String, String, String)> = conn.query(format!("CHECK TABLE {table} EXTENDED"))?;
        lines.extend(told.into_iter().map(|row| format!("{}: {}", row.0, row.3)));
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(instance.data().join(DATABASE))? {
        let path = entry?.path();
        if churn::is_list_of_partitions(&path) {
            // In the way of DROP DATABASE.
            std::fs::remove_file(&path)?;
            continue;
        }
        files.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
    }
    files.sort();
    lines.extend(files);
    Ok(Picture(lines))
}
