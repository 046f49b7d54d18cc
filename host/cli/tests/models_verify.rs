//! `models verify`.

mod support;

use insta::assert_snapshot;
use support::{Folder, bytes, output, small_model};

/// A model with two faults in its metadata.
fn faulty_model() -> Vec<u8> {
    let mut model = small_model();
    model.metadata("tokenizer.ggml.eos_token_id", 3_u32);
    model.metadata("tiny.block_count", 0_u32);
    bytes(&model)
}

#[cfg(feature = "demo-model")]
#[test]
fn the_demo_is_sound() {
    assert_snapshot!(support::run(&["models", "verify", "demo"]), @r"
    exit 0
    --- stdout
    --- stderr
    demo: 40 metadata keys, 123 tensors: no faults
    ");
}

#[test]
fn every_fault_is_listed() {
    let folder = Folder::new();
    let path = folder.write("model.gguf", faulty_model());
    assert_snapshot!(folder.run(&["models", "verify", &path]), @r"
    exit 3
    --- stdout
    [folder]/model.gguf: metadata key 'tiny.block_count': 0 blocks; 1 to 512 are possible
    [folder]/model.gguf: metadata key 'tokenizer.ggml.eos_token_id': token id 3 is out of range, there are 3 tokens
    --- stderr
    [folder]/model.gguf: 4 metadata keys, 1 tensor: 2 faults
    ");
    assert_snapshot!(folder.run(&["models", "verify", "--quiet", &path]), @r"
    exit 3
    --- stdout
    [folder]/model.gguf: metadata key 'tiny.block_count': 0 blocks; 1 to 512 are possible
    [folder]/model.gguf: metadata key 'tokenizer.ggml.eos_token_id': token id 3 is out of range, there are 3 tokens
    --- stderr
    ");
}

#[test]
fn faults_as_json() {
    let folder = Folder::new();
    let path = folder.write("model.gguf", faulty_model());
    let output = output(&["models", "verify", &path, "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["ok"], report["faults"].as_array().unwrap().len()), (&false.into(), 2));
}

#[test]
fn a_truncated_model() {
    let folder = Folder::new();
    let whole = bytes(&small_model());
    let path = folder.write("model.gguf", &whole[..60]);
    assert_snapshot!(folder.run(&["models", "verify", &path]), @r"
    exit 3
    --- stdout
    [folder]/model.gguf: cut short: the value of metadata key 'general.architecture' at byte 56 needs 8 bytes and the file has 4 left; download the file again
    --- stderr
    [folder]/model.gguf: 0 metadata keys, 0 tensors: 1 fault
    ");
}
