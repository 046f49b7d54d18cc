//! A plugin that panicked is not used again until somebody trusts it, or it is another build.

#![cfg(target_os = "linux")]

mod support;

use std::fs;

use insta::assert_snapshot;
use paceline_registry::{Candidates, DiscoverConfig, FileFault, Registry, State};
use support::{CPlugin, Case, fixture, registry, shown};

/// The text without the time of a panic.
fn without_time(text: &str) -> String {
    let Some((before, rest)) = text.split_once("panicked at ") else { return text.to_owned() };
    let (time, after) = rest.split_once(' ').expect("the time is followed by the message");
    assert!(time.ends_with('Z') && time.len() == 20, "{time}");
    format!("{before}panicked at [time] {after}")
}

fn state(case: &Case, candidates: &Candidates, name: &str) -> String {
    without_time(&case.state(candidates, &case.file(name)))
}

/// Loads the plugin in a file and says that it panicked.
fn panicked(case: &Case, id: &str) -> bool {
    let candidates = case.discover();
    let mut registry = registry();
    let plugin = registry.load(&candidates, id).expect("it can be used so far").clone();
    candidates.distrust(&plugin, "the plugin panicked: index 7\n of 4")
}

#[test]
fn it_is_not_used_until_somebody_trusts_it_again() {
    let case = Case::with_good();
    CPlugin::new("alpha").build(&case.file("liba.so"));
    assert!(panicked(&case, "alpha"));
    let candidates = case.discover();
    assert_snapshot!(state(&case, &candidates, "liba.so"), @r"
    plugin file [folder]/plugins/liba.so: is not trusted any more: version 1.0.0 panicked at [time] (index 7 of 4)
    hint: use another build of it, or trust this one again with `paceline plugins enable alpha`
    ");
    let error = registry().load(&candidates, "alpha").map(|_| ()).unwrap_err();
    assert!(shown(&error, case.root()).contains("is not trusted any more"));
    assert!(registry().load(&candidates, "good").is_ok(), "others are");
    // Trying all plugins anew would not show that it panics.
    paceline_registry::forget(&case.cache()).unwrap();
    assert!(state(&case, &case.discover(), "liba.so").contains("is not trusted"));

    let trusted = candidates.trust_again("alpha").unwrap();
    assert_eq!(trusted.len(), 1);
    assert_eq!((trusted[0].version.as_str(), trusted[0].message.as_str()), ("1.0.0", "index 7 of 4"));
    assert_eq!(state(&case, &case.discover(), "liba.so"), "usable");
    assert!(candidates.trust_again("alpha").unwrap().is_empty());
}

#[test]
fn another_build_is_trusted_and_a_copy_is_not() {
    let case = Case::with_good();
    CPlugin::new("alpha").build(&case.file("liba.so"));
    assert!(panicked(&case, "alpha"));
    fs::rename(case.file("liba.so"), case.file("libcopy.so")).unwrap();
    assert!(state(&case, &case.discover(), "libcopy.so").contains("is not trusted"));
    CPlugin::new("alpha")
        .define("ANOTHER_BUILD", "1")
        .with_lines("summary = \"corrected\"\n")
        .build(&case.file("libcopy.so"));
    assert_eq!(state(&case, &case.discover(), "libcopy.so"), "usable");
}

/// What was loaded is known by its content, and not by what lies in its place by now.
#[test]
fn a_file_that_was_replaced_meanwhile_is_not_blamed() {
    let case = Case::with_good();
    CPlugin::new("alpha").build(&case.file("liba.so"));
    let candidates = case.discover();
    let mut registry = registry();
    let plugin = registry.load(&candidates, "alpha").unwrap().clone();
    fs::remove_file(case.file("liba.so")).unwrap();
    CPlugin::new("alpha").with_lines("summary = \"corrected\"\n").build(&case.file("liba.so"));
    assert!(!candidates.distrust(&plugin, "the plugin panicked: x"));
    assert_eq!(state(&case, &case.discover(), "liba.so"), "usable");
}

#[test]
fn an_older_version_takes_its_place() {
    let case = Case::with_good();
    CPlugin::new("alpha").version("1.1.0").build(&case.file("libnew.so"));
    CPlugin::new("alpha").version("1.0.0").build(&case.file("libold.so"));
    assert!(panicked(&case, "alpha"));
    let candidates = case.discover();
    assert!(state(&case, &candidates, "libnew.so").contains("version 1.1.0 panicked"));
    assert_eq!(state(&case, &candidates, "libold.so"), "usable");
    let known: Vec<_> = candidates.distrusted().map(|(_, plugin)| plugin.version.clone()).collect();
    assert_eq!(known, ["1.1.0"]);
}

/// Whoever names the file gets no other one.
#[test]
fn a_file_that_is_named_is_refused() {
    let case = Case::with_good();
    CPlugin::new("alpha").build(&case.file("liba.so"));
    assert!(panicked(&case, "alpha"));
    let config = DiscoverConfig { files: vec![case.file("liba.so")], ..case.config() };
    let error = Registry::discover(&config).expect_named().unwrap_err();
    assert!(shown(&error, case.root()).contains("`paceline plugins enable alpha`"));
}

#[test]
fn without_a_folder_nothing_is_kept() {
    let case = Case::with_good();
    let candidates = Registry::discover(&DiscoverConfig { cache: None, ..case.config() });
    let mut registry = registry();
    let plugin = registry.load(&candidates, "good").unwrap().clone();
    assert!(!candidates.distrust(&plugin, "x"));
    assert!(candidates.trust_again("good").unwrap().is_empty());
}

/// A panic of the call that asks for devices in this process.
#[test]
fn a_panic_when_devices_are_asked_for_counts() {
    let case = Case::with_good();
    fs::copy(fixture("fixture_devices_panic"), case.file("libbad.so")).unwrap();
    let config = DiscoverConfig { prober: None, ..case.config() };
    let mut candidates = Registry::discover(&config);
    let error = registry().load_backend(&mut candidates, "devices-panic").map(|_| ()).unwrap_err();
    assert!(shown(&error, case.root()).contains("fails when it is asked for its devices"));
    let candidates = Registry::discover(&config);
    let refused = candidates.list().iter().find(|it| it.id() == Some("devices-panic")).unwrap();
    let State::Refused(paceline_registry::Error::File { fault: FileFault::Panicked(plugin), .. }) =
        &refused.state
    else {
        panic!("{}", refused.state)
    };
    assert_eq!(plugin.message, "the driver answered nonsense");
}
