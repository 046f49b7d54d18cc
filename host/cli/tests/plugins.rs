//! `plugins` and `--plugin`.

mod support;

use insta::assert_snapshot;
use support::{Folder, fixture_plugin, json, output, run};

/// A run with the fixture loaded, and its path replaced.
fn run_with_fixture(arguments: &[&str]) -> String {
    let fixture = fixture_plugin();
    let arguments = [arguments, &["--plugin", &fixture]].concat();
    let canonical = std::fs::canonicalize(&fixture).unwrap().display().to_string();
    run(&arguments).replace(&canonical, "[fixture]").replace(&fixture, "[fixture]")
}

#[cfg(feature = "backend-cpu")]
#[test]
fn the_built_in_ones() {
    let listed = json(&["plugins", "list", "--json"]);
    let cpu = &listed["plugins"][0];
    assert_eq!((&cpu["id"], &cpu["kind"], &cpu["file"]), (&"cpu".into(), &"backend".into(), &().into()));
    let inspected = run(&["plugins", "inspect", "cpu"]);
    assert!(inspected.contains("origin      built in\ndescriptor\n"), "{inspected}");
}

#[test]
fn a_plugin_from_a_file() {
    let listed = run_with_fixture(&["plugins", "list"]);
    let [header, line] = [2, 3].map(|index| narrow(listed.lines().nth(index).unwrap_or_default()));
    assert_snapshot!(format!("{header}\n{line}"), @r"
    id  kind  version  abi  origin  state
    fixture  backend  1.2.3  1.0  [fixture]  usable
    ");
    assert_snapshot!(run_with_fixture(&["plugins", "inspect", "fixture"]), @r#"
    exit 0
    --- stdout
    id          fixture
    kind        backend
    version     1.2.3
    abi         1.0
    origin      [fixture]
    descriptor
      id = "fixture"
      version = "1.2.3"
      kind = "backend"
      abi = { oldest = "1.0", built = "1.0" }
    --- stderr
    "#);
}

#[test]
fn json_names_the_file() {
    let fixture = fixture_plugin();
    let inspected = json(&["plugins", "inspect", "fixture", "--json", "--plugin", &fixture]);
    let plugin = &inspected["plugins"][0];
    assert_eq!((&plugin["version"], &plugin["abi"][1]), (&"1.2.3".into(), &"1.0".into()));
    assert!(plugin["file"].as_str().unwrap().contains("fixture_plugin"));
    assert!(plugin["descriptor"].as_str().unwrap().contains("id = \"fixture\""));
}

#[test]
fn an_unknown_id() {
    let unknown = run_with_fixture(&["plugins", "inspect", "fixtrue"]);
    let built_in = ["`cpu`, ", "`dflash`, ", ", `gdn-replay`", ", `mtp-chain`", ", `ngram-adaptive`"];
    let unknown = built_in.iter().fold(unknown, |text, id| text.replace(id, ""));
    assert_snapshot!(unknown, @r"
    exit 2
    --- stdout
    --- stderr
    error: there is no plugin `fixtrue`; there is `fixture`; searched [directories]
    hint: did you mean `fixture`?
    ");
}

#[test]
fn a_file_that_is_no_plugin() {
    let folder = Folder::new();
    let text = folder.write("notes.so", "hello\n");
    assert_snapshot!(folder.run(&["plugins", "list", "--plugin", &text]), @r#"
    exit 5
    --- stdout
    --- stderr
    error: plugin file [folder]/notes.so: is not a shared library: it begins with "hell" in place of an ELF header
    hint: give the path of a shared library that was built as a Paceline plugin
    "#);
    assert_snapshot!(folder.run(&["plugins", "list", "--plugin", &folder.file("missing.so")]), @r"
    exit 5
    --- stdout
    --- stderr
    error: plugin file [folder]/missing.so: cannot find it: No such file or directory (os error 2)
    ");
}

#[test]
fn two_files_with_one_id() {
    let folder = Folder::new();
    let copy = folder.write("copy.so", std::fs::read(fixture_plugin()).unwrap());
    let again = folder.write("again.so", std::fs::read(fixture_plugin()).unwrap());
    let text = folder.run(&["plugins", "list", "--plugin", &copy, "--plugin", &again]);
    assert_snapshot!(text, @r"
    exit 5
    --- stdout
    --- stderr
    error: plugin files [folder]/copy.so and [folder]/again.so both have the id `fixture`
    hint: load only one of them
    ");
    assert_eq!(output(&["plugins", "list", "--plugin", &copy, "--plugin", &copy]).status.code(), Some(0));
}

/// A folder with a plugin and a file that is none.
fn folder_with_plugins() -> Folder {
    let folder = Folder::new();
    folder.write("good.so", std::fs::read(fixture_plugin()).unwrap());
    folder.write("broken.so", "hello\n");
    folder
}

/// Lines of a table without the built-in plugins, which not every build has. How wide columns are depends on paths.
fn without_built_ins(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.contains("built in"));
    lines.map(|line| narrow(line) + "\n").collect()
}

/// A line of a table, its columns only as wide as they have to be.
fn narrow(line: &str) -> String {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join("  ")
}

#[test]
fn plugins_in_directories() {
    let folder = folder_with_plugins();
    let listed = folder.run_searching(&["plugins", "list"]);
    assert_snapshot!(without_built_ins(&listed), @r#"
    exit 0
    --- stdout
    id  kind  version  abi  origin  state
    -  -  -  -  [folder]/broken.so  refused: is not a shared library: it begins with "hell" in place of an ELF header
    fixture  backend  1.2.3  1.0  [folder]/good.so  usable
    --- stderr
    "#);
    let output = folder.program(&["plugins", "list", "--json"]).output().unwrap();
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let [broken, good] = [0, 1].map(|index| listed["plugins"][index].clone());
    assert_eq!((&broken["state"], &broken["id"]), (&"refused".into(), &().into()));
    assert!(broken["reason"].as_str().unwrap().starts_with("is not a shared library"));
    assert_eq!((&good["state"], &good["id"]), (&"usable".into(), &"fixture".into()));
    assert_eq!((&good["source"], &good["reason"]), (&"found".into(), &().into()));
}

#[test]
fn a_plugin_in_a_directory_is_used_when_it_is_asked_for() {
    let folder = folder_with_plugins();
    assert_snapshot!(folder.run_searching(&["devices", "--backend", "fixture"]), @r"
    exit 5
    --- stdout
    device     kind      name            arch  units    memory     free
    fixture:0  software  Fixture device  none      3  64.0 MiB  unknown
    --- stderr
    error: plugin `fixture`: the plugin lacks the function `device_open`
    ");
    let inspected = folder.run_searching(&["plugins", "inspect", "fixture"]);
    assert!(inspected.contains("origin      [folder]/good.so\n"), "{inspected}");
    assert_snapshot!(folder.run_searching(&["devices", "--backend", "fixtur"]).replace("`cpu`, ", ""), @r#"
    exit 2
    --- stdout
    --- stderr
    error: there is no plugin `fixtur`; there is `fixture`; searched [directories]; refused [folder]/broken.so: is not a shared library: it begins with "hell" in place of an ELF header
    hint: did you mean `fixture`?
    "#);
}

#[cfg(feature = "backend-cpu")]
#[test]
fn a_plugin_in_a_directory_is_not_used_unasked() {
    let folder = folder_with_plugins();
    let listed = folder.run_searching(&["devices"]);
    assert!(listed.contains("cpu:0") && !listed.contains("fixture"), "{listed}");
}

/// Whatever is kept about a plugin, here that it fails, is not believed any more.
#[test]
fn rescan_tries_anew() {
    let folder = folder_with_plugins();
    let listed = folder.run_searching(&["plugins", "list"]);
    let kept = folder.path().join("cache/paceline/probes.json");
    let mut known: serde_json::Value = serde_json::from_slice(&std::fs::read(&kept).unwrap()).unwrap();
    let cause = serde_json::json!({ "no_answer": { "exit_code": 7 } });
    let failure = serde_json::json!({ "phase": "describe", "cause": cause, "stderr": "" });
    for file in known["files"].as_object_mut().unwrap().values_mut() {
        file["describe"]["verdict"] = serde_json::json!({ "Err": failure });
    }
    std::fs::write(&kept, known.to_string()).unwrap();
    let believed = folder.run_searching(&["plugins", "list"]);
    assert!(
        believed.contains("refused: ends its process while it is loaded, with exit code 7"),
        "{believed}"
    );
    assert_eq!(folder.run_searching(&["plugins", "rescan"]), listed);
    assert_eq!(folder.run_searching(&["plugins", "list"]), listed);
}

#[test]
fn where_plugins_are_looked_for() {
    let folder = Folder::new();
    let data = folder.file("data");
    std::fs::create_dir_all(folder.path().join("data/paceline/plugins")).unwrap();
    let program = |arguments: &[&str]| {
        let searched = format!("relative:{}", folder.file("missing"));
        let mut program = folder.program(arguments);
        program.env("PACELINE_PLUGIN_DIRS", searched).env("XDG_DATA_HOME", &data);
        program.output().unwrap()
    };
    let own = |text: &str| -> String {
        let text = text.replace(&folder.path().display().to_string(), "[folder]");
        let lines = text.lines().filter(|line| line.contains("[folder]") || line.contains("exists"));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let listed = support::shown(&program(&["plugins", "paths"]));
    assert_snapshot!(own(&listed), @r"
    exists  directory                              from
    no      [folder]/missing                PACELINE_PLUGIN_DIRS
    yes     [folder]/data/paceline/plugins  registry.toml:6
    ");
    let listed: serde_json::Value =
        serde_json::from_slice(&program(&["plugins", "paths", "--json"]).stdout).unwrap();
    assert_eq!(listed["directories"][0]["exists"], false);
    assert_eq!(listed["directories"][2]["exists"], true);
    assert_eq!(listed["cache"], folder.file("cache/paceline"));
}

#[test]
fn a_good_file() {
    let fixture = fixture_plugin();
    let verified = run(&["plugins", "verify", &fixture]).replace(&fixture, "[fixture]");
    #[cfg(not(feature = "layouts"))]
    assert_snapshot!(verified, @r"
    exit 0
    --- stdout
    --- stderr
    [fixture]: backend `fixture` 1.2.3, ABI 1.0: no faults; layouts were not compared: this program was built without the feature `layouts`
    ");
    #[cfg(feature = "layouts")]
    assert!(verified.ends_with("no faults; it carries no layouts to compare\n"), "{verified}");
    let verified = json(&["plugins", "verify", &fixture, "--json"]);
    assert_eq!((&verified["ok"], &verified["tried"]), (&true.into(), &true.into()));
    assert_eq!((&verified["id"], &verified["error"]), (&"fixture".into(), &().into()));
}

#[test]
fn a_file_with_a_fault() {
    let folder = Folder::new();
    let text = folder.write("notes.txt", "hello\n");
    assert_snapshot!(folder.run(&["plugins", "verify", &text]), @r#"
    exit 5
    --- stdout
    --- stderr
    error: plugin file [folder]/notes.txt: is not a shared library: it begins with "hell" in place of an ELF header
    hint: give the path of a shared library that was built as a Paceline plugin
    "#);
    assert_snapshot!(folder.run(&["plugins", "verify", &text, "--json"]), @r#"
    exit 5
    --- stdout
    {
      "abi": null,
      "error": "plugin file [folder]/notes.txt: is not a shared library: it begins with \"hell\" in place of an ELF header",
      "file": "[folder]/notes.txt",
      "hint": "give the path of a shared library that was built as a Paceline plugin",
      "id": null,
      "kind": null,
      "layouts": "not_compared",
      "lossless": null,
      "ok": false,
      "signed_with": null,
      "tried": false,
      "version": null,
      "warnings": []
    }
    --- stderr
    error: plugin file [folder]/notes.txt: is not a shared library: it begins with "hell" in place of an ELF header
    hint: give the path of a shared library that was built as a Paceline plugin
    "#);
}

#[cfg(feature = "backend-cpu")]
mod conformance {
    use super::*;

    #[test]
    fn of_a_built_in_backend() {
        let folder = Folder::new();
        let junit = folder.file("junit.xml");
        let tested = json(&["plugins", "test", "cpu", "--operation", "argmax", "--json", "--junit", &junit]);
        assert_eq!((&tested["ok"], &tested["plugin"]["id"]), (&true.into(), &"cpu".into()));
        let argmax = &tested["operations"][0];
        assert_eq!((&argmax["name"], &argmax["failed"]), (&"argmax".into(), &0.into()));
        assert_eq!(&argmax["passed"], &tested["total"]["passed"]);
        let passed = argmax["passed"].as_u64().unwrap();
        assert!(passed > 0);
        let junit = std::fs::read_to_string(junit).unwrap();
        assert_eq!(junit.matches("<testcase classname=\"argmax\"").count() as u64, passed, "{junit}");
    }

    #[test]
    fn as_a_table() {
        assert_snapshot!(run(&["plugins", "test", "cpu", "--operation", "argmax"]), @r"
        exit 0
        --- stdout
                              passed  failed  refused    % of tolerance
        argmax                   120       0        0               0.0
        all                      120       0        0               0.0
        --- stderr
        ");
    }

    #[test]
    fn of_a_part_that_does_not_exist() {
        assert_snapshot!(run(&["plugins", "test", "cpu", "--operation", "argmix"]), @r"
        exit 2
        --- stdout
        --- stderr
        error: the suite has no operation and no part of the contract `argmix`
        hint: run it without `--operation` to see their names
        ");
        assert_snapshot!(run(&["plugins", "test", "cpu", "--set", "gpu.level=1"]), @r"
        exit 2
        --- stdout
        --- stderr
        error: setting `gpu.level` has no effect: `gpu` is not used here
        ");
    }
}

/// The fixture has a device that cannot be opened.
#[test]
fn a_backend_that_fails_the_suite() {
    let tested = run(&["plugins", "test", &fixture_plugin()]);
    assert_snapshot!(tested, @r"
    exit 1
    --- stdout
                          passed  failed  refused    % of tolerance
    device                     0       1        0               0.0
    all                        0       1        0               0.0
    failed: device, opens: open: the plugin lacks the function `device_open`
    --- stderr
    ");
}

/// What the program asks of itself is nothing that can be typed.
#[test]
fn the_hidden_option() {
    let asked = run(&["--probe", "describe", "/nowhere", "more"]);
    assert!(asked.contains("unexpected argument '--probe'"), "{asked}");
}

#[cfg(feature = "strategies")]
mod strategies {
    use super::*;
    use support::strategy_plugin;

    #[test]
    fn are_listed_and_say_what_they_do() {
        let listed = json(&["plugins", "list", "--json"]);
        let plugins = listed["plugins"].as_array().unwrap();
        let kinds = plugins.iter().filter(|plugin| plugin["kind"] == "strategy").map(|plugin| &plugin["id"]);
        assert_eq!(kinds.collect::<Vec<_>>(), ["dflash", "gdn-replay", "mtp-chain", "ngram-adaptive"]);
        for (id, role) in [("mtp-chain", "drafter"), ("gdn-replay", "rollback")] {
            let inspected = run(&["plugins", "inspect", id]);
            assert!(inspected.contains(&format!("kind        strategy, {role}\n")), "{inspected}");
            let inspected = json(&["plugins", "inspect", id, "--json"]);
            assert_eq!(inspected["plugins"][0]["roles"], serde_json::json!([role]));
        }
    }

    #[test]
    fn are_held_against_their_contract() {
        assert_snapshot!(run(&["plugins", "test", "gdn-replay"]), @r"
        exit 0
        --- stdout
        passed   the table of rollback strategies
        passed   an unknown setting is refused
        passed   a recurrent layer gets its graph
        --- stderr
        that is the contract, without a model; `paceline bench MODEL --strategy none,auto --ab speculation.rollback=replay,snapshots` shows on a model what it gains, and that texts stay the same
        ");
        assert_snapshot!(run(&["plugins", "test", "dflash"]), @r"
        exit 0
        --- stdout
        passed   the table of drafters
        passed   an unknown setting is refused
        passed   a wrong value of `depth` is refused
        passed   the default of `depth` is taken
        passed   a wrong value of `context` is refused
        passed   the default of `context` is taken
        passed   a wrong value of `draw` is refused
        passed   the default of `draw` is taken
        skipped  a text is followed: it needs a model: it needs a drafter that was trained for the model: give the drafter's file with --draft
        --- stderr
        that is the contract, without a model; `paceline bench MODEL --strategy none,dflash` shows on a model what it gains, and that texts stay the same
        ");
        assert_snapshot!(run(&["plugins", "test", &strategy_plugin()]), @r"
        exit 0
        --- stdout
        passed   the table of drafters
        passed   an unknown setting is refused
        passed   a wrong value of `fails` is refused
        passed   the default of `fails` is taken
        passed   a text is followed
        --- stderr
        that is the contract, without a model; `paceline bench MODEL --strategy none,echo` shows on a model what it gains, and that texts stay the same
        ");
        let failing = run(&["plugins", "test", &strategy_plugin(), "--set", "echo.fails=on", "-q"]);
        assert_snapshot!(failing, @r"
        exit 1
        --- stdout
        passed   the table of drafters
        passed   an unknown setting is refused
        passed   a wrong value of `fails` is refused
        passed   the default of `fails` is taken
        failed   a text is followed: it is asked: it was told to fail
        --- stderr
        ");
        let checks = json(&["plugins", "test", "ngram-adaptive", "--json"]);
        assert_eq!(checks["ok"], true);
        assert!(checks["checks"].as_array().unwrap().iter().all(|check| check["result"] == "passed"));
    }

    #[test]
    fn have_no_operations() {
        assert_snapshot!(run(&["plugins", "test", "mtp-chain", "--operation", "softmax"]), @r"
        exit 2
        --- stdout
        --- stderr
        error: `--operation` is for backends; `mtp-chain` is a strategy
        ");
        assert_snapshot!(run(&["plugins", "test", "mtp-chain", "--junit", "x.xml"]), @r"
        exit 2
        --- stdout
        --- stderr
        error: `--junit` is for backends; `mtp-chain` is a strategy
        ");
        assert_snapshot!(run(&["devices", "--backend", "mtp-chain"]), @r"
        exit 5
        --- stdout
        --- stderr
        error: plugin `mtp-chain` cannot be used as a backend: plugin `mtp-chain` has no interface paceline.backend/1
        ");
    }
}
