//! Every instruction form of PTX, on a GPU and on the engine of `cuda-ptx`.
//!
//! Each form is a kernel whose threads execute the instruction once, on operands of their own: edge
//! cases, their combinations and random values. The commands are:
//! - `list` prints the forms;
//! - `write FOLDER` writes the modules, for NVIDIA's assembler;
//! - `record FILE [FILTER [PART COUNT]]` runs the forms on a GPU and adds their results to a file. FILTER is a part of
//!   the name. PART is the number of the first form, and every COUNT-th one follows, so that several processes share
//!   the forms. `gzip -9n` makes the file of this folder from it;
//! - `show FILTER` prints the recorded results with their operands;
//! - `mutants ASSEMBLER COUNT SEED` changes a word of a form, and compares whether the engine and `ptxas` accept the
//!   result;
//! - `sanitize TOOL LOG [FILTER]` runs the planted kernels of `cuda-ptx` on a GPU under compute-sanitizer, which is
//!   TOOL, and writes what it prints to LOG. FILTER is a part of the name;
//! - `planted NUMBER…` runs some of these kernels;
//! - `verdicts LOG` prints what the tools found in each kernel, for `cuda-ptx/tests/engine/planted`;
//! - no command, or `replay FILTER`: the engine must give the recorded results.
//!
//! A form without `record`ed results, or with other operands than those recorded, is an error.

#[path = "../common/mod.rs"]
mod common;
mod create;
mod data;
mod engine;
mod exceptions;
mod form;
mod forms;
mod kernel;
mod mutants;
mod object;
mod operands;
#[path = "../../cuda-ptx/tests/engine/planted/mod.rs"]
mod planted;
mod record;
mod replay;
mod sanitize;
mod tensor;
mod tile;

use std::io::Read;
use std::process::ExitCode;

use data::Recording;

/// Results of an H200.
const RECORDED: &[u8] = include_bytes!("nvidia-h200-13.0.gz");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["list"] => {
            list();
            Ok(true)
        }
        ["write", folder] => write(folder).map(|()| true),
        ["record", file] => record::record(&forms::all(), file, "").map(|()| true),
        ["record", file, filter] => record::record(&forms::all(), file, filter).map(|()| true),
        ["record", file, filter, part, count] => match (part.parse(), count.parse::<usize>()) {
            (Ok(part), Ok(count)) => {
                let forms: Vec<_> = forms::all().into_iter().skip(part).step_by(count).collect();
                record::record(&forms, file, filter).map(|()| true)
            }
            _ => Err("PART and COUNT are numbers".to_owned()),
        },
        ["planted", ref numbers @ ..] => sanitize::run(numbers).map(|()| true),
        ["sanitize", tool, log] => sanitize::record(tool, log, "").map(|()| true),
        ["sanitize", tool, log, filter] => sanitize::record(tool, log, filter).map(|()| true),
        ["verdicts", log] => sanitize::verdicts(log).map(|()| true),
        ["show", filter] => recorded().map(|recording| {
            replay::show(&forms::all(), &recording, filter);
            true
        }),
        ["mutants", assembler, count, seed] => match (count.parse(), seed.parse()) {
            (Ok(count), Ok(seed)) => mutants::compare(&forms::all(), assembler, count, seed),
            _ => Err("COUNT and SEED are numbers".to_owned()),
        },
        ["replay", filter] => replay(filter),
        // A filter of `cargo test` names tests of other binaries.
        _ => replay(""),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn list() {
    for (number, form) in forms::all().iter().enumerate() {
        println!("{number} {}", form.name);
    }
}

fn write(folder: &str) -> Result<(), String> {
    for (number, forms) in forms::all().chunks(32).enumerate() {
        let numbered = forms.iter().enumerate().map(|(index, form)| (32 * number + index, form));
        let file = format!("{folder}/{number:03}.ptx");
        std::fs::write(&file, kernel::module(numbered))
            .map_err(|error| format!("{file}: {error}"))?;
    }
    Ok(())
}

fn replay(filter: &str) -> Result<bool, String> {
    Ok(replay::replay(&forms::all(), &recorded()?, filter))
}

fn recorded() -> Result<Recording, String> {
    let mut bytes = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(RECORDED);
    decoder.read_to_end(&mut bytes).map_err(|error| format!("the recording: {error}"))?;
    data::read(&bytes)
}
