//! `doctor` on the machine of the tests, of which little is known.
#![cfg(target_os = "linux")]

mod support;

use support::{Folder, fixture_plugin, shown};

fn findings(folder: &Folder, set: &[(&str, &str)]) -> serde_json::Value {
    let mut program = folder.program(&["doctor", "--json"]);
    let output = program.envs(set.iter().copied()).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", shown(&output)))
}

fn find<'a>(findings: &'a serde_json::Value, section: &str, name: &str) -> &'a serde_json::Value {
    let mut all = findings["findings"].as_array().unwrap().iter();
    all.find(|it| it["section"] == section && it["name"].as_str().unwrap().starts_with(name))
        .unwrap_or_else(|| panic!("{section} has no {name}: {findings:#}"))
}

#[test]
fn it_tells_what_there_is() {
    let folder = Folder::new();
    folder.write("good.so", std::fs::read(fixture_plugin()).unwrap());
    let found = findings(&folder, &[("OMP_NUM_THREADS", "3")]);
    assert_eq!(find(&found, "program", "version")["value"], env!("CARGO_PKG_VERSION"));
    let threads = find(&found, "variables", "OMP_NUM_THREADS");
    assert_eq!(threads["value"], "3 (how many threads OpenMP starts; no effect here: `--threads N`)");
    assert_eq!(threads["ok"], true);
    let plugin = find(&found, "plugins", "fixture 1.2.3");
    assert!(plugin["value"].as_str().unwrap().starts_with("usable; "), "{plugin}");
    assert_eq!(find(&found, "plugin folders", &folder.path().display().to_string())["ok"], true);
    for library in ["libcuda.so.1", "libamdhip64.so", "libze_loader.so.1"] {
        find(&found, "drivers", library);
    }
}

#[test]
fn it_says_what_to_put_right() {
    let folder = Folder::new();
    folder.write("broken.so", "hello\n");
    let found = findings(&folder, &[("CUDA_VISIBLE_DEVICES", "")]);
    assert_eq!(found["ok"], false);
    let broken = find(&found, "plugins", "broken.so");
    assert!(broken["fault"].as_str().unwrap().starts_with("refused: is not a shared library"), "{broken}");
    assert!(broken["remedy"].as_str().unwrap().starts_with("give the path"), "{broken}");
    assert_eq!(find(&found, "variables", "CUDA_VISIBLE_DEVICES")["fault"], "it hides every device");
    let text = folder.run_searching(&["doctor"]);
    assert!(text.starts_with("exit 1\n--- stdout\nprogram\n  version "), "{text}");
    assert!(text.contains("\n  problem: broken.so: refused: is not a shared library"), "{text}");
}
