//! Modules of compilers.

use crate::round_trip;
use std::path::Path;

/// Checks all modules in a folder and returns their number.
fn check(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder);
    let mut count = 0;
    for entry in entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("the folder can be read").path();
        if path.extension().is_some_and(|extension| extension == "ptx") {
            let text = std::fs::read_to_string(&path).expect("the file is text");
            let result = std::panic::catch_unwind(|| round_trip(&text));
            assert!(result.is_ok(), "{}", path.display());
            count += 1;
        }
    }
    count
}

#[test]
fn the_kernels_of_the_workspace_parse() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    assert!(check(&root.join("tests/kernels")) > 10);
    for folder in ["bench/src", "examples/isolation", "tests/documentation"] {
        assert!(check(&root.join(folder)) > 0);
    }
}

/// The variable names a folder with modules, for example those of a compiler.
#[test]
fn the_modules_of_a_folder_parse() {
    if let Some(folder) = std::env::var_os("PTX_CORPUS") {
        println!("{} modules", check(Path::new(&folder)));
    }
}
