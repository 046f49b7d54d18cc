//! Finds the shared libraries that the tests load, and makes paths fit for snapshots.

#![allow(dead_code, reason = "not every test file uses everything")]

use std::path::{Path, PathBuf};

use paceline_registry::{Error, Registry};

/// Path of an example of this crate that is a shared library.
pub fn fixture(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().and_then(Path::parent).expect("tests lie in `<profile>/deps`");
    let file = format!("{}{name}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let path = folder.join("examples").join(file);
    assert!(
        path.exists(),
        "{} is missing: run `cargo test` without `--test`, or `cargo build --examples`",
        path.display()
    );
    path
}

/// A registry without built-ins.
pub fn registry() -> Registry {
    Registry::new().expect("no built-in is faulty")
}

/// An error as a person sees it, with `folder` replaced.
pub fn shown(error: &Error, folder: &Path) -> String {
    let text = match error.hint() {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    };
    let canonical = folder.canonicalize().expect("the folder exists");
    text.replace(&canonical.display().to_string(), "[folder]")
        .replace(&folder.display().to_string(), "[folder]")
}
