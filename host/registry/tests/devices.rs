//! Backends are asked for their devices in another process first, and only those that are used.

#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::time::Duration;

use insta::assert_snapshot;
use support::{CPlugin, Case, fixture, registry, shown};

/// What comes of using a plugin.
fn used(case: &Case, id: &str) -> String {
    let mut candidates = case.discover();
    match registry().load_backend(&mut candidates, id) {
        Ok(backend) => format!("{} devices", backend.devices().unwrap().len()),
        Err(error) => shown(&error, case.root()),
    }
}

fn bad(on_devices: &str) -> Case {
    let case = Case::with_good().time_limit(Duration::from_millis(500));
    CPlugin::new("bad").define("ON_DEVICES", on_devices).build(&case.file("libbad.so"));
    case
}

#[test]
fn a_backend_that_works() {
    let case = Case::with_good();
    assert_eq!(used(&case, "good"), "1 devices");
    assert_eq!(case.trials(), 2, "once to be described and once for its devices");
    assert_eq!(used(&case, "good"), "1 devices");
    assert_eq!(case.trials(), 2);
    let mut candidates = case.discover();
    let devices = candidates.devices("good").unwrap().unwrap().unwrap();
    assert_eq!((devices[0].name.as_str(), devices[0].kind.as_str()), ("Device in C", "software"));
}

/// A driver that takes the process down is touched by nobody who did not ask for it.
#[test]
fn a_backend_that_is_not_used_is_not_asked() {
    let case = bad("abort();");
    assert_eq!(used(&case, "good"), "1 devices");
    assert_eq!(case.trials(), 3, "both described, one asked");
    assert_snapshot!(used(&case, "bad"), @r"
    plugin file [folder]/plugins/libbad.so: crashes when it is asked for its devices (signal 6, abort)
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
    assert_eq!(used(&case, "good"), "1 devices");
}

#[test]
fn a_crash_of_a_driver() {
    let case = bad("fputs(\"driver: bad page\\n\", stderr); *(volatile int *)8 = 1;");
    let first = used(&case, "bad");
    assert_eq!(case.trials(), 3);
    assert_eq!(used(&case, "bad"), first);
    assert_eq!(case.trials(), 3, "it is remembered");
    assert_snapshot!(first, @r#"
    plugin file [folder]/plugins/libbad.so: crashes when it is asked for its devices (signal 11, bad memory access); the last that it wrote is "driver: bad page"
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    "#);
}

#[test]
fn a_driver_that_hangs() {
    assert_snapshot!(used(&bad("for (;;) pause();"), "bad"), @r"
    plugin file [folder]/plugins/libbad.so: did not answer within 0.5 s when it was asked for its devices
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
}

#[test]
fn an_error_of_a_driver() {
    let status = "static struct PacelineStatus s = { .size = sizeof s, .code = PACELINE_CODE_INTERNAL, .message = TEXT(\"no permission for /dev/card\") }; return &s;";
    assert_snapshot!(used(&bad(status), "bad"), @"plugin file [folder]/plugins/libbad.so: fails when it is asked for its devices: no permission for /dev/card");
}

#[test]
fn a_panic() {
    let case = Case::with_good();
    fs::copy(fixture("fixture_devices_panic"), case.file("libbad.so")).unwrap();
    assert_snapshot!(used(&case, "devices-panic"), @"plugin file [folder]/plugins/libbad.so: fails when it is asked for its devices: the plugin panicked: the driver answered nonsense");
    assert_eq!(used(&case, "good"), "1 devices");
}

#[test]
fn a_function_that_is_not_there() {
    let case = Case::with_good();
    CPlugin::new("bad").define("DEVICE_COUNT", "NULL").build(&case.file("libbad.so"));
    assert_snapshot!(used(&case, "bad"), @"plugin file [folder]/plugins/libbad.so: fails when it is asked for its devices: the plugin lacks the function `device_count`");
    CPlugin::new("bad").define("BACKEND_SIZE", "16").build(&case.file("libbad.so"));
    assert_snapshot!(used(&case, "bad"), @"plugin file [folder]/plugins/libbad.so: fails when it is asked for its devices: the plugin lacks the function `device_info`");
}

#[test]
fn a_plugin_that_is_no_backend() {
    let case = Case::with_good();
    let text = CPlugin::new("guess").text().replace("backend", "strategy");
    CPlugin::new("guess")
        .descriptor(&text)
        .define("KIND", "2")
        .define("INTERFACE", "no_interface")
        .build(&case.file("libguess.so"));
    assert_snapshot!(used(&case, "guess"), @"plugin `guess` cannot be used as a backend: plugin `guess` has no interface paceline.backend/1");
}

/// The driver of the plugin breaks while a file exists, and works again without it.
#[test]
fn what_was_found_before_is_told_when_a_driver_breaks() {
    let case = Case::with_good();
    let broken = case.outside("broken");
    let on_devices = format!("if (access(\"{}\", F_OK) == 0) abort();", broken.display());
    CPlugin::new("bad").define("ON_DEVICES", &on_devices).build(&case.file("libbad.so"));
    fs::write(&broken, "").unwrap();
    let never = "plugin file [folder]/plugins/libbad.so: crashes when it is asked for its devices (signal 6, abort)\n";
    assert!(used(&case, "bad").starts_with(never), "{}", used(&case, "bad"));

    fs::remove_file(&broken).unwrap();
    // The failure has to be forgotten first.
    case.age(3601);
    assert_eq!(used(&case, "bad"), "1 devices");
    let mut candidates = case.discover();
    assert!(candidates.devices("bad").unwrap().unwrap().is_ok());

    fs::write(&broken, "").unwrap();
    case.age_found(7200);
    case.forget_devices();
    let trials = case.trials();
    let first = used(&case, "bad");
    assert_eq!(used(&case, "bad"), first);
    assert_snapshot!(first, @r#"
    plugin file [folder]/plugins/libbad.so: crashes when it is asked for its devices (signal 6, abort); 2 h ago it found "Device in C"
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    "#);
    assert_eq!(case.trials(), trials + 1, "also from memory");
    // Another file has found nothing yet. It is not loaded here, where the first one is.
    CPlugin::new("bad").version("1.0.1").define("ON_DEVICES", "abort();").build(&case.file("libbad.so"));
    let failure = case.discover().devices("bad").unwrap().unwrap().unwrap_err();
    assert_eq!(failure.earlier, None);
}
