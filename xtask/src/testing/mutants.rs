//! `cargo xtask mutants [OPTION …] [FILE …]`: mutation tests on the software driver.
//!
//! A mutant is the program with a small change, such as another operator, a removed call or another return value
//! (`mutants/operators.rs`). A mutant that no test detects survives. It shows code whose effect is not tested.
//!
//! Nearly all of the time of such tests would be spent on compiling and linking each mutant. Therefore:
//! - A copy of the sources in `target/mutants/tree` contains all mutants of a run. Each change is a choice at run
//!   time: `if ::mutant_switch::on(17) { a > b } else { a < b }` (`mutants/choices.rs`). An environment variable
//!   names the mutant that is in effect. The tests are built once.
//! - Changes that do not compile are found in the errors of the compiler, and taken out until the copy builds.
//! - A first run without a mutant records which choices each test reaches, and how long it takes. The tests of a
//!   mutant are those that reach it (`mutants/tests.rs`). Each runs in a process of its own, the quickest first, until
//!   one fails or takes far longer than without a mutant.
//!
//! The tests are the unit tests and integration tests of the workspace, without the examples in the documentation.
//! The slowest ones, which are sweeps, recordings and random programs, only run with `--slow`; use it with `--names`
//! for the survivors of a first run. A mutant that no test reaches is reported separately from those that survive
//! their tests.

mod choices;
mod operators;
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use self::choices::{SWITCH, SWITCH_SOURCE, Written};
use self::operators::Change;
use self::tests::{Build, Fault};
use crate::root;
use crate::testing::{copy, in_parallel};

/// The packages that are mutated: those that users build.
const PACKAGES: [&str; 7] =
    ["cuda-sys", "cuda-safe", "cuda-memory", "cuda-nvrtc", "cuda-nccl", "cuda-sim", "cuda-ptx"];

/// The prefixes of the lines of a report that name mutants.
const SURVIVED: &str = "survived: ";
const NOT_REACHED: &str = "not reached: ";

/// The options of the command line.
struct Options {
    /// Parts of the paths of files.
    files: Vec<String>,
    all: bool,
    /// Whether slow tests run, too.
    slow: bool,
    sample: Option<usize>,
    seed: u64,
    jobs: usize,
    /// A file with one mutant name per line.
    names: Option<PathBuf>,
}

/// A change in a file.
struct Mutant {
    file: String,
    change: Change,
}

impl Mutant {
    fn name(&self) -> String {
        format!("{}:{}: {}", self.file, self.change.line, self.change.name)
    }
}

#[derive(Clone, PartialEq, Eq)]
enum Outcome {
    NotViable,
    NotReached,
    Survived,
    /// The test that failed.
    Caught(String),
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = parse(args)?;
    let sources = sources()?;
    let all = list(&sources, &options)?;
    let count = all.len();
    let mutants = choose(all, &options)?;
    let folder = root().join("target/mutants");
    println!("{} of {count} mutants", mutants.len());

    let begin = Instant::now();
    let mut outcomes = vec![Outcome::NotReached; mutants.len()];
    let build = build(&folder, &sources, &mutants, &mut outcomes, options.slow)?;
    println!("the tests with the mutants are built, {} s", begin.elapsed().as_secs());
    let reached = build.record(&folder.join("reached"), options.jobs, options.slow)?;
    println!("{} tests have run without a mutant, {} s", reached.len(), begin.elapsed().as_secs());

    let viable: Vec<usize> =
        (0..mutants.len()).filter(|&number| outcomes[number] != Outcome::NotViable).collect();
    let results = in_parallel(&viable, options.jobs, |&number| {
        let tests: Vec<_> = reached.iter().filter(|its| its.ids.contains(&id(number))).collect();
        let outcome = match build.first_failure(&tests, id(number))? {
            _ if tests.is_empty() => Outcome::NotReached,
            Some(test) => Outcome::Caught(test),
            None => Outcome::Survived,
        };
        let name = mutants[number].name();
        match &outcome {
            Outcome::Caught(test) => println!("caught by {test}: {name}"),
            _ => println!("NOT CAUGHT by {} tests: {name}", tests.len()),
        }
        Ok((number, outcome))
    })?;
    for (number, outcome) in results {
        outcomes[number] = outcome;
    }
    report(&mutants, &outcomes, begin.elapsed().as_secs());
    Ok(())
}

