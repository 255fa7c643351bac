//! Tells the program which compiler has made it: instructions of two compilers are not compared.

use std::process::Command;

fn main() {
    let rustc = std::env::var_os("RUSTC").expect("cargo says which compiler it uses");
    let version = Command::new(rustc).arg("--version").output();
    let version = version.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    );
    let target = std::env::var("TARGET").expect("cargo says for what it builds");
    println!("cargo::rustc-env=RINGMICRO_RUSTC={version}");
    println!("cargo::rustc-env=RINGMICRO_TARGET={target}");
    println!("cargo::rerun-if-changed=build.rs");
}
