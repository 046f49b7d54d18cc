//! Files that are no plugins: each is refused with one line that says what is wrong.

mod support;

use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use support::{fixture, registry, shown};

/// Loads `name` in a folder that `make` filled, and returns the error.
fn refusal(name: &str, make: impl FnOnce(&Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    make(&folder.path().join(name));
    let error = registry().load_file(folder.path().join(name)).map(|plugin| plugin.id()).unwrap_err();
    shown(&error, folder.path())
}

fn copy_of(name: &'static str) -> impl FnOnce(&Path) {
    move |path| {
        fs::copy(fixture(name), path).unwrap();
    }
}

#[test]
fn a_file_that_is_not_there() {
    assert_snapshot!(refusal("missing.so", |_| {}), @"plugin file [folder]/missing.so: cannot find it: No such file or directory (os error 2)");
}

#[test]
fn a_directory() {
    assert_snapshot!(refusal("plugins", |path| fs::create_dir(path).unwrap()), @r"
    plugin file [folder]/plugins: is a directory, not a file
    hint: give the path of the plugin's shared library
    ");
}

#[test]
fn an_empty_file() {
    assert_snapshot!(refusal("empty.so", |path| fs::write(path, "").unwrap()), @r"
    plugin file [folder]/empty.so: is not a shared library: the file is empty
    hint: give the path of a shared library that was built as a Paceline plugin
    ");
}

#[test]
fn a_text_file() {
    assert_snapshot!(refusal("text.so", |path| fs::write(path, "hello\n").unwrap()), @r#"
    plugin file [folder]/text.so: is not a shared library: it begins with "hell" in place of an ELF header
    hint: give the path of a shared library that was built as a Paceline plugin
    "#);
}

#[test]
fn a_header_alone() {
    assert_snapshot!(refusal("cut.so", |path| fs::write(path, &fs::read(fixture("fixture_backend")).unwrap()[..20]).unwrap()), @r"
    plugin file [folder]/cut.so: is cut short: it needs 64 bytes and has 20
    hint: build or download the plugin again
    ");
}

#[test]
fn another_machine() {
    let refused = refusal("other.so", |path| {
        let mut bytes = fs::read(fixture("fixture_backend")).unwrap();
        bytes[18..20].copy_from_slice(&8_u16.to_le_bytes());
        fs::write(path, bytes).unwrap();
    });
    assert_snapshot!(refused.replace(std::env::consts::ARCH, "[host]"), @r"
    plugin file [folder]/other.so: is built for ELF machine 8, and this program for [host]
    hint: use a plugin that was built for this machine
    ");
}

/// The loader would map what is not there, and the process would end when it is touched.
#[test]
fn a_library_cut_at_any_place() {
    let whole = fs::read(fixture("fixture_backend")).unwrap();
    for part in 1..8 {
        let length = whole.len() * part / 8;
        let refused = refusal("cut.so", |path| fs::write(path, &whole[..length]).unwrap());
        let expected = format!(
            "plugin file [folder]/cut.so: is cut short: it needs {} bytes and has {length}\n\
             hint: build or download the plugin again",
            whole.len()
        );
        assert_eq!(refused, expected);
    }
}

/// Damage in the tables is an error or is not noticed, but never a crash of the checks.
#[test]
fn damaged_tables() {
    let whole = fs::read(fixture("fixture_no_plugin")).unwrap();
    for at in 0..64 {
        let refused = refusal("damaged.so", |path| {
            let mut bytes = whole.clone();
            bytes[at] = !bytes[at];
            // Without this some of the files would be loaded, which is the loader's own affair.
            bytes.truncate(whole.len() / 2);
            fs::write(path, bytes).unwrap();
        });
        assert!(refused.starts_with("plugin file [folder]/damaged.so: "), "{refused}");
    }
}

#[test]
fn a_library_that_is_no_plugin() {
    let refused = refusal("libanswer.so", copy_of("fixture_no_plugin"));
    assert_snapshot!(refused, @r"
    plugin file [folder]/libanswer.so: is a shared library but no Paceline plugin: it has no section `.paceline.plugin` and no symbol `paceline_plugin_entry_v1`
    hint: give the path of a shared library that was built as a Paceline plugin
    ");
}

#[test]
fn a_plugin_for_a_later_abi() {
    let refused = refusal("libnewer.so", copy_of("fixture_newer_abi"));
    assert_snapshot!(refused, @r"
    plugin file [folder]/libnewer.so: speaks ABI 1.7..=1.9, this host 1.0..=1.0: they have no version in common
    hint: use a plugin and a program of versions that go together
    ");
}

#[test]
fn a_plugin_that_refuses() {
    let refused = refusal("librefuses.so", copy_of("fixture_refuses"));
    assert_snapshot!(refused, @r"
    plugin file [folder]/librefuses.so: the plugin refuses this host, which speaks ABI 1.0..=1.0: use a plugin built for that range
    hint: use a plugin and a program of versions that go together
    ");
}

#[cfg(unix)]
#[test]
fn a_file_that_everyone_can_write() {
    use std::os::unix::fs::PermissionsExt;

    let refused = refusal("libopen.so", |path| {
        fs::copy(fixture("fixture_backend"), path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    });
    assert_snapshot!(refused, @r"
    plugin file [folder]/libopen.so: can be written by every user of this machine (mode 0777), so it may be anyone's code
    hint: if you trust what is in it now, run `chmod o-w [folder]/libopen.so`
    ");
}

/// A library that needs another one which is not there: the loader's whole message is kept.
#[cfg(target_os = "linux")]
#[test]
fn a_library_that_needs_a_missing_one() {
    let refused = refusal("libneedy.so", |path| {
        let mut bytes = fs::read(fixture("fixture_backend")).unwrap();
        let needed = b"libc.so.6\0";
        let at =
            bytes.windows(needed.len()).position(|window| window == needed).expect("it needs the C library");
        bytes[at..at + 4].copy_from_slice(b"none");
        fs::write(path, bytes).unwrap();
    });
    assert_snapshot!(refused, @r"
    plugin file [folder]/libneedy.so: cannot be loaded: none.so.6: cannot open shared object file: No such file or directory
    hint: if a library is named that is not found, install what it belongs to (a driver, most often)
    ");
}
