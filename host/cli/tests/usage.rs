//! How the program is called: help, wrong arguments, output that nobody reads.

mod support;

use std::process::Stdio;

use insta::assert_snapshot;
use support::{program, run};

#[test]
fn without_a_command() {
    assert_snapshot!(run(&[]), @r#"
    exit 2
    --- stdout
    --- stderr
    Runs language models from GGUF files, with plugins for backends and strategies.

    Usage: paceline [OPTIONS] <COMMAND>

    Commands:
      run          Continue a text
      chat         Talk with a model
      eval         Measure a model on a text
      bench        Measure what strategies gain
      explain      Show what a model would run on, with which settings, and why
      config       Check and show the files of settings
      models       Look into model files
      tokenize     Show the token ids of a text
      detokenize   Show the text of token ids
      plugins      Show, install and write plugins
      devices      List the devices that models can run on
      doctor       Look at the machine, its drivers and the plugins, and say what to put right
      tools        Make model files out of others
      completions  Write what makes a shell complete this program's arguments
      man          Write the manual page

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version

    Options for every command:
          --plugin <PATH>  Load the plugin in this shared library; may be given several times
      -v, --verbose...     Tell more on standard error; -vv tells authors of plugins more, -vvv
                           everything
      -q, --quiet          Write nothing but data, warnings and errors
          --log <FILTER>   Log what this filter lets through, such as `warn,paceline_registry=debug`
                           [env: PACELINE_LOG]
          --no-progress    Show no progress, not even on a terminal

    Examples:
      paceline run demo -p "fn main() {"        continue a text
      paceline chat model.gguf                  talk with a model
      paceline bench demo                       what guessing ahead gains
      paceline explain demo                     where it would run, how, and why
      paceline models inspect demo              what is in a model file
      paceline models verify model.gguf         every fault of a file, before it is trusted
      paceline tokenize demo "Hello, world"     text to token ids
      paceline devices                          what models could run on
      paceline plugins list                     which plugins there are

    `demo` is a small model inside this program; it works wherever a MODEL is asked for.
    "#);
}

#[test]
fn help_in_full() {
    assert_snapshot!(run(&["--help"]), @r#"
    exit 0
    --- stdout
    Runs language models from GGUF files, with plugins for backends and strategies.

    Usage: paceline [OPTIONS] <COMMAND>

    Commands:
      run          Continue a text
      chat         Talk with a model
      eval         Measure a model on a text
      bench        Measure what strategies gain
      explain      Show what a model would run on, with which settings, and why
      config       Check and show the files of settings
      models       Look into model files
      tokenize     Show the token ids of a text
      detokenize   Show the text of token ids
      plugins      Show, install and write plugins
      devices      List the devices that models can run on
      doctor       Look at the machine, its drivers and the plugins, and say what to put right
      tools        Make model files out of others
      completions  Write what makes a shell complete this program's arguments
      man          Write the manual page

    Options:
      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Options for every command:
          --plugin <PATH>
              Load the plugin in this shared library; may be given several times
              
              It takes the place of a built-in plugin with the same id, and is preferred to the built-in
              ones. Commands that use no plugin do not load it.

      -v, --verbose...
              Tell more on standard error; -vv tells authors of plugins more, -vvv everything

      -q, --quiet
              Write nothing but data, warnings and errors

          --log <FILTER>
              Log what this filter lets through, such as `warn,paceline_registry=debug`
              
              Parts are separated by commas: a level (error, warn, info, debug, trace, off) for
              everything, or `target=level` for one crate, module or plugin. Takes the place of
              --verbose.
              
              [env: PACELINE_LOG]

          --no-progress
              Show no progress, not even on a terminal

    Examples:
      paceline run demo -p "fn main() {"        continue a text
      paceline chat model.gguf                  talk with a model
      paceline bench demo                       what guessing ahead gains
      paceline explain demo                     where it would run, how, and why
      paceline models inspect demo              what is in a model file
      paceline models verify model.gguf         every fault of a file, before it is trusted
      paceline tokenize demo "Hello, world"     text to token ids
      paceline devices                          what models could run on
      paceline plugins list                     which plugins there are

    `demo` is a small model inside this program; it works wherever a MODEL is asked for.

    Exit codes:
        0  success
        1  something failed while running
        2  wrong usage
        3  the model file is missing or cannot be used
        4  the model or the request does not fit in memory
        5  a plugin cannot be used
      130  interrupted by Ctrl-C
    --- stderr
    "#);
}

#[test]
fn version() {
    assert_snapshot!(run(&["--version"]), @r"
    exit 0
    --- stdout
    paceline [version]
    --- stderr
    ");
}

#[test]
fn an_unknown_flag_suggests_the_near_one() {
    assert_snapshot!(run(&["models", "inspect", "demo", "--tensor"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: unexpected argument '--tensor' found

      tip: a similar argument exists: '--tensors'

    Usage: paceline models inspect --tensors <MODEL>

    For more information, try '--help'.
    ");
}

#[test]
fn an_unknown_command_suggests_the_near_one() {
    assert_snapshot!(run(&["tokenise", "demo"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: unrecognized subcommand 'tokenise'

      tip: some similar subcommands exist: 'detokenize', 'tokenize'

    Usage: paceline [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
}

#[test]
fn a_setting_of_the_wrong_form() {
    assert_snapshot!(run(&["devices", "--set", "threads=2"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: setting `threads` has no effect: no model is run here
    ");
}

#[test]
fn a_log_filter_of_the_wrong_form() {
    assert_snapshot!(run(&["plugins", "list", "--log", "cpu=loud"]), @r#"
    exit 2
    --- stdout
    --- stderr
    error: `cpu=loud` is no log filter
    cause: error parsing level filter: expected one of "off", "error", "warn", "info", "debug", "trace", or a number 0-5
    hint: give a level, or `target=level` parts with commas between, as in `--log warn,cpu=debug`
    "#);
}

#[test]
fn the_log_filter_comes_from_the_environment_too() {
    let output = program().args(["plugins", "list"]).env("PACELINE_LOG", "cpu=loud").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn quiet_and_verbose_exclude_each_other() {
    assert_snapshot!(run(&["plugins", "list", "-q", "-v"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: the argument '--quiet' cannot be used with '--verbose...'

    Usage: paceline plugins list --quiet

    For more information, try '--help'.
    ");
}

/// As in `paceline models inspect demo | head -1`.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = program()
        .args(["plugins", "list", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}
