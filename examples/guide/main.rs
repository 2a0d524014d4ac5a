//! Draws the pictures of the guide (`cuda_safe::_guide`), on the software driver.
//!
//! `cargo run --example guide` writes them. With `-- --check` it compares them with the files, and fails if a
//! file differs.

#[path = "../graphs/draw.rs"]
mod draw;
mod graph;
mod owners;
mod partitions;
mod streams;
#[path = "../support/mod.rs"]
mod support;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cuda-safe/src/_guide/pictures");
const ADVICE: &str = "run `cargo run --example guide`";

fn main() -> ExitCode {
    support::main(run)
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = match arguments.as_slice() {
        [] => false,
        [option] if option == "--check" => true,
        _ => return Err("the only option is --check".into()),
    };
    support::choose(Some("h200"))?;
    let pictures = [
        ("streams", streams::draw()),
        ("owners", owners::draw()),
        ("graph", graph::draw()?),
        ("partitions", partitions::draw()?),
    ];
    for (name, svg) in pictures {
        // A blank line would end the HTML block in which rustdoc shows the picture.
        let svg: String =
            svg.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n") + "\n";
        let path = Path::new(FOLDER).join(name).with_extension("svg");
        if !check {
            fs::write(&path, svg).map_err(|why| format!("writing {}: {why}", path.display()))?;
        } else if fs::read_to_string(&path).ok().as_deref() != Some(svg.as_str()) {
            return Err(format!("{} is not up to date: {ADVICE}", path.display()).into());
        }
    }
    Ok(())
}
