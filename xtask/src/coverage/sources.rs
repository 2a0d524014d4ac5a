//! The driver functions that the sources of cuda-safe call and name.

use crate::root;
use anyhow::{Context, Result};
use cuda_sys::Function;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItem, Item, Lit, Meta, Type, UseTree, Visibility};

/// The prefix of a type's private item, so that it is not mistaken for a public one.
pub(super) const PRIVATE: &str = "private::";

/// The information extracted from the sources of cuda-safe.
#[derive(Default)]
pub(super) struct Sources {
    /// Public items, with their modules as users write them: "" at the root, or `green::`.
    pub(super) public: BTreeMap<String, String>,
    /// Functions, with the items that have them as alias, without modules.
    pub(super) aliases: BTreeSet<(String, String)>,
    /// The entries of `aliases` whose documentation does not link to the raw function.
    pub(super) unlinked: BTreeSet<(String, String)>,
    /// Public methods, constants, fields and variants, such as `Stream::synchronize`.
    pub(super) members: BTreeSet<String>,
    /// Enums, flag sets and structs with public fields that are declared `pub`, with their values, flags
    /// and fields: the choices that users have.
    pub(super) choices: BTreeMap<String, BTreeSet<String>>,
    /// The driver functions of any ABI that the code names.
    pub(super) used: BTreeSet<Function>,
    /// The current item, for example `Stream`, `synchronize`.
    item: Vec<String>,
    /// The public module of the constants in the current file, if it has a table of attributes.
    attributes: Option<&'static str>,
}

/// The files with a table of attributes, with their public modules.
const ATTRIBUTES: [(&str, &str); 3] = [
    ("device/attributes.rs", "device::attribute"),
    ("module/attribute.rs", "module::attribute"),
    ("pool/attribute.rs", "memory::pool::attribute"),
];

/// Returns the file of a module that the file `parent` declares.
pub(crate) fn file_of(parent: &Path, name: &str) -> PathBuf {
    let folder = match parent.file_stem() {
        Some(stem) if stem != "lib" && stem != "mod" => parent.with_extension(""),
        _ => parent.with_file_name(""),
    };
    file_in(&folder, name)
}

fn file_in(folder: &Path, name: &str) -> PathBuf {
    let file = folder.join(format!("{name}.rs"));
    match file.is_file() {
        true => file,
        false => folder.join(name).join("mod.rs"),
    }
}

