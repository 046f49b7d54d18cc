//! Files that others may have written, and files that may not be read.

#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use insta::assert_snapshot;
use support::{CPlugin, Case, refused_file, without};

#[test]
fn writable_by_everyone() {
    let text = refused_file(|path| {
        CPlugin::new("bad").build(path);
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    });
    assert_snapshot!(text, @r"
    plugin file [folder]/plugins/libbad.so: can be written by every user of this machine (mode 0777), so it may be anyone's code
    hint: if you trust what is in it now, run `chmod o-w [folder]/plugins/libbad.so`
    ");
}

#[test]
fn in_a_directory_writable_by_everyone() {
    let case = Case::with_good();
    fs::set_permissions(case.plugins(), fs::Permissions::from_mode(0o1777)).unwrap();
    let candidates = case.discover();
    assert_snapshot!(case.state(&candidates, &case.file("libgood.so")), @r"
    plugin file [folder]/plugins/libgood.so: lies in a directory that every user of this machine can write (mode 1777)
    hint: move it to a directory that only you or root can write
    ");
    assert_eq!(case.trials(), 0);
}

#[test]
fn writable_by_a_group_is_a_warning() {
    let case = Case::with_good();
    fs::set_permissions(case.file("libgood.so"), fs::Permissions::from_mode(0o775)).unwrap();
    fs::set_permissions(case.plugins(), fs::Permissions::from_mode(0o775)).unwrap();
    let candidates = case.discover();
    let warnings = without(&candidates.list()[0].warnings.join("\n"), case.root());
    assert_snapshot!(warnings, @r"
    plugin file [folder]/plugins/libgood.so can be written by its group; `chmod g-w` if that is not intended
    the directory [folder]/plugins of a plugin can be written by its group; `chmod g-w` if that is not intended
    ");
    assert_eq!(case.state(&candidates, &case.file("libgood.so")), "usable");
}

/// Root reads everything, so this looks as somebody else where the tests run as root.
#[test]
fn one_that_may_not_be_read() {
    use std::os::unix::process::CommandExt;

    const NOBODY: u32 = 65_534;

    let case = Case::with_good();
    CPlugin::new("bad").build(&case.file("libbad.so"));
    fs::set_permissions(case.file("libbad.so"), fs::Permissions::from_mode(0o000)).unwrap();
    for folder in [case.root().to_owned(), case.plugins()] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let own = std::os::unix::fs::MetadataExt::uid(&fs::metadata(case.root()).unwrap());
    // The program may lie where only root can go.
    let program = case.outside("small_host");
    fs::copy(support::small_host(), &program).unwrap();
    let mut command = std::process::Command::new(program);
    command.arg("list").arg(case.plugins()).arg(case.outside("cache"));
    if own == 0 {
        fs::set_permissions(case.outside(""), fs::Permissions::from_mode(0o755)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().unwrap();
    assert_snapshot!(without(&String::from_utf8(output.stdout).unwrap(), case.root()), @r"
    [folder]/plugins/libbad.so: refused: cannot open it: Permission denied (os error 13)
    [folder]/plugins/libgood.so: usable
    ");
}

/// Only root can give files away.
#[test]
fn one_of_another_user() {
    let case = Case::with_good();
    CPlugin::new("bad").build(&case.file("libbad.so"));
    if std::os::unix::fs::chown(case.file("libbad.so"), Some(12_345), None).is_err() {
        return;
    }
    assert_snapshot!(case.refusal("libbad.so"), @r"
    plugin file [folder]/plugins/libbad.so: belongs to user 12345, who is neither you (user 0) nor root
    hint: if you trust it, make a copy of your own and load that
    ");
}
