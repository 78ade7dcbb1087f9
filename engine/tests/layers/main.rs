//! No arrow points up: a module uses only the modules that the `lib.rs` of its crate lists before it. The sources are
//! parsed, so a use counts in whatever form it is written; code of tests may use anything.

mod uses;

use std::collections::BTreeMap;
use std::path::Path;

use uses::{Crate, Use};

/// The uses that point up in a crate, but for those within one of `circles`.
fn upward(krate: &Crate, circles: &[&[&str]]) -> Vec<String> {
    let place: BTreeMap<&str, usize> = krate.modules.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
    let mut wrong = Vec::new();
    for Use { file, from, to } in &krate.uses {
        let (Some(at), Some(target)) = (place.get(from.as_str()), place.get(to.as_str())) else { continue };
        let together = circles.iter().any(|circle| circle.contains(&from.as_str()) && circle.contains(&to.as_str()));
        if target > at && !together {
            wrong.push(format!("{file} uses {to}"));
        }
    }
    wrong.sort();
    wrong.dedup();
    wrong
}

fn check(name: &str, circles: &[&[&str]]) {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
    let krate = Crate::read(&src);
    assert!(krate.modules.len() > 10 && krate.uses.len() > 20, "lib.rs lists the modules, and they use each other");
    let wrong = upward(&krate, circles);
    assert!(wrong.is_empty(), "{name}: arrows that point up:\n{}", wrong.join("\n"));
}

#[test]
fn engine() {
    check("engine", &[]);
}

#[test]
fn mariadb() {
    check("mariadb", &[]);
}

/// The circles are explained in `docs/develop/architecture.md`.
#[test]
fn row() {
    check("row", &[&["keycode", "rowcode"], &["session", "scan", "index", "integrity", "stats", "table", "store"]]);
}

/// A crate of three modules, the middle one of which has `text`.
fn planted(text: &str) -> Vec<String> {
    let lib = "mod below;\nmod middle;\nmod above;\npub use above::Shown;\npub use below::{Low as Deep};\n";
    upward(&Crate::of(lib, &[("below", "pub struct Low;"), ("middle", text), ("above", "pub struct Shown;")]), &[])
}

#[test]
fn every_form_of_an_upward_use_is_found() {
    let forms = [
        ("plain", "use crate::above::Thing;"),
        ("renamed", "use crate::above as other;"),
        ("public", "pub(crate) use crate::above::*;"),
        ("group", "use crate::{below::Low, above::Thing};"),
        ("nested group", "use crate::{below::{Low, deep::{A, B}}, above::{inner::Thing}};"),
        ("group behind super", "use super::{below::Low, above};"),
        ("super", "use super::above::Thing;"),
        ("super twice", "mod inner { use super::super::above::Thing; }"),
        ("self and super", "mod inner { fn f() { self::super::super::above::f() } }"),
        ("expression", "fn f() -> u32 { 1 + crate::above::f(2) }"),
        ("method of a type", "fn f() { let _ = <crate::above::T as Default>::default(); }"),
        ("type", "struct S { field: Vec<crate::above::T> }"),
        ("bound", "fn f<T: crate::above::Like>(_: T) {}"),
        ("pattern", "fn f(x: u32) { match x { crate::above::LIMIT => {} _ => {} } }"),
        ("impl", "struct S; impl crate::above::Like for S {}"),
        ("argument of a macro", "fn f() { println!(\"{}\", crate::above::f()); }"),
        ("argument of a nested macro", "fn f() { assert!(vec![super::above::f()].is_empty()); }"),
        ("definition of a macro", "macro_rules! m { () => { $crate::above::f() }; }"),
        ("group in a macro", "m! { use crate::{below::Low, above::T}; }"),
        ("use within a function", "fn f() { use crate::above::f; f() }"),
        ("behind a test module", "#[cfg(test)] mod tests { fn f() {} }\nfn g() { crate::above::f() }"),
        ("what the crate shows", "use crate::Shown;"),
        ("not for tests", "#[cfg(not(test))] use crate::above::T;"),
    ];
    for (name, text) in forms {
        assert_eq!(planted(text), ["middle uses above"], "{name}: {text}");
    }
}

#[test]
fn what_points_down_or_is_for_tests_is_let_be() {
    let forms = [
        "use crate::below::Low;",
        "use crate::{below, middle};",
        "use crate::Deep;",
        "#[cfg(test)] use crate::above::T;",
        "#[cfg(test)] mod tests { use crate::above::T; fn f() { crate::above::f() } }",
        "#[cfg(all(test, unix))] fn f() { crate::above::f() }",
        "struct S; impl S { #[cfg(test)] fn f() { crate::above::f() } }",
        "/// See [`crate::above::T`].\npub(crate) fn f() { let above = \"crate::above::f()\"; }",
        "mod above { pub fn f() {} }\nfn g() { self::above::f() }",
        "use std::above::T;",
    ];
    for text in forms {
        assert_eq!(planted(text), [""; 0], "{text}");
    }
}
