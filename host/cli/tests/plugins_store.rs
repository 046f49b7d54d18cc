//! `plugins install`, `remove`, `enable`, `disable` and `use`, and what `list` and `verify` say then.
#![cfg(all(feature = "backend-cpu", feature = "strategies", target_os = "linux"))]

mod support;

use std::path::Path;
use std::process::Command;

use insta::assert_snapshot;
use support::{Folder, fixture_plugin, program, shown};

/// A user with a data folder of their own, and plugins that they built.
struct User(Folder);

impl User {
    fn new() -> Self {
        Self(Folder::new())
    }

    fn program(&self, arguments: &[&str]) -> Command {
        let mut program = program();
        program.args(arguments).env("XDG_DATA_HOME", self.0.file("data"));
        program.env("XDG_CACHE_HOME", self.0.file("cache"));
        program
    }

    /// Runs the program and shows what came out, with the folder's path and the build's version replaced.
    fn run(&self, arguments: &[&str]) -> String {
        let text = shown(&self.program(arguments).output().expect("the program starts"));
        text.replace(&self.0.path().display().to_string(), "[folder]")
            .replace(env!("CARGO_PKG_VERSION"), "[version]")
    }

    /// The lines of `plugins list` on one plugin.
    fn listed(&self, id: &str) -> String {
        let text = self.run(&["plugins", "list"]);
        let cells = |line: &str| -> String {
            let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
            cells.join("  ") + "\n"
        };
        text.lines().filter(|line| line.starts_with(&format!("{id} "))).map(cells).collect()
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.program(arguments).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", shown(&output)))
    }

    /// Compiles a plugin with an empty backend, which says what it is in a file beside it.
    fn build(&self, file: &str, id: &str, version: &str) -> String {
        let headers = Folder::new();
        headers.write("descriptor.h", "");
        let (path, root) = (self.0.file(file), Path::new(env!("CARGO_MANIFEST_DIR")));
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-DNO_SECTION", "-I", &headers.path().display().to_string(), "-I"])
            .arg(root.join("../../plugin-api/include"))
            .arg(format!("-DID=\"{id}\""))
            .arg(format!("-DVERSION=\"{version}\""))
            .arg(root.join("../registry/tests/fixtures/plugin.c"))
            .args(["-o", &path])
            .output()
            .expect("there is a C compiler");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let descriptor = format!(
            "id = \"{id}\"\nkind = \"backend\"\nversion = \"{version}\"\nabi = {{ oldest = \"1.0\", built = \"1.0\" }}\n"
        );
        self.0.write(&format!("{file}.plugin.toml"), descriptor);
        path
    }
}

