//! Plugins that do something bad when they are loaded. Each is refused with one clear line, and the good plugin beside
//! it works.

#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use support::{CPlugin, Case, fixture, refused, refused_file};

#[test]
fn a_crash_in_a_constructor() {
    assert_snapshot!(refused(|plugin| plugin.define("ON_LOAD", "*(volatile int *)8 = 1;")), @r"
    plugin file [folder]/plugins/libbad.so: crashes while it is loaded (signal 11, bad memory access)
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
}

#[test]
fn an_abort() {
    let text = refused(|plugin| {
        plugin.define("ON_LOAD", "fputs(\"terminate called\\nwhat():  no such card\\n\", stderr); abort();")
    });
    assert_snapshot!(text, @r#"
    plugin file [folder]/plugins/libbad.so: crashes while it is loaded (signal 6, abort); the last that it wrote is "what():  no such card"
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    "#);
}

#[test]
fn an_instruction_that_the_processor_does_not_have() {
    assert_snapshot!(refused(|plugin| plugin.define("ON_ENTRY", "__builtin_trap();")), @r"
    plugin file [folder]/plugins/libbad.so: crashes while it is loaded (signal 4, illegal instruction)
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
}

#[test]
fn a_constructor_that_never_ends() {
    let case = Case::with_good().time_limit(Duration::from_millis(300));
    let pid = case.outside("pid");
    // What it starts must not outlive it.
    let code = format!(
        "if (!fork()) setpgid(0, getppid()); FILE *f = fopen(\"{}\", \"a\"); fprintf(f, \"%d\\n\", getpid()); fclose(f); for (;;) pause();",
        pid.display()
    );
    CPlugin::new("bad").define("ON_LOAD", &code).build(&case.file("libbad.so"));
    let start = Instant::now();
    assert_snapshot!(case.refusal("libbad.so"), @r"
    plugin file [folder]/plugins/libbad.so: did not answer within 0.3 s while it was loaded
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
    assert!(start.elapsed() < Duration::from_secs(5));
    for pid in fs::read_to_string(pid).unwrap().lines() {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "process {pid} lives: {state}");
    }
}

/// An exit code of 0 is no success.
#[test]
fn an_exit_in_a_constructor() {
    assert_snapshot!(refused(|plugin| plugin.define("ON_LOAD", "exit(0);")), @r"
    plugin file [folder]/plugins/libbad.so: ends its process while it is loaded, with exit code 0
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
    assert_snapshot!(refused(|plugin| plugin.define("ON_ENTRY", "_exit(3);")), @r"
    plugin file [folder]/plugins/libbad.so: ends its process while it is loaded, with exit code 3
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
}

#[test]
fn printing_in_a_constructor_disturbs_nobody() {
    let text = refused(|plugin| {
        plugin.define(
            "ON_LOAD",
            "for (int i = 0; i < 20000; i++) { puts(\"{\\\"Ok\\\":1} hello\"); fputs(\"warning: old driver\\n\", stderr); } fflush(stdout);",
        )
    });
    assert_snapshot!(text, @"usable");
}

/// Where the answer goes is out of the plugin's sight: its standard input is empty, and nothing is at number 3.
#[test]
fn writing_to_the_standard_input_is_no_answer() {
    let text = refused(|plugin| {
        plugin.define(
            "ON_LOAD",
            "char b; if (read(0, &b, 1) != 0 || write(0, \"PACELINE-PROBE1\", 15) > 0) abort();",
        )
    });
    assert_snapshot!(text, @"usable");
}

#[test]
fn closing_every_file_is_no_answer() {
    assert_snapshot!(refused(|plugin| plugin.define("ON_LOAD", "for (int i = 0; i < 64; i++) close(i);")), @r"
    plugin file [folder]/plugins/libbad.so: ends its process while it is loaded, with exit code 1
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
}

#[test]
fn a_process_that_is_left_behind_holds_nothing_up() {
    let start = Instant::now();
    assert_snapshot!(refused(|plugin| plugin.define("ON_LOAD", "if (!fork()) { sleep(8); _exit(0); }")), @"usable");
    assert_snapshot!(refused(|plugin| plugin.define("ON_LOAD", "if (!fork()) { sleep(8); _exit(0); } exit(0);")), @r"
    plugin file [folder]/plugins/libbad.so: ends its process while it is loaded, with exit code 0
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
    assert!(start.elapsed() < Duration::from_secs(6));
}

#[test]
fn a_panic_when_it_is_entered() {
    let text = refused_file(|path| {
        fs::copy(fixture("fixture_panics"), path).unwrap();
    });
    assert_snapshot!(text, @r#"
    plugin file [folder]/plugins/libbad.so: crashes while it is loaded (signal 6, abort); the last that it wrote is "thread caused non-unwinding panic. aborting."
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    "#);
}

#[test]
fn no_more_than_four_are_tried_at_once() {
    let case = Case::new();
    for index in 0..8 {
        let id = format!("slow-{index}");
        CPlugin::new(&id).define("ON_LOAD", "usleep(150000);").build(&case.file(&format!("lib{id}.so")));
    }
    let start = Instant::now();
    assert_eq!(case.discover().probes(), 8);
    assert!(start.elapsed() >= Duration::from_millis(300));
}
