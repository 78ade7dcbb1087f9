//! The command `salvage`: the files of a store are damaged, `strata-tool salvage` makes SQL of what is left, and a fresh server loads it.
//!
//! First nothing is damaged: then every table must come back as it was, its definition (`SHOW CREATE TABLE`) and its rows, of every
//! type, character set and kind of table. Then files are flipped, cut, emptied and removed at random, and of each table whatever comes
//! back must have been in it, and what is missing must be within what the report says is lost. `strata-tool verify` must say the same:
//! clean, or damaged. Of the store that is whole `list` and `dump` must show every table, every table file with all of its versions, and the
//! rows that are in the log only; and no store is read that a server has open.

use crate::crash::fail_if;
use crate::engine::Conditions;
use crate::options::{Isolation, ToolTrial};
use crate::server::Instance;
use anyhow::{Context, Result, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::RngExt;
use rand::rngs::SmallRng;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DATABASE: &str = "salvage";
/// Tables of every kind; behind the line with the checkpoint what stays in the log.
const TABLES: &str = include_str!("salvage/tables.sql");

/// Options of `salvage`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    of: ToolTrial,
}

/// A table, as a server shows it.
#[derive(PartialEq, Eq)]
struct Shown {
    definition: String,
    rows: BTreeSet<String>,
}

type Content = BTreeMap<String, Shown>;

/// The command `salvage`.
pub fn run(args: Args) -> Result<()> {
    let tool = args.of.tool("strata-tool")?;
    let (seed, mut rng, folder) = args.of.trial.begin("salvage", "damage and salvage")?;
    let extra = args.of.trial.server_options()?;
    let conditions = Conditions { budget_mb: 64, isolation: Isolation::RepeatableRead, extra, strata_extra: vec![] };
    let origin = Instance::new(&folder.join("origin"), args.of.trial.engine)?;
    let content = fill(&origin, &conditions, &mut rng)?;
    let fresh = Instance::new(&folder.join("fresh"), args.of.trial.engine)?;
    fresh.reset()?;
    let server = fresh.start(&conditions)?;
    for round in 0..=args.of.trial.rounds {
        let damaged = folder.join("damaged");
        let _ = fs::remove_dir_all(&damaged);
        fs::create_dir_all(&damaged)?;
        let store = damaged.join("#strata");
        let status = Command::new("cp").arg("-a").arg(origin.data().join("#strata")).arg(&store).status()?;
        ensure!(status.success(), "the store cannot be copied");
        let what = if round == 0 { "nothing".to_owned() } else { damage(&store, &mut rng)? };
        let keys = args.of.trial.encrypted.then(|| origin.key_file());
        let told = salvage(&tool, &store, &origin.data(), &damaged.join("out"), keys.as_deref())
            .with_context(|| format!("round {round}, {what}, seed {seed}"))?;
        let mut conn = fresh.connect(None)?;
        conn.query_drop(format!("DROP DATABASE IF EXISTS {DATABASE}"))?;
        load(&fresh, &damaged.join("out"))?;
        let found = shown(&mut conn)?;
        let mut wrong = Vec::new();
        let missing = compare(&content, &found, round == 0, told.versions < u64::MAX, &mut wrong);
        if missing > told.versions {
            wrong.push(format!("{missing} rows are missing, and the report knows of {} versions", told.versions));
        }
        let mut verify = Command::new(&tool);
        verify.arg("verify").arg(&store).args(key_words(keys.as_deref())).stdout(Stdio::null()).stderr(Stdio::null());
        let is_clean = verify.status()?.success();
        if round == 0 {
            let open = fresh.data().join("#strata");
            look(&tool, &store, keys.as_deref(), &open, &content).context("strata-tool")?;
        }
        if is_clean && missing > 0 || round == 0 && (!is_clean || told.losses > 0) {
            wrong.push(format!("verify says clean: {is_clean}; {} losses are told", told.losses));
        }
        fail_if(&format!("round {round}, {what}, seed {seed}; see {}", damaged.display()), &wrong)?;
        println!("round {round}: {what}: {} losses told, {missing} rows lost, all else is back", told.losses);
    }
    server.stop()?;
    Ok(())
}

