//! Finds the examples in the documentation and writes them as a table of functions. build.rs
//! includes this file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The files and folders that contain examples.
const SOURCES: [&str; 3] = ["README.md", "cuda-memory/src", "cuda-safe/src"];

/// Writes `$OUT_DIR/examples.rs`: an expression that lists names and closures.
pub(super) fn write() -> io::Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?);
    let out = PathBuf::from(env::var("OUT_DIR").map_err(io::Error::other)?);
    let mut files = Vec::new();
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        list(&root.join(source), &mut files)?;
    }
    files.sort();
    let mut table = String::from("&[\n");
    for file in files {
        let name = file.strip_prefix(&root).unwrap_or(&file).display();
        let in_comments = file.extension().is_some_and(|its| its == "rs");
        for (line, code) in examples(&fs::read_to_string(&file)?, in_comments) {
            // An example is a function body, defines `run` or `main`, or defines a future to await.
            let end = match code.as_str() {
                code if code.contains("fn run()") => "run()",
                code if code.contains("fn main()") => "main()",
                code if code.contains("async fn compute()") => "crate::block_on(compute())",
                _ => "",
            };
            // An empty string stands for kernel code that the documentation does not show.
            let code = code.replace("\"\"", "crate::KERNELS");
            // The error types differ.
            let call = format!("|| crate::outcome((|| {{\n{code}{end}\n}})())");
            let _ = writeln!(table, "(\"{name}:{line}\", {call}),");
        }
    }
    table.push(']');
    fs::write(out.join("examples.rs"), table)
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
