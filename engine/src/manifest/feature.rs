//! What a program must know to use a store: the store's *features*.
//!
//! A feature is something in the store's files that a program could misread, or damage by writing, if it did not know it.
//! It has a name that never changes, and says who must know it ([`Need`]) and since which version of Strata somebody does. The
//! manifest lists the features that the store uses, in front of everything that only they explain, so that a program can name
//! the one that it does not know. A store lists a feature from the moment it needs it; it never gives one up.
//!
//! Rejected: one number for the format alone (it grows with every feature, also for stores that use none of them, and does not
//! say what is missing); bits (a program has no name for the bit that it does not know).

use std::borrow::Cow;

use crate::base::codec::{Reader, put_bytes, put_varint};

/// Who must know a feature. The engine has no mode in which it only reads, so it refuses a store with an unknown feature of
/// either of the first two kinds; the difference is kept for programs that only read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Need {
    /// Nobody: whoever does not know it reads and writes the store correctly.
    Nobody = 0,
    /// Whoever reads or writes the store: it would misread something.
    Reader = 1,
    /// Whoever writes to the store: it would not keep something true.
    Writer = 2,
}

/// A feature of a store; see the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feature {
    name: Cow<'static, str>,
    since: Cow<'static, str>,
    need: Need,
}

impl Feature {
    /// A feature of this name, known to Strata from the version `since` on. Names are lower-case words joined by `-`.
    pub const fn new(name: &'static str, since: &'static str, need: Need) -> Feature {
        Feature { name: Cow::Borrowed(name), since: Cow::Borrowed(since), need }
    }

    /// Its name, which never changes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The lowest version of Strata that knows it.
    pub fn since(&self) -> &str {
        &self.since
    }

    /// Who must know it.
    pub fn need(&self) -> Need {
        self.need
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.need as u8);
        put_bytes(out, self.name.as_bytes());
        put_bytes(out, self.since.as_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Feature> {
        // A need that a later version has thought of: to be on the safe side, the greatest.
        let need = match reader.u8()? {
            0 => Need::Nobody,
            2 => Need::Writer,
            _ => Need::Reader,
        };
        let mut text = || {
            let len = usize::try_from(reader.varint()?).ok()?;
            let text = std::str::from_utf8(reader.take(len)?).ok()?;
            (!text.is_empty() && !text.chars().any(char::is_control)).then(|| Cow::Owned(text.to_owned()))
        };
        Some(Feature { name: text()?, since: text()?, need })
    }
}

/// Small indexes share table files: SST version 3, tags 11 of the manifest. Stores of format 2 have it.
pub const SHARED_FILES: Feature = Feature::new("shared-files", "0.1", Need::Reader);
/// Files of a large transaction are shared, too: tag 12 of the manifest, batches of kind 3. Stores of format 3 have it.
pub const SHARED_SPILLS: Feature = Feature::new("shared-spills", "0.1", Need::Reader);

/// There are keyspaces: indexes that no layer above knows, which one that drops unknown indexes would drop.
pub const KEYSPACES: Feature = Feature::new("keyspaces", "0.1", Need::Writer);

/// Files may be encrypted, and so may the log: versions 4, 5, 8 and 9 of SSTs, tags 13 to 15 of the manifest, version 2 of the log's units,
/// kinds 6 and 7 of batches.
pub const ENCRYPTION: Feature = Feature::new("encryption", "0.1", Need::Reader);
/// The store keeps a history: versions that its timeline promises, which another program would drop. Tag 16 of the manifest.
pub const HISTORY: Feature = Feature::new("history", "0.1", Need::Reader);
/// Blocks of SSTs may be packed by a dictionary: versions 6 to 9 of SSTs.
pub const DICTIONARIES: Feature = Feature::new("dictionaries", "0.1", Need::Reader);
/// The features that this engine knows. New ones come last: stores of formats 2 and 3 have the first ones.
pub const FEATURES: &[Feature] = &[SHARED_FILES, SHARED_SPILLS, KEYSPACES, ENCRYPTION, HISTORY, DICTIONARIES];

/// The features of a store, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Features(Vec<Feature>);

impl Features {
    /// Those that a store of a format has that could not list them.
    pub fn implied(format: u32) -> Features {
        let known = match format {
            0 | 1 => &FEATURES[..0],
            2 => &FEATURES[..1],
            _ => &FEATURES[..2],
        };
        Features(known.to_vec())
    }

    /// True if all are among `others`.
    pub fn are_within(&self, others: &Features) -> bool {
        self.0.iter().all(|feature| others.has(feature.name()))
    }

    /// True if one of this name is among them.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|feature| feature.name == name)
    }

    /// Adds one, unless one of its name is there.
    pub fn add(&mut self, feature: &Feature) {
        if !self.has(feature.name()) {
            let at = self.0.partition_point(|other| other.name < feature.name);
            self.0.insert(at, feature.clone());
        }
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Feature> {
        self.0.iter()
    }

    /// Appends their number and each of them.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        self.0.iter().for_each(|feature| feature.encode(out));
    }

    /// Reads what `encode` wrote; `None` if the bytes are something else.
    pub fn decode(reader: &mut Reader<'_>) -> Option<Features> {
        let mut features = Features::default();
        for _ in 0..reader.varint()? {
            let feature = Feature::decode(reader)?;
            if features.has(feature.name()) {
                return None;
            }
            features.add(&feature);
        }
        Some(features)
    }

    /// In one sentence, why a program that knows the engine's features and `known` must not open the store.
    pub fn refusal(&self, known: &[Feature]) -> Option<String> {
        let is_known = |feature: &Feature| FEATURES.iter().chain(known).any(|other| other.name == feature.name);
        let unknown: Vec<String> = self
            .iter()
            .filter(|feature| feature.need != Need::Nobody && !is_known(feature))
            .map(|feature| format!("{} (Strata {} or later)", feature.name, feature.since))
            .collect();
        let what = if unknown.len() > 1 { "features" } else { "a feature" };
        let names = unknown.join(", ");
        let version = env!("CARGO_PKG_VERSION");
        (!unknown.is_empty()).then(|| format!("the store uses {what} that Strata {version} does not know: {names}"))
    }
}
