//! A plugin that was built so that a panic ends the process is refused when it is built.

use std::process::{Command, Output};

/// Compiles the fixture with these flags of its own; what it stands on is there already.
fn compile(flags: &[&str]) -> Output {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["rustc", "--quiet", "--offline", "-p", "paceline-plugin-api", "--example", "exported"]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    command.arg("--").args(flags).current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo runs")
}

#[test]
fn a_build_in_which_panics_abort_is_refused_with_the_reason() {
    let aborting = compile(&["-C", "panic=abort"]);
    let text = String::from_utf8_lossy(&aborting.stderr);
    assert!(!aborting.status.success(), "it compiles");
    let reason = "a Paceline plugin must be built with panic = \"unwind\": a panic must become an error";
    assert!(text.contains(reason), "{text}");
    assert_eq!(text.matches("\nerror").count() + usize::from(text.starts_with("error")), 2, "{text}");

    let unwinding = compile(&["-C", "panic=unwind"]);
    assert!(unwinding.status.success(), "{}", String::from_utf8_lossy(&unwinding.stderr));
}