/// Tables of every kind, in table files and in the log.
fn fill(origin: &Instance, conditions: &Conditions, rng: &mut SmallRng) -> Result<Content> {
    origin.reset()?;
    let server = origin.start(conditions)?;
    let mut conn = origin.fresh_database(DATABASE)?;
    let (before, behind) = TABLES.split_once("-- checkpoint\n").context("the tables' file has two parts")?;
    let run = |conn: &mut Conn, text: &str| -> Result<()> {
        text.split(";\n")
            .map(str::trim)
            .filter(|statement| !statement.is_empty())
            .try_for_each(|statement| conn.query_drop(statement).with_context(|| statement.to_owned()))
    };
    run(&mut conn, before)?;
    for _ in 0..20 {
        let bytes: String = (0..200).map(|_| rng.random_range('a'..='z')).collect();
        conn.query_drop(format!("INSERT INTO big (filler, n) SELECT CONCAT(seq, '{bytes}'), seq FROM seq_1_to_400"))?;
    }
    let checkpoint = origin.data().with_file_name("flushed");
    let _ = fs::remove_dir_all(&checkpoint);
    conn.query_drop("OPTIMIZE TABLE big")?;
    conn.query_drop(format!("SET GLOBAL strata_create_checkpoint = '{}'", checkpoint.display()))?;
    fs::remove_dir_all(&checkpoint)?;
    run(&mut conn, behind)?;
    let content = shown(&mut conn)?;
    server.stop()?;
    Ok(content)
}

/// All tables of the database.
fn shown(conn: &mut Conn) -> Result<Content> {
    conn.query_drop("SET NAMES utf8mb4")?;
    conn.query_drop("SET time_zone = '+00:00'")?;
    let names: Vec<String> = conn.query(format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = '{DATABASE}' ORDER BY table_name"
    ))?;
    let mut content = Content::new();
    for name in names {
        let quoted = format!("`{}`", name.replace('`', "``"));
        let (_, definition): (String, String) =
            conn.query_first(format!("SHOW CREATE TABLE {DATABASE}.{quoted}"))?.context("no definition")?;
        let all = if definition.contains("SYSTEM VERSIONING") { " FOR SYSTEM_TIME ALL" } else { "" };
        let columns: Vec<String> = conn.exec(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = ? AND table_name = ? \
             ORDER BY ordinal_position",
            (DATABASE, &name),
        )?;
        let list: Vec<String> = columns.iter().map(|column| format!("IFNULL(HEX(`{column}`), 'NULL')")).collect();
        let rows: Vec<String> =
            conn.query(format!("SELECT CONCAT_WS(' ', {}) FROM {DATABASE}.{quoted}{all}", list.join(", ")))?;
        let mut numbered = BTreeMap::new();
        let rows = rows.into_iter().map(|row| {
            // Rows that are alike are told apart by a number.
            let count = numbered.entry(row.clone()).and_modify(|n| *n += 1).or_insert(1);
            format!("{row} {count}")
        });
        content.insert(name, Shown { definition, rows: rows.collect() });
    }
    Ok(content)
}

/// How many rows are missing. Whatever is there must have been there; without damage all of it.
fn compare(before: &Content, after: &Content, is_whole: bool, is_known: bool, wrong: &mut Vec<String>) -> u64 {
    let mut missing = 0;
    for (name, was) in before {
        let Some(is) = after.get(name) else {
            if is_whole {
                wrong.push(format!("table {name} is missing"));
            }
            missing += was.rows.len() as u64;
            continue;
        };
        if is_whole && is.definition != was.definition {
            wrong.push(format!("table {name} was\n{}\nand is\n{}", was.definition, is.definition));
        }
        // Of what is lost with the log nobody knows the keys: rows that it changed come back as they were.
        if let Some(row) = is.rows.difference(&was.rows).next().filter(|_| is_known) {
            wrong.push(format!("table {name} has a row that it never had: {row}"));
        }
        let lost = was.rows.difference(&is.rows).count() as u64;
        if is_whole && lost > 0 {
            let row = was.rows.difference(&is.rows).next();
            wrong.push(format!("table {name} has lost {lost} rows, {row:?}"));
        }
        missing += lost;
    }
    missing
}

/// Damages one to three files; what was done.
fn damage(store: &Path, rng: &mut SmallRng) -> Result<String> {
    let list = |dir: &Path| -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.ends_with(".sst") || name.ends_with(".log") || name.starts_with("MANIFEST-") {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    };
    let mut files = list(store)?;
    files.extend(list(&store.join("log"))?);
    let mut said = Vec::new();
    for _ in 0..rng.random_range(1..=3) {
        let path = &files[rng.random_range(0..files.len())];
        let Ok(mut bytes) = fs::read(path) else { continue };
        if bytes.is_empty() {
            continue;
        }
        let at = rng.random_range(0..bytes.len());
        let how = match rng.random_range(0..4) {
            0 => {
                bytes[at] ^= 1 << rng.random_range(0..8);
                "byte flipped"
            }
            1 => {
                bytes.truncate(at);
                "cut"
            }
            2 => {
                let end = bytes.len().min(at + rng.random_range(1..40_000));
                bytes[at..end].fill(0);
                "zeroed from"
            }
            _ => "removed",
        };
        match how {
            "removed" => fs::remove_file(path)?,
            _ => fs::write(path, bytes)?,
        }
        said.push(format!("{} {how} at {at}", path.file_name().unwrap_or_default().to_string_lossy()));
    }
    Ok(said.join(", "))
}

