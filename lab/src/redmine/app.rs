//! A private copy of Debian's Redmine, and Ruby processes in it.
//!
//! The copy lies in `<lab>/redmine/app`. It is made anew when the package or the lab's scripts are others. Debian's Redmine knows
//! instances, each with configuration, logs and files of its own; the copy has one, `lab`. Its `database.yml` takes the server's
//! socket from the environment, so one copy serves every engine.

use super::DATABASE;
use crate::child::{self, Bound};
use crate::server::Instance;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the package puts it.
const PACKAGED: &str = "/usr/share/redmine";
/// Parts of the package that are links to an installed Redmine's own configuration.
const NOT_OURS: [&str; 4] = ["Gemfile.lock", "instances", "config/database.yml", "public/plugin_assets"];
const SCRIPTS: [(&str, &str); 5] = [
    ("lab/common.rb", include_str!("../../redmine/common.rb")),
    ("lab/set.rb", include_str!("../../redmine/set.rb")),
    ("lab/work.rb", include_str!("../../redmine/work.rb")),
    ("plugins/lab_foreign_keys/init.rb", include_str!("../../redmine/plugin/lab_foreign_keys/init.rb")),
    (
        "plugins/lab_foreign_keys/db/migrate/001_create_lab_links.rb",
        include_str!("../../redmine/plugin/lab_foreign_keys/db/migrate/001_create_lab_links.rb"),
    ),
];
const DATABASE_YML: &str = "\
production:
  adapter: mysql2
  database: <%= ENV['LAB_DATABASE'] %>
  socket: <%= ENV['LAB_SOCKET'] %>
  username: root
  encoding: utf8mb4
";
/// Beside the gems that the package asks for, the one for this kind of server. The version is that of the package's own list.
const GEMFILE_LOCAL: &str = "gem 'mysql2', '~> 0.5.0', :platforms => [:mri, :mingw, :x64_mingw]\n";

/// The copy.
#[derive(Clone, Debug)]
pub struct App {
    folder: PathBuf,
    version: String,
}

impl App {
    /// Fails with what to do about it where Redmine or fio is not installed.
    pub fn need() -> Result<()> {
        let there = Path::new(PACKAGED).join("config/application.rb").is_file();
        ensure!(
            there && crate::paths::have_program("fio") && crate::paths::have_program("ruby"),
            "Redmine or fio is not installed; '--set-up' or 'scripts/setup.sh redmine' installs both, with Ruby, Rails and gems about 125 packages"
        );
        Ok(())
    }

    /// The copy in the lab's folder, made if need be.
    pub fn prepare(lab: &Path) -> Result<App> {
        App::need()?;
        let app = App { folder: super::folder(lab), version: packaged_version()? };
        let (stamp, wanted) = (app.folder.join("stamp"), build()?);
        if fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
            return Ok(app);
        }
        println!("copying Redmine {}", app.version);
        if app.folder.exists() {
            fs::remove_dir_all(&app.folder).with_context(|| format!("{} cannot be removed", app.folder.display()))?;
        }
        app.copy().with_context(|| format!("Redmine cannot be copied to {}", app.folder.display()))?;
        app.choose_gems()?;
        fs::write(&stamp, wanted)?;
        Ok(app)
    }

    /// The package's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Where what belongs to it may be put.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the errors of its processes are added to.
    pub fn log(&self) -> PathBuf {
        self.folder.join("ruby.log")
    }

    /// Starts a script as Rails does, on an engine's server.
    pub fn run(&self, script: &str, instance: &Instance, settings: &[(&str, String)]) -> Result<Bound> {
        let mut command = self.ruby();
        command.args(["bin/rails", "runner", &format!("lab/{script}")]);
        command.env("LAB_SOCKET", instance.socket()).env("LAB_DATABASE", DATABASE);
        for (name, value) in settings {
            command.env(name, value);
        }
        child::start(&command, &self.log())
    }

    /// The last lines of its processes' errors.
    pub fn log_tail(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(4 << 10)..]).into_owned();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(15)..].join("\n")
    }

    fn app(&self) -> PathBuf {
        self.folder.join("app")
    }

    fn copy(&self) -> Result<()> {
        let app = self.app();
        fs::create_dir_all(&self.folder)?;
        let status = Command::new("cp").args(["-a", PACKAGED]).arg(&app).status()?;
        ensure!(status.success(), "cp failed");
        for name in NOT_OURS {
            let path = app.join(name);
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() => fs::remove_dir_all(&path)?,
                Ok(_) => fs::remove_file(&path)?,
                Err(_) => {}
            }
        }
        let own = app.join("instances/lab");
        for name in ["config", "log", "tmp/cache", "files", "public/plugin_assets"] {
            fs::create_dir_all(own.join(name))?;
        }
        fs::create_dir_all(app.join("public/plugin_assets"))?;
        fs::write(own.join("config/database.yml"), DATABASE_YML)?;
        fs::write(own.join("config/secret_key.txt"), "a-secret-of-a-server-that-nobody-but-the-lab-can-reach\n")?;
        fs::write(app.join("Gemfile.local"), GEMFILE_LOCAL)?;
        for (name, text) in SCRIPTS {
            let path = app.join(name);
            fs::create_dir_all(path.parent().context("a script has no folder")?)?;
            fs::write(path, text)?;
        }
        Ok(())
    }

    /// Lets bundler choose among the installed gems once; each start then reads what it chose.
    fn choose_gems(&self) -> Result<()> {
        let output = self.ruby().args(["bin/bundle", "install", "--local", "--quiet"]).output()?;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            bail!("Redmine's gems do not fit each other:\n{}", String::from_utf8_lossy(&said));
        }
        Ok(())
    }

    /// Ruby in the copy, with nothing of the caller's own Ruby.
    fn ruby(&self) -> Command {
        let mut command = Command::new("ruby");
        command.current_dir(self.app());
        for name in ["RUBYOPT", "RUBYLIB", "GEM_HOME", "GEM_PATH", "BUNDLE_GEMFILE", "X_DEBIAN_SITEID"] {
            command.env_remove(name);
        }
        command
            .env("HOME", &self.folder)
            .env("LANG", "C.UTF-8")
            .env("RAILS_ENV", "production")
            .env("REDMINE_INSTANCE", "lab")
            .env("SCHEMA", "/dev/null")
            .env("BUNDLE_SILENCE_ROOT_WARNING", "1");
        command
    }
}

/// What tells one Redmine from another: the package's version and a hash of the lab's scripts.
pub fn build() -> Result<String> {
    let mut hasher = DefaultHasher::new();
    (&SCRIPTS, DATABASE_YML, GEMFILE_LOCAL, NOT_OURS).hash(&mut hasher);
    Ok(format!("{} {:016x}", packaged_version()?, hasher.finish()))
}

fn packaged_version() -> Result<String> {
    let output = Command::new("dpkg-query").args(["-W", "-f=${Version}", "redmine"]).output()?;
    ensure!(output.status.success(), "dpkg knows no package redmine");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
