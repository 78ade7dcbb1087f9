//! What takes a place in a comparison: an engine, or an engine with some of its settings changed.
//!
//! `innodb`, `rocksdb:none`, `innodb:nodoublewrite`, `innodb:innodb_flush_method=fsync`, several behind one another:
//! `innodb:compressed:nodoublewrite`. A word stands for what `experiments/variants.toml` says, `NAME=VALUE` for an option of the
//! server. A value may not hold a colon or a comma.

use crate::engine::Kind;
use crate::server::Instance;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Deserialize;
use std::path::Path;
use std::str::FromStr;

const VARIANTS: &str = include_str!("../../experiments/variants.toml");

/// A named change of an engine's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    engine: String,
    name: String,
    /// As in tables and legends, behind the engine's title.
    title: String,
    /// For the reader of a report.
    pub about: String,
    /// Options of the server.
    #[serde(default)]
    options: Vec<String>,
    /// Options of each table.
    #[serde(default)]
    table: String,
    /// Whether files written without it are the same.
    #[serde(default)]
    same_files: bool,
}

#[derive(Deserialize)]
struct Variants {
    variant: Vec<Variant>,
}

/// An engine, and what is changed of its settings.
#[derive(Clone, Debug)]
pub struct Subject {
    pub kind: Kind,
    id: String,
    title: String,
    options: Vec<String>,
    table: String,
    about: Vec<String>,
    files: String,
}

impl FromStr for Subject {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Subject> {
        let mut words = text.split(':');
        let engine = words.next().unwrap_or_default();
        let Ok(kind) = Kind::from_str(engine, false) else {
            bail!("there is no engine {engine}; there are innodb, rocksdb, strata")
        };
        let known: Variants = toml::from_str(VARIANTS).context("variants.toml")?;
        let mut subject = Subject {
            kind,
            id: text.to_string(),
            title: kind.title().to_string(),
            options: Vec::new(),
            table: String::new(),
            about: Vec::new(),
            files: kind.id().to_string(),
        };
        for word in words {
            if let Some((name, value)) = word.split_once('=') {
                if name.is_empty() || value.is_empty() {
                    bail!("{word} is no option with a value");
                }
                subject.options.push(word.to_string());
                subject.title += &format!(", {word}");
                subject.about.push(format!("server option {word}"));
                subject.files += &format!("-{word}");
                continue;
            }
            let of_engine = || known.variant.iter().filter(|variant| variant.engine == kind.id());
            let Some(variant) = of_engine().find(|variant| variant.name == word) else {
                let names: Vec<&str> = of_engine().map(|variant| variant.name.as_str()).collect();
                bail!("{engine} has no variant {word}; it has {} and NAME=VALUE", names.join(", "))
            };
            subject.options.extend(variant.options.iter().cloned());
            subject.title += &format!(", {}", variant.title);
            subject.about.push(variant.about.clone());
            if !variant.table.is_empty() {
                subject.table += &format!(" {}", variant.table);
            }
            if !variant.same_files {
                subject.files += &format!("-{word}");
            }
        }
        Ok(subject)
    }
}

impl Subject {
    /// As on the command line.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// As in tables and legends.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// What is changed, in words.
    pub fn about(&self) -> String {
        self.about.join("; ")
    }

    /// Options of its server.
    pub fn options(&self) -> &[String] {
        &self.options
    }

    /// Those with the same name have the same files after the same load. Fit for a file name.
    pub fn files(&self) -> String {
        self.files.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
    }

    /// Its server's folder.
    pub fn instance(&self, lab: &Path) -> Result<Instance> {
        Ok(Instance::new(lab, self.kind)?.with_table_options(&self.table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(text: &str) -> Subject {
        text.parse().unwrap()
    }

    #[test]
    fn engines_and_variants() {
        let plain = subject("strata");
        assert_eq!((plain.title(), plain.files().as_str(), plain.options().len()), ("Strata", "strata", 0));
        let none = subject("strata:none");
        assert_eq!(none.table, " COMPRESSION='none'");
        assert!(none.title().starts_with("Strata, ") && none.files() != plain.files());
        // Nothing of it is in the files: the load is shared.
        let plain = subject("innodb:nodoublewrite");
        assert_eq!((plain.files().as_str(), plain.options()), ("innodb", &["innodb_doublewrite=0".to_string()][..]));
        let both = subject("innodb:compressed:innodb_flush_method=fsync");
        assert_eq!(both.options(), ["innodb_flush_method=fsync"]);
        assert!(both.table.contains("PAGE_COMPRESSED=1") && both.title().ends_with("innodb_flush_method=fsync"));
        assert!(both.files().chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
        assert!(subject("rocksdb:none").options()[0].contains("kNoCompression"));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for (text, says) in [
            ("aria", "no engine aria"),
            ("innodb:none", "no variant none"),
            ("innodb:", "no variant"),
            ("strata:=1", "no option"),
            ("strata:a=", "no option"),
        ] {
            let error = format!("{:#}", text.parse::<Subject>().unwrap_err());
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
