//! What a statement makes of the foreign keys of a table whose rows stay where they are.

use super::key::{ForeignKey, same_name};
use std::sync::Arc;

/// Keys that go, and keys that come.
#[derive(Clone, Default, Debug)]
pub struct KeyChange {
    /// Names of those that go, in any case.
    pub dropped: Vec<String>,
    /// Those that come. One with an empty name gets one.
    pub added: Vec<ForeignKey>,
}

impl KeyChange {
    /// True if the keys are those that there were.
    pub fn is_empty(&self) -> bool {
        self.dropped.is_empty() && self.added.is_empty()
    }

    /// Those of the `present` keys that stay. Errors: the name of one that is to go and is not there.
    pub(crate) fn kept(&self, present: &[Arc<ForeignKey>]) -> Result<Vec<Arc<ForeignKey>>, String> {
        let is_there = |name: &&String| present.iter().any(|key| same_name(&key.name, name));
        if let Some(missing) = self.dropped.iter().find(|name| !is_there(name)) {
            return Err(missing.clone());
        }
        let stays = |key: &&Arc<ForeignKey>| !self.dropped.iter().any(|name| same_name(&key.name, name));
        Ok(present.iter().filter(stays).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Arc<ForeignKey> {
        Arc::new(ForeignKey { name: name.to_owned(), parent: "./db/p".into(), ..ForeignKey::default() })
    }

    /// `f, g - G` is what stays of the keys f and g where G is dropped, or the name that is missing.
    fn kept(text: &str) -> String {
        let (present, dropped) = text.split_once('-').unwrap();
        let names =
            |text: &str| text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let (present, dropped): (Vec<String>, Vec<String>) = (names(present), names(dropped));
        let present: Vec<Arc<ForeignKey>> = present.iter().map(|name| key(name)).collect();
        match (KeyChange { dropped, added: Vec::new() }).kept(&present) {
            Ok(kept) => kept.iter().map(|key| key.name.as_str()).collect::<Vec<_>>().join(", "),
            Err(name) => format!("no {name}"),
        }
    }

    #[test]
    fn what_is_dropped_goes_and_the_rest_stays_in_its_order() {
        assert_eq!(kept("f, g, h - g"), "f, h");
        assert_eq!(kept("f, g - G, F"), "");
        assert_eq!(kept("f, g -"), "f, g");
        assert_eq!(kept("f, g - f, x"), "no x");
        assert_eq!(kept("f, Ä - ä"), "f");
    }
}
