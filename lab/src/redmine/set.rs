//! Migrations and a data set on an engine's server, by `lab/redmine/set.rb`.

use super::app::App;
use super::said::Said;
use super::{DATABASE, Set};
use crate::server::Instance;
use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;
use std::io::{BufRead, BufReader};
use std::time::Instant;

/// Seed of users, projects and texts.
const SEED: u64 = 1;

/// How much of what is made beside the set's own numbers.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// Members of a project.
    pub members: u64,
    /// Comments of an issue.
    pub comments: u64,
    /// Processes that make issues.
    pub loaders: u32,
}

/// What was made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Made {
    /// Issues and comments.
    pub rows: u64,
    /// Seconds of these alone.
    pub seconds: f64,
    /// Seconds of the migrations, with the start of Ruby.
    pub migrate_seconds: f64,
    pub tables: u64,
    pub projects: u64,
    /// References to issues that stand where a plugin asked for one.
    pub foreign_keys: u64,
    /// Why not, in the server's words.
    pub foreign_key_error: String,
    /// Transactions that were repeated.
    pub repeated: u64,
}

/// Makes the database and fills it.
pub fn make(app: &App, instance: &Instance, set: &Set, around: Around, progress: &ProgressBar) -> Result<Made> {
    ensure!(
        set.users > 0 && set.issues > 0 && around.members > 0 && set.projects.iter().all(|count| *count > 0),
        "a set without users, members, projects or issues"
    );
    instance.fresh_database(DATABASE)?;
    progress.set_length(set.issues);
    let settings = serde_json::json!({
        "users": set.users, "projects": set.projects, "members": around.members, "issues": set.issues,
        "comments": around.comments, "loaders": around.loaders.max(1), "seed": SEED,
    });
    let mut child = app.run("set.rb", instance, &[("LAB_SET", settings.to_string())])?;
    drop(child.0.stdin.take());
    let lines = BufReader::new(child.0.stdout.take().context("the script has no output")?).lines();
    let made = follow(lines.map_while(Result::ok), around.comments, progress);
    let ended = child.0.wait()?;
    let Some(made) = made?.filter(|_| ended.success()) else {
        bail!("set.rb ended early ({ended}); the end of {}:\n{}", app.log().display(), app.log_tail())
    };
    ensure!(made.rows == set.issues * (1 + around.comments), "{} rows were made", made.rows);
    Ok(made)
}

/// Reads what the script says to its end; none if it did not say that it was done.
fn follow(lines: impl Iterator<Item = String>, comments: u64, progress: &ProgressBar) -> Result<Option<Made>> {
    let (mut made, mut done, began) = (Made::default(), false, Instant::now());
    let mut from = began;
    for said in lines.filter_map(|line| Said::of(&line)) {
        match said {
            Said::Migrated { tables, .. } => {
                made.tables = tables;
                made.migrate_seconds = began.elapsed().as_secs_f64();
            }
            Said::ForeignKeys { stand, error } => (made.foreign_keys, made.foreign_key_error) = (stand, error),
            Said::Projects(projects) => (made.projects, from) = (projects, Instant::now()),
            Said::Made(issues) => {
                made.rows += issues * (1 + comments);
                made.seconds = from.elapsed().as_secs_f64();
                progress.inc(issues);
            }
            Said::Repeated => made.repeated += 1,
            Said::Done => done = true,
            Said::Error(error) => bail!("{error}"),
            Said::Ready | Said::Op { .. } => {}
        }
    }
    Ok(done.then_some(made))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(lines: &[&str]) -> Result<Option<Made>> {
        follow(lines.iter().map(ToString::to_string), 10, &ProgressBar::hidden())
    }

    #[test]
    fn what_was_made_is_counted() {
        let made = followed(&[
            "a warning",
            "lab: migrated 20220806215628 58",
            "lab: foreign_keys 0 Mysql2::Error: no",
            "lab: projects 13",
            "lab: made 20",
            "lab: repeated",
            "lab: made 15",
            "lab: done",
        ])
        .unwrap()
        .unwrap();
        assert_eq!((made.rows, made.tables, made.projects, made.repeated), (35 * 11, 58, 13, 1));
        assert_eq!((made.foreign_keys, made.foreign_key_error.as_str()), (0, "Mysql2::Error: no"));
    }

    #[test]
    fn errors_and_an_early_end_are_errors() {
        let error = followed(&["lab: migrated 1 58", "lab: error Mysql2::Error gone", "lab: done"]).unwrap_err();
        assert!(error.to_string().contains("Mysql2::Error gone"));
        assert!(followed(&["lab: migrated 1 58", "lab: made 20"]).unwrap().is_none());
    }
}