/// Returns the number of a mutant in the switches. Zero is no mutant.
fn id(number: usize) -> usize {
    number + 1
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options {
        files: Vec::new(),
        all: false,
        slow: false,
        sample: None,
        seed: 0,
        names: None,
        jobs: std::thread::available_parallelism()?.get(),
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--all" => options.all = true,
            "--slow" => options.slow = true,
            "--sample" => options.sample = Some(value()?.parse().context("--sample")?),
            "--seed" => options.seed = value()?.parse().context("--seed")?,
            "--names" => options.names = Some(value()?.into()),
            "--jobs" => options.jobs = value()?.parse().context("--jobs")?,
            _ if arg.starts_with('-') => bail!("unknown option of mutants: {arg}"),
            file => options.files.push(file.to_owned()),
        }
    }
    ensure!(options.jobs > 0, "--jobs must be at least 1");
    let named = !options.files.is_empty() || options.names.is_some();
    ensure!(options.all != named, "mutants takes either --all, or parts of paths or --names");
    Ok(options)
}

/// Returns the texts of the source files that can be mutated, by path, with their changes.
fn sources() -> Result<BTreeMap<String, (String, Vec<Change>)>> {
    let mut sources = BTreeMap::new();
    for package in PACKAGES {
        read(&format!("{package}/src"), "lib", &mut sources)?;
    }
    Ok(sources)
}

/// Reads a module, and its modules in other files. Modules that are not compiled are not read.
fn read(
    folder: &str,
    module: &str,
    sources: &mut BTreeMap<String, (String, Vec<Change>)>,
) -> Result<()> {
    let (own, below) = (format!("{folder}/{module}.rs"), format!("{folder}/{module}"));
    let (file, below) = match module {
        "lib" => (own, folder.to_owned()),
        _ if root().join(&own).exists() => (own, below),
        _ => (format!("{below}/mod.rs"), below),
    };
    let text = fs::read_to_string(root().join(&file)).with_context(|| file.clone())?;
    let (changes, modules) = operators::changes(&text).with_context(|| file.clone())?;
    let is_generated = text.lines().take(5).any(|line| line.contains("@generated"));
    if !is_generated {
        sources.insert(file, (text, changes));
    }
    modules.iter().try_for_each(|module| read(&below, module, sources))
}

/// Returns the mutants that the command line names, in the order of the files.
fn list(
    sources: &BTreeMap<String, (String, Vec<Change>)>,
    options: &Options,
) -> Result<Vec<Mutant>> {
    let names = match &options.names {
        Some(path) => fs::read_to_string(path).with_context(|| path.display().to_string())?,
        None => String::new(),
    };
    let names: BTreeSet<_> = names.lines().filter_map(without_line).collect();
    let mut mutants = Vec::new();
    for (file, (_, changes)) in sources {
        let files = &options.files;
        if files.is_empty() || files.iter().any(|part| file.contains(part)) {
            let changes = changes.iter().cloned();
            mutants.extend(changes.map(|change| Mutant { file: file.clone(), change }));
        }
    }
    if options.names.is_some() {
        mutants.retain(|its| names.contains(&(its.file.as_str(), its.change.name.as_str())));
    }
    Ok(mutants)
}

/// Returns the file and the change of a line of a report. The number of the line may differ after an edit of the file.
fn without_line(line: &str) -> Option<(&str, &str)> {
    let name = line.strip_prefix(SURVIVED).or_else(|| line.strip_prefix(NOT_REACHED));
    let (file, rest) = name.unwrap_or(line).split_once(':')?;
    Some((file, rest.split_once(": ")?.1))
}

/// Selects the requested sample, in the order of the list.
fn choose(mutants: Vec<Mutant>, options: &Options) -> Result<Vec<Mutant>> {
    ensure!(!mutants.is_empty(), "no mutants");
    let Some(sample) = options.sample.filter(|&sample| sample < mutants.len()) else {
        return Ok(mutants);
    };
    let mut state = options.seed;
    let mut keyed: Vec<_> = mutants.into_iter().map(|its| (random(&mut state), its)).collect();
    let mut keys: Vec<u64> = keyed.iter().map(|(key, _)| *key).collect();
    let (_, &mut limit, _) = keys.select_nth_unstable(sample);
    keyed.retain(|(key, _)| *key < limit);
    Ok(keyed.into_iter().map(|(_, its)| its).collect())
}

