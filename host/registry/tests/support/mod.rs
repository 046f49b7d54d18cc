//! Finds and makes the shared libraries that the tests load, and makes paths fit for snapshots.

#![allow(dead_code, unused_imports, reason = "not every test file uses everything")]

mod c_plugin;
mod case;

use std::path::{Path, PathBuf};

pub use c_plugin::{CPlugin, GOOD};
pub use case::{Case, refused, refused_file};
use paceline_registry::{Error, Registry};

/// Path of an example of this crate that is a shared library.
pub fn fixture(name: &str) -> PathBuf {
    example(&format!("{}{name}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX))
}

/// Path of the program that tries plugins.
pub fn small_host() -> PathBuf {
    example(&format!("small_host{}", std::env::consts::EXE_SUFFIX))
}

fn example(file: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().and_then(Path::parent).expect("tests lie in `<profile>/deps`");
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
    let text = error.to_string();
    assert_eq!(text.lines().count(), 1, "an error is one line: {text}");
    let text = match error.hint() {
        Some(hint) => format!("{text}\nhint: {hint}"),
        None => text,
    };
    without(&text, folder)
}

/// A text with `folder` replaced.
pub fn without(text: &str, folder: &Path) -> String {
    let canonical = folder.canonicalize().expect("the folder exists");
    text.replace(&canonical.display().to_string(), "[folder]")
        .replace(&folder.display().to_string(), "[folder]")
}
