//! Engines for tests: a model on the CPU backend, built in or from its shared library.

use paceline_backend_cpu as _;
use paceline_engine::{Engine, EngineOptions, Model, Rows, SequenceId, Want};
use paceline_gguf::{Gguf, OpenOptions};
use paceline_plugin_api::client::BackendClient;
use paceline_registry::Registry;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

/// The CPU backend that is linked into the tests.
pub fn builtin_cpu() -> BackendClient {
    let registry = Registry::new().expect("built-in plugins enter");
    registry.expect_builtins(&["cpu"]).expect("the CPU backend is linked in");
    registry.backend(Some("cpu")).expect("the CPU backend works")
}

/// The CPU backend from its shared library, which is built on first use.
pub fn library_cpu() -> BackendClient {
    let mut registry = Registry::new().expect("built-in plugins enter");
    let plugin = registry.load_file(cpu_library()).expect("the library loads");
    assert!(plugin.origin.path().is_some(), "the file takes the place of the built-in");
    registry.backend(Some("cpu")).expect("the CPU backend works")
}

/// Path of the CPU backend's shared library, in the profile of this test.
pub fn cpu_library() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| plugin_library("paceline-backend-cpu-plugin"))
}

/// Builds the shared library of a plugin's package, in the profile of this test, and returns its path.
pub fn plugin_library(package: &str) -> PathBuf {
    let mut build = cargo_build(package);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    library_of(build.current_dir(env!("CARGO_MANIFEST_DIR")))
}

/// Builds a plugin of `third-party`, a workspace that is not ours, and returns the path of its library.
pub fn third_party_library(package: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("third-party");
    library_of(cargo_build(package).current_dir(folder))
}

fn cargo_build(package: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "-p", package, "--message-format=json"]);
    build
}

/// Runs a build; Cargo says where it put the library.
fn library_of(build: &mut Command) -> PathBuf {
    let output = build.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let is_library = |message: &serde_json::Value| {
        let kinds = message["target"]["kind"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "cdylib"))
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(is_library)
        .find_map(|message| message["filenames"][0].as_str().map(PathBuf::from))
        .expect("cargo names the library")
}

/// Options with these settings of the backend.
pub fn options(settings: &[(&str, &str)]) -> EngineOptions {
    EngineOptions {
        settings: settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..EngineOptions::default()
    }
}

/// An engine on a model in memory.
pub fn engine_of(bytes: Vec<u8>, backend: &BackendClient, options: EngineOptions) -> Engine {
    let gguf = Gguf::from_bytes(bytes).expect("a valid file");
    engine(gguf, backend, options)
}

/// An engine on a model file.
pub fn engine_at(path: &Path, backend: &BackendClient, options: EngineOptions) -> Engine {
    engine(Gguf::open(path, &OpenOptions::default()).expect("a valid file"), backend, options)
}

fn engine(gguf: Gguf, backend: &BackendClient, options: EngineOptions) -> Engine {
    let model = Model::new(Arc::new(gguf)).expect("a model that runs");
    Engine::new(model, backend, options, &mut |_, _| {}).expect("it fits")
}

/// Logits of every position of `tokens`, processed in parts of at most `part` rows.
pub fn logits(engine: &mut Engine, sequence: SequenceId, tokens: &[u32], part: usize) -> Vec<Vec<f32>> {
    let mut all = Vec::with_capacity(tokens.len());
    for tokens in tokens.chunks(part.min(engine.most_outputs())) {
        let rows = [Rows { sequence, tokens, outputs: tokens.len() }];
        let outputs = engine.run(&rows, Want::Logits).expect("it runs");
        all.extend((0..outputs.len()).map(|i| outputs.logits(i).expect("logits").to_vec()));
    }
    all
}

/// Logits of the last position, after the others were processed in parts of `part` rows.
pub fn last_logits(engine: &mut Engine, sequence: SequenceId, tokens: &[u32], part: usize) -> Vec<f32> {
    let (last, before) = tokens.split_last().expect("tokens");
    let parts = before.len().saturating_sub(before.len() % part);
    for tokens in before[..parts].chunks(part) {
        engine.run(&[Rows { sequence, tokens, outputs: 0 }], Want::Logits).expect("it runs");
    }
    let rest = [&before[parts..], &[*last]].concat();
    let outputs = engine.run(&[Rows { sequence, tokens: &rest, outputs: 1 }], Want::Logits).expect("it runs");
    outputs.logits(0).expect("logits").to_vec()
}

/// The bits of numbers, for exact comparison.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}
