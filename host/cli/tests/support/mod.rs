//! Runs the program and shows what came out, with everything that depends on the machine replaced.

#![allow(dead_code, reason = "not every test file uses everything")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use paceline_gguf::{TensorType, Writer};
use tempfile::TempDir;

/// The program, with nothing in its environment that changes its output. It finds no plugins of this machine's user,
/// and keeps nothing that they could see.
pub fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_paceline"));
    for name in ["PACELINE_LOG", "PACELINE_PLUGIN_DIRS", "NO_COLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES"] {
        program.env_remove(name);
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    program.env("XDG_CACHE_HOME", folder.join("cache")).env("XDG_DATA_HOME", folder.join("data"));
    program.env("XDG_CONFIG_HOME", folder.join("config"));
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
    let text = text.replace(&format!("paceline {}", env!("CARGO_PKG_VERSION")), "paceline [version]");
    without_searched(&text)
}

/// The text without the directories that an error says were searched.
fn without_searched(text: &str) -> String {
    const SEARCHED: &str = "; searched ";

    let lines = text.split_inclusive('\n').map(|line| match line.split_once(SEARCHED) {
        None if line.starts_with("searched: ") => "searched: [directories]\n".to_owned(),
        Some((before, after)) => {
            let rest = after.find("; ").map_or("\n", |end| &after[end..]);
            format!("{before}{SEARCHED}[directories]{rest}")
        }
        None => line.to_owned(),
    });
    lines.collect()
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

/// A text that the demo model continues, and how it does so without temperature.
pub const PROMPT: &str = "\
use std::collections::HashMap;

/// Counts how often each word occurs in the text.
pub fn word_count(text: &str) -> HashMap<String, usize> {
";
pub const GREEDY: &str = "    let mut count = 0;
    for word in text.chars() {
        count += 1;
    }
    count
}";

/// What reference implementations computed for the demo model.
pub fn reference(prompt: &str) -> serde_json::Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/reference_logits.json");
    let text = std::fs::read_to_string(path).expect("the reference is there");
    let reference: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
    let prompts = reference["prompts"].as_array().expect("a list of prompts");
    prompts.iter().find(|it| it["name"] == prompt).expect("a prompt of that name").clone()
}

/// The text with each number but the exit code replaced, for what depends on the machine.
pub fn without_numbers(text: &str) -> String {
    let code = text.strip_prefix("exit ").and_then(|rest| rest.find('\n')).map_or(0, |length| length + 5);
    let mut shown = text[..code].to_owned();
    let mut characters = text[code..].chars().peekable();
    while let Some(character) = characters.next() {
        if !character.is_ascii_digit() {
            shown.push(character);
            continue;
        }
        let continues = |next: &char| next.is_ascii_digit() || matches!(next, '.' | ',');
        let mut number = String::from(character);
        while let Some(next) = characters.next_if(continues) {
            number.push(next);
        }
        shown.push_str("[n]");
        // A sentence's comma or period is none of the number's.
        shown.push_str(&number[number.trim_end_matches(['.', ',']).len()..]);
    }
    shown
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

    /// The program, which looks for plugins in this folder and keeps what it knows about them in `cache` there.
    pub fn program(&self, arguments: &[&str]) -> Command {
        let mut program = program();
        program.args(arguments).env("PACELINE_PLUGIN_DIRS", self.path());
        program.env("XDG_CACHE_HOME", self.path().join("cache"));
        program
    }

    /// Runs the program, which looks for plugins in this folder, and shows what came out.
    pub fn run_searching(&self, arguments: &[&str]) -> String {
        let output = self.program(arguments).output().expect("the program starts");
        shown(&output).replace(&self.path().display().to_string(), "[folder]")
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

/// The shared library with the backend that tests load.
pub fn fixture_plugin() -> String {
    example("fixture_plugin")
}

/// The shared library with the strategy that tests load.
pub fn strategy_plugin() -> String {
    example("strategy_plugin")
}

/// The shared library with a drafter that behaves badly if its setting says so.
pub fn faulty_plugin() -> String {
    example("faulty_plugin")
}

/// The shared library with a rollback strategy that takes nothing back.
pub fn lossy_plugin() -> String {
    example("lossy_plugin")
}

/// The shared library with simulated devices.
pub fn sim_plugin() -> String {
    example("sim_plugin")
}

/// The file of the demo model's drafter.
pub const DRAFT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/demo-dflash-Q8_0.gguf");

/// A shared library among the examples.
pub fn example(name: &str) -> String {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_paceline"));
    let folder = program.parent().expect("the program lies in a folder").join("examples");
    let file = format!("{}{name}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let path = folder.join(file);
    assert!(
        path.exists(),
        "{} is missing: run `cargo test` without `--test`, or `cargo build --examples`",
        path.display()
    );
    path.display().to_string()
}