/// What a report says.
struct Told {
    losses: u64,
    /// Versions of rows that are lost, or that no table has any more; all if a number is not known.
    versions: u64,
}

/// The tool's option for the keys of a store.
fn key_words(keys: Option<&Path>) -> Vec<&OsStr> {
    keys.map_or(Vec::new(), |keys| vec![OsStr::new("--key-file"), keys.as_os_str()])
}

/// What the tool shows of a whole store, and of one that a server has `open`.
fn look(tool: &Path, store: &Path, keys: Option<&Path>, open: &Path, content: &Content) -> Result<()> {
    let ask = |store: &Path, words: &[&str]| -> Result<(bool, String)> {
        let mut command = Command::new(tool);
        command.arg(words[0]).arg(store).args(key_words(keys)).args(&words[1..]).stdin(Stdio::null());
        let output = command.output()?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
    };
    let shows = |words: &[&str]| -> Result<String> {
        let (done, said) = ask(store, words)?;
        ensure!(done && !said.is_empty() && !said.contains("lost"), "{words:?} says: {said}");
        Ok(said)
    };
    let (list, catalog) = (shows(&["list"])?, shows(&["dump", "--catalog"])?);
    for table in content.keys().filter(|name| name.chars().all(|c| c.is_ascii_alphabetic())) {
        let name = format!("./{DATABASE}/{table}");
        ensure!(list.contains(&format!("table {name}")), "the list lacks {name}:\n{list}");
        ensure!(
            catalog.contains(&format!("{name} ")) || catalog.contains(&format!("{name}#P#")),
            "no {name} in the catalog"
        );
    }
    let mut files = 0;
    for line in list.lines().filter(|line| line.contains(".sst level ")) {
        let number: u64 = line.trim_start().split('.').next().context("no number")?.parse()?;
        let versions = line.split(" versions").next().and_then(|head| head.rsplit(' ').next()).context("no count")?;
        let dumped = shows(&["dump", "--file", &number.to_string()])?.lines().count();
        ensure!(dumped.to_string() == versions, "file {number} has {versions} versions, {dumped} are shown");
        files += 1;
    }
    let manifest = shows(&["dump", "--manifest"])?;
    let its_files = manifest.lines().filter(|line| line.starts_with("level ")).count();
    ensure!(
        files > 0 && files == its_files,
        "{files} table files are listed, {its_files} are in the manifest:\n{list}{manifest}"
    );
    let log = shows(&["dump", "--log"])?;
    ensure!(log.contains("  put ") && log.contains(" end"), "the log shows no row:\n{log}");
    let (done, said) = ask(open, &["list"])?;
    ensure!(!done && said.contains("is open in a server"), "of the store of a running server it says: {said}");
    Ok(())
}

fn salvage(tool: &Path, store: &Path, definitions: &Path, to: &Path, keys: Option<&Path>) -> Result<Told> {
    let mut command = Command::new(tool);
    command.arg("salvage").arg(store).args(key_words(keys)).arg("--to").arg(to).arg("--definitions").arg(definitions);
    let output = command.stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = fs::read_to_string(to.join("report.txt"))?;
    let number = |line: &str, before: &str| {
        let (head, _) = line.split_once(before)?;
        head.rsplit(' ').next()?.parse::<u64>().ok()
    };
    let mut told = Told { losses: 0, versions: 0 };
    for line in report.lines() {
        if let Some(losses) = line.strip_prefix("Losses: ") {
            told.losses = losses.parse()?;
        }
        // What belongs to a table that the catalog has lost is there, by its keys.
        for counted in [" versions of rows", " entries are in index-"] {
            told.versions = told.versions.saturating_add(number(line, counted).unwrap_or(0));
        }
        let is_unknown = ["unknown number", "is lost", "are lost", "commits lost", "doubtful rows", "torn", "manifest"];
        if is_unknown.iter().any(|words| line.contains(words)) && !line.contains("no row is lost") {
            told.versions = u64::MAX;
        }
    }
    Ok(told)
}

fn load(fresh: &Instance, dir: &Path) -> Result<()> {
    let mut command = Command::new("sh");
    command.arg(dir.join("load.sh")).arg("--no-defaults").arg("-uroot").arg("--socket").arg(fresh.socket());
    let output = command.stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "loading: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
