//! The report on races at the end of the process.

use core::ffi::c_int;

unsafe extern "C" {
    // A function of the C library, which every program on the supported systems links.
    fn atexit(function: extern "C" fn()) -> c_int;
}

/// Makes the process print the number of races when it ends. If this is not possible, only the reports of the
/// races themselves are printed.
pub(crate) fn at_exit() {
    // SAFETY: the function has the type of a handler, and neither unwinds nor calls the driver.
    unsafe { atexit(print) };
}

extern "C" fn print() {
    let count = cuda_sim::races().len();
    // Does not panic if stderr is closed.
    let _ = std::io::Write::write_fmt(
        &mut std::io::stderr(),
        format_args!("cuda-sim: number of races: {count}\n"),
    );
}
