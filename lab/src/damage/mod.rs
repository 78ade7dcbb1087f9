//! The command `damage`: broken files, a full disk, little memory and killed statements, against a real server.
//!
//! Each case starts from a copy of the same store: rows that a reader can check one by one, some in table files, some
//! in the log only, all acknowledged. Then it does its damage and asks for three things: an error that names file and
//! offset, a server that goes on wherever it can, and nothing dropped in silence. A start that is refused must leave
//! the store as it was: the case undoes its damage and finds every row again.
//!
//! The small disk is a file system in memory, in a mount namespace that ends with the command, so nothing can be left
//! mounted.

mod bench;
mod cases;
mod descriptors;
mod files;
mod full;
mod group;

use crate::engine::Kind;
use crate::options::Site;
use crate::server::Instance;
use anyhow::{Context, Result, bail, ensure};
use bench::Bench;
use std::env;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

/// Says that the process is in a mount namespace of its own.
const APART: &str = "STRATA_LAB_MOUNTS_APART";

/// Options of `damage`.
#[derive(clap::Args)]
pub struct Args {
    /// Leave out what needs a small file system or a control group, which only root can make
    #[arg(long)]
    no_mount: bool,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    #[command(flatten)]
    site: Site,
}

type Case = (&'static str, fn(&mut Bench) -> Result<String>);

/// The command `damage`.
pub fn run(args: Args) -> Result<()> {
    if !args.no_mount && env::var_os(APART).is_none() {
        let root = std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
        ensure!(root, "the small disk needs root to be mounted; --no-mount leaves it out");
        let mut again = Command::new("unshare");
        again.args(["--mount", "--"]).arg(env::current_exe()?).args(env::args_os().skip(1)).env(APART, "1");
        bail!("no mount namespace, 'unshare' does not run: {}", again.exec());
    }
    let began = Instant::now();
    let mut bench = Bench::new(Instance::new(&args.site.folder()?, Kind::Strata)?)?;
    let mut cases = [&cases::ALL[..], &descriptors::ALL[..]].concat();
    if !args.no_mount {
        cases.extend(group::ALL);
        // It drops what there is, to see what the server keeps: the last one.
        cases.extend(full::ALL);
    }
    let mut failed = Vec::new();
    let mut ran = 0;
    for (name, case) in cases {
        if args.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        ran += 1;
        let outcome = case(&mut bench).and_then(|told| {
            bench.at_rest().context("what the case has left")?;
            Ok(told)
        });
        match outcome {
            Ok(told) => println!("ok      {name}: {told}"),
            Err(error) => {
                println!("FAILED  {name}: {error:#}");
                failed.push(name);
            }
        }
        bench.kill()?;
    }
    if !failed.is_empty() {
        bail!(
            "{} of {ran} cases failed: {}; the server's log is {}",
            failed.len(),
            failed.join(", "),
            bench.log().display()
        );
    }
    println!("{ran} cases of damage, all noticed and survived, in {} s", began.elapsed().as_secs());
    Ok(())
}
