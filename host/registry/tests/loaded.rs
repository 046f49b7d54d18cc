//! Plugins in shared libraries, and what the registry answers about them.

mod support;

use std::fs;

use insta::assert_snapshot;
use paceline_registry::Origin;
use support::{fixture, registry, shown};

#[test]
fn a_plugin_states_what_it_is() {
    let mut registry = registry();
    let path = fixture("fixture_backend");
    let plugin = registry.load_file(&path).unwrap();
    assert_eq!(plugin.id(), "fixture");
    assert_eq!(plugin.client.version(), "1.2.3");
    assert_eq!(plugin.kind_name(), "backend");
    assert_eq!(plugin.origin, Origin::File(path.canonicalize().unwrap()));
}

#[test]
fn a_backend_is_found_by_id_or_as_the_first() {
    let mut registry = registry();
    registry.load_file(fixture("fixture_backend")).unwrap();
    assert_eq!(registry.backend(None).unwrap().plugin(), "fixture");
    let backend = registry.backend(Some("fixture")).unwrap();
    let devices = backend.devices().unwrap();
    assert_eq!((devices.len(), devices[0].name.as_str()), (1, "Fixture device"));
    let listed = registry.devices();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].devices.as_ref().unwrap(), &devices);
}

#[test]
fn the_same_file_twice_is_one_plugin() {
    let mut registry = registry();
    let folder = tempfile::tempdir().unwrap();
    registry.load_file(fixture("fixture_backend")).unwrap();
    #[cfg(unix)]
    {
        let link = folder.path().join("link.so");
        std::os::unix::fs::symlink(fixture("fixture_backend"), &link).unwrap();
        registry.load_file(link).unwrap();
    }
    registry.load_file(fixture("fixture_backend")).unwrap();
    assert_eq!(registry.plugins().len(), 1);
}

#[test]
fn two_files_with_the_same_id_are_refused() {
    let mut registry = registry();
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first.so", "second.so"].map(|name| folder.path().join(name));
    for path in [&first, &second] {
        fs::copy(fixture("fixture_backend"), path).unwrap();
    }
    registry.load_file(&first).unwrap();
    let error = registry.load_file(&second).map(|plugin| plugin.id()).unwrap_err();
    assert_snapshot!(shown(&error, folder.path()), @r"
    plugin files [folder]/first.so and [folder]/second.so both have the id `fixture`
    hint: load only one of them
    ");
    assert_eq!(registry.plugins().len(), 1);
}

#[test]
fn unknown_ids_name_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = registry();
    let message = |error| shown(&error, folder.path());
    assert_snapshot!(message(registry.find("cpu").unwrap_err()), @r"
    there is no plugin `cpu`; no plugin is loaded
    hint: a plugin in a shared library is loaded with `--plugin PATH`
    ");
    registry.load_file(fixture("fixture_backend")).unwrap();
    assert_snapshot!(message(registry.find("fixtur").unwrap_err()), @r"
    there is no plugin `fixtur`; there is `fixture`
    hint: did you mean `fixture`?
    ");
    assert_snapshot!(message(registry.backend(Some("cuda")).map(|_| ()).unwrap_err()), @r"
    there is no plugin `cuda`; there is `fixture`
    hint: a plugin in a shared library is loaded with `--plugin PATH`
    ");
}

#[test]
fn nothing_to_run_on() {
    let folder = tempfile::tempdir().unwrap();
    let error = registry().backend(None).map(|_| ()).unwrap_err();
    assert_snapshot!(shown(&error, folder.path()), @r"
    no backend can be used: no backend is loaded
    hint: a backend in a shared library is loaded with `--plugin PATH`
    ");
}
