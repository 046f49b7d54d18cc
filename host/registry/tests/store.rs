//! Plugins that are installed, and what the lock file beside them decides.

#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::path::PathBuf;

use insta::assert_snapshot;
use paceline_registry::{DiscoverConfig, Error, Installation, PluginStore, Registry};
use support::{CPlugin, Case, registry, shown};

fn store(case: &Case) -> PluginStore {
    PluginStore::new(case.plugins())
}

fn config(case: &Case) -> DiscoverConfig {
    DiscoverConfig { installed: Some(case.plugins()), ..case.config() }
}

/// A plugin outside of the folder.
fn built(case: &Case, version: &str) -> PathBuf {
    let path = case.outside(&format!("lib-{version}.so"));
    CPlugin::new("alpha").version(version).build(&path);
    path
}

fn install(case: &Case, version: &str) -> Installation {
    let source = built(case, version);
    store(case).install(&source, case.config().prober.as_ref(), false).unwrap()
}

/// Where the plugin is loaded from, or why it is not.
fn loaded(case: &Case) -> String {
    match registry().load(&Registry::discover(&config(case)), "alpha") {
        Ok(plugin) => support::without(&plugin.origin.to_string(), case.root()),
        Err(error) => shown(&error, case.root()),
    }
}

fn state(case: &Case, name: &str) -> String {
    case.state(&Registry::discover(&config(case)), &case.file(name))
}

fn message(case: &Case, result: paceline_registry::Result<impl Sized>) -> String {
    result.map_or_else(|error| shown(&error, case.root()), |_| "no error".to_owned())
}

fn names(case: &Case) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(case.plugins())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_installed_is_found_and_noted() {
    let case = Case::new();
    let installation = install(&case, "1.0.0");
    assert!(!installation.was_there && !installation.untried);
    assert_eq!(case.trials(), 1, "it was tried before it got its name");
    assert_eq!(names(&case), [".plugins.lock.held", "libalpha@1.0.0.so", "plugins.lock"]);
    assert_eq!(loaded(&case), "[folder]/plugins/libalpha@1.0.0.so");
    let candidates = Registry::discover(&config(&case));
    let installed = candidates.list()[0].installed.as_ref().unwrap();
    assert_eq!(installed, &store(&case).lock().unwrap().files[0]);
    assert_eq!(installed.source, case.outside("lib-1.0.0.so").canonicalize().unwrap());
    assert_eq!(installed.sha256.len(), 64);
}

