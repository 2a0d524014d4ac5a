//! `cargo xtask cost`: writes bench/COST.md, the number of instructions of each operation. callgrind
//! counts them with a driver whose functions do nothing, so the numbers are the same in every run.

mod calls;

use self::calls::Calls;
use crate::generated::{Generated, settle};
use crate::install::debian;
use crate::{root, status};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The number of instructions that an operation may have more than in the file, because another C
/// compiler or the C library for another processor needs a few more or fewer. With another rustc the
/// tolerance is larger.
const TOLERANCE: f64 = 4.0;
const TOLERANCE_PART: f64 = 0.03;
const TOLERANCE_OF_ANOTHER: f64 = 0.5;

/// The layers that are checked: those of this project.
const CHECKED: [&str; 2] = ["cuda-sys", "cuda-safe"];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("cost takes no arguments except --check"),
    };
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "bench/COST.md is for x86-64 Linux"
    );
    let compiler = compiler()?;
    let counted = count(&binary(false)?)?;
    let path = root().join("bench/COST.md");
    if check {
        let before = fs::read_to_string(&path).context("reading bench/COST.md")?;
        let is_same = before.contains(&compiler);
        if !is_same {
            println!(
                "bench/COST.md was written with another compiler than {compiler}: the tolerance is 50 %"
            );
        }
        return compare(&parse(&before), &counted, is_same);
    }
    let text = render(&counted, &compiler);
    settle(&[Generated { path, text }], false, "cost")
}

/// Returns the version that rustc reports.
fn compiler() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = debian::stdout(Command::new(rustc).arg("--version"))?;
    Ok(version.trim().to_owned())
}

/// One operation: the instructions of each layer.
struct Row {
    operation: String,
    calls: String,
    layers: BTreeMap<String, f64>,
    /// The driver calls of each layer.
    driver: BTreeMap<String, Calls>,
}

/// A line of cargo's JSON output, with the fields that are used here.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
}

/// Builds the benchmark. Strips its symbols if it will be copied to another machine.
pub(crate) fn binary(stripped: bool) -> Result<PathBuf> {
    let mut cargo = Command::new(env!("CARGO"));
    if stripped {
        cargo.env("CARGO_PROFILE_BENCH_STRIP", "symbols");
    }
    cargo.args(["build", "--profile=bench", "--workspace", "--bin", "cuda-bench"]);
    built(cargo)
}

/// Runs a cargo command that builds one executable, and returns its path.
pub(crate) fn built(mut cargo: Command) -> Result<PathBuf> {
    let output = cargo
        .current_dir(root())
        .args(["--quiet", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo build")?;
    status::check(output.status, "the benchmark failed to build")?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut messages = messages.lines().map(serde_json::from_str::<Message>);
    messages.find_map(|message| message.ok()?.executable).context("cargo reported no executable")
}

/// Runs a benchmark with the flag `--count` under callgrind, which writes a file each time the function
/// `counted` returns. The benchmark prints a line for each of these files. Calls `each` with the line and the
/// contents of the file.
pub(crate) fn callgrind(
    binary: &Path,
    counted: &str,
    mut each: impl FnMut(&str, &str) -> Result<()>,
) -> Result<()> {
    // Two benchmarks may run at the same time.
    let folder = root().join("target/cost").join(counted);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let output = Command::new("valgrind")
        .current_dir(&folder)
        .args(["--quiet", "--tool=callgrind", "--callgrind-out-file=counts"])
        // Complete names and addresses in each file.
        .args(["--compress-strings=no", "--compress-pos=no", "--dump-instr=yes"])
        .arg(format!("--toggle-collect={counted}"))
        .arg(format!("--dump-after={counted}"))
        .arg(binary)
        .arg("--count")
        .stderr(Stdio::inherit())
        .output()
        .context("running valgrind (on Debian and Ubuntu: apt-get install valgrind)")?;
    status::check(output.status, "the benchmark failed under callgrind")?;

    for (number, line) in String::from_utf8_lossy(&output.stdout).lines().enumerate() {
        let path = folder.join(format!("counts.{}", number + 1));
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        each(line, &text)?;
    }
    Ok(())
}

/// Counts the instructions of the operations.
fn count(binary: &Path) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    let mut empty = 0.0;
    callgrind(binary, "cuda_bench_counted", |line, text| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [operation, calls, layer, n] = fields[..] else {
            bail!("unexpected output of the benchmark: {line}");
        };
        let total = total(text)?;
        let n: f64 = n.parse().with_context(|| format!("in {line}"))?;
        // Each operation is first measured with zero repetitions; this is the overhead.
        if n == 0.0 {
            empty = total;
            return Ok(());
        }
        if rows.last().is_none_or(|row| row.operation != operation) {
            rows.push(Row {
                operation: operation.to_owned(),
                calls: calls.to_owned(),
                layers: BTreeMap::new(),
                driver: BTreeMap::new(),
            });
        }
        if let Some(row) = rows.last_mut() {
            let each = ((total - empty) / n).round();
            row.layers.insert(layer.to_owned(), each);
            let of_driver = calls::of(text).into_iter();
            let of_driver = of_driver.map(|(function, times)| (function, times / n));
            row.driver.insert(layer.to_owned(), of_driver.collect());
        }
        Ok(())
    })?;
    Ok(rows)
}

/// Returns the total number of instructions in a callgrind file.
pub(crate) fn total(text: &str) -> Result<f64> {
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = total.context("a callgrind file has no total")?;
    total.trim().parse().with_context(|| format!("the total {total}"))
}

/// The columns, in order. For this project's layers, each cell also has the number of instructions more
/// than C.
const COLUMNS: [&str; 5] = ["C", "cuda-sys", "cuda-safe", "cudarc", "cudarc, with streams"];

