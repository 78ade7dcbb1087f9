//! Who uses whom among the top modules of a crate, read from its sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, Meta, UseTree};

/// A use of one top module by another.
pub struct Use {
    pub file: String,
    pub from: String,
    pub to: String,
}

/// The top modules of a crate, in the order of `lib.rs`, and their uses of each other.
pub struct Crate {
    pub modules: Vec<String>,
    pub uses: Vec<Use>,
}

/// Where the source of a module comes from: its path in the crate, to its text.
trait Sources {
    /// The name of the file and its text.
    fn text(&self, module: &[String]) -> (String, String);
}

impl Sources for &Path {
    fn text(&self, module: &[String]) -> (String, String) {
        let base = module.iter().fold(self.to_path_buf(), |path, name| path.join(name));
        let files: [PathBuf; 2] = [base.with_extension("rs"), base.join("mod.rs")];
        let file = files.iter().find(|file| file.exists()).unwrap_or_else(|| panic!("no file for {module:?}"));
        (file.strip_prefix(self).unwrap().display().to_string(), fs::read_to_string(file).unwrap())
    }
}

impl Sources for &[(&str, &str)] {
    fn text(&self, module: &[String]) -> (String, String) {
        let (name, text) = self.iter().find(|(name, _)| [*name] == *module).unwrap();
        ((*name).to_owned(), (*text).to_owned())
    }
}

impl Crate {
    /// The crate whose sources are in `src`.
    pub fn read(src: &Path) -> Crate {
        Crate::from(&fs::read_to_string(src.join("lib.rs")).unwrap(), src)
    }

    /// A crate of this `lib.rs` and of modules with these texts.
    pub fn of(lib: &str, modules: &[(&str, &str)]) -> Crate {
        Crate::from(lib, modules)
    }

    fn from(lib: &str, sources: impl Sources) -> Crate {
        let lib: File = syn::parse_file(lib).unwrap();
        let mut modules = Vec::new();
        // What the crate shows under its own name, and the module that it is from.
        let mut shown = BTreeMap::new();
        for item in lib.items.iter().filter(|item| !is_for_tests(attributes(item))) {
            match item {
                Item::Mod(module) => modules.push(module.ident.to_string()),
                Item::Use(item) => {
                    let mut paths = Vec::new();
                    flatten(&item.tree, &mut Vec::new(), &mut paths);
                    for (path, name) in paths {
                        let first = path.iter().find(|part| !["crate", "self"].contains(&part.as_str()));
                        first.map(|first| shown.insert(name, first.clone()));
                    }
                }
                _ => {}
            }
        }
        let mut uses = Vec::new();
        for module in &modules {
            let mut waiting = vec![vec![module.clone()]];
            while let Some(path) = waiting.pop() {
                let (file, text) = sources.text(&path);
                let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
                let mut found = Found { path, found: Vec::new(), files: Vec::new() };
                found.visit_file(&parsed);
                waiting.extend(found.files);
                for to in found.found {
                    let to = if modules.contains(&to) { Some(&to) } else { shown.get(&to) };
                    if let Some(to) = to.filter(|to| *to != module) {
                        uses.push(Use { file: file.clone(), from: module.clone(), to: to.clone() });
                    }
                }
            }
        }
        Crate { modules, uses }
    }
}

/// The paths of a `use`, each with the name that it brings in.
fn flatten(tree: &UseTree, path: &mut Vec<String>, out: &mut Vec<(Vec<String>, String)>) {
    match tree {
        UseTree::Path(part) => {
            path.push(part.ident.to_string());
            flatten(&part.tree, path, out);
            path.pop();
        }
        UseTree::Name(name) => out.push(([&path[..], &[name.ident.to_string()]].concat(), name.ident.to_string())),
        UseTree::Rename(name) => out.push(([&path[..], &[name.ident.to_string()]].concat(), name.rename.to_string())),
        UseTree::Glob(_) => out.push((path.clone(), String::new())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, path, out)),
    }
}

/// What the file of a module uses.
struct Found {
    /// The module, and where in it the visitor is.
    path: Vec<String>,
    /// First names behind the crate's root.
    found: Vec<String>,
    /// Modules within it that have files of their own.
    files: Vec<Vec<String>>,
}

impl Found {
    /// Notes a path that begins at the root or goes up from here.
    fn note(&mut self, path: &[String]) {
        let mut rest = path.iter().map(String::as_str).peekable();
        let mut at = match rest.peek() {
            Some(&"crate") => Vec::new(),
            Some(&("self" | "super")) => self.path.clone(),
            _ => return,
        };
        for part in rest {
            match part {
                "crate" | "self" => {}
                "super" => drop(at.pop()),
                name => at.push(name.to_owned()),
            }
        }
        self.found.extend(at.into_iter().next());
    }

    /// Paths among the tokens of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(first) if ["crate", "self", "super"].iter().any(|root| first == root) => {
                    let mut path = vec![first.to_string()];
                    let is_colon = |at| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
                    while is_colon(at + 1) && is_colon(at + 2) {
                        match tokens.get(at + 3) {
                            Some(TokenTree::Ident(part)) => path.push(part.to_string()),
                            Some(TokenTree::Group(group)) => self.group(&path, group.stream()),
                            _ => {}
                        }
                        at += 3;
                    }
                    self.note(&path);
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// What stands in braces behind a path: the first name of each part.
    fn group(&mut self, path: &[String], tokens: TokenStream) {
        let mut begins = true;
        for token in tokens {
            match &token {
                TokenTree::Ident(name) if begins => self.note(&[path, &[name.to_string()]].concat()),
                TokenTree::Punct(comma) if comma.as_char() == ',' => begins = true,
                _ => begins = false,
            }
            begins &= matches!(token, TokenTree::Punct(_));
        }
    }
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.path.push(item.ident.to_string());
        match &item.content {
            None => self.files.push(self.path.clone()),
            Some(_) => visit::visit_item_mod(self, item),
        }
        self.path.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut paths = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut paths);
        paths.iter().for_each(|(path, _)| self.note(path));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if parts.len() > 1 {
            self.note(&parts);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.visit_path(&mac.path);
        self.tokens(mac.tokens.clone());
    }

    // Neither uses anything.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

/// True for what is compiled for tests only.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        let condition: String = list.tokens.to_string().split_whitespace().collect();
        condition == "test" || condition.starts_with("all(test,")
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
