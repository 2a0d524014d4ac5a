//! Some of the kernels of a text of PTX, since the software driver needs seconds under Miri to load all kernels of a
//! file. build.rs includes this file.

/// Returns PTX with the kernels whose names are kept. Lines without text replace the other kernels.
pub(super) fn keep(ptx: &str, is_kept: impl Fn(&str) -> bool) -> String {
    const START: &str = ".visible .entry ";
    let (head, kernels) = ptx.split_once(START).unwrap_or((ptx, ""));
    let kernels = kernels.split(START).map(|kernel| match kernel.split('(').next() {
        Some(name) if is_kept(name) => [START, kernel].concat(),
        _ => "\n".repeat(kernel.matches('\n').count()),
    });
    head.to_owned() + &kernels.collect::<String>()
}
