//! The server that is backed up: a session with it, and mariadb-backup beside it.

use crate::messages;
use anyhow::{Context, Result, bail, ensure};
use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How the names of checkpoints begin that this program has the engine make.
const CHECKPOINT: &str = "checkpoint-backup-";

/// How often mariadb-backup looks for new log of InnoDB, in milliseconds. It does so once more while it keeps commits waiting, and with
/// its own default, 1000, they wait up to a second for that. See also [`messages`].
const LOG_COPY_INTERVAL_MS: u32 = 20;

/// How to get to it.
#[derive(clap::Args, Debug, Clone)]
pub struct Login {
    /// The server's socket
    #[arg(long, default_value = "/run/mysqld/mysqld.sock")]
    pub socket: PathBuf,
    /// A user with the privileges SUPER, RELOAD, PROCESS, LOCK TABLES and BINLOG MONITOR
    #[arg(long, default_value = "root")]
    pub user: String,
    /// The user's password; better in the environment than in the command
    #[arg(long, env = "STRATA_BACKUP_PASSWORD", hide_env_values = true, default_value = "")]
    pub password: String,
    /// An option file for mariadb-backup, which reads the server's options from it
    #[arg(long)]
    pub defaults_file: Option<PathBuf>,
}

/// A session.
pub struct Server {
    conn: Conn,
    login: Login,
    data: PathBuf,
}

impl Server {
    /// Opens a session.
    pub fn connect(login: &Login) -> Result<Server> {
        let options = OptsBuilder::new()
            .socket(Some(login.socket.to_string_lossy()))
            .prefer_socket(true)
            .user(Some(&login.user))
            .pass(Some(&login.password));
        let mut conn =
            Conn::new(options).with_context(|| format!("no session with the server at {}", login.socket.display()))?;
        let data: Option<String> = conn.query_first("SELECT @@datadir")?;
        let data = PathBuf::from(data.context("the server tells no data directory")?);
        Ok(Server { conn, login: login.clone(), data })
    }

    /// Its version.
    pub fn version(&mut self) -> Result<String> {
        Ok(self.conn.query_first("SELECT VERSION()")?.unwrap_or_default())
    }

    /// Asks the engine for a checkpoint at the moment of the next backup.
    pub fn await_backup(&mut self) -> Result<Staged> {
        let engine = self.data.join("#strata");
        remove_left(&engine)?;
        let name = format!("{CHECKPOINT}{}", std::process::id());
        let asked = self.conn.query_drop(format!("SET GLOBAL strata_backup_checkpoint = '{name}'"));
        asked.context("the engine makes no checkpoint")?;
        Ok(Staged { dir: engine.join(name) })
    }

    /// Has the checkpoint completed.
    pub fn complete(&mut self) -> Result<()> {
        self.conn.query_drop("SET GLOBAL strata_backup_checkpoint = ''").context("the checkpoint is not complete")
    }

    /// Runs mariadb-backup with these arguments and the login.
    pub fn run_backup(&self, target: &Path, base: Option<&Path>, more: &[String]) -> Result<()> {
        let options = self.option_file(target)?;
        let mut command = Command::new("mariadb-backup");
        command.arg(format!("--defaults-file={}", options.path.display()));
        command.arg("--backup").arg(format!("--target-dir={}", target.display()));
        command.arg(format!("--datadir={}", self.data.display()));
        command.arg(format!("--log-copy-interval={LOG_COPY_INTERVAL_MS}"));
        if let Some(base) = base {
            command.arg(format!("--incremental-basedir={}", base.display()));
        }
        let (writes, reads) = messages::channel()?;
        let taken = std::thread::spawn(move || messages::hand_on(reads, std::io::stderr()));
        let outcome = run(command.args(more).stderr(writes));
        // It holds the end that the messages are written to.
        drop(command);
        taken.join().expect("handing on messages does not panic")?;
        outcome
    }

    /// The login as an option file that nobody else can read; arguments are seen by all.
    fn option_file(&self, beside: &Path) -> Result<Temporary> {
        let login = &self.login;
        let name = format!("strata-backup-{}.cnf", std::process::id());
        let path = beside.parent().unwrap_or(Path::new(".")).join(name);
        let mut text = String::new();
        if let Some(file) = &login.defaults_file {
            let file = file.canonicalize().with_context(|| file.display().to_string())?;
            text.push_str(&format!("!include {}\n", file.display()));
        }
        let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        text.push_str(&format!(
            "[mariadb-backup]\nsocket={}\nuser={}\npassword={}\n",
            quoted(&login.socket.to_string_lossy()),
            quoted(&login.user),
            quoted(&login.password)
        ));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        let temporary = Temporary { path };
        file.write_all(text.as_bytes())?;
        Ok(temporary)
    }
}

/// Runs a program to its end; its messages are the user's.
pub fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status();
    let status = status.with_context(|| format!("{name} cannot be run; is its package installed?"))?;
    ensure!(status.success(), "{name} has failed ({status}): see its messages above");
    Ok(())
}

/// A file that goes at the end.
struct Temporary {
    path: PathBuf,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A checkpoint in the engine's directory, which goes at the end. Unfinished, the engine removes it.
pub struct Staged {
    /// Where it lies.
    pub dir: PathBuf,
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.dir.join("CURRENT").exists() {
            let _ = remove(&self.dir);
        }
    }
}

/// Removes a checkpoint, first what makes it one.
fn remove(dir: &Path) -> Result<()> {
    match fs::remove_file(dir.join("CURRENT")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => bail!("{}: {error}", dir.display()),
        _ => fs::remove_dir_all(dir).with_context(|| dir.display().to_string()),
    }
}

/// Removes what backups have left that were killed.
fn remove_left(engine: &Path) -> Result<()> {
    let names = fs::read_dir(engine)
        .with_context(|| format!("{}: run this on the server's machine, as its user or as root", engine.display()))?;
    for entry in names {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(process) = name.strip_prefix(CHECKPOINT) else { continue };
        let is_mine = process == std::process::id().to_string();
        if is_mine || !Path::new("/proc").join(process).exists() {
            remove(&entry.path())?;
        }
    }
    Ok(())
}
