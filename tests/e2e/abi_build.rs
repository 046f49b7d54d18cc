//! Builds plugins in C and C++ with the system's compilers, as an author would.

#![allow(dead_code, reason = "not every test file uses everything")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a folder of the repository")
}

/// Builds a shared library of one source file; its extension says the language. Warnings are errors.
pub fn library(name: &str, source: &Path, includes: &[PathBuf]) -> PathBuf {
    let is_cpp = source.extension().is_some_and(|extension| extension == "cpp");
    let (variable, usual, standard) =
        if is_cpp { ("CXX", "c++", "-std=c++17") } else { ("CC", "cc", "-std=c11") };
    let compiler = std::env::var(variable).unwrap_or_else(|_| usual.into());
    let file = format!("lib{name}_{}.so", std::process::id());
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    let mut command = Command::new(&compiler);
    command.args([standard, "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    command.args(["-shared", "-fPIC", "-fvisibility=hidden", "-pthread"]);
    for folder in includes {
        command.arg("-I").arg(folder);
    }
    let output = command
        .arg("-o")
        .args([library.as_path(), source])
        .output()
        .unwrap_or_else(|error| panic!("the compiler `{compiler}` cannot be run: {error}"));
    assert!(
        output.status.success(),
        "{} does not compile: {}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    library
}
