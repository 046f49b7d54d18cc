//! Which plugin is used of several, and what bad ones in directories do: nothing.
#![cfg(feature = "backend-cpu")]

mod support;

use std::path::Path;
use std::process::Command;

use insta::assert_snapshot;
use support::Folder;

/// Compiles a plugin with an empty backend, which says what it is in a file beside it.
fn write_plugin(folder: &Folder, file: &str, id: &str, version: &str, on_load: &str) -> String {
    let headers = Folder::new();
    headers.write("descriptor.h", "");
    let path = folder.file(file);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-DNO_SECTION", "-I", &headers.path().display().to_string(), "-I"])
        .arg(root.join("../../plugin-api/include"))
        .arg(format!("-DID=\"{id}\""))
        .arg(format!("-DVERSION=\"{version}\""))
        .arg(format!("-DON_LOAD={on_load}"))
        .arg(root.join("../registry/tests/fixtures/plugin.c"))
        .args(["-o", &path])
        .output()
        .expect("there is a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    describe(folder, file, id, version);
    path
}

fn describe(folder: &Folder, file: &str, id: &str, version: &str) {
    let text = format!(
        "id = \"{id}\"\nkind = \"backend\"\nversion = \"{version}\"\nabi = {{ oldest = \"1.0\", built = \"1.0\" }}\n"
    );
    folder.write(&format!("{file}.plugin.toml"), text);
}

/// The lines of `plugins list`, without columns that are the same for all, without the build's version and without the
/// strategies, which are all built in.
fn listed(folder: &Folder, more: &[&str]) -> String {
    let text = folder.run_searching(&[&["plugins", "list"], more].concat());
    let cells = |line: &str| -> String {
        let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        cells.join("  ").replace(env!("CARGO_PKG_VERSION"), "[version]") + "\n"
    };
    text.lines().map(cells).filter(|line| !line.contains("  strategy  ")).collect()
}

#[test]
fn a_newer_file_takes_the_place_of_a_built_in() {
    let folder = Folder::new();
    write_plugin(&folder, "new.so", "cpu", "999.0.0", "");
    assert_snapshot!(listed(&folder, &[]), @r"
    exit 0
    --- stdout
    id  kind  version  abi  origin  state
    cpu  backend  999.0.0  1.0  [folder]/new.so  usable
    cpu  backend  [version]  1.0  built in  not used: [folder]/new.so is newer
    --- stderr
    ");
    let inspected = folder.run_searching(&["plugins", "inspect", "cpu"]);
    assert!(inspected.contains("origin      [folder]/new.so\n"), "{inspected}");
    let devices = folder.run_searching(&["devices"]);
    assert!(devices.contains("Device in C"), "{devices}");
}

#[test]
fn an_older_file_does_not() {
    let folder = Folder::new();
    let old = write_plugin(&folder, "old.so", "cpu", "0.0.1", "");
    assert_snapshot!(listed(&folder, &[]), @r"
    exit 0
    --- stdout
    id  kind  version  abi  origin  state
    cpu  backend  0.0.1  1.0  [folder]/old.so  not used: the built-in one is not older
    cpu  backend  [version]  1.0  built in  usable
    --- stderr
    ");
    let inspected = folder.run_searching(&["plugins", "inspect", "cpu"]);
    assert!(inspected.contains("origin      built in\n"), "{inspected}");
    assert_snapshot!(listed(&folder, &["--plugin", &old]), @r"
    exit 0
    --- stdout
    id  kind  version  abi  origin  state
    cpu  backend  0.0.1  1.0  [folder]/old.so  usable
    cpu  backend  [version]  1.0  built in  not used: [folder]/old.so was named
    --- stderr
    ");
}

#[test]
fn a_file_that_crashes_is_left_alone() {
    let folder = Folder::new();
    let crashing = write_plugin(&folder, "crashing.so", "crashing", "1.0.0", "abort();");
    assert_snapshot!(listed(&folder, &[]), @r"
    exit 0
    --- stdout
    id  kind  version  abi  origin  state
    crashing  backend  1.0.0  1.0  [folder]/crashing.so  refused: crashes while it is loaded (signal 6, abort)
    cpu  backend  [version]  1.0  built in  usable
    --- stderr
    ");
    assert_snapshot!(folder.run_searching(&["plugins", "verify", &crashing]), @r"
    exit 5
    --- stdout
    --- stderr
    error: plugin file [folder]/crashing.so: crashes while it is loaded (signal 6, abort)
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
    assert_snapshot!(folder.run_searching(&["devices", "--backend", "crashing"]), @r"
    exit 5
    --- stdout
    --- stderr
    error: plugin file [folder]/crashing.so: crashes while it is loaded (signal 6, abort)
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
    assert_snapshot!(folder.run_searching(&["devices", "--plugin", &crashing]), @r"
    exit 5
    --- stdout
    --- stderr
    error: plugin file [folder]/crashing.so: crashes while it is loaded (signal 6, abort)
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
    assert!(folder.run_searching(&["devices"]).contains("cpu:0"));
}

/// An update that fails must not go unnoticed.
#[test]
fn a_newer_file_that_crashes_is_not_passed_over() {
    let folder = Folder::new();
    write_plugin(&folder, "new.so", "cpu", "999.0.0", "abort();");
    assert_snapshot!(listed(&folder, &[]), @r"
    exit 0
    --- stdout
    id  kind  version  abi  origin  state
    cpu  backend  999.0.0  1.0  [folder]/new.so  refused: crashes while it is loaded (signal 6, abort)
    cpu  backend  [version]  1.0  built in  not used: [folder]/new.so is newer, and refused
    --- stderr
    ");
    assert_snapshot!(folder.run_searching(&["devices"]), @r"
    exit 5
    --- stdout
    --- stderr
    error: plugin file [folder]/new.so: crashes while it is loaded (signal 6, abort)
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
}

#[test]
fn a_descriptor_that_does_not_fit() {
    let folder = Folder::new();
    let file = write_plugin(&folder, "other.so", "other", "1.0.0", "");
    describe(&folder, "other.so", "other", "1.0.1");
    assert_snapshot!(folder.run(&["plugins", "verify", &file]), @r"
    exit 5
    --- stdout
    --- stderr
    error: plugin file [folder]/other.so: says in its descriptor that its version is `1.0.1`, and when loaded that it is `1.0.0`
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
}
