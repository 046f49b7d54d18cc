//! `config`, and files of settings that are wrong.

#![cfg(all(feature = "demo-model", feature = "backend-cpu", feature = "strategies"))]

mod support;

use insta::assert_snapshot;
use support::{Folder, json, run, shown};

const WRONG: &str = "\
schema = 1
[settings]
contxt = 4096
[plugin.mtp-chain.settings]
depth = \"4\"
[plugin.cuda.settings]
streams = 4
";

/// A folder whose `paceline/registry.toml` is the user's.
fn with_settings(text: &str) -> Folder {
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("paceline")).unwrap();
    folder.write("paceline/registry.toml", text);
    folder
}

fn run_in(folder: &Folder, arguments: &[&str]) -> String {
    let output = folder.program(arguments).env("XDG_CONFIG_HOME", folder.path()).output().unwrap();
    shown(&output).replace(&folder.path().display().to_string(), "[folder]")
}

#[test]
fn files_that_are_all_right() {
    assert_snapshot!(run(&["config", "check"]), @r"
    exit 0
    --- stdout
    --- stderr
    no faults
    ");
    let folder = with_settings("schema = 1\n[plugin.cuda.settings]\nstreams = 4\n");
    assert_snapshot!(run_in(&folder, &["config", "check"]), @r"
    exit 0
    --- stdout
    --- stderr
    warning: [folder]/paceline/registry.toml:3: the plugin `cuda` for NVIDIA GPUs is not installed, so `cuda.streams` has no effect
    no faults
    ");
}

#[test]
fn every_fault_is_told_with_its_place() {
    let folder = with_settings(WRONG);
    assert_snapshot!(run_in(&folder, &["config", "check"]), @r"
    exit 2
    --- stdout
    [folder]/paceline/registry.toml:3:1: the setting `contxt` is not known; did you mean `context`?
    [folder]/paceline/registry.toml:5:9: `mtp-chain.depth` cannot be `4`: it takes a whole number from 0 to 15, without quotes
    --- stderr
    2 faults
    ");
    assert_snapshot!(run_in(&folder, &["run", "demo", "-p", "x", "-n", "1"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: [folder]/paceline/registry.toml:3:1: the setting `contxt` is not known; did you mean `context`?
    error: [folder]/paceline/registry.toml:5:9: `mtp-chain.depth` cannot be `4`: it takes a whole number from 0 to 15, without quotes
    ");
    folder.write("other.toml", "schema = 1\n[setings]\n");
    assert_snapshot!(folder.run(&["config", "check", &folder.file("other.toml")]), @r"
    exit 2
    --- stdout
    [folder]/other.toml:2:2: the key `setings` is not known; did you mean `settings`?
    --- stderr
    1 fault
    ");
    assert_snapshot!(folder.run(&["config", "check", &folder.file("nowhere.toml")]), @r"
    exit 2
    --- stdout
    --- stderr
    error: there is no file [folder]/nowhere.toml
    ");
}

/// Whoever looks for what is wrong gets that far.
#[test]
fn plugins_are_listed_all_the_same() {
    let folder = with_settings("schema = 1\n[setings]\n");
    let listed = run_in(&folder, &["plugins", "list"]);
    assert!(listed.starts_with("exit 0"), "{listed}");
    assert!(listed.contains("warning: [folder]/paceline/registry.toml:2:2: the key `setings` is not known"));
}

#[test]
fn a_plugin_that_a_file_switches_off() {
    let folder = with_settings("schema = 1\n[plugin.mtp-chain]\nenabled = false\n");
    let explained = run_in(&folder, &["explain", "demo"]);
    assert!(explained.contains("refused     mtp-chain: switched off"), "{explained}");
    assert_snapshot!(run_in(&folder, &["explain", "demo", "--strategy", "mtp-chain"]), @r"
    exit 5
    --- stdout
    --- stderr
    error: plugin `mtp-chain` is switched off by the configuration
    hint: run `paceline plugins enable mtp-chain`, or set `enabled = true` in the section `plugin.mtp-chain` of registry.toml
    ");
    let folder = with_settings("schema = 1\n[plugin.cpu]\nenabled = false\n");
    assert_snapshot!(run_in(&folder, &["explain", "demo", "--backend", "cpu"]), @r"
    exit 5
    --- stdout
    --- stderr
    error: plugin `cpu` is switched off by the configuration
    hint: run `paceline plugins enable cpu`, or set `enabled = true` in the section `plugin.cpu` of registry.toml
    ");
}

#[test]
fn what_sets_settings() {
    let folder = with_settings("schema = 1\n[settings]\nmicrobatch = 256\n");
    let shown = run_in(&folder, &["config", "show"]);
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n";
    assert_snapshot!(shown.lines().map(squeezed).collect::<String>(), @r"
    exit 0
    --- stdout
    setting value from when
    microbatch 256 [folder]/paceline/registry.toml:3 -
    mtp-chain.head trimmed rule registry.toml:28 model.has_trimmed_head = true
    mtp-chain.kv_only on rule registry.toml:35 backend = cpu
    speculation.rollback replay rule registry.toml:20 backend = cpu, arch = qwen35, recurrent_layers = all-on-one, sequences = 1, rollback.kind = gdn-replay, for recurrent layers
    --- stderr
    ");
    let entries = json(&["config", "show", "--json"]);
    assert_eq!(entries["entries"].as_array().unwrap().len(), 3);
}

#[test]
fn all_settings() {
    let listed = run(&["config", "schema"]);
    assert!(listed.contains("PACELINE_MTP_CHAIN__DEPTH"), "{listed}");
    let schema = json(&["config", "schema", "--json"]);
    let keys: Vec<&str> = schema.as_array().unwrap().iter().map(|it| it["key"].as_str().unwrap()).collect();
    assert!(keys.contains(&"speculation.rollback") && keys.contains(&"cpu.threads"), "{keys:?}");
}
