//! A private server per engine: its folder, its life, its saved states.
//!
//! Everything of it lies in `<lab>/<engine>`: data, binary logs, option file,
//! log. It listens on a socket only and has no passwords. It dies with the lab;
//! one that was left behind is found by its pid file and stopped at the next
//! start. A loaded data directory can be saved under a name and restored from
//! it, so that each round of a comparison starts from the same bytes.

use crate::encryption;
use crate::engine::{CONNECTIONS_MIN, Conditions, DiskSize, Kind};
use crate::memory_group::MemoryGroup;
use crate::options::Site;
use crate::paths;
use anyhow::{Context, Result, bail, ensure};
use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a server may take to start or to stop before that is an error.
pub const PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(20);
/// A start is measured with it.
const START_POLL: Duration = Duration::from_millis(2);

/// The folder of one engine's server. No server needs to run.
#[derive(Clone, Debug)]
pub struct Instance {
    kind: Kind,
    lab: PathBuf,
    dir: PathBuf,
    socket: PathBuf,
    /// Behind the engine's name in CREATE TABLE: nothing, or options that begin with a space.
    table_options: String,
}

impl Instance {
    /// The instance of an engine. Stops a server that was left running there.
    pub fn new(lab: &Path, kind: Kind) -> Result<Instance> {
        let dir = lab.join(kind.id());
        fs::create_dir_all(dir.join("tmp"))?;
        let mut socket = dir.join("lab.sock");
        // A socket's path holds 107 bytes.
        if socket.as_os_str().len() > 100 {
            let mut hasher = DefaultHasher::new();
            dir.hash(&mut hasher);
            socket = std::env::temp_dir().join(format!("strata-lab-{:016x}.sock", hasher.finish()));
        }
        let instance = Instance { kind, lab: lab.to_path_buf(), dir, socket, table_options: String::new() };
        instance.stop_stray()?;
        if let Some(plugin) = kind.plugin() {
            let source = instance.plugin_source(plugin)?;
            ensure!(source.is_file(), "there is no {}; {}", source.display(), instance.plugin_hint());
        }
        Ok(instance)
    }

    /// The engine.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The same, whose tables are made with these options as well.
    pub fn with_table_options(self, options: &str) -> Instance {
        Instance { table_options: options.to_string(), ..self }
    }

