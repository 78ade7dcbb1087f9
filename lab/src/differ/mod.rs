//! The command `differ`: the same random SQL on InnoDB and on Strata, in two databases of one server.
//!
//! A seed makes a *program*: tables of all types and collations, then statements of several sessions ([`schema`],
//! [`statement`], [`sessions`], [`ddl`], [`family`]). Each step runs in both databases ([`play`]); answers must agree ([`answer`]): rows, affected
//! rows, the error's number, the key that a duplicate names. At the end the contents are compared by every index, and CHECK
//! TABLE must find nothing. A program on which the engines differ is shortened ([`reduce`]) and printed as SQL.
//!
//! What makes answers of two right engines differ is left out of the programs instead of being excused afterwards: two sessions
//! write into tables of their own, or one after the other, others read snapshots, and a lock is wanted by two only where a unique key names the row;
//! whatever depends on the order of rows is ordered by a unique column; sums of floating point numbers are exact. Two rules
//! are left: a snapshot older than a table may get error 1412 instead of its rows, and a program ends where CHECK TABLE finds
//! InnoDB's table damaged and Strata's whole.
//!
//! Rejected: comparing with stored results. They would have to be right, and they fix the programs.

mod answer;
mod ddl;
mod family;
mod play;
mod reduce;
mod schema;
mod sessions;
mod shadow;
mod statement;

use crate::engine::{Conditions, Kind};
use crate::leaks;
use crate::options::{Isolation, Site, seed_of_now};
use crate::server::{Instance, Server};
use anyhow::{Context, Result, bail, ensure};
use play::{Difference, Sides};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Time for shortening one program.
const REDUCE: Duration = Duration::from_secs(60);

/// Options of `differ`.
#[derive(clap::Args)]
pub struct Args {
    /// Seed of the first program; the next ones count up from it [default: by the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Seconds to go on with new programs
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// At most so many programs
    #[arg(long, default_value_t = u64::MAX)]
    programs: u64,
    /// Statements of a program, beside those that make and compare its tables
    #[arg(long, default_value_t = 80)]
    statements: usize,
    /// Programs that differ after which the run ends
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Programs about foreign keys only, which are one in four otherwise
    #[arg(long)]
    foreign_keys: bool,
    #[command(flatten)]
    site: Site,
}

/// One statement of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Who says it, from 0.
    pub session: usize,
    /// The statement.
    pub sql: String,
    /// The rows of the answer have an order.
    pub ordered: bool,
    /// The number of affected rows is compared.
    pub counted: bool,
}

impl Step {
    /// A statement of a session whose rows, if any, have no order.
    pub fn new(session: usize, sql: impl Into<String>) -> Step {
        Step { session, sql: sql.into(), ordered: false, counted: true }
    }
}

/// Sessions of a program. The first and the last write.
pub const SESSIONS: usize = 4;
/// Sessions that read.
pub const READERS: Range<usize> = 1..3;
/// The second session that writes.
pub const SECOND: usize = 3;

/// The command `differ`.
pub fn run(args: Args) -> Result<()> {
    let mut lab = Lab::start(&args.site)?;
    let first = args.seed.unwrap_or_else(seed_of_now);
    let (began, until) = (Instant::now(), Duration::from_secs(args.seconds));
    let (mut programs, mut steps, mut excused, mut damaged, mut failures) = (0, 0, 0, 0, 0);
    while programs < args.programs && began.elapsed() < until {
        let seed = first.wrapping_add(programs);
        let program = program(seed, args.statements, args.foreign_keys);
        programs += 1;
        let played = lab.play(&program).inspect_err(|_| print_steps(&program));
        match played.with_context(|| format!("seed {seed}"))? {
            Ok(played) => {
                steps += played.steps;
                excused += played.newer_tables;
                damaged += u64::from(played.innodb_damaged);
            }
            Err(difference) => {
                failures += 1;
                println!("seed {seed}: the engines differ:");
                print_answers(&difference);
                println!("shortening {} statements", program.len());
                let (program, difference) = lab.shorten(program, difference)?;
                print_difference(seed, &program, &difference);
                if failures >= args.failures {
                    break;
                }
            }
        }
    }
    lab.stop()?;
    println!(
        "{programs} programs from seed {first} on, {steps} statements compared, {excused} snapshots older than a table, \
         {damaged} ended by damage that InnoDB found in its own table"
    );
    ensure!(failures == 0, "{failures} of {programs} programs show a difference");
    ensure!(steps > 0, "nothing was compared");
    Ok(())
}

/// The program of a seed.
fn program(seed: u64, statements: usize, foreign_keys: bool) -> Vec<Step> {
    let mut rng = SmallRng::seed_from_u64(seed);
    statement::program(&mut rng, statements, foreign_keys)
}

