//! Runs the corpus of the fuzz targets without a fuzzer, input by input.

#[path = "../../../../fuzz/checks/mod.rs"]
mod checks;

/// Runs all inputs, each with a path that begins with the name of the target.
const CORPUS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/corpus.rs"));

fn replay(target: &str, check: fn(&[u8])) {
    let is_input = |path: &str| path.split_once('/').is_some_and(|(of, _)| of == target);
    let inputs = CORPUS.iter().filter(|(path, _)| is_input(path));
    // Miri executes a few of them.
    let (step, least) = if cfg!(miri) { (25, 1) } else { (1, 50) };
    let count = inputs.step_by(step).inspect(|(_, input)| check(input)).count();
    assert!(count > least, "{count} inputs for {target}");
}

#[test]
fn the_corpus_of_type_strings_passes() {
    replay("type_string", checks::type_string);
}

#[test]
fn the_corpus_of_array_interfaces_passes() {
    replay("array_interface", checks::array_interface);
}

#[test]
fn the_corpus_of_likely_interfaces_passes() {
    replay("likely_interface", checks::likely_interface);
}

#[test]
fn the_corpus_of_tensors_passes() {
    replay("dlpack", checks::dlpack);
}

#[test]
fn the_corpus_of_views_passes() {
    replay("view", checks::view);
}

#[test]
fn the_corpus_of_images_passes() {
    replay("image", checks::image);
}

#[test]
fn the_corpus_of_ptx_passes() {
    replay("ptx", checks::ptx);
}
