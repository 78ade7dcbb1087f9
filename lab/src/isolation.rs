//! The command `isolation`: many sessions, few hot rows, everything that may go
//! wrong, and the check that what they saw was possible.
//!
//! For each level: a load of random transactions (see [`crate::history::load`]) during
//! which statements and sessions are killed, locks time out and deadlocks are
//! broken; with `--kill` also the server, which is started again while the
//! sessions wait. What they noted, and all rows at the end and after each
//! restart, is one history, which must keep the level's promise (see
//! [`crate::history::check`]). A history in which something is wrong is kept.

use crate::engine::{Conditions, Kind};
use crate::history::check::{Report, check};
use crate::history::load::{Errors, Manner, Session};
use crate::history::rows::{self, read_everything};
use crate::history::shared::Shared;
use crate::history::{History, PlainReads, Promise, Transaction, text};
use crate::leaks;
use crate::options::{Isolation, Site, seed_of_now};
use crate::server::{Instance, PATIENCE, Server};
use anyhow::{Context, Result, bail, ensure};
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Findings that are printed.
const TOLD: usize = 3;

/// Options of `isolation`.
#[derive(clap::Args)]
pub struct Args {
    /// The engine
    #[arg(long, default_value = "strata")]
    engine: Kind,
    /// Isolation levels
    #[arg(
        long = "level",
        value_enum,
        value_delimiter = ',',
        default_value = "read-committed,repeatable-read,serializable"
    )]
    levels: Vec<Isolation>,
    /// Seconds of load at each level
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Sessions
    #[arg(long, default_value_t = 8)]
    sessions: u32,
    /// Seed of the load; the interleaving is the machine's
    #[arg(long)]
    seed: Option<u64>,
    /// How often to kill the server during the load of each level
    #[arg(long, default_value_t = 0)]
    kill: u32,
    /// Memory for the engine, in MiB; little, so that flushes and merges are under way
    #[arg(long, default_value_t = 16)]
    cache_mb: u64,
    /// Turns `<engine>_snapshot_isolation` on and checks its promise
    #[arg(long)]
    first_wins: bool,
    /// Checks against the promise of this level instead: so one sees that the check sees something
    #[arg(long = "as", value_enum, value_name = "LEVEL")]
    promise_of: Option<Isolation>,
    /// Checks a kept history instead
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// Further options for the server, as they stand in its option file
    #[arg(long = "server-option", value_name = "NAME=VALUE")]
    server_options: Vec<String>,
    #[command(flatten)]
    site: Site,
}

/// The command `isolation`.
pub fn run(args: Args) -> Result<()> {
    if let Some(file) = &args.check {
        let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
        let report = check(&text::parse(&text)?);
        return tell(&report, &format!("{}", file.display()), file);
    }
    let seed = args.seed.unwrap_or_else(seed_of_now);
    let lab = args.site.folder()?;
    let instance = Instance::new(&lab, args.engine)?;
    instance.reset()?;
    let conditions = Conditions {
        budget_mb: args.cache_mb,
        isolation: Isolation::RepeatableRead,
        extra: args.server_options.clone(),
        strata_extra: vec![],
    };
    println!("{}: {} sessions, {} s at each level, seed {seed}", args.engine.title(), args.sessions, args.seconds);
    let mut server = instance.start(&conditions)?;
    for &level in &args.levels {
        let (next, transactions, errors) = make_history(&args, &conditions, server, level, seed)?;
        server = next;
        let history =
            History { promise: promise(args.engine, args.promise_of.unwrap_or(level), args.first_wins), transactions };
        let began = Instant::now();
        let report = check(&history);
        let file = lab.join(format!("history-{}-{}-{seed}.txt", args.engine.id(), level.name().to_lowercase()));
        if !report.findings.is_empty() {
            std::fs::write(&file, text::print(&history))?;
        }
        tell(
            &report,
            &format!(
                "{}: {} deadlocks, {} timeouts, {} conflicts, {} statements killed, {} sessions lost, {} server kills",
                level.name(),
                errors.deadlocks,
                errors.timeouts,
                errors.conflicts,
                errors.kills,
                errors.lost,
                args.kill
            ),
            &file,
        )?;
        println!("    checked in {:.1} s", began.elapsed().as_secs_f64());
        let checked: Vec<(String, String, String, String)> =
            server.connect(Some(rows::DATABASE))?.query("CHECK TABLE obj EXTENDED")?;
        ensure!(checked.iter().all(|row| row.3 == "OK"), "CHECK TABLE obj: {checked:?}");
    }
    leaks::end(server, args.cache_mb)
}

