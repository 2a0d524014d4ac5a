//! Finds the examples in the documentation and writes a test for each. build.rs includes this file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The files and folders that contain examples.
const SOURCES: [&str; 4] = ["README.md", "cuda-memory/src", "cuda-nvrtc/src", "cuda-safe/src"];

/// The files with examples that need two processes.
const TWO_PROCESSES: [&str; 3] = [
    "cuda-safe/src/event/ipc.rs",
    "cuda-safe/src/manager/ipc.rs",
    "cuda-safe/src/memory/pool/share.rs",
];

/// Writes `$OUT_DIR/examples.rs`: a module for each file, with a test for each line where an example begins.
pub(super) fn write() -> io::Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?);
    let out = PathBuf::from(env::var("OUT_DIR").map_err(io::Error::other)?);
    let mut files = Vec::new();
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        list(&root.join(source), &mut files)?;
    }
    files.sort();
    let mut tests = String::new();
    for file in files {
        let in_comments = file.extension().is_some_and(|its| its == "rs");
        let examples = examples(&fs::read_to_string(&file)?, in_comments);
        if examples.is_empty() {
            continue;
        }
        let name = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
        let module = name.replace(|character: char| !character.is_alphanumeric(), "_");
        let _ = writeln!(tests, "mod {} {{\nuse crate::libraries::*;", module.to_lowercase());
        for (line, code) in examples {
            let _ = writeln!(tests, "{}", test(&name, line, &code));
        }
        tests.push_str("}\n");
    }
    fs::write(out.join("examples.rs"), tests)
}

/// Returns the test of an example.
fn test(file: &str, line: usize, code: &str) -> String {
    let attributes = match TWO_PROCESSES.contains(&file) {
        true => "#[test]\n#[ignore = \"it needs two processes\"]",
        false => "#[test]",
    };
    // An example is a function body, defines `run` or `main`, or defines a future to await.
    let end = match code {
        code if code.contains("fn run()") => "run()",
        code if code.contains("fn main()") => "main()",
        code if code.contains("async fn compute()") => "crate::block_on(compute())",
        _ => "",
    };
    let libraries = match code.contains("cuda_nvrtc") {
        true if code.contains("Linker") => "nvrtc, nvjitlink",
        true => "nvrtc",
        false => "",
    };
    // An empty string stands for kernel code that the documentation does not show. The programs of the guide read it
    // from a file.
    let is_named = |kernel: &str| code.contains(&format!("\"{kernel}\""));
    let kernels = format!("{:?}", crate::kernels::keep(include_str!("kernels.ptx"), is_named));
    let code = code.replace("\"\"", &kernels);
    let read = format!("std::io::Result::Ok({kernels}.to_owned())");
    let code = code.replace("std::fs::read_to_string(\"kernels.ptx\")", &read);
    // The error types differ.
    format!(
        "{attributes}\nfn line_{line}() {{\ncrate::check(&[{libraries}], || crate::outcome((|| {{\n{code}{end}\n}})()));\n}}"
    )
}

fn list(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        list(&entry?.path(), files)?;
    }
    Ok(())
}

/// Returns the examples of a file that would run on a GPU, each with its line. The file contains the
/// documentation in comments, or is documentation.
fn examples(text: &str, in_comments: bool) -> Vec<(usize, String)> {
    let mut examples = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = if in_comments {
            let line = line.trim_start();
            let comment = line.strip_prefix("///").or(line.strip_prefix("//!"));
            let line = comment.unwrap_or(line);
            line.strip_prefix(' ').unwrap_or(line)
        } else {
            line
        };
        match &mut open {
            Some(_) if line.starts_with("```") => examples.extend(open.take()),
            Some((_, code)) => {
                // Lines that rustdoc hides begin with `# `.
                let line = line.strip_prefix("# ").unwrap_or(line);
                let _ = writeln!(code, "{line}");
            }
            None if line.starts_with("```") && line.contains("no_run") => {
                open = Some((number, String::new()));
            }
            None => {}
        }
    }
    examples
}