impl Sources {
    /// Reads a file and the modules below it. `module` is its public path, if any.
    pub(super) fn read(&mut self, path: &Path, module: Option<&str>) -> Result<()> {
        let text =
            fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let file = syn::parse_file(&text).with_context(|| format!("parsing {}", path.display()))?;
        for item in &file.items {
            let its = ATTRIBUTES.iter().find(|(file, _)| path.ends_with(file));
            self.attributes = its.map(|(_, module)| *module);
            self.visit_item(item);
            let (attributes, visibility, name) = parts(item);
            if let (Item::Macro(item), Some(module)) = (item, module) {
                let path = &item.mac.path;
                if path.is_ident("c_enum") || path.is_ident("bitflags") {
                    type_of(&item.mac.tokens)
                        .into_iter()
                        .for_each(|name| self.publish(name, module));
                }
            }
            let module = module.filter(|_| matches!(visibility, Some(Visibility::Public(_))));
            match (item, name, module) {
                (Item::Mod(inner), Some(name), _) if inner.content.is_none() => {
                    if is_test(attributes) {
                        continue;
                    }
                    let module = module.map(|module| format!("{module}{name}::"));
                    self.read(&file_of(path, &name), module.as_deref())?;
                }
                (Item::Macro(item), ..) if item.mac.path.is_ident("include") => {
                    let name: syn::LitStr = item.mac.parse_body()?;
                    self.read(&path.with_file_name(name.value()), None)?;
                }
                (Item::Use(item), _, Some(module)) => {
                    self.publish_tree(&item.tree, module, &mut vec![])?;
                }
                (_, Some(name), Some(module)) => self.publish(name, module),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads items of a file that is not public.
    #[cfg(test)]
    pub(super) fn visit(&mut self, text: &str) {
        let file = syn::parse_file(text).expect("items");
        file.items.iter().for_each(|item| self.visit_item(item));
    }

    /// Publishes re-exported items. `path` has the modules that lead to the tree, from the root of the
    /// crate.
    fn publish_tree(&mut self, tree: &UseTree, module: &str, path: &mut Vec<String>) -> Result<()> {
        match tree {
            UseTree::Path(its) => {
                path.push(its.ident.to_string());
                self.publish_tree(&its.tree, module, path)?;
                path.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.publish_tree(tree, module, path)?;
                }
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                let folders = path.iter().filter(|its| *its != "crate");
                let folder: PathBuf =
                    folders.fold(root().join("cuda-safe/src"), |at, its| at.join(its));
                // A re-exported module, whose items are public through it.
                let file = file_in(&folder, &name);
                if file.is_file() && !path.is_empty() {
                    self.read(&file, Some(&format!("{module}{name}::")))?;
                } else {
                    self.publish(name, module);
                }
            }
            UseTree::Rename(name) => self.publish(name.rename.to_string(), module),
            UseTree::Glob(_) => {}
        }
        Ok(())
    }

    /// Returns the public path of a type or of a module of attributes.
    pub(super) fn path(&self, name: &str) -> String {
        // Only public through its module.
        if name == "Carveout" {
            return "module::attribute::Carveout".to_owned();
        }
        match self.public.get(name) {
            Some(module) => format!("{module}{name}"),
            None => name.to_owned(),
        }
    }

    /// Records the public path of an item. If the item is public in several modules, the shortest path
    /// is used.
    fn publish(&mut self, name: String, module: &str) {
        let known = self.public.entry(name).or_insert_with(|| module.to_owned());
        if module.len() < known.len() {
            module.clone_into(known);
        }
    }

    /// Records the functions that the current item names. Only aliases that are function names count,
    /// that is, `cu` followed by a capital.
    fn note(&mut self, attributes: &[Attribute]) {
        let linked: BTreeSet<&str> = links(attributes).into_iter().map(Function::base).collect();
        for alias in attributes.iter().flat_map(aliases) {
            let capital = |rest: &str| rest.starts_with(|c: char| c.is_ascii_uppercase());
            if !alias.strip_prefix("cu").is_some_and(capital) {
                continue;
            }
            let named = (alias, self.item.join("::"));
            if !linked.contains(named.0.as_str()) {
                self.unlinked.insert(named.clone());
            }
            self.aliases.insert(named);
        }
    }

    /// Records the constants of a flag set: `struct Name … const FLAG`.
    fn flags(&mut self, tokens: TokenStream, name: &mut Option<String>) {
        let mut before = String::new();
        for token in tokens {
            let word = match token {
                TokenTree::Group(group) => {
                    self.flags(group.stream(), name);
                    String::new()
                }
                TokenTree::Ident(ident) => ident.to_string(),
                TokenTree::Punct(_) | TokenTree::Literal(_) => String::new(),
            };
            match (before.as_str(), &name) {
                ("struct", _) => *name = Some(word.clone()),
                // `const _ = !0;` declares that unknown bits are kept.
                ("const", Some(name)) if !word.is_empty() && word != "_" => {
                    self.choose(name, &word);
                }
                _ => {}
            }
            before = word;
        }
    }

    fn choose(&mut self, name: &str, member: &str) {
        self.members.insert(format!("{name}::{member}"));
        let choices = self.choices.entry(name.to_owned()).or_default();
        choices.insert(member.to_owned());
    }

    /// Records the enum of `c_enum! { pub enum Name = CUname { Value = CONSTANT, … } }`.
    fn c_enum(&mut self, tokens: TokenStream) {
        let name = type_of(&tokens);
        if let (Some(name), Some(TokenTree::Group(group))) = (name, tokens.into_iter().last()) {
            let rows: Vec<TokenTree> = group.stream().into_iter().collect();
            for pair in rows.windows(2) {
                if let [TokenTree::Ident(value), TokenTree::Punct(is)] = pair {
                    if is.as_char() == '=' {
                        self.choose(&name, &value.to_string());
                    }
                }
            }
        }
    }

    /// Records the constants of `attributes! { NAME: type = CONSTANT, …; … }`.
    fn constants(&mut self, tokens: TokenStream, module: &str) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for pair in tokens.windows(2) {
            if let [TokenTree::Ident(name), TokenTree::Punct(colon)] = pair {
                let name = name.to_string();
                if colon.as_char() == ':' && name.chars().all(|c| !c.is_ascii_lowercase()) {
                    self.choose(module, &name);
                }
            }
        }
    }

    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(ident) => self.used.extend(Function::find(&ident.to_string())),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

impl<'a> Visit<'a> for Sources {
    fn visit_item(&mut self, item: &'a Item) {
        let (attributes, visibility, name) = parts(item);
        if is_test(attributes) {
            return;
        }
        let is_public = matches!(visibility, Some(Visibility::Public(_)));
        let depth = self.item.len();
        let members: Vec<String> = match item {
            Item::Struct(item) => {
                let public = |field: &&syn::Field| matches!(field.vis, Visibility::Public(_));
                let fields = item.fields.iter().filter(public);
                fields.filter_map(|field| Some(field.ident.as_ref()?.to_string())).collect()
            }
            Item::Enum(item) => item.variants.iter().map(|its| its.ident.to_string()).collect(),
            _ => Vec::new(),
        };
        for (member, name) in members.iter().zip(std::iter::repeat(&name)) {
            match name {
                Some(name) if is_public => self.choose(name, member),
                Some(name) => drop(self.members.insert(format!("{name}::{member}"))),
                None => {}
            }
        }
        self.item.extend(name);
        self.note(attributes);
        visit::visit_item(self, item);
        self.item.truncate(depth);
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        let (attributes, visibility, name) = match item {
            ImplItem::Fn(item) => (&item.attrs, &item.vis, item.sig.ident.to_string()),
            ImplItem::Const(item) => (&item.attrs, &item.vis, item.ident.to_string()),
            _ => return visit::visit_impl_item(self, item),
        };
        let outer = self.item.clone();
        if !matches!(visibility, Visibility::Public(_)) {
            self.item.insert(0, PRIVATE.trim_end_matches(':').to_owned());
        }
        self.item.push(name);
        self.note(attributes);
        self.members.insert(self.item.join("::"));
        visit::visit_impl_item(self, item);
        self.item = outer;
    }

    fn visit_ident(&mut self, ident: &'a syn::Ident) {
        self.used.extend(Function::find(&ident.to_string()));
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        if call.path.is_ident("bitflags") {
            self.flags(call.tokens.clone(), &mut None);
        }
        if call.path.is_ident("c_enum") {
            self.c_enum(call.tokens.clone());
        }
        if let Some(module) = self.attributes.filter(|_| call.path.is_ident("attributes")) {
            self.constants(call.tokens.clone(), module);
        }
        self.tokens(call.tokens.clone());
    }
}

/// Returns the name of the type that a call of `c_enum!` or `bitflags!` defines.
fn type_of(tokens: &TokenStream) -> Option<String> {
    let is_keyword = |its: &TokenTree| matches!(&*its.to_string(), "enum" | "struct");
    let words = tokens.clone().into_iter().skip_while(|its| !is_keyword(its));
    words.skip(1).map(|name| name.to_string()).next()
}

/// Returns the aliases of `#[doc(alias = "…", alias = "…")]`.
fn aliases(attribute: &Attribute) -> Vec<String> {
    let mut aliases = Vec::new();
    let _ = attribute.parse_nested_meta(|meta| {
        let value: syn::LitStr = meta.value()?.parse()?;
        if meta.path.is_ident("alias") {
            aliases.push(value.value());
        }
        Ok(())
    });
    aliases
}

/// Returns the raw functions that an item's documentation links to.
fn links(attributes: &[Attribute]) -> Vec<Function> {
    let mut found = Vec::new();
    for attribute in attributes {
        let Meta::NameValue(meta) = &attribute.meta else {
            continue;
        };
        if let Expr::Lit(syn::ExprLit { lit: Lit::Str(line), .. }) = &meta.value {
            for link in line.value().split("](fn@cuda_sys::").skip(1) {
                found.extend(link.split(')').next().and_then(Function::find));
            }
        }
    }
    found
}

/// Returns the attributes, the visibility and the name of an item; for an `impl`, the name of the type.
fn parts(item: &Item) -> (&[Attribute], Option<&Visibility>, Option<String>) {
    match item {
        Item::Const(i) => (&i.attrs, Some(&i.vis), Some(i.ident.to_string())),
        Item::Enum(i) => (&i.attrs, Some(&i.vis), Some(i.ident.to_string())),
        Item::Fn(i) => (&i.attrs, Some(&i.vis), Some(i.sig.ident.to_string())),
        Item::Mod(i) => (&i.attrs, Some(&i.vis), Some(i.ident.to_string())),
        Item::Static(i) => (&i.attrs, Some(&i.vis), Some(i.ident.to_string())),
        Item::Struct(i) => (&i.attrs, Some(&i.vis), Some(i.ident.to_string())),
        Item::Trait(i) => (&i.attrs, Some(&i.vis), Some(i.ident.to_string())),
        Item::Type(i) => (&i.attrs, Some(&i.vis), Some(i.ident.to_string())),
        Item::Use(i) => (&i.attrs, Some(&i.vis), None),
        Item::Impl(i) => match &*i.self_ty {
            Type::Path(ty) => {
                let name = ty.path.segments.last().map(|last| last.ident.to_string());
                (&i.attrs, None, name)
            }
            _ => (&i.attrs, None, None),
        },
        _ => (&[], None, None),
    }
}

/// Returns whether an item exists only for tests.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|cfg| cfg == "test" || cfg == "doctest")
    })
}
