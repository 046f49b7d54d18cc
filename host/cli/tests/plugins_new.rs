//! `plugins new`: every kind of plugin is written, built, listed and loaded.
#![cfg(target_os = "linux")]

mod support;

use std::path::Path;
use std::process::Command;

use insta::assert_snapshot;
use support::{Folder, shown};

const PLUGIN_API: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugin-api");

/// Builds the crate in a folder with what cargo has already, and runs its tests. Its parts are shared by all kinds.
fn cargo(arguments: &[&str], crate_folder: &Path) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-plugins");
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(crate_folder)
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_TARGET_DIR", &target)
        // What this test was built with is not for it.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", shown(&output));
}

/// Writes a plugin of a kind, builds and tests it, and puts its library into the folder.
fn build(folder: &Folder, kind: &str, name: &str) -> String {
    let path = folder.file(name);
    let written = folder.run(&["plugins", "new", kind, name, "--path", &path, "--plugin-api", PLUGIN_API]);
    assert_eq!(
        written,
        format!(
            "exit 0\n--- stdout\n--- stderr\nwrote the plugin `{name}` to [folder]/{name}; its README.md has the commands\n"
        )
    );
    cargo(&["test", "--quiet"], Path::new(&path));
    cargo(&["build", "--quiet"], Path::new(&path));
    let file = format!("lib{}.so", name.replace('-', "_"));
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-plugins/debug").join(&file);
    folder.write(&file, std::fs::read(built).unwrap())
}

/// The line of `plugins list` on a plugin.
fn listed(folder: &Folder, id: &str) -> String {
    let text = folder.run_searching(&["plugins", "list"]);
    let line = text.lines().find(|line| line.starts_with(&format!("{id} "))).unwrap_or_default();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(all(feature = "backend-cpu", feature = "demo-model", feature = "strategies"))]
