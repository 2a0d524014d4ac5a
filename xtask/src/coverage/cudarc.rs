//! The page `cuda_safe::_guide::names_cudarc` names each public item of `cudarc::driver` and `cudarc::nvrtc`. The
//! items are those of the sources that `bench` depends on.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use syn::{ImplItem, Item, TraitItem, Visibility};

use crate::install::sources;
use crate::root;

/// The page, relative to the root of the workspace.
const PAGE: &str = "cuda-safe/src/_guide/names_cudarc.md";

/// The files with the public items, relative to the folder of cudarc.
const FILES: [&str; 7] = [
    "src/driver/safe/core.rs",
    "src/driver/safe/external_memory.rs",
    "src/driver/safe/graph.rs",
    "src/driver/safe/launch.rs",
    "src/driver/safe/profile.rs",
    "src/driver/safe/unified_memory.rs",
    "src/nvrtc/safe.rs",
];

/// Items of these files that cudarc does not export.
const PRIVATE: [&str; 1] = ["record_kernel_launch"];

/// Checks that the page has each name.
pub(super) fn check() -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).arg("--locked");
    let folder = sources::folder(cargo, "cudarc")?;
    let page = fs::read_to_string(root().join(PAGE)).with_context(|| format!("reading {PAGE}"))?;
    let named: BTreeSet<&str> = code(&page).flat_map(words).collect();
    let mut missing = BTreeSet::new();
    for file in FILES {
        let path = folder.join(file);
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let file = syn::parse_file(&text).with_context(|| format!("parsing {}", path.display()))?;
        let names = file.items.iter().flat_map(names);
        missing
            .extend(names.filter(|name| {
                !named.contains(name.as_str()) && !PRIVATE.contains(&name.as_str())
            }));
    }
    ensure!(missing.is_empty(), "{PAGE} has no row for these items of cudarc: {missing:?}");
    Ok(())
}

/// Returns the parts of a page in backticks.
fn code(page: &str) -> impl Iterator<Item = &str> {
    page.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns the names of an item and its public functions.
fn names(item: &Item) -> Vec<String> {
    let of = |visibility: &Visibility, name: &syn::Ident| match visibility {
        Visibility::Public(_) => vec![name.to_string()],
        _ => Vec::new(),
    };
    match item {
        Item::Fn(its) => of(&its.vis, &its.sig.ident),
        Item::Struct(its) => of(&its.vis, &its.ident),
        Item::Enum(its) => of(&its.vis, &its.ident),
        Item::Type(its) => of(&its.vis, &its.ident),
        Item::Trait(its) => {
            let mut names = of(&its.vis, &its.ident);
            if !names.is_empty() {
                names.extend(its.items.iter().filter_map(|item| match item {
                    TraitItem::Fn(its) => Some(its.sig.ident.to_string()),
                    _ => None,
                }));
            }
            names
        }
        Item::Impl(its) if its.trait_.is_none() => its
            .items
            .iter()
            .flat_map(|item| match item {
                ImplItem::Fn(its) => of(&its.vis, &its.sig.ident),
                _ => Vec::new(),
            })
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{code, names, words};

    #[test]
    fn public_items_and_their_public_functions_have_names() {
        let text = "pub struct A; struct B; impl A { pub fn c() {} fn d() {} } pub trait E { fn f(); } \
                    trait G { fn h(); } pub fn i() {} impl E for A { fn f() {} } pub enum J {}";
        let file = syn::parse_file(text).expect("valid code");
        let names: Vec<String> = file.items.iter().flat_map(names).collect();
        assert_eq!(names, ["A", "c", "E", "f", "i", "J"]);
    }

    #[test]
    fn only_words_in_backticks_count() {
        let page = "| `A::b`, `c` | [`d`](e) |\nf `g`";
        assert_eq!(code(page).flat_map(words).collect::<Vec<_>>(), ["A", "b", "c", "d", "g"]);
    }
}
