//! `strata-backup`: one consistent backup of a running MariaDB server, with InnoDB, Aria, `.frm` files and the tables of Strata.
//!
//! ```text
//! backup    strata_backup_checkpoint is set, mariadb-backup runs: at its FLUSH ENGINE LOGS, with commits blocked, the engine notes the
//!           same moment that mariadb-backup does. Then the checkpoint is completed, and copied
//! prepare   mariadb-backup's, and the table files of an incremental backup into those of its base
//! restore   to an empty data directory
//! verify    reads everything and compares checksums
//! ```
//!
//! A backup is a directory: `server/` is mariadb-backup's, `strata/` the engine's, and `backup.json` ([`manifest`]) says what belongs to
//! it. That file comes last: without it there is no backup, whatever a tool or a server that was killed has left.

mod files;
mod manifest;
mod messages;
mod prepare;
mod restore;
mod server;
mod sink;
mod take;
mod verify;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "strata-backup", version, about = "Online backup of a MariaDB server with tables of ENGINE=STRATA")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Takes a backup of a running server
    Backup(take::Args),
    /// Makes a backup ready to be restored, after adding incremental ones to it
    Prepare(prepare::Args),
    /// Copies a prepared backup to an empty data directory
    Restore(restore::Args),
    /// Compares every file of a backup with its checksum
    Verify(verify::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Backup(args) => take::run(&args),
        Command::Prepare(args) => prepare::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Verify(args) => verify::run(&args),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("strata-backup: {error:#}");
    ExitCode::FAILURE
}