#[test]
fn a_drafter() {
    let folder = Folder::new();
    let library = build(&folder, "drafter", "my-drafter");
    assert_eq!(
        listed(&folder, "my-drafter"),
        "my-drafter strategy 0.1.0 1.0 [folder]/libmy_drafter.so usable"
    );
    assert_snapshot!(folder.run_searching(&["plugins", "test", "my-drafter", "-q"]), @r"
    exit 0
    --- stdout
    passed   the table of drafters
    passed   an unknown setting is refused
    passed   a wrong value of `most` is refused
    passed   the default of `most` is taken
    passed   a text is followed
    --- stderr
    ");
    // Whatever it guesses, the text is that of the model.
    let text = |more: &[&str]| {
        let arguments =
            [&["run", "demo", "-q", "--temp", "0", "-n", "12", "-p", support::PROMPT], more].concat();
        folder.run(&arguments)
    };
    let drafted = text(&["--plugin", &library, "--strategy", "my-drafter", "--set", "my-drafter.most=4"]);
    assert_eq!(drafted, text(&["--strategy", "none"]));
}

#[test]
fn a_rollback_strategy() {
    let folder = Folder::new();
    build(&folder, "rollback", "my-rollback");
    assert_eq!(
        listed(&folder, "my-rollback"),
        "my-rollback strategy 0.1.0 1.0 [folder]/libmy_rollback.so usable"
    );
    assert_snapshot!(folder.run_searching(&["plugins", "test", "my-rollback", "-q"]), @r"
    exit 0
    --- stdout
    passed   the table of rollback strategies
    passed   an unknown setting is refused
    passed   a recurrent layer gets its graph
    --- stderr
    ");
}

#[test]
fn a_backend() {
    let folder = Folder::new();
    build(&folder, "backend", "my-backend");
    assert_eq!(
        listed(&folder, "my-backend"),
        "my-backend backend 0.1.0 1.0 [folder]/libmy_backend.so usable"
    );
    let tested = folder.run_searching(&["plugins", "test", "my-backend", "--operation", "argmax"]);
    assert!(tested.starts_with("exit 0\n"), "{tested}");
    let devices = folder.run_searching(&["devices", "--backend", "my-backend"]);
    assert!(devices.contains("my-backend:0"), "{devices}");
}

#[test]
fn names_and_folders_that_will_not_do() {
    let folder = Folder::new();
    let new = |arguments: &[&str]| {
        let api = ["--plugin-api", PLUGIN_API];
        folder.run(&[&["plugins", "new", "drafter"], arguments, &api].concat())
    };
    assert_snapshot!(new(&["My_Drafter", "--path", &folder.file("a")]), @r#"
    exit 2
    --- stdout
    --- stderr
    error: a plugin cannot be called "My_Drafter": line 2, column 6: the id `My_Drafter` must be in lower case, as `my_drafter`
    hint: take lower case letters, digits and dashes, the first a letter
    "#);
    let injected = new(&["mine\" # ", "--path", &folder.file("a")]);
    assert!(injected.starts_with("exit 2\n"), "{injected}");
    assert_snapshot!(new(&["std", "--path", &folder.file("a")]), @r"
    exit 2
    --- stdout
    --- stderr
    error: a plugin cannot be called `std`: that is taken in Rust or by a crate that it needs
    hint: take another name
    ");
    let there = folder.write("there", "text");
    assert_snapshot!(new(&["mine", "--path", &there]), @r"
    exit 2
    --- stdout
    --- stderr
    error: [folder]/there is there already and is no empty folder
    hint: give another one with `--path DIR`
    ");
    assert_snapshot!(new(&["mine", "--path", &folder.path().display().to_string()]), @r"
    exit 2
    --- stdout
    --- stderr
    error: [folder] is there already and is no empty folder
    hint: give another one with `--path DIR`
    ");
    assert!(!folder.path().join("a").exists());
    let api = folder.run(&["plugins", "new", "drafter", "mine", "--plugin-api", "nowhere"]);
    assert_snapshot!(api, @r"
    exit 2
    --- stdout
    --- stderr
    error: nowhere is neither the folder of `paceline-plugin-api` nor a version
    hint: give the folder `plugin-api` of a checkout of Paceline, or a version such as `0.1`
    ");
}

#[test]
fn the_crates_for_authors_come_from_a_folder_or_a_registry() {
    let folder = Folder::new();
    let manifest = |kind: &str, api: &str| {
        let path = folder.file(&format!("{kind}-{}", api.len()));
        folder.run(&["plugins", "new", kind, "mine", "--path", &path, "--plugin-api", api]);
        let text = std::fs::read_to_string(Path::new(&path).join("Cargo.toml")).unwrap();
        let root = std::fs::canonicalize(PLUGIN_API).unwrap().display().to_string();
        text.lines()
            .filter(|line| line.starts_with("paceline"))
            .map(|line| line.replace(&root, "[api]") + "\n")
            .collect::<String>()
    };
    assert_snapshot!(manifest("backend", PLUGIN_API), @r#"
    paceline-conformance = { path = "[api]/conformance" }
    paceline-plugin-api = { path = "[api]" }
    "#);
    assert_snapshot!(manifest("drafter", "0.1"), @r#"paceline-plugin-api = "0.1""#);
}

/// A plugin of a built-in's id is no mistake, but has to be told from it.
#[cfg(feature = "strategies")]
#[test]
fn an_id_that_a_built_in_has() {
    let folder = Folder::new();
    let path = folder.file("mine");
    let arguments = ["plugins", "new", "rollback", "gdn-replay", "--path", &path, "--plugin-api", PLUGIN_API];
    assert_snapshot!(folder.run(&arguments), @r"
    exit 0
    --- stdout
    --- stderr
    wrote the plugin `gdn-replay` to [folder]/mine; its README.md has the commands
    warning: a built-in plugin has the id `gdn-replay`: this one takes its place when it is given with `--plugin`, chosen with `plugins use`, or newer
    ");
}
