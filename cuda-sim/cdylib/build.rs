//! Linker options of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        for option in [
            // A program that is linked against this library loads `libcuda.so.1` at run time, which is
            // the name of the driver.
            "-soname,libcuda.so.1",
            // The library stays loaded after `dlclose`. A thread that ends later runs destructors of
            // thread-local variables, and their code is in the library.
            "-z,nodelete",
            // The library refers to its own functions, even if another library exports functions with
            // the same names.
            "-Bsymbolic-functions",
        ] {
            println!("cargo::rustc-cdylib-link-arg=-Wl,{option}");
        }
    }
}