    /// What stands behind `ENGINE=` in CREATE TABLE.
    pub fn engine_clause(&self) -> String {
        format!("{}{}", self.kind.sql(), self.table_options)
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The folder of the binary logs.
    pub fn binlogs(&self) -> PathBuf {
        self.dir.join("binlog")
    }

    /// The server's log.
    pub fn log(&self) -> PathBuf {
        self.dir.join("mariadbd.log")
    }

    /// Where to look when something is wrong.
    pub fn whereabouts(&self) -> String {
        format!("data in {}, the server's log is {}", self.data().display(), self.log().display())
    }

    /// The server's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The keys of a server that encrypts.
    pub fn key_file(&self) -> PathBuf {
        encryption::key_file(&self.dir)
    }

    /// Bytes on disk of the engine's files.
    pub fn size_on_disk(&self) -> Result<DiskSize> {
        self.kind.size_on_disk(&self.data())
    }

    /// Bytes of all binary logs.
    pub fn binlog_bytes(&self) -> Result<u64> {
        let mut sum = 0;
        for entry in fs::read_dir(self.binlogs())? {
            sum += entry?.metadata().map_or(0, |meta| meta.len());
        }
        Ok(sum)
    }

    /// Removes all data and makes an empty data directory.
    pub fn reset(&self) -> Result<()> {
        let empty = self.empty_data()?;
        self.replace_data(&empty)
    }

    /// Whether a state of this name was saved.
    pub fn has_saved(&self, name: &str) -> bool {
        self.saved(name).join("complete").is_file()
    }

    /// Saves the data directory under a name. The server must be stopped.
    pub fn save(&self, name: &str) -> Result<()> {
        let saved = self.saved(name);
        remove_dir(&saved)?;
        fs::create_dir_all(&saved)?;
        copy_dir(&self.data(), &saved.join("data"))?;
        fs::write(saved.join("complete"), "")?;
        Ok(())
    }

    /// Makes the saved state the data directory, with no binary logs.
    pub fn restore(&self, name: &str) -> Result<()> {
        self.replace_data(&self.saved(name).join("data"))
    }

    /// Has the kernel write what is in its page cache of the files, whoever wrote it.
    pub fn write_back(&self) -> Result<()> {
        write_back(&self.data())
    }

    /// Forgets a saved state.
    pub fn forget(&self, name: &str) -> Result<()> {
        remove_dir(&self.saved(name))
    }

    /// Starts the server and waits until it answers.
    pub fn start(&self, conditions: &Conditions) -> Result<Server> {
        let mut server = self.launch(conditions)?;
        server.wait_ready(PATIENCE)?;
        server.check_conditions(conditions)?;
        Ok(server)
    }

    /// Starts the server and returns at once.
    pub fn launch(&self, conditions: &Conditions) -> Result<Server> {
        self.launch_to_crash(conditions, None)
    }

    /// As `launch`; the server ends itself at a step of a transaction, which `STRATA_CRASH_AT` names.
    pub fn launch_to_crash(&self, conditions: &Conditions, crash_at: Option<&str>) -> Result<Server> {
        self.write_option_file(conditions)?;
        self.spawn(crash_at, &[])
    }

    /// As `launch`; the process may have so many files open.
    pub fn launch_limited(&self, conditions: &Conditions, open_files: u64) -> Result<Server> {
        self.write_option_file(conditions)?;
        // The server raises what it is given to the hard limit.
        self.spawn(None, &["prlimit", &format!("--nofile={open_files}:{open_files}"), "--"])
    }

    /// As `launch`; the process is a member of the control group.
    pub fn launch_in(&self, conditions: &Conditions, group: &MemoryGroup) -> Result<Server> {
        self.write_option_file(conditions)?;
        let members = group.members();
        self.spawn(None, &["sh", "-c", r#"echo $$ > "$0" && exec "$@""#, &members.to_string_lossy()])
    }

    /// As `launch`, without the engine.
    pub fn launch_absent(&self, conditions: &Conditions) -> Result<Server> {
        self.write_option_file(conditions)?;
        let id = self.kind.id();
        let concerns = [id.to_owned(), format!("loose-{id}"), "plugin-".into(), "default-storage-engine".into()];
        let lines = fs::read_to_string(self.option_file())?;
        let kept = lines.lines().filter(|line| !concerns.iter().any(|start| line.starts_with(start.as_str())));
        fs::write(self.option_file(), kept.collect::<Vec<_>>().join("\n") + "\n")?;
        self.spawn(None, &[])
    }

    /// Runs the server, by the command `before` if that has words.
    fn spawn(&self, crash_at: Option<&str>, before: &[&str]) -> Result<Server> {
        fs::create_dir_all(self.binlogs())?;
        let _ = fs::remove_file(&self.socket);
        let log = fs::File::options().create(true).append(true).open(self.log())?;
        let mariadbd = paths::mariadbd();
        let mut words: Vec<OsString> = Vec::new();
        if paths::have_program("setpriv") {
            // The server must not outlive the lab.
            words.extend(["setpriv", "--pdeathsig", "KILL", "--"].map(OsString::from));
        }
        words.extend(before.iter().map(OsString::from));
        words.push(mariadbd.clone().into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        if let Some(step) = crash_at {
            command.env("STRATA_CRASH_AT", step);
        }
        let child = command
            .arg(format!("--defaults-file={}", self.option_file().display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("{} cannot be started", mariadbd.display()))?;
        let spawned = Instant::now();
        fs::write(self.pid_file(), child.id().to_string())?;
        let answered_in = Duration::ZERO;
        Ok(Server { instance: self.clone(), child, gone: false, paused: false, spawned, answered_in })
    }

    /// The last lines of the server's log.
    pub fn log_tail(&self, lines: usize) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(64 << 10)..]).into_owned();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// A session's options.
    pub fn client_options(&self, database: Option<&str>) -> OptsBuilder {
        OptsBuilder::new()
            .socket(Some(self.socket.to_string_lossy()))
            .prefer_socket(true)
            .user(Some("root"))
            .db_name(database)
            .stmt_cache_size(256)
    }

    /// Opens a session. Fails when no server answers.
    pub fn connect(&self, database: Option<&str>) -> mysql::Result<Conn> {
        Conn::new(self.client_options(database))
    }

    /// Opens a session in a database that is made anew, empty.
    pub fn fresh_database(&self, name: &str) -> mysql::Result<Conn> {
        let mut conn = self.connect(None)?;
        conn.query_drop(format!("DROP DATABASE IF EXISTS {name}"))?;
        conn.query_drop(format!("CREATE DATABASE {name}"))?;
        conn.query_drop(format!("USE {name}"))?;
        Ok(conn)
    }

    fn option_file(&self) -> PathBuf {
        self.dir.join("my.cnf")
    }

    fn pid_file(&self) -> PathBuf {
        self.dir.join("mariadbd.pid")
    }

    fn saved(&self, name: &str) -> PathBuf {
        self.dir.join("saved").join(name)
    }

    fn plugin_source(&self, plugin: &str) -> Result<PathBuf> {
        match self.kind {
            Kind::Strata => Ok(paths::plugin(&paths::checkout()?)),
            _ => Ok(paths::server_plugins().join(plugin)),
        }
    }

    fn plugin_hint(&self) -> &'static str {
        match self.kind {
            Kind::Strata => "'make plugin' builds it",
            _ => "install the package mariadb-plugin-rocksdb, or leave the engine out with --engines",
        }
    }

    fn stop_stray(&self) -> Result<()> {
        let Ok(pid) = fs::read_to_string(self.pid_file()) else {
            return Ok(());
        };
        let pid = pid.trim();
        let Ok(words) = fs::read(format!("/proc/{pid}/cmdline")) else {
            return Ok(());
        };
        let mine = format!("--defaults-file={}", self.option_file().display());
        if words.split(|&b| b == 0).any(|word| word == mine.as_bytes()) {
            eprintln!("lab: stopping the server {pid} that an earlier run left behind");
            Command::new("kill").args(["-KILL", pid]).status().context("there is no 'kill'")?;
            wait_for(Duration::from_secs(30), || !Path::new(&format!("/proc/{pid}")).exists())
                .with_context(|| format!("process {pid} does not end"))?;
        }
        let _ = fs::remove_file(self.pid_file());
        Ok(())
    }

    fn write_option_file(&self, conditions: &Conditions) -> Result<()> {
        let plugins = self.dir.join("plugins");
        remove_dir(&plugins)?;
        fs::create_dir_all(&plugins)?;
        let mut lines = vec![
            "# Written by the lab at every start.".to_string(),
            "[mariadbd]".into(),
            format!("datadir={}", self.data().display()),
            format!("tmpdir={}", self.dir.join("tmp").display()),
            format!("socket={}", self.socket.display()),
            format!("plugin-dir={}", plugins.display()),
            format!("log-bin={}", self.binlogs().join("binlog").display()),
            "user=root".into(),
            "skip-networking".into(),
            "skip-name-resolve".into(),
            "server-id=1".into(),
            "sync_binlog=1".into(),
            "binlog_format=ROW".into(),
            "max_binlog_size=1G".into(),
            "performance_schema=OFF".into(),
            "character-set-server=utf8mb4".into(),
            "collation-server=utf8mb4_general_ci".into(),
            format!("max_connections={CONNECTIONS_MIN}"),
            "thread_cache_size=200".into(),
            "table_open_cache=4000".into(),
            "max_prepared_stmt_count=200000".into(),
            "max_allowed_packet=64M".into(),
            "query_cache_type=0".into(),
            "query_cache_size=0".into(),
            format!("default-storage-engine={}", self.kind.sql()),
            format!("transaction-isolation={}", self.kind.isolation(conditions.isolation).name()),
        ];
        if let Some(plugin) = self.kind.plugin() {
            // A copy, so that a rebuild does not disturb the server.
            let source = self.plugin_source(plugin)?;
            fs::copy(&source, plugins.join(plugin))
                .with_context(|| format!("there is no {}; {}", source.display(), self.plugin_hint()))?;
            lines.push("plugin-maturity=unknown".into());
            lines.push(format!("plugin-load-add={plugin}"));
            lines.push(format!("loose-{}=FORCE_PLUS_PERMANENT", self.kind.id()));
        }
        // The options of another user cannot be asked for.
        if fs::metadata("/proc/self").map(|meta| std::os::unix::fs::MetadataExt::uid(&meta)).unwrap_or(0) != 0 {
            lines.retain(|line| line != "user=root");
        }
        let further = [self.kind.option_lines(conditions), conditions.extra.clone()].concat();
        for name in encryption::plugins(&further) {
            let file = format!("{name}.so");
            fs::copy(paths::server_plugins().join(&file), plugins.join(&file))
                .with_context(|| format!("the server has no plugin {file}"))?;
        }
        let keys = encryption::key_option(&further, &self.dir)?;
        lines.extend(further);
        lines.extend(keys);
        fs::write(self.option_file(), lines.join("\n") + "\n")?;
        Ok(())
    }

    /// An empty data directory, made once for all engines.
    fn empty_data(&self) -> Result<PathBuf> {
        let version = Command::new(paths::mariadbd()).args(["--no-defaults", "--version"]).output();
        let version = version.with_context(|| format!("{} does not run", paths::mariadbd().display()))?;
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        let dir = self.lab.join("empty");
        let stamp = dir.join("version");
        if fs::read_to_string(&stamp).is_ok_and(|have| have == version) {
            return Ok(dir.join("data"));
        }
        remove_dir(&dir)?;
        fs::create_dir_all(&dir)?;
        let mut command = Command::new("mariadb-install-db");
        command.arg("--no-defaults").arg(format!("--datadir={}", dir.join("data").display()));
        // A server that starts removes what looks like its leavings from a folder that it shares with others.
        command.arg(format!("--tmpdir={}", dir.display()));
        command.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]);
        command.args(["--innodb-log-file-size=16M", "--user=root"]);
        let output = command.output().context("mariadb-install-db is not installed; 'make setup' installs it")?;
        if !output.status.success() {
            bail!("mariadb-install-db failed:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        fs::write(stamp, version)?;
        Ok(dir.join("data"))
    }

    fn replace_data(&self, from: &Path) -> Result<()> {
        remove_dir(&self.data())?;
        remove_dir(&self.binlogs())?;
        let _ = fs::remove_file(self.log());
        copy_dir(from, &self.data())?;
        fs::create_dir_all(self.binlogs())?;
        Ok(())
    }
}

/// A server that runs. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    instance: Instance,
    child: Child,
    gone: bool,
    paused: bool,
    spawned: Instant,
    answered_in: Duration,
}

impl Server {
    /// Its folder.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Opens a session.
    pub fn connect(&self, database: Option<&str>) -> Result<Conn> {
        self.instance
            .connect(database)
            .with_context(|| format!("no session with {}'s server", self.instance.kind.title()))
    }

