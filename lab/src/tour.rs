//! The command `tour`: what `make run` shows. Strata and InnoDB side by side, on
//! small data and for seconds only: it shows that all of it works, and roughly
//! how fast; `tpcc` and `oltp` measure.

use crate::course::Course;
use crate::engine::{Conditions, Kind};
use crate::leaks;
use crate::meter::settle;
use crate::oltp;
use crate::options::{Isolation, Site};
use crate::paths;
use crate::report::{BRIEF, Report};
use crate::sbtest;
use crate::server::Instance;
use crate::sysbench::{Call, Size};
use crate::tpcc::Scale;
use crate::tpcc::bench::{Bench, load_warehouses, measure, run_check};
use anyhow::Result;

const SIZE: Size = Size { tables: 2, rows: 50_000 };
const THREADS: u32 = 4;

/// Options of `tour`.
#[derive(clap::Args)]
pub struct Args {
    /// Engines, in the order of the report
    #[arg(long, value_delimiter = ',', default_value = "innodb,strata")]
    engines: Vec<Kind>,
    /// Seconds of TPC-C
    #[arg(long, default_value_t = 15)]
    tpcc_seconds: u64,
    /// Seconds of each sysbench script
    #[arg(long, default_value_t = 10)]
    oltp_seconds: u64,
    #[command(flatten)]
    site: Site,
}

/// The command `tour`.
pub fn run(args: Args) -> Result<()> {
    paths::need_program("sysbench")?;
    let lab = args.site.folder()?;
    let scale = Scale::full(2);
    let conditions =
        Conditions { budget_mb: 256, isolation: Isolation::RepeatableRead, extra: vec![], strata_extra: vec![] };
    println!(
        "A tour: {} in turn, each on a private server with a binary log, both logs flushed at each commit, and\n\
         {} MB for caches. TPC-C with {} warehouses, then two sysbench scripts; about three minutes.",
        args.engines.iter().map(|kind| kind.title()).collect::<Vec<_>>().join(" and "),
        conditions.budget_mb,
        scale.warehouses
    );
    // Before any work: a missing plugin is said at once.
    let instances = args.engines.iter().map(|&kind| Instance::new(&lab, kind)).collect::<Result<Vec<_>>>()?;
    let mut report =
        Report::new(&lab, "A short tour; see docs/results/method.md for what the figures mean")?.with(BRIEF);
    for instance in &instances {
        instance.reset()?;
        let mut server = instance.start(&conditions)?;
        load_warehouses(instance, scale, false)?;
        settle(server.pid())?;
        let course = Course::of_seconds(2, args.tpcc_seconds);
        let bench = Bench { scale, foreign_keys: false, threads: THREADS, round: 1, rate: None, course };
        let (run, orders) = measure(&mut server, &conditions, bench)?;
        report.add(run)?;
        run_check(instance, scale, false, &orders)?;
        sbtest::fill(instance, SIZE)?;
        sbtest::warm(&server, SIZE)?;
        settle(server.pid())?;
        for script in ["oltp_point_select", "oltp_write_only"] {
            let call = Call {
                script,
                threads: THREADS,
                seconds: args.oltp_seconds,
                rand_type: "special",
                xa: false,
                rate: None,
            };
            report.add(oltp::measure(&mut server, &conditions, SIZE, &call, 1, 1)?)?;
        }
        leaks::end(server, conditions.budget_mb)?;
    }
    report.finish()
}
