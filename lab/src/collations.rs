//! The command `collations`: keys of text follow the order and the equality of every collation that the server has.
//!
//! For each character set there are tables with a column, and a key on it, per collation. All columns of a row hold the same text.
//! Read by its key, a column must come in the order of the server's own comparison, each neighbour not above the next, and each text as
//! the row has it; each text must be found by the key exactly where the comparison says that it is equal; and by a sort that keeps row references
//! every row must come back. Texts are drawn from letters, accents, ligatures, kana, contractions, characters of many weights,
//! controls and spaces.
//!
//! Rejected: comparing with InnoDB. It shares no code with the comparison of values, and would double the time.

use crate::engine::{Conditions, Kind};
use crate::leaks;
use crate::options::{Isolation, Site, seed_of_now};
use crate::server::Instance;
use anyhow::{Context, Result, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;

const DATABASE: &str = "collations";
/// Columns of one table, each with a key.
const COLUMNS: usize = 60;

const PIECES: &[&str] = &[
    "", " ", "a", "A", "b", "B", "c", "h", "ch", "Ch", "cz", "e", "é", "E", "É", "ä", "ae", "æ", "Æ", "ß", "ss", "z",
    "ž", "ll", "lj", "dž", "ij", "i", "ı", "İ", "I", "o", "ö", "oe", "ő", "n", "ñ", "1", "٣", "-", "_", "\u{1}", "\t",
    "\u{ad}", "あ", "ア", "ァ", "が", "か", "日", "本", "中", "丐", "ก", "เก", "α", "Α", "ά", "я", "Я", "ё",
    "\u{fdfa}", "\u{fdfb}", "\u{3300}", "😀", "𝒜", "ﬃ", "ⅷ",
];

/// Options of `collations`.
#[derive(clap::Args)]
pub struct Args {
    /// Only collations whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Texts compared
    #[arg(long, default_value_t = 90)]
    texts: usize,
    /// Seed of the texts [default: by the clock]
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    site: Site,
}

/// The command `collations`.
pub fn run(args: Args) -> Result<()> {
    let seed = args.seed.unwrap_or_else(seed_of_now);
    let instance = Instance::new(&args.site.folder()?, Kind::Strata)?;
    instance.reset()?;
    let conditions = Conditions {
        budget_mb: 64,
        isolation: Isolation::RepeatableRead,
        extra: vec!["sync_binlog=0".into()],
        strata_extra: vec!["strata_flush_log_at_trx_commit=0".into()],
    };
    let mut server = instance.start(&conditions)?;
    let mut conn = instance.fresh_database(DATABASE)?;
    conn.query_drop("SET default_storage_engine=STRATA, NAMES utf8mb4, sql_mode=''")?;
    let texts = texts(seed, args.texts);
    let mut wrong = Vec::new();
    let mut checked = 0;
    for (set, collations) in collations(&mut conn, &args.only)? {
        for some in collations.chunks(COLUMNS) {
            let found = check(&mut conn, &set, some, &texts).with_context(|| format!("character set {set}"));
            // A server that has ended says more than the lost session.
            server.ensure_alive()?;
            wrong.extend(found?);
            checked += some.len();
        }
    }
    drop(conn);
    leaks::end(server, conditions.budget_mb)?;
    for what in &wrong {
        println!("{what}");
    }
    println!("{checked} collations, {} texts from seed {seed}", texts.len());
    ensure!(checked > 0, "no collation was checked");
    ensure!(wrong.is_empty(), "{} keys are not as their collations", wrong.len());
    Ok(())
}

/// The collations of each character set.
fn collations(conn: &mut Conn, only: &str) -> Result<BTreeMap<String, Vec<String>>> {
    let all: Vec<(String, String)> = conn.query(
        "SELECT character_set_name, full_collation_name FROM information_schema.collation_character_set_applicability \
         WHERE full_collation_name <> 'binary' ORDER BY 1, 2",
    )?;
    let mut by_set: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (set, collation) in all {
        if collation.contains(only) {
            by_set.entry(set).or_default().push(collation);
        }
    }
    Ok(by_set)
}

fn texts(seed: u64, count: usize) -> Vec<String> {
    let mut rng = SmallRng::seed_from_u64(seed);
    // What was found wrong once.
    let mut texts: Vec<String> =
        ["e", "é", "あ", "ア", "ßßßß", "\u{fdfa}\u{fdfa}\u{fdfa}\u{fdfa}", "a", "a ", ""].map(str::to_owned).to_vec();
    while texts.len() < count {
        let pieces = rng.random_range(1..4);
        texts.push((0..pieces).map(|_| *PIECES.choose(&mut rng).expect("not empty")).collect());
    }
    texts
}

/// What is wrong with some collations of a character set.
fn check(conn: &mut Conn, set: &str, collations: &[String], texts: &[String]) -> Result<Vec<String>> {
    let columns: Vec<String> = (0..collations.len()).map(|n| format!("c{n}")).collect();
    let of_each = |form: &dyn Fn(&str, &String) -> String| -> String {
        columns.iter().zip(collations).map(|(c, collation)| form(c, collation)).collect::<Vec<_>>().join(", ")
    };
    conn.query_drop(format!(
        "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, {}, {})",
        of_each(&|c, collation| format!("{c} VARCHAR(12) CHARACTER SET {set} COLLATE {collation}")),
        of_each(&|c, _| format!("KEY {c} ({c})")),
    ))?;
    for (id, text) in texts.iter().enumerate() {
        let text = text.replace('\\', "\\\\").replace('\'', "''");
        conn.query_drop(format!("INSERT INTO t VALUES ({id}, {})", of_each(&|_, _| format!("'{text}'"))))?;
    }
    let mut wrong = Vec::new();
    for (c, collation) in columns.iter().zip(collations) {
        let by_key: Vec<u32> = conn.query(format!("SELECT id FROM t FORCE INDEX ({c}) ORDER BY {c}"))?;
        if by_key.len() != texts.len() {
            wrong.push(format!("{collation}: {} of {} rows by the key", by_key.len(), texts.len()));
            continue;
        }
        wrong.extend(check_covering(conn, collation, c)?);
        conn.query_drop("CREATE OR REPLACE TEMPORARY TABLE place (id INT PRIMARY KEY, n INT, KEY (n)) ENGINE=MEMORY")?;
        let places: Vec<String> = by_key.iter().enumerate().map(|(n, id)| format!("({id},{n})")).collect();
        conn.query_drop(format!("INSERT INTO place VALUES {}", places.join(",")))?;
        let above: Vec<(String, String)> = conn.query(format!(
            "SELECT HEX(a.{c}), HEX(b.{c}) FROM place p STRAIGHT_JOIN place q ON q.n = p.n + 1 \
             STRAIGHT_JOIN t a ON a.id = p.id STRAIGHT_JOIN t b ON b.id = q.id WHERE a.{c} > b.{c}"
        ))?;
        wrong.extend(above.into_iter().take(2).map(|(a, b)| format!("{collation}: {a} stands before {b}")));
        let unequal: Vec<(String, u32, u32)> = conn.query(format!(
            "SELECT HEX(a.{c}), (SELECT COUNT(*) FROM t b FORCE INDEX ({c}) WHERE b.{c} = a.{c}) AS k, \
             (SELECT COUNT(*) FROM t d IGNORE INDEX ({c}) WHERE d.{c} = a.{c}) AS v FROM t a HAVING k <> v"
        ))?;
        wrong.extend(
            unequal
                .into_iter()
                .take(2)
                .map(|(a, k, v)| format!("{collation}: {a} equals {k} texts by the key, {v} by value")),
        );
    }
    wrong.extend(check_references(conn, set, collations, &columns)?);
    Ok(wrong)
}

/// What is read from the key alone is what the rows have, byte by byte.
fn check_covering(conn: &mut Conn, collation: &str, c: &str) -> Result<Vec<String>> {
    let read = |conn: &mut Conn, hint: &str| -> Result<BTreeMap<u32, String>> {
        let rows: Vec<(u32, String)> = conn.query(format!("SELECT id, HEX({c}) FROM t {hint} INDEX ({c})"))?;
        Ok(rows.into_iter().collect())
    };
    let (rows, keys) = (read(conn, "IGNORE")?, read(conn, "FORCE")?);
    let differing = rows.iter().filter(|&(id, text)| keys.get(id) != Some(text)).take(2);
    let told = differing.map(|(id, text)| format!("{collation}: {text} is {:?} by the key", keys.get(id)));
    Ok(told.collect())
}

/// Rows are found again by their references, where the text is the primary key.
fn check_references(conn: &mut Conn, set: &str, collations: &[String], columns: &[String]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (c, collation) in columns.iter().zip(collations) {
        conn.query_drop(format!(
            "CREATE OR REPLACE TABLE r (k VARCHAR(12) CHARACTER SET {set} COLLATE {collation} PRIMARY KEY, b TEXT) \
             SELECT {c} AS k, 'x' AS b FROM t GROUP BY {c}"
        ))?;
        let rows: Option<u32> = conn.query_first("SELECT COUNT(*) FROM r")?;
        let sorted: Vec<(String, String)> = conn.query("SELECT HEX(k), b FROM r ORDER BY b")?;
        if rows != Some(sorted.len() as u32) {
            wrong.push(format!("{collation}: {} of {rows:?} rows by reference", sorted.len()));
        }
    }
    Ok(wrong)
}