/// The server on which programs run.
struct Lab {
    instance: Instance,
    server: Option<Server>,
    conditions: Conditions,
}

impl Lab {
    fn start(site: &Site) -> Result<Lab> {
        let extra =
            ["sync_binlog=0", "innodb_flush_log_at_trx_commit=0", "lock_wait_timeout=5", "innodb_lock_wait_timeout=2"];
        let conditions = Conditions {
            budget_mb: 64,
            isolation: Isolation::RepeatableRead,
            extra: extra.map(str::to_owned).to_vec(),
            strata_extra: vec!["strata_flush_log_at_trx_commit=0".into(), "strata_lock_wait_timeout=2".into()],
        };
        let instance = Instance::new(&site.folder()?, Kind::Strata)?;
        instance.reset()?;
        let server = Some(instance.start(&conditions)?);
        Ok(Lab { instance, server, conditions })
    }

    /// Runs a program. The server is started again if the program ended it.
    fn play(&mut self, program: &[Step]) -> Result<Result<play::Played, Difference>> {
        let outcome = Sides::open(&self.instance)?.play(program)?;
        if let Some(server) = &mut self.server
            && server.ensure_alive().is_err()
        {
            self.server = Some(self.instance.start(&self.conditions)?);
        }
        Ok(outcome)
    }

    /// The shortest program found that still shows a difference in the same statement.
    fn shorten(&mut self, program: Vec<Step>, found: Difference) -> Result<(Vec<Step>, Difference)> {
        let (began, mut last, mut failed) = (Instant::now(), found, None);
        let shortest = reduce::reduce(program, |shorter| {
            if began.elapsed() > REDUCE || failed.is_some() {
                return false;
            }
            match self.play(shorter) {
                Ok(Ok(_)) => false,
                // Another one, which a shorter program may show, would hide the one that was found.
                Ok(Err(difference)) if difference.step != last.step => false,
                Ok(Err(difference)) => {
                    last = difference;
                    true
                }
                Err(error) => {
                    failed = Some(error);
                    false
                }
            }
        });
        match failed {
            Some(error) => bail!("shortening the program: {error:#}"),
            None => Ok((shortest, last)),
        }
    }

    fn stop(mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), |server| leaks::end(server, self.conditions.budget_mb))
    }
}

fn print_steps(program: &[Step]) {
    for step in program {
        println!("/* session {} */ {};", step.session, step.sql);
    }
}

fn print_difference(seed: u64, program: &[Step], difference: &Difference) {
    println!("---- seed {seed}, shortened");
    print_steps(program);
    print_answers(difference);
}

fn print_answers(difference: &Difference) {
    println!("---- session {}: {}", difference.step.session, difference.step.sql);
    println!("InnoDB: {}", difference.innodb);
    println!("Strata: {}", difference.strata);
    if let Some(snapshot) = &difference.snapshot {
        println!("The snapshot: {snapshot}");
    }
}

#[cfg(test)]
mod tests {
    use super::program;

    #[test]
    fn a_seed_makes_one_program() {
        assert_eq!(program(7, 50, true), program(7, 50, true));
        assert_ne!(program(7, 50, true), program(8, 50, true));
    }

    #[test]
    fn programs_have_statements_of_every_kind() {
        // As many programs as `make test` runs.
        let text: Vec<String> = (0..250).flat_map(|seed| program(seed, 80, false)).map(|step| step.sql).collect();
        for word in [
            "INSERT INTO",
            "INSERT IGNORE",
            "REPLACE INTO",
            "ON DUPLICATE KEY",
            "UPDATE t",
            "DELETE FROM t",
            "DELETE t",
            "JOIN",
            "GROUP BY",
            "FORCE INDEX",
            "SAVEPOINT",
            "ROLLBACK TO",
            "WITH CONSISTENT SNAPSHOT",
            "TRUNCATE",
            "ALTER TABLE",
            "PARTITION BY",
            "VIRTUAL",
            "DESC",
            "UNIQUE",
            "COLLATE",
            "RENAME TABLE",
            "CHECK TABLE",
            "HANDLER h READ",
            "REORGANIZE PARTITION",
            "EXCHANGE PARTITION",
            "COALESCE PARTITION",
            "WITH SYSTEM VERSIONING",
            "FOR SYSTEM_TIME",
            "XA PREPARE",
            "ONE PHASE",
            "LOCK IN SHARE MODE",
            "SKIP LOCKED",
            "OVER (PARTITION BY",
            "FROM seq_",
            "SHOW WARNINGS",
            "FOREIGN KEY",
            "ON DELETE CASCADE",
            "ON UPDATE SET NULL",
            "DROP FOREIGN KEY",
            "foreign_key_checks = 0",
            "ALGORITHM=INSTANT",
        ] {
            assert!(text.iter().any(|sql| sql.contains(word)), "no program has {word}");
        }
    }
}
