//! Runs the program and shows what came out, with everything that depends on the machine replaced.

#![allow(dead_code, reason = "not every test file uses everything")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use paceline_gguf::{TensorType, Writer};
use tempfile::TempDir;

/// The program, with nothing in its environment that changes its output.
pub fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_paceline"));
    for name in ["PACELINE_LOG", "NO_COLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES"] {
        program.env_remove(name);
    }
    program
}

/// Runs the program with these arguments and nothing on standard input.
pub fn output(arguments: &[&str]) -> Output {
    output_with_input(arguments, "")
}

/// Runs the program with `input` on standard input.
pub fn output_with_input(arguments: &[&str], input: impl AsRef<[u8]>) -> Output {
    let mut child = program()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    // A program that does not read its input may be gone already.
    let _ = stdin.write_all(input.as_ref());
    drop(stdin);
    child.wait_with_output().expect("the program ends")
}

/// Exit code, standard output and standard error as one text.
pub fn shown(output: &Output) -> String {
    let part = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().map_or_else(|| "killed".to_owned(), |code| code.to_string());
    let text =
        format!("exit {code}\n--- stdout\n{}--- stderr\n{}", part(&output.stdout), part(&output.stderr));
    text.replace(&format!("paceline {}", env!("CARGO_PKG_VERSION")), "paceline [version]")
}

/// Runs the program and shows what came out.
pub fn run(arguments: &[&str]) -> String {
    shown(&output(arguments))
}

/// Runs the program successfully and returns its standard output as JSON.
pub fn json(arguments: &[&str]) -> serde_json::Value {
    let output = output(arguments);
    assert!(output.status.success(), "{}", shown(&output));
    serde_json::from_slice(&output.stdout).expect("valid JSON")
}

/// A folder for files that a test makes.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder for temporary files"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of a file in it, as an argument.
    pub fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.file(name);
        std::fs::write(&path, bytes).expect("the file is written");
        path
    }

    /// Runs the program and shows what came out, with this folder's path replaced.
    pub fn run(&self, arguments: &[&str]) -> String {
        run(arguments).replace(&self.path().display().to_string(), "[folder]")
    }
}

/// A small model: one tensor, three tokens, no merges.
pub fn small_model() -> Writer<'static> {
    let mut writer = Writer::new("tiny");
    writer.metadata("tokenizer.ggml.tokens", vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]);
    writer.tensor("weights", &[32, 2], TensorType::F16, vec![0; 128]);
    writer
}

/// The bytes of a model.
pub fn bytes(writer: &Writer<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    writer.write_to(&mut bytes).expect("a valid model");
    bytes
}

/// The shared library with the plugin that tests load.
pub fn fixture_plugin() -> String {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_paceline"));
    let folder = program.parent().expect("the program lies in a folder").join("examples");
    let file = format!("{}fixture_plugin{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let path = folder.join(file);
    assert!(
        path.exists(),
        "{} is missing: run `cargo test` without `--test`, or `cargo build --examples`",
        path.display()
    );
    path.display().to_string()
}
