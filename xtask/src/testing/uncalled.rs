//! `cargo xtask uncalled`: runs random programs (`tests/programs`) and lists the public safe functions of
//! `cuda-safe` and `cuda-memory` that none of them has called.
//!
//! The compiler inserts counters, so a function counts as called if it has run. `xtask/uncalled.toml` has
//! the functions that need not run, with the reasons. The command fails if another function did not run,
//! or if a function that is named there did.
//!
//! The list has functions and inherent methods. It does not have the methods of traits, which have no
//! visibility, and functions that a macro defines, which the parser does not see.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{ImplItemFn, Item, ItemFn, Type, Visibility};

use crate::install::debian;
use crate::{coverage, root};

/// The number of programs, unless `--programs` sets it.
const PROGRAMS: &str = "4000";

const SOURCES: [&str; 2] = ["cuda-safe/src", "cuda-memory/src"];

/// The contents of `xtask/uncalled.toml`.
#[derive(Deserialize)]
struct Notes {
    exceptions: Vec<Exceptions>,
}

/// Functions that need not run.
#[derive(Deserialize)]
struct Exceptions {
    reason: String,
    /// `Type::function`, `function`, or `Type::*` for the functions of a type, of which some may run.
    functions: Vec<String>,
}

/// A public safe function.
struct Function {
    name: String,
    file: PathBuf,
    /// Its first and last line.
    lines: (usize, usize),
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let programs = match args {
        [] => PROGRAMS,
        [flag, count] if flag == "--programs" => count,
        _ => bail!("uncalled takes no arguments except --programs N"),
    };
    let functions = functions()?;
    let ran = measure(programs)?;
    let has_run = |its: &Function| {
        let lines = ran.get(&its.file);
        lines.is_some_and(|all| all.range(its.lines.0..=its.lines.1).next().is_some())
    };
    let (called, uncalled): (Vec<&Function>, Vec<_>) =
        functions.iter().partition(|its| has_run(its));
    let text = fs::read_to_string(root().join("xtask/uncalled.toml"))?;
    let notes: Notes = toml::from_str(&text).context("reading xtask/uncalled.toml")?;
    let patterns: Vec<&String> = notes.exceptions.iter().flat_map(|its| &its.functions).collect();
    let mut wrong = 0;
    for its in &notes.exceptions {
        ensure!(!its.reason.is_empty(), "exceptions need a reason");
    }
    for pattern in &patterns {
        let is_needed = uncalled.iter().any(|its| matches(pattern, &its.name));
        let is_exact = !pattern.ends_with('*');
        if !is_needed || is_exact && called.iter().any(|its| its.name == **pattern) {
            println!("a program calls it, or it does not exist: {pattern}");
            wrong += 1;
        }
    }
    for its in &uncalled {
        if !patterns.iter().any(|pattern| matches(pattern, &its.name)) {
            println!("no program calls {} ({}:{})", its.name, its.file.display(), its.lines.0);
            wrong += 1;
        }
    }
    println!(
        "{} public safe functions, {} called, {} with a reason, {wrong} to look at",
        functions.len(),
        called.len(),
        uncalled.len() - uncalled.len().min(wrong),
    );
    ensure!(wrong == 0, "add operations to tests/programs, or reasons to xtask/uncalled.toml");
    Ok(())
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

/// Returns the public safe functions in the sources.
fn functions() -> Result<Vec<Function>> {
    let mut found = Found::default();
    for folder in SOURCES {
        found.read_folder(&root().join(folder))?;
    }
    Ok(found.functions)
}

#[derive(Default)]
struct Found {
    functions: Vec<Function>,
    file: PathBuf,
    /// The type of the current `impl`.
    of: Option<String>,
}

impl Found {
    fn read_folder(&mut self, folder: &Path) -> Result<()> {
        let mut entries: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(folder)? {
            entries.push(entry?.path());
        }
        entries.sort();
        for path in entries {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Tests, and code that does not compile.
            if matches!(name.as_str(), "tests" | "tests.rs" | "must_not_compile.rs" | "explore.rs")
            {
                continue;
            }
            if path.is_dir() {
                self.read_folder(&path)?;
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(&path)?;
                let file = syn::parse_file(&text);
                let file = file.with_context(|| format!("parsing {}", path.display()))?;
                self.file = path.strip_prefix(root())?.to_owned();
                file.items.iter().for_each(|item| self.visit_item(item));
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        visibility: &Visibility,
        signature: &syn::Signature,
        whole: proc_macro2::Span,
    ) {
        if !matches!(visibility, Visibility::Public(_)) || signature.unsafety.is_some() {
            return;
        }
        let name = match &self.of {
            Some(of) => format!("{of}::{}", signature.ident),
            None => signature.ident.to_string(),
        };
        self.functions.push(Function {
            name,
            file: self.file.clone(),
            lines: (signature.span().start().line, whole.end().line),
        });
    }
}

impl<'a> Visit<'a> for Found {
    fn visit_item(&mut self, item: &'a Item) {
        match item {
            Item::Mod(its) if coverage::is_test(&its.attrs) => {}
            // Functions of traits have no visibility.
            Item::Impl(its) if its.trait_.is_none() => {
                self.of = match &*its.self_ty {
                    Type::Path(path) => path.path.segments.last().map(|its| its.ident.to_string()),
                    Type::TraitObject(_) => Some("dyn MemoryManager".to_owned()),
                    _ => None,
                };
                visit::visit_item(self, item);
                self.of = None;
            }
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        self.add(&item.vis, &item.sig, item.span());
    }

    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        self.add(&item.vis, &item.sig, item.span());
    }
}

/// The output of `llvm-cov export`, with the fields that are used here.
#[derive(Deserialize)]
struct Export {
    data: Vec<Data>,
}

#[derive(Deserialize)]
struct Data {
    functions: Vec<Counted>,
}

#[derive(Deserialize)]
struct Counted {
    count: u64,
    filenames: Vec<PathBuf>,
    /// The first line is the first number of a region.
    regions: Vec<Vec<u64>>,
}

/// For each file, the first lines of the functions and closures that have run.
type Ran = BTreeMap<PathBuf, BTreeSet<usize>>;

/// Runs random programs with counters.
fn measure(programs: &str) -> Result<Ran> {
    let target = root().join("target/uncalled");
    let profiles = target.join("profiles");
    debian::replace_dir(&profiles)?;
    let cargo = |action: &[&str], programs: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.current_dir(root()).args(action);
        command.args(["-p", "cuda-workbench", "--features", "explore", "--test", "explore"]);
        command.arg("--target-dir").arg(&target).args(programs);
        command.env("RUSTFLAGS", "-C instrument-coverage");
        command.env("LLVM_PROFILE_FILE", profiles.join("%p-%m.profraw"));
        command
    };
    let run = ["--", "random", "--serial", "--programs", programs];
    let status = cargo(&["test", "--quiet"], &run).status().context("running the programs")?;
    if !status.success() {
        println!("some programs violate a rule: see `cargo xtask explore random`");
    }
    let build = ["test", "--no-run", "--message-format=json"];
    let output = cargo(&build, &[]).output().context("building the programs")?;
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let binary = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_its = message["target"]["name"] == "explore";
        message["executable"].as_str().filter(|_| is_its).map(PathBuf::from)
    });
    let binary = binary.context("cargo reported no executable")?;
    let merged = target.join("merged.profdata");
    let raw = fs::read_dir(&profiles)?.map(|entry| Ok(entry?.path()));
    let raw = raw.collect::<Result<Vec<PathBuf>>>()?;
    let status =
        tool("llvm-profdata")?.args(["merge", "--sparse", "-o"]).arg(&merged).args(raw).status()?;
    ensure!(status.success(), "llvm-profdata failed");
    let output = tool("llvm-cov")?
        .args(["export", "--instr-profile"])
        .arg(&merged)
        .arg(&binary)
        .args(SOURCES.map(|folder| root().join(folder)))
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "llvm-cov failed: {errors}");
    let export: Export = serde_json::from_slice(&output.stdout).context("reading llvm-cov")?;
    let mut ran = Ran::new();
    for its in export.data.into_iter().flat_map(|data| data.functions) {
        let (Some(file), Some(region)) = (its.filenames.first(), its.regions.first()) else {
            continue;
        };
        if let (Ok(file), true, Some(line)) =
            (file.strip_prefix(root()), its.count > 0, region.first())
        {
            ran.entry(file.to_owned()).or_default().insert(*line as usize);
        }
    }
    ensure!(!ran.is_empty(), "no function was counted");
    Ok(ran)
}

/// Returns a command for an LLVM tool of the compiler. Installs the tools unless they are installed.
fn tool(name: &str) -> Result<Command> {
    let rustc = || Command::new("rustc");
    let sysroot = debian::stdout(rustc().args(["--print", "sysroot"]))?;
    let version = debian::stdout(rustc().arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc names no host")?;
    let path = format!("{}/lib/rustlib/{host}/bin/{name}", sysroot.trim());
    if !Path::new(&path).is_file() {
        let status = Command::new("rustup").args(["component", "add", "llvm-tools"]).status();
        ensure!(status.is_ok_and(|its| its.success()), "{name} could not be installed with rustup");
    }
    Ok(Command::new(path))
}
