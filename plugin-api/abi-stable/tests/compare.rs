//! Libraries with and without layouts, and with other ones.

use paceline_abi_stable::{LayoutDifference, compare};
use paceline_registry::Registry;
use std::path::{Path, PathBuf};

/// Path of an example of this crate that is a shared library.
fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().and_then(Path::parent).expect("tests lie in `<profile>/deps`");
    let file = format!("{}{name}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let path = folder.join("examples").join(file);
    assert!(path.exists(), "{} is missing: `cargo build --examples --features layouts`", path.display());
    path
}

#[test]
fn a_plugin_built_from_the_same_types_compares_equal() {
    let path = library("cpu_with_layouts");
    assert_eq!(compare(&path), Ok(()));
    // Again, with the library loaded already.
    assert_eq!(compare(&path), Ok(()));
}

#[test]
fn a_plugin_that_carries_layouts_is_a_plugin_like_any_other() {
    let mut registry = Registry::new().expect("there are no built-ins to be wrong");
    let plugin = registry.load_file(library("cpu_with_layouts")).expect("it loads");
    assert_eq!(plugin.id(), "cpu");
    assert!(!plugin.client.backend().and_then(|cpu| cpu.devices()).expect("it has a device").is_empty());
}

#[test]
fn another_layout_is_told_shortly() {
    let difference = compare(library("other_layout")).expect_err("a weight is another there");
    assert_eq!(difference.to_string(), "`WeightUse.dtype` is `u64` instead of `u32`");
}

#[test]
fn without_layouts_there_is_nothing_to_compare() {
    assert_eq!(compare(library("no_layouts")), Err(LayoutDifference::NotCarried));
    let error = compare("/no/such/library.so").expect_err("there is no such file");
    assert!(matches!(error, LayoutDifference::Unloadable(_)), "{error}");
    assert!(error.to_string().contains("/no/such/library.so"), "{error}");
}
