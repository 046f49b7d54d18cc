//! Drivers that a plugin needs are looked for where it is tried, and named when they are missing.

#![cfg(target_os = "linux")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use insta::assert_snapshot;
use support::{CPlugin, Case, without};

/// A plugin that needs a driver, and a folder in which drivers can be installed.
struct Needy {
    case: Case,
}

impl Needy {
    fn new(needs: &str) -> Self {
        let case = Case::with_good();
        CPlugin::new("needy").with_lines(&format!("needs = [{needs}]\n")).build(&case.file("libneedy.so"));
        Self { case }
    }

    fn drivers(&self) -> PathBuf {
        self.case.outside("")
    }

    /// Installs a driver as distributions do: the file has the whole version, and a link the first number.
    fn install(&self, version: &str) {
        let file = self.drivers().join(format!("libacme-driver.so.{version}"));
        compile(&file, "int acme_version(void) { return 1; }");
        let link = self.drivers().join("libacme-driver.so.1");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(file.file_name().unwrap(), link).unwrap();
    }

    /// What comes of the plugin in a new process, in which nothing is known of it.
    fn state(&self) -> String {
        let _ = std::fs::remove_dir_all(self.case.cache());
        let output = self.case.host("list", "").env("LD_LIBRARY_PATH", self.drivers()).output().unwrap();
        let text = without(&String::from_utf8(output.stdout).unwrap(), self.case.root());
        assert!(text.contains("libgood.so: usable"), "the others still work: {text}");
        let line = text.lines().find_map(|line| line.strip_prefix("[folder]/plugins/libneedy.so: "));
        line.expect("it is listed").to_owned()
    }
}

fn compile(file: &Path, source: &str) {
    let source_file = file.with_extension("c");
    std::fs::write(&source_file, source).unwrap();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([file, &source_file]).output();
    let compiled = compiled.expect("there is a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

#[test]
fn a_driver_that_is_missing_is_named() {
    let needy = Needy::new("{ library = \"libacme-driver.so.1\", version = \">=1.4\" }");
    assert_snapshot!(needy.state(), @"refused: needs the driver library `libacme-driver.so.1`, versions >=1.4, which cannot be loaded: libacme-driver.so.1: cannot open shared object file: No such file or directory");
    needy.install("1.2.0");
    assert_eq!(needy.state(), "usable", "where its version stands is not said");
}

#[test]
fn a_driver_of_another_version_is_named_with_both() {
    let needy = Needy::new(
        "{ library = \"libacme-driver.so.1\", version = \">=1.4, <2\", version_from = \"file_name\" }",
    );
    needy.install("1.2.0");
    assert_snapshot!(needy.state(), @"refused: needs the driver library `libacme-driver.so.1`, versions >=1.4, <2, which is here in version 1.2.0");
    needy.install("1.10.3");
    assert_eq!(needy.state(), "usable");
    // A file that is not a link has no longer version in its name.
    let link = needy.drivers().join("libacme-driver.so.1");
    let file = std::fs::canonicalize(&link).unwrap();
    std::fs::remove_file(&link).unwrap();
    std::fs::rename(file, link).unwrap();
    assert_eq!(needy.state(), "usable");
}

#[test]
fn a_name_with_a_star_takes_what_there_is() {
    let needy = Needy::new("{ library = \"libacme-driver.so.*\" }");
    assert_snapshot!(needy.state(), @"refused: needs the driver library `libacme-driver.so.*`, which is in none of the folders that the system's loader usually looks in");
    needy.install("3");
    assert_eq!(needy.state(), "usable");
}

#[test]
fn a_driver_that_cannot_be_loaded_says_why() {
    let needy = Needy::new("{ library = \"libacme-driver.so.1\" }");
    std::fs::write(needy.drivers().join("libacme-driver.so.1"), "not a library").unwrap();
    let state = needy.state();
    let part = "refused: needs the driver library `libacme-driver.so.1`, which cannot be loaded: ";
    assert!(state.starts_with(part) && state.contains("file too short"), "{state}");
}

/// A driver's library runs code: what it does wrong happens where the plugin is tried.
#[test]
fn a_driver_that_crashes_takes_only_the_trial_down() {
    let needy = Needy::new("{ library = \"libacme-driver.so.1\" }");
    let source = "#include <stdlib.h>\n__attribute__((constructor)) static void start(void) { abort(); }";
    compile(&needy.drivers().join("libacme-driver.so.1"), source);
    assert_snapshot!(needy.state(), @"refused: crashes while it is loaded (signal 6, abort)");
}

#[test]
fn a_driver_is_looked_for_by_its_name_alone() {
    let prober = Case::new().config().prober.unwrap();
    let found = prober.find_driver("libc.so.6").unwrap().unwrap();
    assert!(found.path.unwrap().contains("/libc.so"), "the file is told");
    let failure = prober.find_driver("libno-such-driver.so.1").unwrap().unwrap_err();
    assert_snapshot!(failure.to_string(), @"cannot be loaded: libno-such-driver.so.1: cannot open shared object file: No such file or directory");
}

#[test]
fn one_of_several_libraries_will_do() {
    let needs = "{ any_of = [\"libacme-driver.so.2\", \"libacme-driver.so.1\"], version = \">=1.4\", version_from = \"file_name\" }";
    let needy = Needy::new(needs);
    assert_snapshot!(needy.state(), @"refused: needs one of the driver libraries `libacme-driver.so.2`, `libacme-driver.so.1`, versions >=1.4, none of which is here; the first cannot be loaded: libacme-driver.so.2: cannot open shared object file: No such file or directory");
    needy.install("1.3.9");
    assert_snapshot!(needy.state(), @"refused: needs one of the driver libraries `libacme-driver.so.2`, `libacme-driver.so.1`, versions >=1.4, of which libacme-driver.so.1 is here in version 1.3.9");
    needy.install("1.5");
    assert_eq!(needy.state(), "usable");
}