/// What an engine promises.
fn promise(engine: Kind, level: Isolation, first_wins: bool) -> Promise {
    let plain = match level {
        Isolation::ReadUncommitted if engine == Kind::Innodb => PlainReads::Dirty,
        Isolation::ReadUncommitted | Isolation::ReadCommitted => PlainReads::Statement,
        Isolation::RepeatableRead => PlainReads::Transaction,
        Isolation::Serializable => PlainReads::Locking,
    };
    let ranges = matches!(level, Isolation::RepeatableRead | Isolation::Serializable);
    Promise { plain, ranges, first_wins }
}

fn make_history(
    args: &Args,
    conditions: &Conditions,
    mut server: Server,
    level: Isolation,
    seed: u64,
) -> Result<(Server, Vec<Transaction>, Errors)> {
    let instance = server.instance().clone();
    rows::create(&instance)?;
    let shared = Shared::new(args.sessions);
    let manner = Manner { level, first_wins: args.first_wins };
    let mut sessions: Vec<Session> =
        (0..args.sessions).map(|number| Session::new(number, &instance, &shared, manner, seed)).collect();
    let mut whole = Vec::new();
    std::thread::scope(|scope| -> Result<()> {
        let handles: Vec<_> = sessions.iter_mut().map(|session| scope.spawn(|| session.run())).collect();
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut drive = || -> Result<()> {
            for phase in 0..=args.kill {
                let until = Instant::now() + Duration::from_millis(args.seconds * 1000 / u64::from(args.kill + 1));
                disturb(&instance, &shared, &mut rng, until)?;
                server.ensure_alive()?;
                if phase < args.kill {
                    shared.down.store(true, Ordering::SeqCst);
                    server.end()?;
                    shared.server_ended();
                    server = instance.launch(conditions)?;
                    server.wait_ready(PATIENCE)?;
                    whole.extend(read_everything(&instance, &shared)?);
                    shared.down.store(false, Ordering::SeqCst);
                }
            }
            Ok(())
        };
        let driven = drive();
        shared.stop.store(true, Ordering::SeqCst);
        for handle in handles {
            handle.join().expect("a session does not panic")?;
        }
        driven
    })?;
    server.ensure_alive()?;
    whole.extend(read_everything(&instance, &shared)?);
    let mut errors = Errors::default();
    for session in sessions {
        whole.extend(session.transactions);
        errors.add(session.errors);
    }
    whole.sort_by_key(|transaction| (transaction.end, transaction.session));
    Ok((server, whole, errors))
}

/// Kills statements and sessions until a time.
fn disturb(instance: &Instance, shared: &Shared, rng: &mut SmallRng, until: Instant) -> Result<()> {
    let mut conn = instance.connect(None)?;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(rng.random_range(20..200))));
        let session = rng.random_range(0..shared.kills.len());
        if let Some(id) = shared.victim(session) {
            let what = if rng.random_range(0..6) == 0 { "CONNECTION" } else { "QUERY" };
            match shared.kills[session].during(|| conn.query_drop(format!("KILL {what} {id}"))) {
                // 1094: it is gone already.
                Err(mysql::Error::MySqlError(error)) if error.code == 1094 => {}
                other => other?,
            }
        }
    }
}

fn tell(report: &Report, circumstances: &str, file: &Path) -> Result<()> {
    println!(
        "  {circumstances}\n    {} committed, {} rolled back, {} of {} without answer had committed; \
         {} versions, {} snapshots, {} dependencies",
        report.committed,
        report.aborted,
        report.unknown_committed,
        report.unknown,
        report.versions,
        report.snapshots,
        report.edges
    );
    if report.findings.is_empty() {
        return Ok(());
    }
    let told: Vec<String> = report.findings.iter().take(TOLD).map(|f| format!("{}: {}", f.class, f.told)).collect();
    bail!(
        "{} things in this history cannot be; the history is {}\n\n{}",
        report.findings.len(),
        file.display(),
        told.join("\n\n")
    )
}