const HEAD: &str = "\
<!-- @generated by `cargo xtask cost`. Do not edit. -->
# Instructions per operation

callgrind counts the instructions on x86-64 with a driver whose functions return at once. The numbers are
therefore those of the layers, plus about three instructions in each function of that driver. The number in
brackets is the difference from plain C through `dlsym` pointers. The [README](README.md) describes the
operations and the calls that plain C makes for them.

`cargo xtask cost` writes this file. `cargo xtask cost --check` fails if `cuda-sys` or `cuda-safe` needs more
instructions than listed here, with a tolerance of 4 instructions or 3 %, whichever is more, for differences
between C compilers and C libraries. With another rustc the tolerance is 4 instructions or 50 %. The file was
written with
";

const CALLS: &str = "
# Driver calls per operation

From the same measurement, without the prefix `cu`. `cuda-sys` makes the same calls as C.

";

fn render(rows: &[Row], compiler: &str) -> String {
    let mut text = format!("{HEAD}{compiler}.\n\n");
    let _ = writeln!(text, "| operation | C calls | {} |", COLUMNS.join(" | "));
    let _ = writeln!(text, "|---|---|{}", "--:|".repeat(COLUMNS.len()));
    for row in rows {
        let _ = write!(text, "| {} | {} |", row.operation, row.calls);
        let c = row.layers.get("C").copied().unwrap_or(f64::NAN);
        for column in COLUMNS {
            let _ = match row.layers.get(column) {
                None => write!(text, " - |"),
                Some(n) if CHECKED.contains(&column) => write!(text, " {n} ({:+}) |", n - c),
                Some(n) => write!(text, " {n} |"),
            };
        }
        text.push('\n');
    }
    let columns: Vec<&str> = (COLUMNS.into_iter()).filter(|column| *column != "cuda-sys").collect();
    let driver = rows.iter().map(|row| (row.operation.as_str(), &row.driver));
    text + CALLS + &calls::table(&columns, driver)
}

/// Parses a file into a map from operation and layer to instructions.
fn parse(text: &str) -> BTreeMap<(String, String), f64> {
    let mut all = BTreeMap::new();
    let instructions = text.split(CALLS).next().unwrap_or_default();
    for line in instructions.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let Some((operation, cells)) = cells.split_first() else {
            continue;
        };
        for (column, cell) in COLUMNS.iter().zip(cells.iter().skip(1)) {
            let number = cell.split(' ').next().unwrap_or_default();
            if let Ok(number) = number.parse() {
                all.insert(((*operation).to_owned(), (*column).to_owned()), number);
            }
        }
    }
    all
}

fn compare(
    before: &BTreeMap<(String, String), f64>,
    rows: &[Row],
    is_same_compiler: bool,
) -> Result<()> {
    let part = match is_same_compiler {
        true => TOLERANCE_PART,
        false => TOLERANCE_OF_ANOTHER,
    };
    let (mut dearer, mut cheaper) = (Vec::new(), 0);
    for (operation, layer) in before.keys() {
        let is_counted =
            rows.iter().any(|row| row.operation == *operation && row.layers.contains_key(layer));
        if CHECKED.contains(&layer.as_str()) && !is_counted {
            dearer.push(format!("{operation}, {layer}: in the file, but not measured"));
        }
    }
    for row in rows {
        for layer in CHECKED {
            let Some(&now) = row.layers.get(layer) else {
                continue;
            };
            let operation = &row.operation;
            let Some(&then) = before.get(&(operation.clone(), layer.to_owned())) else {
                dearer
                    .push(format!("{operation}, {layer}: {now} instructions, but not in the file"));
                continue;
            };
            let tolerance = TOLERANCE.max(then * part);
            if now > then + tolerance {
                dearer.push(format!("{operation}, {layer}: {now} instructions, {then} before"));
            }
            cheaper += usize::from(now < then - tolerance);
        }
    }
    if cheaper != 0 {
        println!(
            "{cheaper} operations need fewer instructions: run `cargo xtask cost` to update the file"
        );
    }
    ensure!(
        dearer.is_empty(),
        "more instructions than in bench/COST.md (if this is intended, run `cargo xtask cost`):\n  {}",
        dearer.join("\n  ")
    );
    println!("{} operations match bench/COST.md", rows.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Row, compare, parse, render};
    use std::collections::BTreeMap;

    fn rows(safe: f64) -> Vec<Row> {
        let layers = [("C", 10.0), ("cuda-sys", 12.0), ("cuda-safe", safe)];
        vec![Row {
            operation: "event record".to_owned(),
            calls: "record".to_owned(),
            layers: BTreeMap::from(layers.map(|(layer, n)| (layer.to_owned(), n))),
            driver: BTreeMap::new(),
        }]
    }

    #[test]
    fn what_is_dearer_than_the_file_says_fails() {
        let before = parse(&render(&rows(20.0), "rustc"));
        let is_let_pass = |count, is_same| compare(&before, &rows(count), is_same).is_ok();
        assert!(is_let_pass(20.0, true) && is_let_pass(24.0, true));
        assert!(!is_let_pass(25.0, true) && is_let_pass(25.0, false));
        assert!(is_let_pass(30.0, false) && !is_let_pass(31.0, false));
    }

    #[test]
    fn what_is_in_one_of_both_only_fails() {
        let before = parse(&render(&rows(20.0), "rustc"));
        assert!(compare(&BTreeMap::new(), &rows(20.0), true).is_err());
        assert!(compare(&before, &[], true).is_err());
        let mut without = rows(20.0);
        without[0].layers.remove("cuda-safe");
        assert!(compare(&before, &without, true).is_err());
    }
}
