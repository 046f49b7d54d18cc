//! `plugins list`, `plugins inspect` and `--plugin`.

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
    let [header, line] = [2, 3].map(|index| listed.lines().nth(index).unwrap_or_default());
    assert_snapshot!(format!("{header}\n{line}"), @r"
    id       kind     version  abi  origin
    fixture  backend  1.2.3    1.0  [fixture]
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
    assert_snapshot!(unknown.replace(", `cpu`", ""), @r"
    exit 2
    --- stdout
    --- stderr
    error: there is no plugin `fixtrue`; there is `fixture`
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
