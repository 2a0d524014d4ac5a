//! How the library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        for option in [
            // What was linked against it asks for the driver, whichever that is.
            "-soname,libcuda.so.1",
            // A thread may end after a program has closed the library, and what ends with a
            // thread is code of the library.
            "-z,nodelete",
            // The addresses that it hands out are its own, whatever else exports the names.
            "-Bsymbolic-functions",
        ] {
            println!("cargo::rustc-cdylib-link-arg=-Wl,{option}");
        }
    }
}
