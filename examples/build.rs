//! Passes the compiler and the target to the reports of the example `devices`.

fn main() {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let version = std::process::Command::new(variable("RUSTC")).arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("cargo::rustc-env=BUILD_COMPILER={}", version.unwrap_or_default());
    println!("cargo::rustc-env=BUILD_TARGET={}", variable("TARGET"));
}
