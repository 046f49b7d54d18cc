//! Plugins that are linked in. The fixture is one of this test program.

#[path = "fixtures/backend.rs"]
mod fixture_backend;
mod support;

use insta::assert_snapshot;
use paceline_plugin_api::{Builtin, inventory};
use paceline_registry::{DiscoverConfig, Origin, Pin, Registry};
use support::{CPlugin, Case, fixture, registry, shown};

inventory::submit! { Builtin { entry: fixture_backend::entry } }

#[test]
fn a_built_in_is_there_from_the_start() {
    let registry = registry();
    let plugin = registry.find("fixture").unwrap();
    assert_eq!(plugin.origin, Origin::BuiltIn);
    assert_eq!(registry.backend(None).unwrap().devices().unwrap().len(), 1);
    registry.expect_builtins(&["fixture"]).unwrap();
}

#[test]
fn a_dropped_built_in_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = registry().expect_builtins(&["fixture", "cpu"]).unwrap_err();
    assert_snapshot!(shown(&error, folder.path()), @r"
    this program was built with the plugins `fixture`, `cpu`, but the linker dropped `cpu`
    hint: this is a fault in how the program was built; build it again from a clean tree
    ");
}

#[test]
fn a_file_takes_the_place_of_a_built_in() {
    let mut registry = registry();
    registry.load_file(fixture("fixture_backend")).unwrap();
    assert_eq!(registry.plugins().len(), 1);
    assert!(registry.find("fixture").unwrap().origin.path().is_some());
    registry.expect_builtins(&["fixture"]).unwrap();
}

/// Loads the plugin that is built in with version 1.2.3, with another version of it in a directory. Returns the
/// version, and whether it is the one that is built in.
fn loaded_beside(version: &str, config: impl FnOnce(DiscoverConfig) -> DiscoverConfig) -> String {
    let case = Case::new();
    let plugin = CPlugin::new("fixture").version(version);
    let plugin = if version.ends_with("-crash") { plugin.define("ON_LOAD", "abort();") } else { plugin };
    plugin.build(&case.file("libfixture.so"));
    let candidates = Registry::discover(&config(case.config()));
    match registry().load(&candidates, "fixture") {
        Ok(plugin) => format!("{} {}", plugin.client.version(), plugin.origin == Origin::BuiltIn),
        Err(error) => shown(&error, case.root()),
    }
}

fn pinned(version: &str) -> impl FnOnce(DiscoverConfig) -> DiscoverConfig {
    let pin = Pin { version: Some(version.parse().unwrap()), ..Pin::default() };
    |config| DiscoverConfig { pins: [("fixture".to_owned(), pin)].into(), ..config }
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_was_found_must_be_newer_than_the_built_in() {
    assert_eq!(loaded_beside("1.2.3", |config| config), "1.2.3 true");
    assert_eq!(loaded_beside("1.2.2", |config| config), "1.2.3 true");
    assert_eq!(loaded_beside("1.10.0", |config| config), "1.10.0 false");
    assert_eq!(loaded_beside("1.0.0-crash", |config| config), "1.2.3 true");
    assert_snapshot!(loaded_beside("2.0.0-crash", |config| config), @r"
    plugin file [folder]/plugins/libfixture.so: crashes while it is loaded (signal 6, abort)
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
}

#[cfg(target_os = "linux")]
#[test]
fn pins_hold_for_what_is_built_in_too() {
    assert_snapshot!(loaded_beside("1.2.4", pinned(">=2")), @r"
    plugin `fixture` is pinned to version >=2, and the one that is built in has version 1.2.3
    hint: install what is pinned, or change the section `plugin.fixture` of registry.toml
    ");
    assert_eq!(loaded_beside("1.10.0", pinned("<1.3")), "1.2.3 true");
    let off = |config| DiscoverConfig { disabled: ["fixture".to_owned()].into(), ..config };
    assert_snapshot!(loaded_beside("1.10.0", off), @r"
    plugin `fixture` is switched off by the configuration
    hint: run `paceline plugins enable fixture`, or set `enabled = true` in the section `plugin.fixture` of registry.toml
    ");
}
