//! Servers whose engine encrypts what it writes: tables and log, by the keys of the packaged plugin `file_key_management`.
//!
//! The keys are the lab's own and no secret: each server has the same, so that one can open what another wrote. Whoever asks for
//! [`options`] gets a server that finds plugin and keys, whatever else is among its options.

use crate::engine::{Conditions, Kind};
use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The plugin's name.
const PLUGIN: &str = "file_key_management";
/// Key 1 is for what belongs to no table; key 2 for tables that ask for another one.
const KEYS: &str = "\
1;8f2c0f4b6d1e3a5c7b9d8e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d
2;00112233445566778899aabbccddeeff
";

/// Options of a server that encrypts all of the engine.
pub fn options(kind: Kind) -> Result<Vec<String>> {
    let engine = match kind {
        Kind::Innodb => ["innodb_encrypt_tables=ON", "innodb_encrypt_log=ON"],
        Kind::Strata => ["strata_encrypt_tables=ON", "strata_encrypt_log=ON"],
        Kind::Rocksdb => bail!("{} encrypts nothing", kind.title()),
    };
    Ok([&[format!("plugin-load-add={PLUGIN}")][..], &engine.map(str::to_owned)].concat())
}

/// The same conditions with servers that encrypt, whichever of the engines is theirs.
pub fn switched_on(conditions: &Conditions) -> Conditions {
    let mut extra = conditions.extra.clone();
    extra.push(format!("plugin-load-add={PLUGIN}"));
    // A server that has not the engine passes over its options. InnoDB is in each server; where it is not measured it has a few tables
    // of the server's own.
    extra.extend([Kind::Innodb, Kind::Strata].into_iter().flat_map(variables).map(|name| format!("loose-{name}=ON")));
    Conditions { extra, ..conditions.clone() }
}

/// Do these options make a server encrypt?
pub fn is_on(options: &[String]) -> bool {
    plugins(options).any(|plugin| plugin == PLUGIN)
}

/// Variables that must be on in a server that encrypts.
pub fn variables(kind: Kind) -> Vec<String> {
    let name = |option: &String| Some(option.strip_suffix("=ON")?.to_owned());
    options(kind).unwrap_or_default().iter().filter_map(name).collect()
}

/// Packaged plugins that options load, by name.
pub fn plugins(options: &[String]) -> impl Iterator<Item = &str> {
    let starts = ["plugin-load-add=", "plugin_load_add="];
    options.iter().filter_map(move |option| {
        let name = starts.iter().find_map(|start| option.strip_prefix(start))?;
        Some(name.strip_suffix(".so").unwrap_or(name))
    })
}

/// The option that names the lab's keys, which are written to `folder`; none if options do without or name their own.
pub fn key_option(options: &[String], folder: &Path) -> Result<Option<String>> {
    let names_keys = |option: &String| option.replace('-', "_").starts_with("file_key_management_filename=");
    if !is_on(options) || options.iter().any(names_keys) {
        return Ok(None);
    }
    let path = key_file(folder);
    fs::write(&path, KEYS)?;
    Ok(Some(format!("{PLUGIN}_filename={}", path.display())))
}

/// Where they are written.
pub fn key_file(folder: &Path) -> PathBuf {
    folder.join("keys.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[&str]) -> Vec<String> {
        text.iter().map(|line| line.to_string()).collect()
    }

    #[test]
    fn options_that_load_plugins_are_found() {
        let of = |text: &[&str]| plugins(&lines(text)).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            of(&["port=1", "plugin-load-add=a.so", "plugin_load_add=file_key_management"]),
            ["a", "file_key_management"]
        );
        assert!(of(&["x=plugin-load-add=a"]).is_empty());
        assert!(is_on(&options(Kind::Strata).unwrap()) && !is_on(&[]));
        assert!(options(Kind::Rocksdb).is_err());
        let plain = Conditions {
            budget_mb: 1,
            isolation: crate::options::Isolation::RepeatableRead,
            extra: lines(&["port=1"]),
            strata_extra: vec![],
        };
        let on = switched_on(&plain).extra;
        assert!(is_on(&on) && on.contains(&"port=1".into()) && on.contains(&"loose-strata_encrypt_log=ON".into()));
        assert_eq!(variables(Kind::Strata), ["strata_encrypt_tables", "strata_encrypt_log"]);
    }

    #[test]
    fn keys_are_written_for_who_has_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(key_option(&[], dir.path()).unwrap(), None);
        let own = [options(Kind::Strata).unwrap(), lines(&["file-key-management-filename=/k"])].concat();
        assert_eq!(key_option(&own, dir.path()).unwrap(), None);
        assert!(!key_file(dir.path()).exists());
        let option = key_option(&options(Kind::Innodb).unwrap(), dir.path()).unwrap().unwrap();
        assert_eq!(option, format!("file_key_management_filename={}", key_file(dir.path()).display()));
        assert_eq!(fs::read_to_string(key_file(dir.path())).unwrap(), KEYS);
    }
}
