//! The same random programs of raw calls on a real driver and on the software driver.
//!
//! `cargo xtask differ` runs this. A program is a text; its transcript has the result of each call, and
//! hashes of the memory at each `check`. Without arguments, the software driver must give the
//! transcripts that `cuda-sim/data` has of a real driver.

#[path = "../common/mod.rs"]
mod common;
mod compare;
mod execute;
mod generate;
mod rules;
mod structures;
mod table;
mod workers;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use workers::Program;

/// Transcripts of a real driver.
const RECORDED: &[u8] = include_bytes!("../../cuda-sim/data/nvidia-h200-13.0/programs.txt.gz");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["worker"] => return ExitCode::from(workers::work() as u8),
        ["make", from, count] => make(number(from) as u64, number(count)),
        ["run", programs, transcripts, jobs, seconds] => {
            run(programs, transcripts, number(jobs), number(seconds) as u64);
        }
        ["check", transcripts] => return check(&read(transcripts)),
        // A filter of `cargo test` names tests of other binaries.
        _ => return check(&recorded()),
    }
    ExitCode::SUCCESS
}

fn recorded() -> Vec<Program> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(RECORDED).read_to_string(&mut text).expect("a text");
    workers::parse(&text)
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

fn read(path: &str) -> Vec<Program> {
    workers::parse(&std::fs::read_to_string(path).expect("a file"))
}

/// Prints programs.
fn make(from: u64, count: usize) {
    let rows = table::rows();
    let programs: Vec<Program> = (from..from + count as u64)
        .map(|seed| Program { seed, lines: generate::program(&rows, seed) })
        .collect();
    print!("{}", workers::write(&programs));
}

/// Runs programs twice on the current driver, the second time in the opposite order, and writes the
/// transcripts that are the same.
fn run(programs: &str, transcripts: &str, jobs: usize, seconds: u64) {
    let programs = read(programs);
    let file = Mutex::new((File::create(transcripts).expect("a file"), 0, 0));
    workers::run(&programs, jobs, seconds, |_, portion| {
        let first = workers::transcripts(portion, &[]);
        let reversed: Vec<Program> = portion.iter().rev().cloned().collect();
        let mut second = workers::transcripts(&reversed, &[]);
        second.reverse();
        let stable = compare::stable(first, &second);
        let mut file = file.lock().expect("no panic");
        file.0.write_all(workers::write(&stable).as_bytes()).expect("a file");
        file.1 += stable.len();
        file.2 += portion.len();
    });
    let (_, stable, all) = file.into_inner().expect("no panic");
    let processes = workers::PROCESSES.load(Ordering::Relaxed);
    println!("{stable} of {all} programs are repeatable; {processes} processes");
}

/// Compares transcripts with those of the software driver.
fn check(real: &[Program]) -> ExitCode {
    let mut programs = real.to_vec();
    for program in &mut programs {
        program.lines.retain(|line| line.contains(" -> "));
        for line in &mut program.lines {
            line.truncate(line.find(" -> ").unwrap_or(line.len()));
        }
    }
    let software = Mutex::new(BTreeMap::new());
    workers::run(&programs, 2, 1 << 30, |index, portion| {
        let its = workers::transcripts(portion, &[("CUDA_SIM", "h200")]);
        software.lock().expect("no panic").insert(index, its);
    });
    let software = software.into_inner().expect("no panic");
    let software: Vec<Program> = software.into_values().flatten().collect();
    match compare::report(real, &software, rules::RULES) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
