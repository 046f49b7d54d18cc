//! Plugins that are linked in. The fixture is one of this test program.

#[path = "fixtures/backend.rs"]
mod fixture_backend;
mod support;

use insta::assert_snapshot;
use paceline_plugin_api::{Builtin, inventory};
use paceline_registry::Origin;
use support::{fixture, registry, shown};

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
