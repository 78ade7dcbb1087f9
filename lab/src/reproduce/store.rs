//! The folder of a run: what it is a run of, and what of it is done.
//!
//! | file | holds |
//! |---|---|
//! | `manifest.json` | experiment, scale, engines, builds; names and durations of the steps that are done |
//! | `experiment.toml` | the experiment's text |
//! | `points/<step>.json` | the records of a step |
//! | `report.html`, `report.md` | written anew whenever the command ends well |
//!
//! A step's records are written before the manifest names it, each file whole or not at all: a run that is ended at any moment
//! goes on where it was. The folder's name has a hash of all that makes the run what it is, so that the same command finds it; the
//! same command with another build of an engine is refused, since its points would not be comparable.

use super::experiment::Experiment;
use super::plan::Plan;
use super::record::Record;
use super::subject::Subject;
use super::watch::compare_paces;
use crate::engine::Kind;
use crate::paths;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a run is, and what of it is done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    pub experiment: String,
    pub scale: String,
    pub rounds: u32,
    /// The baseline first.
    pub engines: Vec<String>,
    /// A hash of each plugin, and the server's version.
    pub builds: BTreeMap<String, String>,
    /// Seconds since 1970.
    pub begun: u64,
    /// Steps in the order in which they were done.
    pub done: Vec<Done>,
}

/// A step that is done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Done {
    pub key: String,
    pub seconds: f64,
}

/// The folder of a run.
pub struct Store {
    folder: PathBuf,
    pub manifest: Manifest,
}

impl Store {
    /// The run of this plan with these [`builds`] in the lab's folder: the one that is there, or a new one. With `fresh` one that is
    /// there is set aside.
    pub fn open(lab: &Path, plan: &Plan, text: &str, builds: BTreeMap<String, String>, fresh: bool) -> Result<Store> {
        let engines: Vec<String> = plan.subjects[..plan.compared].iter().map(|subject| subject.id().into()).collect();
        let name = format!("{}-{}", plan.experiment.name, plan.scale_name);
        let mut hasher = DefaultHasher::new();
        (text, &engines, plan.rounds).hash(&mut hasher);
        let folder = lab.join("reproduce").join(format!("{name}-{:08x}", hasher.finish() as u32));
        if fresh && folder.exists() {
            let aside = (1..).map(|n| folder.with_extension(format!("old{n}"))).find(|path| !path.exists());
            let aside = aside.context("there is no free name")?;
            fs::rename(&folder, &aside).with_context(|| format!("{} cannot be renamed", folder.display()))?;
            println!("The earlier run is now {}.", aside.display());
        }
        if folder.join("manifest.json").is_file() {
            let store = Store::read(&folder)?;
            ensure!(
                store.manifest.builds == builds,
                "{} was begun with other builds ({:?}, now {builds:?}); --fresh begins anew",
                folder.display(),
                store.manifest.builds
            );
            return Ok(store);
        }
        fs::create_dir_all(folder.join("points")).with_context(|| folder.display().to_string())?;
        write(&folder.join("experiment.toml"), text.as_bytes())?;
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (scale, rounds) = (plan.scale_name.clone(), plan.rounds);
        let experiment = plan.experiment.name.clone();
        let manifest = Manifest { experiment, scale, rounds, engines, builds, begun, done: Vec::new() };
        let store = Store { folder, manifest };
        store.write_manifest()?;
        Ok(store)
    }

    /// The run in a folder.
    pub fn read(folder: &Path) -> Result<Store> {
        let path = folder.join("manifest.json");
        let text = fs::read_to_string(&path).with_context(|| format!("{} is no run: no manifest", folder.display()))?;
        let manifest = serde_json::from_str(&text).with_context(|| format!("{} has another form", path.display()))?;
        Ok(Store { folder: folder.to_path_buf(), manifest })
    }