/// `SplitMix64`, so that a seed selects the same sample on every machine.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Builds the tests with the mutants. Marks those that do not compile.
fn build(
    folder: &Path,
    sources: &BTreeMap<String, (String, Vec<Change>)>,
    mutants: &[Mutant],
    outcomes: &mut [Outcome],
    slow: bool,
) -> Result<Build> {
    let (tree, switch) = (folder.join("tree"), folder.join(SWITCH));
    let manifest = format!("[package]\nname = \"{SWITCH}\"\nedition = \"2024\"\n[workspace]\n");
    fs::create_dir_all(switch.join("src")).context("creating a folder")?;
    fs::create_dir_all(&tree).context("creating a folder")?;
    copy::write_changed(&switch.join("Cargo.toml"), manifest.as_bytes())?;
    copy::write_changed(&switch.join("src/lib.rs"), SWITCH_SOURCE.as_bytes())?;
    let mut changed = BTreeMap::new();
    for package in PACKAGES.into_iter().chain(["."]) {
        let file = Path::new(package).join("Cargo.toml");
        let text = fs::read_to_string(root().join(&file))?;
        let path = toml::Value::from(switch.display().to_string());
        let dependency = format!("\n[dependencies]\n{SWITCH} = {{ path = {path} }}\n");
        let text = text.replace("\n[dependencies]\n", &dependency);
        let file = file.strip_prefix(".").unwrap_or(&file).display().to_string();
        changed.insert(file, text);
    }
    loop {
        let mut by_file: BTreeMap<&str, Vec<(usize, &Change)>> = BTreeMap::new();
        for (number, its) in mutants.iter().enumerate() {
            if outcomes[number] != Outcome::NotViable {
                by_file.entry(&its.file).or_default().push((id(number), &its.change));
            }
        }
        let written: BTreeMap<&str, Written> = by_file
            .into_iter()
            .map(|(file, changes)| (file, Written::new(&sources[file].0, &changes)))
            .collect();
        for file in sources.keys() {
            changed.remove(file);
        }
        changed.extend(written.iter().map(|(file, its)| ((*file).to_owned(), its.text.clone())));
        copy::copy_changed_sources(&tree, &changed)?;
        let faults = match tests::build(&tree, slow)? {
            Ok(build) => return Ok(build),
            Err(faults) => faults,
        };
        let mut removed = BTreeSet::new();
        for fault in &faults {
            let ids = at_fault(&written, fault);
            ensure!(!ids.is_empty(), "the copy does not build:\n{}", fault.message);
            removed.extend(ids);
        }
        println!("{} mutants do not compile", removed.len());
        for id in removed {
            outcomes[id - 1] = Outcome::NotViable;
        }
    }
}

/// Returns the mutants that cause an error of the compiler: those in which one of its places is, else those of the
/// choice around it or near to it.
fn at_fault(written: &BTreeMap<&str, Written>, fault: &Fault) -> Vec<usize> {
    for places in [&fault.main, &fault.others] {
        let found = places.iter().filter_map(|its| Some(written.get(&*its.file)?.at(&its.range)));
        let found: Vec<usize> = found.flatten().collect();
        if !found.is_empty() {
            return found;
        }
    }
    let near = fault.main.iter().find_map(|its| written.get(&*its.file)?.near(&its.range));
    near.unwrap_or_default().to_vec()
}

/// Lists the survivors. The last line contains the counts.
fn report(mutants: &[Mutant], outcomes: &[Outcome], seconds: u64) {
    for (outcome, prefix) in [(Outcome::NotReached, NOT_REACHED), (Outcome::Survived, SURVIVED)] {
        for (mutant, _) in mutants.iter().zip(outcomes).filter(|(_, its)| **its == outcome) {
            println!("{prefix}{}", mutant.name());
        }
    }
    let count = |outcome: &Outcome| outcomes.iter().filter(|its| *its == outcome).count();
    let not_viable = count(&Outcome::NotViable);
    let (not_reached, survived) = (count(&Outcome::NotReached), count(&Outcome::Survived));
    let viable = mutants.len() - not_viable;
    let caught = viable - not_reached - survived;
    let percent = 100.0 * caught as f64 / viable.max(1) as f64;
    println!(
        "mutants {}, not viable {not_viable}, viable {viable}, caught {caught} ({percent:.1} %), survived {survived}, not reached {not_reached}; {seconds} s",
        mutants.len()
    );
}