#[test]
fn the_same_again_changes_nothing_and_other_content_only_on_request() {
    let case = Case::new();
    let first = install(&case, "1.0.0");
    let again = install(&case, "1.0.0");
    assert!(again.was_there);
    assert_eq!(again.file, first.file);
    let other = case.outside("other.so");
    CPlugin::new("alpha").with_lines("summary = \"Another build.\"\n").build(&other);
    let refused = store(&case).install(&other, None, false);
    assert_snapshot!(message(&case, refused), @r"
    version 1.0.0 of plugin `alpha` is installed already, with other content: [folder]/plugins/libalpha@1.0.0.so
    hint: give it another version, or replace the installed one with `--force`
    ");
    let replaced = store(&case).install(&other, None, true).unwrap();
    assert!(replaced.untried && replaced.file.sha256 != first.file.sha256);
    assert_eq!(store(&case).lock().unwrap().files, [replaced.file]);
    assert_eq!(loaded(&case), "[folder]/plugins/libalpha@1.0.0.so");
}

#[test]
fn versions_lie_side_by_side_and_one_is_chosen() {
    let case = Case::new();
    for version in ["1.9.0", "1.10.0", "2.0.0"] {
        install(&case, version);
    }
    assert_eq!(loaded(&case), "[folder]/plugins/libalpha@2.0.0.so");
    assert_snapshot!(state(&case, "libalpha@1.10.0.so"), @"not used: [folder]/plugins/libalpha@2.0.0.so is newer");
    store(&case).choose("alpha", Some("^1".parse().unwrap())).unwrap();
    assert_eq!(loaded(&case), "[folder]/plugins/libalpha@1.10.0.so");
    assert_snapshot!(state(&case, "libalpha@1.9.0.so"), @"not used: [folder]/plugins/libalpha@1.10.0.so is the newest of those that were chosen");
    let candidates = Registry::discover(&config(&case));
    let passed = candidates.list().iter().find(|it| it.path.ends_with("libalpha@2.0.0.so")).unwrap();
    assert_snapshot!(passed.state.to_string(), @"not used: version ^1 was chosen with `plugins use`");
    store(&case).choose("alpha", Some("=1.9.0".parse().unwrap())).unwrap();
    assert_eq!(loaded(&case), "[folder]/plugins/libalpha@1.9.0.so");
    store(&case).choose("alpha", Some("=3.0.0".parse().unwrap())).unwrap();
    assert_snapshot!(loaded(&case), @r"
    version =3.0.0 of plugin `alpha` was chosen with `plugins use`, and [folder]/plugins/libalpha@1.10.0.so has version 1.10.0
    hint: run `paceline plugins use alpha@VERSION`, or `alpha@*` for the highest version
    ");
    store(&case).choose("alpha", None).unwrap();
    assert_eq!(loaded(&case), "[folder]/plugins/libalpha@2.0.0.so");
}

#[test]
fn a_plugin_is_switched_off_and_on() {
    let case = Case::new();
    install(&case, "1.0.0");
    assert!(store(&case).set_enabled("alpha", false).unwrap());
    assert!(!store(&case).set_enabled("alpha", false).unwrap());
    let trials = case.trials();
    assert_snapshot!(loaded(&case), @r"
    plugin `alpha` is switched off by the configuration
    hint: run `paceline plugins enable alpha`, or set `enabled = true` in the section `plugin.alpha` of registry.toml
    ");
    assert_eq!(case.trials(), trials, "what is switched off is not tried");
    assert!(store(&case).set_enabled("alpha", true).unwrap());
    assert_eq!(loaded(&case), "[folder]/plugins/libalpha@1.0.0.so");
}

#[test]
fn what_is_removed_leaves_the_others() {
    let case = Case::new();
    for version in ["1.0.0", "2.0.0"] {
        install(&case, version);
    }
    store(&case).choose("alpha", Some("=2.0.0".parse().unwrap())).unwrap();
    let refused = store(&case).remove("alpha", Some(&"3.0.0".parse().unwrap()));
    assert_snapshot!(message(&case, refused), @r"
    version 3.0.0 of plugin `alpha` was not installed with `plugins install`; there is 1.0.0, 2.0.0
    hint: see `paceline plugins list`
    ");
    store(&case).remove("alpha", Some(&"2.0.0".parse().unwrap())).unwrap();
    assert_eq!(loaded(&case), "[folder]/plugins/libalpha@1.0.0.so", "the choice is gone with what it chose");
    store(&case).set_enabled("alpha", false).unwrap();
    assert_eq!(store(&case).remove("alpha", None).unwrap().len(), 1);
    assert_eq!(names(&case), [".plugins.lock.held", "plugins.lock"]);
    assert!(store(&case).lock().unwrap().choices.is_empty());
    assert_snapshot!(message(&case, store(&case).remove("alpha", None)), @r"
    plugin `alpha` was not installed with `plugins install`
    hint: see `paceline plugins list`
    ");
}

#[test]
fn other_content_than_was_installed_is_refused() {
    let case = Case::new();
    install(&case, "1.0.0");
    assert_eq!(loaded(&case), "[folder]/plugins/libalpha@1.0.0.so");
    let file = case.file("libalpha@1.0.0.so");
    let recorded = store(&case).lock().unwrap().files[0].sha256.clone();
    CPlugin::new("alpha").with_lines("summary = \"Not what it was.\"\n").build(&file);
    let text = loaded(&case);
    let found = text.split("SHA-256 ").nth(1).unwrap()[..64].to_owned();
    assert_snapshot!(text.replace(&recorded, "[recorded]").replace(&found, "[found]"), @r"
    plugin file [folder]/plugins/libalpha@1.0.0.so: has the SHA-256 [found], and had [recorded] when it was installed
    hint: install it again with `paceline plugins install FILE --force`, or remove it with `paceline plugins remove`
    ");
    let checked = store(&case).check().unwrap();
    assert!(matches!(&checked[..], [(_, Err(_))]));
    // Also through a link to other content.
    fs::rename(&file, case.outside("elsewhere.so")).unwrap();
    std::os::unix::fs::symlink(case.outside("elsewhere.so"), &file).unwrap();
    assert!(loaded(&case).contains("when it was installed"));
    fs::remove_file(&file).unwrap();
    let missing = store(&case).check().unwrap()[0].1.clone().unwrap_err();
    assert_snapshot!(missing.to_string(), @"cannot read it: No such file or directory (os error 2)");
}

#[test]
fn what_is_refused_is_not_installed() {
    let case = Case::new();
    let refused = |source: PathBuf| {
        let installed = store(&case).install(&source, case.config().prober.as_ref(), false);
        message(&case, installed)
    };
    fs::write(case.outside("notes.so"), "hello").unwrap();
    assert_snapshot!(refused(case.outside("notes.so")), @r#"
    plugin file [folder]/outside/notes.so: is not a shared library: it begins with "hell" in place of an ELF header
    hint: give the path of a shared library that was built as a Paceline plugin
    "#);
    let crashing = case.outside("crashing.so");
    CPlugin::new("alpha").define("ON_LOAD", "abort();").build(&crashing);
    assert_snapshot!(refused(crashing), @r"
    plugin file [folder]/outside/crashing.so: crashes while it is loaded (signal 6, abort)
    hint: it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`
    ");
    let lying = case.outside("lying.so");
    CPlugin::new("alpha").define("ID_TEXT", "TEXT(\"beta\")").build(&lying);
    assert_snapshot!(refused(lying), @r"
    plugin file [folder]/outside/lying.so: says in its descriptor that its id is `alpha`, and when loaded that it is `beta`
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
    assert_eq!(names(&case), [".plugins.lock.held"], "nothing is left behind");
}

#[test]
fn what_an_earlier_run_left_behind_is_removed() {
    let case = Case::new();
    fs::create_dir(case.file(".new-1-0")).unwrap();
    fs::write(case.file(".new-1-0/libalpha@1.0.0.so"), "half").unwrap();
    install(&case, "1.0.0");
    assert_eq!(names(&case), [".plugins.lock.held", "libalpha@1.0.0.so", "plugins.lock"]);
}

#[test]
fn a_descriptor_beside_the_library_comes_along() {
    let case = Case::new();
    let source = case.outside("libx.so");
    let plugin = CPlugin::new("alpha").argument("-DNO_SECTION");
    plugin.build(&source);
    fs::write(case.outside("libx.so.plugin.toml"), plugin.text()).unwrap();
    store(&case).install(&source, case.config().prober.as_ref(), false).unwrap();
    assert_eq!(loaded(&case), "[folder]/plugins/libalpha@1.0.0.so");
    let sidecar = case.file("libalpha@1.0.0.so.plugin.toml");
    fs::write(&sidecar, plugin.text() + "summary = \"Changed.\"\n").unwrap();
    assert!(loaded(&case).contains("when it was installed"), "{}", loaded(&case));
    store(&case).remove("alpha", None).unwrap();
    assert!(!sidecar.exists());
}

#[test]
fn without_its_lock_file_a_folder_is_not_trusted() {
    let case = Case::with_good();
    fs::write(case.file("plugins.lock"), "format = \"new\"\n").unwrap();
    assert_snapshot!(state(&case, "libgood.so"), @r#"
    plugin file [folder]/plugins/libgood.so: is not used, as lock file [folder]/plugins/plugins.lock: line 1: invalid type: string "new", expected u32
    hint: put it right, or remove it and install the plugins again
    "#);
    let refused = store(&case).set_enabled("good", true);
    assert!(matches!(refused, Err(Error::LockFile { .. })), "it is not overwritten");
}

#[test]
fn a_directory_stands_for_the_plugins_in_it() {
    let case = Case::new();
    assert_snapshot!(message(&case, PluginStore::files_of(&case.outside(""))), @r"
    there is no plugin in the directory [folder]/outside/
    hint: build it (`cargo build --release`) and give `target/release`, or the shared library in it
    ");
    let path = built(&case, "1.0.0").canonicalize().unwrap();
    fs::copy(support::fixture("fixture_no_plugin"), case.outside("libother.so")).unwrap();
    assert_eq!(PluginStore::files_of(&case.outside("")).unwrap(), std::slice::from_ref(&path));
    assert_eq!(PluginStore::files_of(&path).unwrap(), [path]);
}

/// Of several files all are installed or none, and the folder is as it was.
#[test]
fn several_files_are_installed_together() {
    let case = Case::new();
    install(&case, "1.0.0");
    let before = (names(&case), store(&case).lock().unwrap());
    let good = case.outside("libbeta.so");
    CPlugin::new("beta").build(&good);
    let bad = case.outside("libgamma.so");
    CPlugin::new("gamma").define("ON_LOAD", "abort();").build(&bad);
    let all = |files: &[&PathBuf]| {
        let files: Vec<PathBuf> = files.iter().map(|file| (*file).clone()).collect();
        store(&case).install_all(&files, case.config().prober.as_ref(), false)
    };
    // The first one is all right, and waits in vain.
    let refused = message(&case, all(&[&good, &bad]));
    assert!(refused.contains("libgamma.so"), "{refused}");
    assert_eq!((names(&case), store(&case).lock().unwrap()), before);
    // Another content of a version that is installed.
    let other = case.outside("libalpha.so");
    CPlugin::new("alpha").with_lines("summary = \"another one\"\n").build(&other);
    assert!(matches!(all(&[&good, &other]), Err(Error::InstalledAlready { .. })));
    assert_eq!((names(&case), store(&case).lock().unwrap()), before);
    // Two files that would have one name.
    let twin = case.outside("libtwin.so");
    CPlugin::new("beta").with_lines("summary = \"a twin\"\n").build(&twin);
    assert_snapshot!(message(&case, all(&[&good, &twin])), @r"
    plugin files [folder]/outside/libbeta.so and [folder]/outside/libtwin.so both have version 1.0.0 of `beta`
    hint: remove one of them, or pin one by its path in the section `plugin.beta` of registry.toml
    ");
    assert_eq!((names(&case), store(&case).lock().unwrap()), before);

    let installed = all(&[&good, &good, &built(&case, "1.0.0"), &built(&case, "1.1.0")]).unwrap();
    let told: Vec<_> =
        installed.iter().map(|it| (it.file.id.as_str(), it.file.version.to_string(), it.was_there)).collect();
    let expected = [("beta", "1.0.0", false), ("alpha", "1.0.0", true), ("alpha", "1.1.0", false)];
    assert_eq!(told, expected.map(|(id, version, was_there)| (id, version.to_owned(), was_there)));
    let files: Vec<_> = store(&case).lock().unwrap().files.into_iter().map(|file| file.name).collect();
    assert_eq!(files, ["libalpha@1.0.0.so", "libalpha@1.1.0.so", "libbeta@1.0.0.so"]);
    assert!(store(&case).check().unwrap().iter().all(|(_, verdict)| verdict.is_ok()));
}
