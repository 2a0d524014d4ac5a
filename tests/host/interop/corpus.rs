//! The corpus of the fuzz targets, input by input: what they found once holds without a fuzzer.

#[path = "../../../fuzz/checks/mod.rs"]
mod checks;

use std::fs;
use std::path::Path;

fn replay(target: &str, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let inputs = fs::read_dir(corpus.join(target)).expect("a corpus");
    let count = inputs
        .map(|input| fs::read(input.expect("an entry").path()).expect("an input"))
        .inspect(|input| check(input))
        .count();
    assert!(count > 50, "{count} inputs for {target}");
}

#[test]
fn the_corpus_of_type_strings_holds() {
    replay("type_string", checks::type_string);
}

#[test]
fn the_corpus_of_array_interfaces_holds() {
    replay("array_interface", checks::array_interface);
}

#[test]
fn the_corpus_of_likely_interfaces_holds() {
    replay("likely_interface", checks::likely_interface);
}

#[test]
fn the_corpus_of_tensors_holds() {
    replay("dlpack", checks::dlpack);
}

#[test]
fn the_corpus_of_views_holds() {
    replay("view", checks::view);
}
