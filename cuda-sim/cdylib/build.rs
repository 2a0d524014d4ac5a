//! Linker options of the library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        for option in [
            // Programs that are linked against this library load `libcuda.so.1`, the name of the driver.
            "-soname,libcuda.so.1",
            // The library stays loaded, because a thread may end after the program has closed the
            // library, and the destructors of thread-local variables are code of the library.
            "-z,nodelete",
            // Addresses that the library returns are its own, even if another library exports the same
            // names.
            "-Bsymbolic-functions",
        ] {
            println!("cargo::rustc-cdylib-link-arg=-Wl,{option}");
        }
    }
}
