//! Compiles the C parts: `plain.c` into the binary, and `null.c`, the driver that does nothing, as a
//! separate library that is embedded in the binary.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for source in ["src/plain.c", "src/graphs/plain.c", "src/transfers/plain.c", "src/null.c"] {
        println!("cargo::rerun-if-changed={source}");
    }
    println!("cargo::rerun-if-env-changed=CC");

    let object = folder.join("plain.o");
    compile("src/plain.c", &object, &["-c", "-fPIE"]);
    let archive = folder.join("libplain.a");
    // An existing archive would be extended.
    let _ = fs::remove_file(&archive);
    run(Command::new("ar").arg("rcs").args([&archive, &object]));
    println!("cargo::rustc-link-search=native={}", folder.display());
    println!("cargo::rustc-link-lib=static=plain");

    // cudarc looks for the driver under this name.
    let name = "-Wl,-soname,libcuda.so";
    compile("src/null.c", &folder.join("libcuda-null.so"), &["-shared", "-fPIC", name]);
}

fn compile(source: &str, target: &Path, options: &[&str]) {
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]);
    command.args(options).arg("-o").args([target, Path::new(source)]);
    run(&mut command);
}

fn run(command: &mut Command) {
    let status = command.status();
    match status {
        Ok(status) if status.success() => {}
        other => panic!("{command:?}: {other:?} (the benchmark needs a C compiler and ar)"),
    }
}
