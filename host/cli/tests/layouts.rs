//! `plugins verify` compares the layouts that libraries carry, and every shipped plugin carries some.
#![cfg(feature = "layouts")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use insta::assert_snapshot;
use support::{json, run};

/// The repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the program is a part of it")
}

/// Builds a package with its layouts, and returns the shared libraries that come of it.
fn libraries(package: &str, more: &[&str]) -> Vec<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "-p", package, "--features", "layouts", "--message-format=json"])
        .args(more)
        .current_dir(repository())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{package}: {}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8_lossy(&output.stdout);
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    artifacts
        .filter(|message| message["target"]["crate_types"][0] == "cdylib")
        .filter_map(|message| message["filenames"][0].as_str().map(str::to_owned))
        .collect()
}

/// Every plugin that has a library of its own under `plugins`: one that is added is verified without further ado.
#[test]
fn the_shipped_plugins_carry_this_programs_layouts() {
    let folders = std::fs::read_dir(repository().join("plugins")).expect("there are plugins");
    let mut verified = 0;
    for folder in folders {
        let manifest = folder.expect("it can be read").path().join("cdylib/Cargo.toml");
        let Ok(text) = std::fs::read_to_string(&manifest) else { continue };
        let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        let package = name.expect("a package has a name");
        assert!(
            text.contains("\nlayouts = "),
            "{} lacks the feature `layouts`: copy it from that of another plugin, with the line in its source that \
             carries them",
            manifest.display()
        );
        let built = libraries(package, &[]);
        assert_eq!(built.len(), 1, "{package}: {built:?}");
        let verified_as = run(&["plugins", "verify", &built[0]]);
        let needs = [": needs the driver library ", ": needs one of the driver libraries "];
        if needs.iter().any(|text| verified_as.contains(text)) {
            // Its code is not opened where it is of no use.
            assert!(verified_as.starts_with("exit 5\n"), "{package}: {verified_as}");
            eprintln!("{package}: skipped, since its driver is not here");
            continue;
        }
        assert!(verified_as.starts_with("exit 0\n"), "{package}: {verified_as}");
        assert!(
            verified_as.contains(": no faults; its layouts are this program's\n"),
            "{package}: {verified_as}"
        );
        assert_eq!(json(&["plugins", "verify", &built[0], "--json"])["layouts"], "equal");
        verified += 1;
    }
    assert!(verified >= 2, "only {verified} plugins were found");
}

#[test]
fn other_layouts_are_a_fault_and_none_are_not() {
    let built = libraries("paceline-abi-stable", &["--examples"]);
    let library = |name: &str| built.iter().find(|path| path.contains(name)).expect("it was built");
    let other = library("other_layout");
    assert_snapshot!(run(&["plugins", "verify", other]).replace(other.as_str(), "[library]"), @r"
    exit 5
    --- stdout
    --- stderr
    error: plugin file [library]: `WeightUse.dtype` is `u64` instead of `u32`
    hint: build the plugin with a `paceline-plugin-api` that was not changed
    ");
    let none = library("no_layouts");
    assert_snapshot!(run(&["plugins", "verify", none]).replace(none.as_str(), "[library]").replace(env!("CARGO_PKG_VERSION"), "[version]"), @r"
    exit 0
    --- stdout
    --- stderr
    [library]: backend `cpu` [version], ABI 1.0: no faults; it carries no layouts to compare
    ");
}
