//! Which file is used for a plugin when there are several, or when one is pinned.

#![cfg(target_os = "linux")]

mod support;

use std::fs;

use insta::assert_snapshot;
use paceline_registry::{DiscoverConfig, Error, Pin, Registry};
use support::{CPlugin, Case, registry, shown};

/// Which file is loaded for a plugin, or why none.
fn loaded(case: &Case, config: &DiscoverConfig, id: &str) -> String {
    let candidates = Registry::discover(config);
    match registry().load(&candidates, id) {
        Ok(plugin) => format!(
            "{} from {}",
            plugin.client.version(),
            support::without(&plugin.origin.to_string(), case.root())
        ),
        Err(error) => shown(&error, case.root()),
    }
}

fn error(result: paceline_registry::Result<()>) -> Error {
    result.unwrap_err()
}

fn two_versions() -> Case {
    let case = Case::new();
    // The order of the names must not matter.
    CPlugin::new("alpha").version("1.10.0").build(&case.file("liba.so"));
    CPlugin::new("alpha").version("1.9.0").build(&case.file("libb.so"));
    case
}

fn pinned(case: &Case, pin: Pin) -> DiscoverConfig {
    DiscoverConfig { pins: [("alpha".to_owned(), pin)].into(), ..case.config() }
}

#[test]
fn the_highest_version_is_used() {
    let case = two_versions();
    assert_eq!(loaded(&case, &case.config(), "alpha"), "1.10.0 from [folder]/plugins/liba.so");
    let candidates = case.discover();
    assert_snapshot!(case.state(&candidates, &case.file("libb.so")), @"not used: [folder]/plugins/liba.so is newer");
    assert_eq!(case.trials(), 1, "the other one is not even tried");
}

