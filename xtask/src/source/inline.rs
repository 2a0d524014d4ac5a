//! `cargo xtask inline [--check]`: the attribute `inline` of the functions of the library crates.
//!
//! A function that is neither generic nor `inline` is compiled with its crate, in every build of every user,
//! together with all functions that it calls. With the attribute it is compiled where it is called. So each
//! function that is not generic carries `#[inline]`, or `#[inline(never)]` if one copy in the crate is better:
//! it is large, and most programs call it.

use crate::coverage::is_test;
use crate::root;
use anyhow::{Context, Result, bail, ensure};
use proc_macro2::Span;
use std::fs;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, GenericParam, Generics, ImplItemFn, Item, ItemFn, ItemImpl, Signature};
use syn::{FnArg, Type, Visibility};

/// The crates that users compile. Functions that a macro writes are not looked at.
const CRATES: [&str; 5] = ["cuda-sys", "cuda-safe", "cuda-memory", "cuda-nvrtc", "cuda-nccl"];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("inline takes no arguments except --check"),
    };
    let mut found = Vec::new();
    for name in CRATES {
        visit_folder(&root().join(name).join("src"), check, &mut found)?;
    }
    if check {
        found.iter().for_each(|place| eprintln!("{place}"));
        let count = found.len();
        ensure!(
            count == 0,
            "{count} functions are neither generic nor have an attribute `inline`; run `cargo xtask inline`"
        );
    }
    println!("{} functions got the attribute", found.len());
    Ok(())
}

fn visit_folder(folder: &Path, check: bool, found: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry.context("reading a folder")?.path();
        if path.is_dir() {
            visit_folder(&path, check, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            visit_file(&path, check, found)?;
        }
    }
    Ok(())
}

fn visit_file(path: &PathBuf, check: bool, found: &mut Vec<String>) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let file = syn::parse_file(&text).with_context(|| format!("parsing {}", path.display()))?;
    let mut functions = Functions::default();
    functions.visit_file(&file);
    let name = path.strip_prefix(root()).unwrap_or(path).display();
    let lines = functions.lines.iter();
    found.extend(lines.map(|line| format!("{name}:{line}")));
    if check || functions.lines.is_empty() {
        return Ok(());
    }
    let mut out = String::with_capacity(text.len() + 16 * functions.lines.len());
    for (line, number) in text.lines().zip(1..) {
        if functions.lines.contains(&number) {
            let indentation = line.len() - line.trim_start().len();
            out.push_str(&line[..indentation]);
            out.push_str("#[inline]\n");
        }
        out.push_str(line);
        out.push('\n');
    }
    fs::write(path, out).with_context(|| format!("writing {}", path.display()))
}

/// Collects the lines in which functions without the attribute begin, after their attributes.
#[derive(Default)]
struct Functions {
    lines: Vec<usize>,
}

impl Functions {
    fn look(&mut self, attributes: &[Attribute], visibility: &Visibility, signature: &Signature) {
        let has = attributes.iter().any(|its| its.path().is_ident("inline"));
        if !has && !is_test(attributes) && !is_generic(&signature.generics, signature) {
            let begin: Span = match visibility {
                Visibility::Inherited => signature.span(),
                written => written.span(),
            };
            self.lines.push(begin.start().line);
        }
    }
}

/// Returns whether a function is compiled only where its types are known.
fn is_generic(generics: &Generics, signature: &Signature) -> bool {
    let by_argument = signature.inputs.iter().any(|argument| match argument {
        FnArg::Typed(argument) => matches!(*argument.ty, Type::ImplTrait(_)),
        FnArg::Receiver(_) => false,
    });
    has_types(generics) || by_argument
}

fn has_types(generics: &Generics) -> bool {
    let mut params = generics.params.iter();
    params.any(|param| !matches!(param, GenericParam::Lifetime(_)))
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item(&mut self, item: &'ast Item) {
        let skipped = match item {
            Item::Mod(its) => is_test(&its.attrs),
            // Functions with a body in a trait are generic over `Self`.
            Item::Trait(_) => true,
            _ => false,
        };
        if !skipped {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.look(&function.attrs, &function.vis, &function.sig);
        visit::visit_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        if !has_types(&block.generics) {
            visit::visit_item_impl(self, block);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.look(&function.attrs, &function.vis, &function.sig);
        visit::visit_impl_item_fn(self, function);
    }
}
