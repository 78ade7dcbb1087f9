//! `strata-tool`: looks into a store that no server has open. It reads, and changes nothing of it.
//!
//! ```text
//! list      files, log, tables
//! dump      log, table file, manifest or catalog as text
//! verify    reads everything, names each damage with file and offset
//! salvage   what can be read of a damaged store, as files that SQL loads, and a report of what is lost
//! ```

mod catalog;
mod collation;
mod column_compression;
mod ddl;
mod dump;
mod frm;
mod keys;
mod layout;
mod list;
mod open;
mod salvage;
mod value;
mod verify;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "strata-tool", version, about = "Looks into a Strata store that no server has open")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists files, log and tables
    List(open::Place),
    /// Shows a part of the store as text
    Dump(dump::Args),
    /// Reads everything and names each damage
    Verify(open::Place),
    /// Writes what can be read as files that SQL loads, and a report of what is lost
    Salvage(salvage::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::List(place) => list::run(&place),
        Command::Dump(args) => dump::run(&args),
        Command::Verify(place) => verify::run(&place),
        Command::Salvage(args) => salvage::run(&args),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("strata-tool: {error:#}");
    ExitCode::FAILURE
}
