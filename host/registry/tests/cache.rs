//! A file is tried once for every change of it, and what came of it is known to later runs.

#![cfg(target_os = "linux")]

mod support;

use std::fs;

use insta::assert_snapshot;
use support::{CPlugin, Case, registry, shown, without};

const HOUR: u64 = 3600;

fn crashing() -> Case {
    let case = Case::with_good();
    CPlugin::new("bad").define("ON_LOAD", "abort();").build(&case.file("libbad.so"));
    case
}

#[test]
fn a_file_is_tried_once() {
    let case = crashing();
    let first = case.state(&case.discover(), &case.file("libbad.so"));
    assert_eq!(case.trials(), 2);
    let candidates = case.discover();
    assert_eq!((candidates.probes(), case.trials()), (0, 2));
    assert_eq!(case.state(&candidates, &case.file("libbad.so")), first, "with its reason");
    assert_eq!(case.state(&candidates, &case.file("libgood.so")), "usable");
}

#[test]
fn a_changed_file_is_tried_again() {
    let case = crashing();
    case.discover();
    CPlugin::new("bad").version("1.0.1").build(&case.file("libbad.so"));
    assert_eq!(case.state(&case.discover(), &case.file("libbad.so")), "usable");
    assert_eq!(case.trials(), 3);
    // The same content in a new file, as an update may write it.
    fs::copy(case.file("libbad.so"), case.file("new")).unwrap();
    fs::rename(case.file("new"), case.file("libbad.so")).unwrap();
    assert_eq!(case.state(&case.discover(), &case.file("libbad.so")), "usable");
    assert_eq!(case.trials(), 3);
}

#[test]
fn a_crash_is_forgotten_after_an_hour() {
    let case = crashing();
    case.discover();
    case.age(HOUR - 60);
    case.discover();
    assert_eq!(case.trials(), 2);
    case.age(60);
    case.discover();
    assert_eq!(case.trials(), 3, "only the one that crashed is tried again");
}

#[test]
fn a_scan_from_scratch() {
    let case = crashing();
    case.discover();
    paceline_registry::forget(&case.cache()).unwrap();
    case.discover();
    assert_eq!(case.trials(), 4);
}

#[test]
fn a_damaged_cache_costs_time_only() {
    let case = crashing();
    case.discover();
    fs::write(case.cache().join("probes.json"), "{\"format\": 1, \"files\": {\"").unwrap();
    assert_eq!(case.state(&case.discover(), &case.file("libgood.so")), "usable");
    assert_eq!(case.trials(), 4);
    case.discover();
    assert_eq!(case.trials(), 4);
}

#[test]
fn nothing_to_keep_it_in() {
    let case = crashing();
    fs::write(case.cache(), "a file where the directory should be").unwrap();
    for trials in [2, 4] {
        assert_eq!(case.state(&case.discover(), &case.file("libgood.so")), "usable");
        assert_eq!(case.trials(), trials);
    }
}

#[test]
fn many_processes_at_once() {
    let case = crashing();
    let hosts: Vec<_> =
        (0..6).map(|_| case.host("list", "").stdout(std::process::Stdio::piped()).spawn().unwrap()).collect();
    let mut answers: Vec<String> = hosts
        .into_iter()
        .map(|host| String::from_utf8(host.wait_with_output().unwrap().stdout).unwrap())
        .collect();
    answers.dedup();
    assert_snapshot!(without(&answers.join("and\n"), case.root()), @r"
    [folder]/plugins/libbad.so: refused: crashes while it is loaded (signal 6, abort)
    [folder]/plugins/libgood.so: usable
    ");
    case.discover();
    assert_eq!(case.trials(), 0, "all is known");
}

/// Has a plugin survive its trial and take down the process that uses it: the environment of a trial is a clean one.
/// Returns what the next run says about it.
fn after_a_crash(command: &str, on: &str) -> String {
    let case = Case::with_good();
    let crash = "if (getenv(\"REAL_RUN\")) *(volatile int *)8 = 1;";
    CPlugin::new("bad").define(on, crash).build(&case.file("libbad.so"));
    let run = |id: &str| case.host(command, id).env("REAL_RUN", "1").output().unwrap();
    assert!(run("good").status.success());
    assert_eq!(run("bad").status.code(), None, "a signal ends it");
    let next = run("bad");
    assert_eq!(next.status.code(), Some(1));
    assert!(run("good").status.success());
    case.age(HOUR);
    assert_eq!(run("bad").status.code(), None, "it gets another chance");
    without(&String::from_utf8(next.stdout).unwrap(), case.root())
}

#[test]
fn the_plugin_that_ended_a_run_is_named_in_the_next() {
    assert_snapshot!(after_a_crash("load", "ON_ENTRY"), @"plugin file [folder]/plugins/libbad.so: is not used: an earlier run of this program ended while it was loaded");
    assert_snapshot!(after_a_crash("devices", "ON_DEVICES"), @"plugin file [folder]/plugins/libbad.so: is not used: an earlier run of this program ended when it was asked for its devices");
}

/// A plugin that is being loaded is no culprit as long as its process lives.
#[test]
fn a_run_that_still_goes_on_accuses_nobody() {
    let case = Case::with_good();
    CPlugin::new("slow")
        .define("ON_ENTRY", "if (getenv(\"REAL_RUN\")) sleep(30);")
        .build(&case.file("libslow.so"));
    case.discover();
    let mut host = case.host("load", "slow").env("REAL_RUN", "1").spawn().unwrap();
    let marked = || {
        fs::read_dir(case.cache().join("in-use"))
            .is_ok_and(|mut list| list.any(|it| it.unwrap().path().extension().is_some()))
    };
    while !marked() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(case.state(&case.discover(), &case.file("libslow.so")), "usable");
    host.kill().unwrap();
    host.wait().unwrap();
    assert_snapshot!(case.state(&case.discover(), &case.file("libslow.so")), @r"
    plugin file [folder]/plugins/libslow.so: is not used: an earlier run of this program ended while it was loaded
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
}

#[test]
fn a_file_that_changes_after_it_was_tried_is_not_loaded() {
    let case = Case::with_good();
    let candidates = case.discover();
    CPlugin::new("good").version("6.6.6").build(&case.file("libgood.so"));
    let error = registry().load(&candidates, "good").map(|plugin| plugin.id()).unwrap_err();
    assert_snapshot!(shown(&error, case.root()), @r"
    plugin file [folder]/plugins/libgood.so: has changed since it was tried
    hint: run the command again
    ");
}

#[test]
fn a_program_that_cannot_try_anything() {
    let case = Case::with_good();
    let config = paceline_registry::DiscoverConfig {
        prober: Some(paceline_registry::Prober::new("/nowhere/program", [])),
        ..case.config()
    };
    let candidates = paceline_registry::Registry::discover(&config);
    assert_snapshot!(case.state(&candidates, &case.file("libgood.so")), @"plugin file [folder]/plugins/libgood.so: cannot be tried in a process of its own: /nowhere/program: No such file or directory (os error 2)");
}
