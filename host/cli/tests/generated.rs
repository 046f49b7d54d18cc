//! `completions` and `man`: what is made from the definitions of the commands.

mod support;

use insta::assert_snapshot;
use support::{Folder, output, run, shown};

fn stdout(arguments: &[&str]) -> String {
    let output = output(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", shown(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_shell_learns_all_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = stdout(&["completions", shell]);
        for name in ["run", "eval", "perplexity", "models", "inspect", "tokenize", "devices", "--kv-type"] {
            // Fish writes a long option without its dashes.
            assert!(script.contains(name.trim_start_matches('-')), "{shell} lacks {name}");
        }
    }
}

#[test]
fn an_unknown_shell() {
    assert_snapshot!(run(&["completions", "banana"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: invalid value 'banana' for '<SHELL>'
      [possible values: bash, elvish, fish, powershell, zsh]

    For more information, try '--help'.
    ");
}

#[test]
fn the_main_page_goes_to_standard_output() {
    let page = stdout(&["man"]);
    assert!(page.contains(".TH paceline 1"), "{page}");
    assert!(page.contains("paceline\\-tokenize(1)"), "{page}");
}

#[test]
fn one_page_per_command_goes_into_a_folder() {
    let folder = Folder::new();
    let pages = folder.path().join("share/man1");
    assert_eq!(stdout(&["man", "--out", &pages.display().to_string()]), "");
    let mut names: Vec<String> = std::fs::read_dir(&pages)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_snapshot!(names.join("\n"), @r"
    paceline-bench.1
    paceline-chat.1
    paceline-completions.1
    paceline-config-check.1
    paceline-config-schema.1
    paceline-config-show.1
    paceline-config.1
    paceline-detokenize.1
    paceline-devices.1
    paceline-doctor.1
    paceline-eval-kernels.1
    paceline-eval-perplexity.1
    paceline-eval-top.1
    paceline-eval.1
    paceline-explain.1
    paceline-man.1
    paceline-models-inspect.1
    paceline-models-pair.1
    paceline-models-verify.1
    paceline-models.1
    paceline-plugins-disable.1
    paceline-plugins-enable.1
    paceline-plugins-inspect.1
    paceline-plugins-install.1
    paceline-plugins-list.1
    paceline-plugins-new.1
    paceline-plugins-paths.1
    paceline-plugins-remove.1
    paceline-plugins-rescan.1
    paceline-plugins-test.1
    paceline-plugins-use.1
    paceline-plugins-verify.1
    paceline-plugins.1
    paceline-run.1
    paceline-tokenize.1
    paceline-tools-export-states.1
    paceline-tools-trim-head.1
    paceline-tools.1
    paceline.1
    ");
    for name in names {
        let page = std::fs::read_to_string(pages.join(&name)).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
}

#[test]
fn a_folder_that_cannot_be_made() {
    let folder = Folder::new();
    let file = folder.write("file", "");
    assert_snapshot!(folder.run(&["man", "--out", &format!("{file}/man1")]), @r"
    exit 1
    --- stdout
    --- stderr
    error: cannot write manual pages to [folder]/file/man1
    cause: Not a directory (os error 20)
    ");
}
