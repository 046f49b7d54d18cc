//! How libraries are loaded: none sees the symbols of another, and none is ever unloaded.

#![cfg(target_os = "linux")]

mod support;

use std::path::Path;

use paceline_plugin_api::client::BackendClient;
use support::{CPlugin, fixture, registry};

/// Whether a file is mapped into this process.
fn is_mapped(file: &Path) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux says what is mapped");
    maps.lines().any(|line| line.ends_with(&format!(" {}", file.display())))
}

fn first_device(backend: &BackendClient) -> (String, u32) {
    let device = backend.devices().expect("it has devices").swap_remove(0);
    (device.name, device.units)
}

/// Both plugins have a function and a variable of the same names.
#[test]
fn plugins_do_not_see_each_others_symbols() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = registry();
    let backends = ["first", "second"].map(|id| {
        let path = folder.path().join(format!("lib{id}.so"));
        CPlugin::new(id).define("SHARED_NAME", &format!("\"{id} device\"")).build(&path);
        registry.load_file(&path).unwrap();
        registry.backend(Some(id)).unwrap()
    });
    assert_eq!(first_device(&backends[0]), ("first device".to_owned(), 1));
    assert_eq!(first_device(&backends[0]), ("first device".to_owned(), 2));
    assert_eq!(first_device(&backends[1]), ("second device".to_owned(), 1));
}

#[test]
fn a_plugin_stays_after_everything_that_used_it_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("libstays.so");
    let unloaded = folder.path().join("unloaded");
    CPlugin::new("stays")
        .define(
            "ON_UNLOAD",
            &format!("FILE *f = fopen(\"{}\", \"w\"); if (f) fclose(f);", unloaded.display()),
        )
        .build(&path);
    let mut registry = registry();
    registry.load_file(&path).unwrap();
    let backend = registry.backend(Some("stays")).unwrap();
    drop(registry);
    assert_eq!(first_device(&backend).0, "Device in C", "its tables live on");
    drop(backend);
    assert!(is_mapped(&path) && !unloaded.exists());
}

/// Code of a library that was refused may still be referred to, by a thread that it started for one.
#[test]
fn a_library_that_was_refused_stays_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("refuses.so");
    std::fs::copy(fixture("fixture_refuses"), &path).unwrap();
    assert!(!is_mapped(&path));
    registry().load_file(&path).map(|plugin| plugin.id()).unwrap_err();
    assert!(is_mapped(&path));
}