    /// Waits until a session can be opened; an error when the server ends before.
    pub fn wait_ready(&mut self, patience: Duration) -> Result<()> {
        let began = Instant::now();
        loop {
            if self.instance.connect(None).is_ok() {
                self.answered_in = self.spawned.elapsed();
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                self.gone = true;
                return Err(self.ended(status, "while starting"));
            }
            if began.elapsed() > patience {
                bail!(
                    "{}'s server does not answer after {} s; {}",
                    self.instance.kind.title(),
                    patience.as_secs(),
                    self.said()
                );
            }
            sleep(START_POLL);
        }
    }

    /// How long its process took to answer the first session.
    pub fn answered_in(&self) -> Duration {
        self.answered_in
    }

    /// An error when the server has ended by itself.
    pub fn ensure_alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            self.gone = true;
            return Err(self.ended(status, "under load"));
        }
        Ok(())
    }

    /// Stops all threads of the process until [`Server::go_on`]; who waits for an answer waits so long.
    pub fn pause(&mut self) -> Result<()> {
        self.signal(Signal::STOP)?;
        self.paused = true;
        Ok(())
    }

    /// Lets a process go on that was stopped by [`Server::pause`].
    pub fn go_on(&mut self) -> Result<()> {
        if self.paused {
            self.signal(Signal::CONT)?;
            self.paused = false;
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.pid().cast_signed()).context("the server has no process")?;
        kill_process(pid, signal).with_context(|| format!("process {} cannot be told to stop or to go on", self.pid()))
    }

    /// Waits until the process has ended by itself, as it was told to.
    pub fn wait_ended(mut self, patience: Duration) -> Result<()> {
        let child = &mut self.child;
        wait_for(patience, || matches!(child.try_wait(), Ok(Some(_)))).context("the server has not ended itself")?;
        self.gone = true;
        let _ = fs::remove_file(self.instance.pid_file());
        Ok(())
    }

    /// Stops it in an orderly way.
    pub fn stop(mut self) -> Result<()> {
        self.shut_down()
    }

    /// The same for who keeps the place of the server.
    pub fn shut_down(&mut self) -> Result<()> {
        self.go_on()?;
        // The session may end before the answer comes.
        let _ = self.instance.connect(None).and_then(|mut conn| conn.query_drop("SHUTDOWN"));
        let child = &mut self.child;
        let ended = wait_for(PATIENCE, || matches!(child.try_wait(), Ok(Some(_))));
        if ended.is_err() {
            bail!(
                "{}'s server does not stop within {} s; {}",
                self.instance.kind.title(),
                PATIENCE.as_secs(),
                self.said()
            );
        }
        self.gone = true;
        let _ = fs::remove_file(self.instance.pid_file());
        let status = self.child.wait()?;
        if !status.success() {
            return Err(self.ended(status, "while stopping"));
        }
        Ok(())
    }

    /// Ends it with SIGKILL and waits until it is gone.
    pub fn kill(mut self) -> Result<()> {
        self.end()
    }

    /// The same for who keeps the place of the server.
    pub fn end(&mut self) -> Result<()> {
        if !self.gone {
            self.child.kill()?;
            self.child.wait()?;
            self.gone = true;
            let _ = fs::remove_file(self.instance.pid_file());
        }
        Ok(())
    }

    fn check_conditions(&self, conditions: &Conditions) -> Result<()> {
        let mut conn = self.connect(None)?;
        for (name, wanted) in self.instance.kind.must_have(conditions) {
            let off = format!("skip-{}", name.replace('_', "-"));
            let set = |line: &String| line.starts_with(&name) || *line == off;
            if conditions.extra.iter().chain(&conditions.strata_extra).any(set) {
                continue;
            }
            let row: Option<(String, String)> = conn.query_first(format!("SHOW GLOBAL VARIABLES LIKE '{name}'"))?;
            let Some((_, value)) = row else { bail!("the server has no variable {name}") };
            ensure!(value == wanted, "{name} is {value} in the server, and should be {wanted}");
        }
        Ok(())
    }

    fn ended(&self, status: ExitStatus, when: &str) -> anyhow::Error {
        anyhow::anyhow!("{}'s server ended {when} ({status}); {}", self.instance.kind.title(), self.said())
    }

    fn said(&self) -> String {
        format!("the end of its log {}:\n{}", self.instance.log().display(), self.instance.log_tail(40))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Stops what an interrupted run left behind and removes the lab's folder.
pub fn clean(site: &Site) -> Result<()> {
    let lab = site.folder()?;
    for kind in [Kind::Innodb, Kind::Rocksdb, Kind::Strata] {
        if lab.join(kind.id()).is_dir() {
            let dir = lab.join(kind.id());
            let instance =
                Instance { kind, lab: lab.clone(), socket: dir.join("lab.sock"), dir, table_options: String::new() };
            instance.stop_stray()?;
            remove_dir(&instance.dir)?;
        }
    }
    remove_dir(&lab.join("empty"))?;
    remove_dir(&crate::redmine::folder(&lab))?;
    remove_dir(&crate::linkbench::published::folder(&lab))?;
    println!("servers and data in {} are removed, results are kept", lab.display());
    Ok(())
}

fn wait_for(patience: Duration, mut done: impl FnMut() -> bool) -> Result<()> {
    let began = Instant::now();
    while !done() {
        ensure!(began.elapsed() < patience, "not after {} s", patience.as_secs());
        sleep(POLL);
    }
    Ok(())
}

fn remove_dir(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", dir.display()))
        }
        _ => Ok(()),
    }
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    // cp keeps holes and shares blocks where the file system can.
    let status = Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to).status()?;
    ensure!(status.success(), "{} cannot be copied to {}", from.display(), to.display());
    // What was copied must not be written back while a measurement runs.
    write_back(to)
}

/// Writes all that is in the page cache of this file system.
fn write_back(dir: &Path) -> Result<()> {
    let status = Command::new("sync").arg("-f").arg(dir).status().context("there is no 'sync'")?;
    ensure!(status.success(), "{} cannot be synced", dir.display());
    Ok(())
}
