//! Files that may be found in a plugin directory. Each is refused with one clear line, and the good plugin beside
//! it works.

#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use insta::assert_snapshot;
use support::{CPlugin, Case, fixture, refused, refused_file};

/// A good plugin with some of its bytes changed.
fn patched(patch: impl FnOnce(&mut Vec<u8>)) -> impl FnOnce(&Path) {
    |path| {
        CPlugin::new("bad").build(path);
        let mut bytes = fs::read(path).unwrap();
        patch(&mut bytes);
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn a_plugin_in_c_is_usable() {
    let case = Case::with_good();
    assert_eq!(case.refusal("libgood.so"), "usable");
}

#[test]
fn cut_at_a_third() {
    let text = refused_file(patched(|bytes| bytes.truncate(bytes.len() / 3)));
    assert!(text.starts_with("plugin file [folder]/plugins/libbad.so: is cut short: it needs "), "{text}");
    assert!(text.ends_with("\nhint: build or download the plugin again"), "{text}");
}

/// The loader takes such a file and all goes well until something is missing: only the tables tell.
#[test]
fn cut_by_its_last_twelve_kilobytes() {
    let text = refused_file(|path| {
        let mut bytes = fs::read(fixture("fixture_backend")).unwrap();
        bytes.truncate(bytes.len() - 12 * 1024);
        fs::write(path, bytes).unwrap();
    });
    assert!(text.starts_with("plugin file [folder]/plugins/libbad.so: is cut short: it needs "), "{text}");
}

#[test]
fn a_text() {
    assert_snapshot!(refused_file(|path| fs::write(path, "GROUP ( libreal.so )\n").unwrap()), @r#"
    plugin file [folder]/plugins/libbad.so: is not a shared library: it begins with "GROU" in place of an ELF header
    hint: give the path of a shared library that was built as a Paceline plugin
    "#);
}

#[test]
fn an_empty_file() {
    assert_snapshot!(refused_file(|path| fs::write(path, "").unwrap()), @r"
    plugin file [folder]/plugins/libbad.so: is not a shared library: the file is empty
    hint: give the path of a shared library that was built as a Paceline plugin
    ");
}

#[test]
fn a_directory_is_passed_over() {
    assert_snapshot!(refused_file(|path| fs::create_dir(path).unwrap()), @"not listed");
}

#[test]
fn a_foreign_library_is_passed_over_in_silence() {
    let text = refused_file(|path| {
        fs::copy(fixture("fixture_no_plugin"), path).unwrap();
    });
    assert_snapshot!(text, @"not listed");
}

#[test]
fn a_pipe_does_not_make_anyone_wait() {
    let text = refused_file(|path| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    });
    assert_snapshot!(text, @r"
    plugin file [folder]/plugins/libbad.so: is a pipe or device, not a file
    hint: give the path of the plugin's shared library
    ");
}

#[test]
fn for_another_machine() {
    let text = refused_file(patched(|bytes| bytes[18..20].copy_from_slice(&8_u16.to_le_bytes())));
    assert_snapshot!(text.replace(std::env::consts::ARCH, "[host]"), @r"
    plugin file [folder]/plugins/libbad.so: is built for ELF machine 8, and this program for [host]
    hint: use a plugin that was built for this machine
    ");
}

#[test]
fn for_a_32_bit_machine() {
    let text = refused_file(patched(|bytes| bytes[4] = 1));
    assert_snapshot!(text.replace(std::env::consts::ARCH, "[host]"), @r"
    plugin file [folder]/plugins/libbad.so: is built for a 32-bit machine, and this program for [host]
    hint: use a plugin that was built for this machine
    ");
}

#[test]
fn for_another_major_version_by_its_entry() {
    assert_snapshot!(refused(|plugin| plugin.define("ENTRY", "paceline_plugin_entry_v2")), @r"
    plugin file [folder]/plugins/libbad.so: has no symbol `paceline_plugin_entry_v1` but `paceline_plugin_entry_v2`: it is for another version of the ABI
    hint: use a plugin and a program of versions that go together
    ");
}

#[test]
fn for_another_major_version_by_its_descriptor() {
    let text = refused(|plugin| {
        plugin.descriptor("id = \"bad\"\nversion = \"1.0.0\"\nkind = \"backend\"\nabi = { oldest = \"2.0\", built = \"2.3\" }\n")
    });
    assert_snapshot!(text, @r"
    plugin file [folder]/plugins/libbad.so: speaks ABI 2.0..=2.3, this host 1.0..=1.0: they have no version in common
    hint: use a plugin and a program of versions that go together
    ");
}

#[test]
fn without_a_descriptor() {
    assert_snapshot!(refused(|plugin| plugin.define("NO_SECTION", "1")), @r"
    plugin file [folder]/plugins/libbad.so: has a plugin's entry but no descriptor: there is neither a section `.paceline.plugin` in it nor [folder]/plugins/libbad.so.plugin.toml beside it
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
}

#[test]
fn without_an_entry() {
    assert_snapshot!(refused(|plugin| plugin.define("ENTRY", "some_function")), @r"
    plugin file [folder]/plugins/libbad.so: has no symbol `paceline_plugin_entry_v1`
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
}

#[test]
fn with_a_damaged_descriptor() {
    assert_snapshot!(refused(|plugin| plugin.damage(|bytes| bytes[40] ^= 1)), @r"
    plugin file [folder]/plugins/libbad.so: the descriptor's checksum is wrong: the file is damaged
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
    assert_snapshot!(refused(|plugin| plugin.damage(|bytes| bytes.truncate(50))), @r"
    plugin file [folder]/plugins/libbad.so: the plugin section states a descriptor of 86 bytes but holds 18
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
    assert_snapshot!(refused(|plugin| plugin.damage(|bytes| bytes[0] = b'X')), @r"
    plugin file [folder]/plugins/libbad.so: the plugin section does not begin with PACELINE-PLUGIN1
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
}

#[test]
fn with_a_wrong_descriptor() {
    assert_snapshot!(refused(|plugin| plugin.with_lines("licence = \"MIT\"\n")), @r"
    plugin file [folder]/plugins/libbad.so: the descriptor in it is wrong at line 5, column 1: the key `licence` is not known; did you mean `license`?
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
    assert_snapshot!(refused(|plugin| plugin.descriptor("id = \"bad\"\nkind = backend\n")), @r"
    plugin file [folder]/plugins/libbad.so: the descriptor in it is wrong at line 2, column 8: string values must be quoted, expected literal string
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
}

#[test]
fn with_a_wrong_descriptor_beside_it() {
    let case = Case::with_good();
    CPlugin::new("bad").define("NO_SECTION", "1").build(&case.file("libbad.so"));
    fs::write(case.file("libbad.so.plugin.toml"), "id = 3\n").unwrap();
    assert_snapshot!(case.refusal("libbad.so"), @r"
    plugin file [folder]/plugins/libbad.so: [folder]/plugins/libbad.so.plugin.toml beside it is wrong at line 1, column 6: invalid type: integer `3`, expected a string
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
    let text = CPlugin::new("bad").text();
    fs::write(case.file("libbad.so.plugin.toml"), text).unwrap();
    assert_snapshot!(case.refusal("libbad.so"), @"usable");
    fs::set_permissions(case.file("libbad.so.plugin.toml"), fs::Permissions::from_mode(0o666)).unwrap();
    assert_snapshot!(case.refusal("libbad.so"), @r"
    plugin file [folder]/plugins/libbad.so: has a descriptor beside it, [folder]/plugins/libbad.so.plugin.toml, that can be written by every user of this machine (mode 0666), so it may be anyone's code
    hint: if you trust what is in it now, run `chmod o-w [folder]/plugins/libbad.so.plugin.toml`
    ");
}

#[test]
fn compiled_for_another_processor() {
    let text = refused(|plugin| {
        plugin.with_lines("cpu_features = [\"warp-drive\"]\n").define("ON_LOAD", "__builtin_trap();")
    });
    assert_snapshot!(text, @r"
    plugin file [folder]/plugins/libbad.so: is compiled for features that this processor or system lacks: warp-drive (not known here)
    hint: use a build of the plugin for this processor
    ");
}

#[test]
fn a_symbol_that_nobody_has() {
    let text = refused(|plugin| {
        plugin.define("ON_DEVICES", "extern int not_there(void); *out = (uint32_t)not_there();")
    });
    assert_snapshot!(text, @r"
    plugin file [folder]/plugins/libbad.so: cannot be loaded: undefined symbol: not_there
    hint: if a library is named that is not found, install what it belongs to (a driver, most often)
    ");
}

#[test]
fn a_library_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("needed.c");
    fs::write(&source, "int needed(void) { return 1; }\n").unwrap();
    let library = folder.path().join("libneeded.so.3");
    let compiled = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,-soname,libneeded.so.3", "-o"])
        .args([&library, &source])
        .status();
    assert!(compiled.unwrap().success());
    let text = refused(|plugin| {
        plugin
            .define("ON_DEVICES", "extern int needed(void); *out = (uint32_t)needed();")
            .argument(library.display().to_string())
    });
    assert_snapshot!(text, @r"
    plugin file [folder]/plugins/libbad.so: cannot be loaded: libneeded.so.3: cannot open shared object file: No such file or directory
    hint: if a library is named that is not found, install what it belongs to (a driver, most often)
    ");
}

#[test]
fn null_pointers_in_the_tables() {
    assert_snapshot!(refused(|plugin| plugin.define("INTERFACE", "NULL")), @r"
    plugin file [folder]/plugins/libbad.so: the plugin's table lacks an id, a version or its interfaces
    hint: use a plugin and a program of versions that go together
    ");
    assert_snapshot!(refused(|plugin| plugin.define("ID_TEXT", "{NULL,7}")), @r"
    plugin file [folder]/plugins/libbad.so: the plugin's table lacks an id, a version or its interfaces
    hint: use a plugin and a program of versions that go together
    ");
    assert_snapshot!(refused(|plugin| plugin.define("ON_ENTRY", "return NULL;")), @r"
    plugin file [folder]/plugins/libbad.so: the plugin refuses this host, which speaks ABI 1.0..=1.0: use a plugin built for that range
    hint: use a plugin and a program of versions that go together
    ");
}

#[test]
fn sizes_that_are_too_small() {
    assert_snapshot!(refused(|plugin| plugin.define("TABLE_SIZE", "8")), @r"
    plugin file [folder]/plugins/libbad.so: the plugin's table states a size of 8 bytes: too short
    hint: use a plugin and a program of versions that go together
    ");
    assert_snapshot!(refused(|plugin| plugin.define("BACKEND_SIZE", "8")), @r"
    plugin file [folder]/plugins/libbad.so: the backend's table states a size of 8 bytes
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
}

/// A later version of the ABI has longer tables, and more in them than is known here.
#[test]
fn sizes_that_are_larger_than_known_are_all_right() {
    assert_snapshot!(refused(|plugin| plugin.define("TABLE_SIZE", "4096").define("BACKEND_SIZE", "(size_t)-1")), @"usable");
}

#[test]
fn a_table_that_contradicts_the_descriptor() {
    assert_snapshot!(refused(|plugin| plugin.define("ID_TEXT", "TEXT(\"other\")")), @r"
    plugin file [folder]/plugins/libbad.so: says in its descriptor that its id is `bad`, and when loaded that it is `other`
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
    assert_snapshot!(refused(|plugin| plugin.define("KIND", "2")), @r"
    plugin file [folder]/plugins/libbad.so: says in its descriptor that its kind is `backend`, and when loaded that it is `number 2`
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
    assert_snapshot!(refused(|plugin| plugin.define("KIND", "77")), @r"
    plugin file [folder]/plugins/libbad.so: says in its descriptor that its kind is `backend`, and when loaded that it is `number 77`
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
    assert_snapshot!(refused(|plugin| plugin.define("ABI_BUILT", "PACELINE_ABI_VERSION(1,3)")), @r"
    plugin file [folder]/plugins/libbad.so: says in its descriptor that its ABI is `1.0`, and when loaded that it is `1.3`
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
    let other_version = "id = \"bad\"\nversion = \"2.0.0\"\nkind = \"backend\"\nabi = { oldest = \"1.0\", built = \"1.0\" }\n";
    assert_snapshot!(refused(|plugin| plugin.descriptor(other_version)), @r"
    plugin file [folder]/plugins/libbad.so: says in its descriptor that its version is `2.0.0`, and when loaded that it is `1.0.0`
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
}

#[test]
fn no_backend_though_it_says_so() {
    assert_snapshot!(refused(|plugin| plugin.define("INTERFACE", "no_interface")), @r"
    plugin file [folder]/plugins/libbad.so: plugin `bad` has no interface paceline.backend/1
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
}

#[test]
fn an_id_that_differs_only_in_case() {
    let case = Case::with_good();
    CPlugin::new("Good").build(&case.file("libbad.so"));
    assert_snapshot!(case.refusal("libbad.so"), @r"
    plugin file [folder]/plugins/libbad.so: the descriptor in it is wrong at line 1, column 6: the id `Good` must be in lower case, as `good`
    hint: this is a fault of the plugin: build or download it again, or tell its author
    ");
}

/// Damage anywhere in a file's tables is a refusal or unnoticed, but never a panic.
#[test]
fn damage_anywhere_in_the_tables() {
    let case = Case::new();
    let path = case.file("libbad.so");
    CPlugin::new("bad").build(&path);
    let whole = fs::read(&path).unwrap();
    let sections = u64::from_le_bytes(whole[40..48].try_into().unwrap()) as usize;
    let config = paceline_registry::DiscoverConfig { prober: None, cache: None, ..case.config() };
    for at in (0..64 + 12 * 56).chain(sections..whole.len()) {
        let mut bytes = whole.clone();
        bytes[at] ^= [0xff, 0x80, 0x01][at % 3];
        fs::write(&path, bytes).unwrap();
        let candidates = paceline_registry::Registry::discover(&config);
        assert!(candidates.list().len() <= 1);
    }
}
