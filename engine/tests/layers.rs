//! No arrow points up: a module uses only the modules that `lib.rs` lists before it.

use std::fs;
use std::path::{Path, PathBuf};

/// Modules that know each other: the façade's parts share `Core`, which `engine.rs` defines.
const FACADE: &[&str] = &["read", "txn", "install", "background", "recover", "metrics", "engine"];

fn sources(path: &Path, out: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            sources(&entry.unwrap().path(), out);
        }
    } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
        out.push(path.to_owned());
    }
}

fn modules(lib: &str) -> Vec<String> {
    let names = lib.lines().filter_map(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';')
    });
    names.map(str::to_owned).collect()
}

#[test]
fn modules_use_only_what_stands_before_them() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let order = modules(&fs::read_to_string(src.join("lib.rs")).unwrap());
    assert!(order.len() > 15, "lib.rs lists the modules");
    let place = |name: &str| order.iter().position(|m| m == name);
    let mut wrong = Vec::new();
    for (at, module) in order.iter().enumerate() {
        let mut files = Vec::new();
        for path in [src.join(module), src.join(format!("{module}.rs"))] {
            if path.exists() {
                sources(&path, &mut files);
            }
        }
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            // Tests may use anything.
            let text = text.split("#[cfg(test)]").next().unwrap();
            for used in text.split("crate::").skip(1) {
                let used: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let up = place(&used).is_some_and(|target| target > at);
                let together = FACADE.contains(&module.as_str()) && FACADE.contains(&used.as_str());
                if up && !together {
                    wrong.push(format!("{} uses {used}", file.strip_prefix(&src).unwrap().display()));
                }
            }
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "arrows that point up:\n{}", wrong.join("\n"));
}