#[test]
fn a_plugin_is_installed_and_removed() {
    let user = User::new();
    let source = user.0.write("libmine.so", std::fs::read(fixture_plugin()).unwrap());
    assert_snapshot!(user.run(&["plugins", "install", &source]), @r"
    exit 0
    --- stdout
    --- stderr
    `fixture` 1.2.3 installed: [folder]/data/paceline/plugins/libfixture@1.2.3.so
    ");
    assert_snapshot!(user.listed("fixture"), @"fixture  backend  1.2.3  1.0  [folder]/data/paceline/plugins/libfixture@1.2.3.so  usable; installed from [folder]/libmine.so");
    let listed = user.json(&["plugins", "list", "--json"]);
    let fixture = &listed["plugins"][0];
    assert_eq!(fixture["installed"]["source"], source);
    assert_eq!(fixture["installed"]["sha256"].as_str().map(str::len), Some(64));
    assert_snapshot!(user.run(&["plugins", "install", &source]), @r"
    exit 0
    --- stdout
    --- stderr
    `fixture` 1.2.3 was installed before, unchanged: [folder]/data/paceline/plugins/libfixture@1.2.3.so
    ");
    assert!(user.run(&["devices", "--backend", "fixture"]).contains("Fixture device"));
    assert_snapshot!(user.run(&["plugins", "remove", "fixture@1.2.4"]), @r"
    exit 5
    --- stdout
    --- stderr
    error: version 1.2.4 of plugin `fixture` was not installed with `plugins install`; there is 1.2.3
    hint: see `paceline plugins list`
    ");
    assert_snapshot!(user.run(&["plugins", "remove", "fixture"]), @r"
    exit 0
    --- stdout
    --- stderr
    `fixture` 1.2.3 removed
    ");
    assert_eq!(user.listed("fixture"), "");
}

#[test]
fn one_of_several_versions_is_chosen() {
    let user = User::new();
    for version in ["1.0.0", "1.1.0", "2.0.0"] {
        let source = user.build(&format!("x-{version}.so"), "mine", version);
        user.run(&["plugins", "install", &source]);
    }
    assert_snapshot!(user.listed("mine"), @r"
    mine  backend  1.0.0  1.0  [folder]/data/paceline/plugins/libmine@1.0.0.so  not used: [folder]/data/paceline/plugins/libmine@2.0.0.so is newer; installed from [folder]/x-1.0.0.so
    mine  backend  1.1.0  1.0  [folder]/data/paceline/plugins/libmine@1.1.0.so  not used: [folder]/data/paceline/plugins/libmine@2.0.0.so is newer; installed from [folder]/x-1.1.0.so
    mine  backend  2.0.0  1.0  [folder]/data/paceline/plugins/libmine@2.0.0.so  usable; installed from [folder]/x-2.0.0.so
    ");
    assert_snapshot!(user.run(&["plugins", "use", "mine@^1"]), @r"
    exit 0
    --- stdout
    --- stderr
    of `mine`, ^1 is used: now 1.1.0
    ");
    assert_snapshot!(user.listed("mine"), @r"
    mine  backend  1.0.0  1.0  [folder]/data/paceline/plugins/libmine@1.0.0.so  not used: [folder]/data/paceline/plugins/libmine@1.1.0.so is the newest of those that were chosen; installed from [folder]/x-1.0.0.so
    mine  backend  1.1.0  1.0  [folder]/data/paceline/plugins/libmine@1.1.0.so  usable; installed from [folder]/x-1.1.0.so
    mine  backend  2.0.0  1.0  [folder]/data/paceline/plugins/libmine@2.0.0.so  not used: version ^1 was chosen with `plugins use`; installed from [folder]/x-2.0.0.so
    ");
    assert_snapshot!(user.run(&["plugins", "use", "mine@3.0.0"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: there is no version =3.0.0 of plugin `mine`; there is 1.0.0, 1.1.0, 2.0.0
    hint: install it with `paceline plugins install FILE`
    ");
    assert_snapshot!(user.run(&["plugins", "use", "mne@1.0.0"]).replace("`cpu`, ", ""), @r"
    exit 2
    --- stdout
    --- stderr
    error: there is no plugin `mne`; there is `dflash`, `gdn-replay`, `mine`, `mtp-chain`, `ngram-adaptive`; searched [directories]
    hint: did you mean `mine`?
    ");
    assert_snapshot!(user.run(&["plugins", "use", "mine@*"]), @r"
    exit 0
    --- stdout
    --- stderr
    the highest version of `mine` is used
    ");
    assert!(user.listed("mine").contains("libmine@2.0.0.so  usable"));
}

/// A built-in plugin gives way to a newer file, and to one of a version that was chosen.
#[test]
fn a_file_and_a_built_in_of_one_id() {
    let user = User::new();
    let older = user.build("older.so", "cpu", "0.0.1");
    assert_snapshot!(user.run(&["plugins", "install", &older]), @r"
    exit 0
    --- stdout
    --- stderr
    `cpu` 0.0.1 installed: [folder]/data/paceline/plugins/libcpu@0.0.1.so
    warning: `cpu` 0.0.1 is not used: the built-in one is not older
    ");
    assert_snapshot!(user.listed("cpu"), @r"
    cpu  backend  0.0.1  1.0  [folder]/data/paceline/plugins/libcpu@0.0.1.so  not used: the built-in one is not older; installed from [folder]/older.so
    cpu  backend  [version]  1.0  built in  usable
    ");
    user.run(&["plugins", "use", "cpu@0.0.1"]);
    assert_snapshot!(user.listed("cpu"), @r"
    cpu  backend  0.0.1  1.0  [folder]/data/paceline/plugins/libcpu@0.0.1.so  usable; installed from [folder]/older.so
    cpu  backend  [version]  1.0  built in  not used: [folder]/data/paceline/plugins/libcpu@0.0.1.so was chosen with `plugins use`
    ");
    assert!(user.run(&["plugins", "inspect", "cpu"]).contains("version     0.0.1"));
    user.run(&["plugins", "use", &format!("cpu@{}", env!("CARGO_PKG_VERSION"))]);
    assert_snapshot!(user.listed("cpu"), @r"
    cpu  backend  0.0.1  1.0  [folder]/data/paceline/plugins/libcpu@0.0.1.so  not used: version =[version] was chosen with `plugins use`; installed from [folder]/older.so
    cpu  backend  [version]  1.0  built in  usable
    ");
}

#[test]
fn a_plugin_is_switched_off() {
    let user = User::new();
    assert_snapshot!(user.run(&["plugins", "disable", "cpu"]), @r"
    exit 0
    --- stdout
    --- stderr
    `cpu` is not used any more
    ");
    assert_snapshot!(user.listed("cpu"), @"cpu  backend  [version]  1.0  built in  switched off");
    assert_snapshot!(user.run(&["devices", "--backend", "cpu"]), @r"
    exit 5
    --- stdout
    --- stderr
    error: plugin `cpu` is switched off by the configuration
    hint: run `paceline plugins enable cpu`, or set `enabled = true` in the section `plugin.cpu` of registry.toml
    ");
    let without = user.run(&["devices"]);
    assert!(!without.contains("cpu:0"), "{without}");
    assert_snapshot!(user.run(&["plugins", "enable", "cpu"]), @r"
    exit 0
    --- stdout
    --- stderr
    `cpu` is used again
    ");
    assert!(user.run(&["devices"]).contains("cpu:0"));
    assert_snapshot!(user.run(&["plugins", "disable", "banana"]).replace("`cpu`, ", ""), @r"
    exit 2
    --- stdout
    --- stderr
    error: there is no plugin `banana`; there is `dflash`, `gdn-replay`, `mtp-chain`, `ngram-adaptive`; searched [directories]
    hint: a plugin in a shared library is loaded with `--plugin PATH`
    ");
}

#[test]
fn what_has_changed_is_refused() {
    let user = User::new();
    assert_snapshot!(user.run(&["plugins", "verify"]), @r"
    exit 0
    --- stdout
    --- stderr
    no plugin is installed in [folder]/data/paceline/plugins
    ");
    let source = user.0.write("libmine.so", std::fs::read(fixture_plugin()).unwrap());
    user.run(&["plugins", "install", &source]);
    let without_time = |text: String| {
        text.lines()
            .map(|line| match line.split_once("  2") {
                Some((before, after)) => {
                    format!("{before}  [time]{}\n", after.split_once('Z').map_or("", |(_, rest)| rest))
                }
                None => format!("{line}\n"),
            })
            .collect::<String>()
    };
    assert_snapshot!(without_time(user.run(&["plugins", "verify"])), @r"
    exit 0
    --- stdout
    id       version  installed             verdict
    fixture  1.2.3    [time]  unchanged
    --- stderr
    ");
    let installed = user.0.file("data/paceline/plugins/libfixture@1.2.3.so");
    let mut bytes = std::fs::read(&installed).unwrap();
    bytes.push(0);
    std::fs::write(&installed, bytes).unwrap();
    let verified = user.json(&["plugins", "verify", "--json"]);
    assert_eq!((&verified["ok"], &verified["files"][0]["ok"]), (&false.into(), &false.into()));
    let failed = user.run(&["plugins", "verify"]);
    assert!(failed.starts_with("exit 5\n"), "{failed}");
    assert_snapshot!(failed.split_once("--- stderr\n").unwrap().1, @r"
    error: 1 of 1 installed plugins are not what they were
    hint: find out why, then install them again with `paceline plugins install FILE --force`, or remove them
    ");
    assert!(user.listed("fixture").contains("refused: has the SHA-256 "));
    let file = user.run(&["plugins", "verify", &installed]);
    assert!(file.contains("when it was installed\nhint: install it again"), "{file}");
    user.run(&["plugins", "install", &source, "--force"]);
    assert!(user.run(&["plugins", "verify"]).starts_with("exit 0\n"));
}

#[test]
fn what_is_no_plugin_is_not_installed() {
    let user = User::new();
    let notes = user.0.write("notes.so", "hello\n");
    assert_snapshot!(user.run(&["plugins", "install", &notes]), @r#"
    exit 5
    --- stdout
    --- stderr
    error: plugin file [folder]/notes.so: is not a shared library: it begins with "hell" in place of an ELF header
    hint: give the path of a shared library that was built as a Paceline plugin
    "#);
    std::fs::create_dir(user.0.path().join("empty")).unwrap();
    assert_snapshot!(user.run(&["plugins", "install", &user.0.file("empty")]), @r"
    exit 5
    --- stdout
    --- stderr
    error: there is no plugin in the directory [folder]/empty
    hint: build it (`cargo build --release`) and give `target/release`, or the shared library in it
    ");
    assert_snapshot!(user.run(&["plugins", "install", &user.0.file("missing")]), @r"
    exit 5
    --- stdout
    --- stderr
    error: plugin file [folder]/missing: cannot find it: No such file or directory (os error 2)
    ");
}
