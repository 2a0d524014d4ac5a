//! `cargo xtask layers [--check]`: the imports between the top-level modules of a crate.
//!
//! The table in xtask/layers.toml lists the modules by layer. A module may import only modules of
//! lower layers. Tests inside a crate are not checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use serde::Deserialize;
use syn::{Attribute, Item, UseTree};

use crate::coverage::is_test;
use crate::root;

/// The layers of a crate, from the top.
#[derive(Deserialize)]
struct Crate {
    layers: Vec<Vec<String>>,
}

/// For each module, the modules that it imports, with the first file that does.
type Imports = BTreeMap<String, BTreeMap<String, PathBuf>>;

pub(crate) fn run(args: &[String]) -> Result<()> {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("layers takes no arguments except --check"),
    };
    let text = fs::read_to_string(root().join("xtask/layers.toml"))
        .context("reading xtask/layers.toml")?;
    let crates: BTreeMap<String, Crate> =
        toml::from_str(&text).context("reading xtask/layers.toml")?;
    let mut violations = Vec::new();
    for (name, table) in &crates {
        let imports = imports(&root().join(name).join("src"))?;
        if !check {
            for (module, imported) in &imports {
                let imported: Vec<&str> = imported.keys().map(String::as_str).collect();
                println!("{name}: {module} imports {}", imported.join(", "));
            }
        }
        violations.extend(find_violations(name, table, &imports)?);
    }
    for violation in &violations {
        eprintln!("{violation}");
    }
    let count = violations.len();
    ensure!(count == 0, "{count} imports do not go down the layers");
    println!("{} crates, no import goes up the layers", crates.len());
    Ok(())
}

fn find_violations(name: &str, table: &Crate, imports: &Imports) -> Result<Vec<String>> {
    let mut heights = BTreeMap::new();
    for (depth, layer) in table.layers.iter().enumerate() {
        for module in layer {
            let known = heights.insert(module.as_str(), depth);
            ensure!(known.is_none(), "{name}: {module} is in two layers");
        }
    }
    let listed: BTreeSet<&str> = heights.keys().copied().collect();
    let found: BTreeSet<&str> = imports.keys().map(String::as_str).collect();
    ensure!(
        listed == found,
        "{name}: the modules are {found:?}, but xtask/layers.toml lists {listed:?}"
    );
    let mut violations = Vec::new();
    for (module, imported) in imports {
        for (other, file) in imported {
            if heights[module.as_str()] >= heights[other.as_str()] {
                let file = file.strip_prefix(root()).unwrap_or(file).display();
                violations.push(format!("{name}: {module} imports {other}, in {file}"));
            }
        }
    }
    Ok(violations)
}

/// Reads the imports of all top-level modules of a crate.
fn imports(source: &Path) -> Result<Imports> {
    let library = parse(&source.join("lib.rs"))?;
    let mut modules = BTreeSet::new();
    let mut reexports = BTreeMap::new();
    for item in &library.items {
        match item {
            Item::Mod(item) if item.content.is_none() && !is_test(&item.attrs) => {
                modules.insert(item.ident.to_string());
            }
            Item::Use(item) => reexported(&item.tree, None, &mut reexports),
            _ => {}
        }
    }
    let mut imports = Imports::new();
    for module in &modules {
        let mut files = vec![source.join(format!("{module}.rs"))];
        files.retain(|file| file.is_file());
        add_files(&source.join(module), &mut files)?;
        let mut imported = BTreeMap::new();
        for file in files {
            for name in names(&parse(&file)?) {
                let its = modules.get(&name).or_else(|| reexports.get(&name));
                if let Some(its) = its.filter(|its| *its != module && modules.contains(*its)) {
                    imported.entry(its.clone()).or_insert_with(|| file.clone());
                }
            }
        }
        imports.insert(module.clone(), imported);
    }
    Ok(imports)
}

fn parse(file: &Path) -> Result<syn::File> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    syn::parse_file(&text).with_context(|| format!("parsing {}", file.display()))
}

fn add_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            add_files(&path, files)?;
        } else if path.extension().is_some_and(|its| its == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

/// Records the names that the root of the crate re-exports, with the modules that they come from.
fn reexported(tree: &UseTree, module: Option<&str>, names: &mut BTreeMap<String, String>) {
    match tree {
        UseTree::Path(path) => {
            let first = path.ident.to_string();
            reexported(&path.tree, Some(module.unwrap_or(&first)), names);
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                reexported(tree, module, names);
            }
        }
        UseTree::Name(name) => {
            let module = module.map(str::to_owned);
            names.extend(module.map(|module| (name.ident.to_string(), module)));
        }
        UseTree::Rename(name) => {
            let module = module.map(str::to_owned);
            names.extend(module.map(|module| (name.rename.to_string(), module)));
        }
        UseTree::Glob(_) => {}
    }
}

/// Returns the names that follow `crate::` in a file, outside of tests.
fn names(file: &syn::File) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for item in &file.items {
        let attributes: &[Attribute] = match item {
            Item::Mod(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            scan(item.to_token_stream(), &mut names);
        }
    }
    names
}

fn scan(tokens: TokenStream, names: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (place, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => scan(group.stream(), names),
            TokenTree::Ident(ident) if ident == "crate" => {
                let colons = tokens[place + 1..].iter().take(2);
                let is_path = colons
                    .filter(|its| matches!(its, TokenTree::Punct(its) if its.as_char() == ':'))
                    .count()
                    == 2;
                match tokens.get(place + 3).filter(|_| is_path) {
                    Some(TokenTree::Ident(name)) => {
                        names.insert(name.to_string());
                    }
                    Some(TokenTree::Group(group)) => first_names(&group.stream(), names),
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// Adds the first name of each path in a group of imports.
fn first_names(tokens: &TokenStream, names: &mut BTreeSet<String>) {
    let mut is_first = true;
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(name) if is_first => {
                names.insert(name.to_string());
                is_first = false;
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' => is_first = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_in(text: &str) -> Vec<String> {
        let file = syn::parse_file(text).expect("a file");
        names(&file).into_iter().collect()
    }

    #[test]
    fn imports_are_found_in_uses_paths_and_macros() {
        let text = "
            use crate::base::error::{Error, Result};
            use crate::{driver::Context, memory};
            fn f() { crate::green::split(); m!(crate::policy::Pool); }
            /// [`crate::interop`]
            struct Documented;
            #[cfg(test)]
            mod tests { use crate::manager::Order; }
        ";
        assert_eq!(names_in(text), ["base", "driver", "green", "memory", "policy"]);
    }

    #[test]
    fn an_import_of_the_same_or_a_higher_layer_is_a_violation() {
        let layers = [vec!["top".to_owned()], vec!["left".to_owned(), "right".to_owned()]];
        let table = Crate { layers: layers.into() };
        let edge = |other: &str| BTreeMap::from([(other.to_owned(), PathBuf::new())]);
        let down = Imports::from([
            ("top".to_owned(), edge("left")),
            ("left".to_owned(), BTreeMap::new()),
            ("right".to_owned(), BTreeMap::new()),
        ]);
        assert!(find_violations("x", &table, &down).expect("listed").is_empty());
        for (module, other) in [("left", "right"), ("right", "top")] {
            let mut up = down.clone();
            up.insert(module.to_owned(), edge(other));
            let violations = find_violations("x", &table, &up).expect("listed");
            assert_eq!(violations.len(), 1, "{violations:?}");
        }
        let mut unknown = down;
        unknown.insert("new".to_owned(), BTreeMap::new());
        assert!(find_violations("x", &table, &unknown).is_err());
    }
}