#[test]
fn the_same_version_twice_is_refused() {
    let case = Case::with_good();
    for name in ["liba.so", "libb.so"] {
        CPlugin::new("alpha").build(&case.file(name));
    }
    assert_snapshot!(loaded(&case, &case.config(), "alpha"), @r"
    plugin files [folder]/plugins/liba.so and [folder]/plugins/libb.so both have version 1.0.0 of `alpha`
    hint: remove one of them, or pin one by its path in the section `plugin.alpha` of registry.toml
    ");
    assert_eq!(loaded(&case, &case.config(), "good"), "1.0.0 from [folder]/plugins/libgood.so");
    let by_path = Pin { path: Some(case.file("libb.so")), ..Pin::default() };
    assert_eq!(loaded(&case, &pinned(&case, by_path), "alpha"), "1.0.0 from [folder]/plugins/libb.so");
}

#[test]
fn one_file_under_several_names_is_one_plugin() {
    let case = Case::new();
    CPlugin::new("alpha").build(&case.file("libalpha.so.1.0.0"));
    for name in ["libalpha.so.1", "libalpha.so"] {
        std::os::unix::fs::symlink("libalpha.so.1.0.0", case.file(name)).unwrap();
    }
    fs::hard_link(case.file("libalpha.so.1.0.0"), case.file("libcopy.so")).unwrap();
    std::os::unix::fs::symlink("nowhere", case.file("libnowhere.so")).unwrap();
    std::os::unix::fs::symlink("libloop.so", case.file("libloop.so")).unwrap();
    assert_eq!(case.discover().list().len(), 1);
    assert_eq!(case.trials(), 1);
    assert_eq!(loaded(&case, &case.config(), "alpha"), "1.0.0 from [folder]/plugins/libalpha.so.1.0.0");
}

#[test]
fn a_pinned_version() {
    let case = two_versions();
    let version = |text: &str| Pin { version: Some(text.parse().unwrap()), ..Pin::default() };
    assert_eq!(
        loaded(&case, &pinned(&case, version("<1.10")), "alpha"),
        "1.9.0 from [folder]/plugins/libb.so"
    );
    assert_snapshot!(loaded(&case, &pinned(&case, version(">=2")), "alpha"), @r"
    plugin `alpha` is pinned to version >=2, and [folder]/plugins/liba.so has version 1.10.0
    hint: install what is pinned, or change the section `plugin.alpha` of registry.toml
    ");
}

#[test]
fn a_pinned_content() {
    let case = two_versions();
    let sum = std::process::Command::new("sha256sum").arg(case.file("libb.so")).output().unwrap().stdout;
    let sha256 = |text: &str| Pin { sha256: Some(text.to_owned()), ..Pin::default() };
    let sum = String::from_utf8(sum).unwrap()[..64].to_uppercase();
    assert_eq!(loaded(&case, &pinned(&case, sha256(&sum)), "alpha"), "1.9.0 from [folder]/plugins/libb.so");
    let refused = loaded(&case, &pinned(&case, sha256("00")), "alpha");
    let (before, after) = refused.split_once("has the SHA-256 ").unwrap();
    assert_snapshot!(format!("{before}has the SHA-256 [hash]{}", &after[64..]), @r"
    plugin file [folder]/plugins/liba.so: has the SHA-256 [hash], and 00 is pinned
    hint: install the file that is pinned, or change the pin in registry.toml
    ");
}

#[test]
fn a_pinned_file() {
    let case = two_versions();
    let by_path = |path| pinned(&case, Pin { path: Some(path), ..Pin::default() });
    assert_eq!(loaded(&case, &by_path(case.file("libb.so")), "alpha"), "1.9.0 from [folder]/plugins/libb.so");
    CPlugin::new("alpha").version("0.5.0").build(&case.outside("libc.so"));
    assert_eq!(
        loaded(&case, &by_path(case.outside("libc.so")), "alpha"),
        "0.5.0 from [folder]/outside/libc.so"
    );
    assert_snapshot!(loaded(&case, &by_path(case.outside("missing.so")), "alpha"), @"plugin file [folder]/outside/missing.so: cannot find it: No such file or directory (os error 2)");
    CPlugin::new("beta").build(&case.outside("libbeta.so"));
    assert_snapshot!(loaded(&case, &by_path(case.outside("libbeta.so")), "alpha"), @r"
    plugin file [folder]/outside/libbeta.so: holds the plugin `beta`, and is pinned for `alpha`
    hint: install the file that is pinned, or change the pin in registry.toml
    ");
}

#[test]
fn a_named_file_wins_and_must_work() {
    let case = two_versions();
    let named = |path| DiscoverConfig { files: vec![path], ..case.config() };
    CPlugin::new("alpha").version("0.1.0").build(&case.outside("libalpha.so"));
    assert_eq!(
        loaded(&case, &named(case.outside("libalpha.so")), "alpha"),
        "0.1.0 from [folder]/outside/libalpha.so"
    );
    CPlugin::new("alpha").define("ON_LOAD", "abort();").build(&case.outside("libalpha.so"));
    assert_snapshot!(loaded(&case, &named(case.outside("libalpha.so")), "alpha"), @r"
    plugin file [folder]/outside/libalpha.so: crashes while it is loaded (signal 6, abort)
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
    fs::copy(support::fixture("fixture_no_plugin"), case.outside("libother.so")).unwrap();
    assert_snapshot!(loaded(&case, &named(case.outside("libother.so")), "alpha"), @r"
    plugin file [folder]/outside/libother.so: is a shared library but no Paceline plugin: it has no section `.paceline.plugin` and no symbol `paceline_plugin_entry_v1`
    hint: give the path of a shared library that was built as a Paceline plugin
    ");
    let candidates = Registry::discover(&named(case.outside("")));
    assert_snapshot!(shown(&error(candidates.expect_named()), case.root()), @r"
    plugin file [folder]/outside: is a directory, not a file
    hint: give the path of the plugin's shared library
    ");
}

/// A version that this machine cannot use stands in nobody's way; one that crashes is not passed over in silence.
#[test]
fn a_newer_one_that_cannot_be_used() {
    let case = two_versions();
    CPlugin::new("alpha")
        .version("2.0.0")
        .with_lines("cpu_features = [\"warp-drive\"]\n")
        .build(&case.file("libc.so"));
    assert_eq!(loaded(&case, &case.config(), "alpha"), "1.10.0 from [folder]/plugins/liba.so");
    CPlugin::new("alpha").version("2.0.0").define("ON_LOAD", "abort();").build(&case.file("libc.so"));
    assert_snapshot!(loaded(&case, &case.config(), "alpha"), @r"
    plugin file [folder]/plugins/libc.so: crashes while it is loaded (signal 6, abort)
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
}

#[test]
fn one_that_is_switched_off_is_not_tried() {
    let case = Case::with_good();
    CPlugin::new("alpha").define("ON_LOAD", "abort();").build(&case.file("liba.so"));
    let config = DiscoverConfig { disabled: ["alpha".to_owned()].into(), ..case.config() };
    assert_snapshot!(loaded(&case, &config, "alpha"), @r"
    plugin `alpha` is switched off by the configuration
    hint: run `paceline plugins enable alpha`, or set `enabled = true` in the section `plugin.alpha` of registry.toml
    ");
    assert_eq!(case.state(&Registry::discover(&config), &case.file("liba.so")), "switched off");
    assert_eq!(case.trials(), 1);
}

#[test]
fn what_there_is_not_says_what_there_is() {
    let case = Case::with_good();
    CPlugin::new("cuda").define("ON_LOAD", "abort();").build(&case.file("libcuda.so"));
    assert_snapshot!(loaded(&case, &case.config(), "rocm"), @r"
    there is no plugin `rocm`; there is `good`; searched [folder]/plugins; refused [folder]/plugins/libcuda.so: crashes while it is loaded (signal 6, abort)
    hint: a plugin in a shared library is loaded with `--plugin PATH`
    ");
    let nothing =
        DiscoverConfig { directories: vec![case.outside(""), case.root().join("missing")], ..case.config() };
    assert_snapshot!(loaded(&case, &nothing, "rocm"), @r"
    there is no plugin `rocm`; no plugin is loaded; searched [folder]/outside/, [folder]/missing
    hint: a plugin in a shared library is loaded with `--plugin PATH`
    ");
}

#[test]
fn a_relative_directory_is_not_searched() {
    let case = Case::with_good();
    let config =
        DiscoverConfig { directories: vec![".".into(), "plugins".into(), "".into()], ..case.config() };
    let candidates = Registry::discover(&config);
    assert!(candidates.list().is_empty() && candidates.searched().is_empty());
}