    /// The plan that a stored run follows, and its experiment's text.
    pub fn plan(&self) -> Result<Plan> {
        let text = fs::read_to_string(self.folder.join("experiment.toml"))?;
        let Manifest { scale, engines, rounds, .. } = &self.manifest;
        Plan::new(Experiment::parse(&text)?, scale, engines, Some(*rounds))
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether a step is done.
    pub fn has(&self, key: &str) -> bool {
        self.manifest.done.iter().any(|done| done.key == key) && self.point(key).is_file()
    }

    /// Keeps the records of a step.
    pub fn add(&mut self, key: &str, seconds: f64, records: &[Record]) -> Result<()> {
        write(&self.point(key), serde_json::to_string(records)?.as_bytes())?;
        self.manifest.done.retain(|done| done.key != key);
        self.manifest.done.push(Done { key: key.into(), seconds });
        self.write_manifest()
    }

    /// All records, in the order in which they were made.
    pub fn records(&self) -> Result<Vec<Record>> {
        let mut all = Vec::new();
        for done in &self.manifest.done {
            let path = self.point(&done.key);
            let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
            let some: Vec<Record> =
                serde_json::from_str(&text).with_context(|| format!("{} has another form", path.display()))?;
            all.extend(some);
        }
        compare_paces(all.iter_mut().map(|record| &mut record.watch));
        Ok(all)
    }

    /// Writes a file beside the manifest, whole or not at all.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        write(&path, text.as_bytes())?;
        Ok(path)
    }

    fn point(&self, key: &str) -> PathBuf {
        self.folder.join("points").join(format!("{key}.json"))
    }

    fn write_manifest(&self) -> Result<()> {
        write(&self.folder.join("manifest.json"), serde_json::to_string_pretty(&self.manifest)?.as_bytes())
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, bytes).with_context(|| format!("{} cannot be written", new.display()))?;
    // What a name promises must be there after a crash of the machine, too.
    fs::File::open(&new)?.sync_all()?;
    fs::rename(&new, path).with_context(|| format!("{} cannot be written", path.display()))
}

/// What tells one build from another, for each engine.
pub fn builds(subjects: &[Subject]) -> Result<BTreeMap<String, String>> {
    let mut builds = BTreeMap::new();
    let mut note = |name: &str, path: PathBuf| -> Result<()> {
        let bytes = fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        builds.insert(name.to_string(), format!("{:016x}", hasher.finish()));
        Ok(())
    };
    note("server", paths::mariadbd())?;
    for subject in subjects {
        if let Some(plugin) = subject.kind.plugin() {
            let path = match subject.kind {
                Kind::Strata => paths::plugin(&paths::checkout()?),
                _ => paths::server_plugins().join(plugin),
            };
            if !path.is_file() {
                bail!("there is no {} for {}", path.display(), subject.id());
            }
            note(subject.kind.id(), path)?;
        }
    }
    Ok(builds)
}

#[cfg(test)]
mod tests {
    use super::super::experiment::OWN;
    use super::*;

    fn plan(engines: &[&str]) -> Plan {
        let engines: Vec<String> = engines.iter().map(|name| (*name).to_string()).collect();
        Plan::new(Experiment::parse(OWN[0].1).unwrap(), "tiny", &engines, None).unwrap()
    }

    #[test]
    fn the_same_command_finds_its_run() {
        let lab = tempfile::tempdir().unwrap();
        let lab = lab.path();
        let builds = |build: &str| BTreeMap::from([("server".to_string(), build.to_string())]);
        let open = |engines: &[&str], build, fresh| Store::open(lab, &plan(engines), OWN[0].1, builds(build), fresh);
        let mut first = open(&["innodb", "strata"], "1", false).unwrap();
        first.add("a", 1.5, &[]).unwrap();
        assert!(open(&["innodb", "strata"], "1", false).unwrap().has("a"));
        // Other engines are another run.
        assert!(!open(&["innodb"], "1", false).unwrap().has("a"));
        let error = open(&["innodb", "strata"], "2", false).err().unwrap().to_string();
        assert!(error.contains("other builds") && error.contains("--fresh"), "{error}");
        assert!(!open(&["innodb", "strata"], "2", true).unwrap().has("a"));
        // What was there is kept, and can be read.
        let aside = Store::read(&first.folder().with_extension("old1")).unwrap();
        assert!(aside.has("a") && aside.manifest.builds == builds("1"));
        assert_eq!(aside.plan().unwrap().subjects.len(), plan(&["innodb", "strata"]).subjects.len());
        assert!(Store::read(lab).is_err());
    }
}
