//! `verify` lists all faults.

use paceline_gguf::{MAX_LISTED_FAULTS, Report, Value, Writer, verify, verify_bytes};

use crate::common::*;

fn toy_with(key: &str, value: impl Into<Value>) -> Report {
    let mut writer = Writer::new("toy");
    writer.metadata("tokenizer.ggml.tokens", vec!["a", "b", "c"]).metadata(key, value);
    verify_bytes(bytes_of(&writer))
}

#[test]
fn a_valid_model_has_no_faults() {
    let report = verify_bytes(toy());
    assert!(report.is_ok(), "{report}");
    assert_eq!((report.keys, report.tensors), (15, 3));
    assert_eq!(report.to_string(), "no faults; 15 metadata keys, 3 tensors");
}

#[test]
fn all_tensor_faults_are_listed() {
    let tensors = [
        tensor("zero", &[0], 0, 0),
        tensor("block", &[5], 12, 32),
        tensor("good", &[8], 0, 64),
        tensor("crooked", &[8], 0, 100),
        tensor("good", &[8], 0, 160),
        tensor("over", &[8], 0, 160),
        tensor("far", &[1 << 40], 0, 192),
        tensor("fine", &[8], 0, 224),
    ];
    let entries =
        [text_entry("general.architecture", "toy"), text_entry("twice", "1"), text_entry("twice", "2")];
    let report = verify_bytes(file(&entries, &tensors, 256));
    let shown = report.to_string();
    for expected in [
        "key 'twice' appears twice",
        "tensor 'zero' of shape [0]",
        "tensor 'block' of shape [5]",
        "tensor 'crooked' starts 100 bytes",
        "tensor 'over' starts 160 bytes",
        "tensor 'far' ends at byte",
        "tensor 'good' appears twice",
        "faults: 7; 3 metadata keys, 8 tensors",
    ] {
        assert!(shown.contains(expected), "{expected:?} is missing in:\n{shown}");
    }
}

#[test]
fn the_list_has_an_end() {
    let tensors: Vec<_> = (0..3_000).map(|index| tensor(&index.to_string(), &[0], 0, 0)).collect();
    let report = verify_bytes(file(&[text_entry("general.architecture", "toy")], &tensors, 32));
    assert_eq!(report.faults.len(), MAX_LISTED_FAULTS);
    assert!(report.fault_count() >= 3_000);
}

#[test]
fn model_faults_are_listed() {
    for (key, value, expected) in [
        ("tokenizer.ggml.bos_token_id", Value::from(u32::MAX), "token id 4294967295 is out of range"),
        ("tokenizer.ggml.eos_token_id", Value::from(3_u32), "there are 3 tokens"),
        ("tokenizer.ggml.eos_token_id", Value::from(-1_i32), "token id -1 is out of range"),
        ("tokenizer.ggml.eos_token_id", Value::from("c"), "string where a token id is expected"),
        ("tokenizer.ggml.eos_token_ids", Value::from(vec![1_u32, 7]), "token id 7 is out of range"),
        ("tokenizer.ggml.scores", Value::from(vec![0_u8; 3]), "an array of 3 u8 where f32 elements"),
        ("tokenizer.ggml.scores", Value::from(vec![0_f32; 2]), "2 elements for 3 tokens"),
        ("tokenizer.ggml.scores", Value::from(1_f32), "f32 where an array is expected"),
        ("tokenizer.ggml.token_type", Value::from(vec![0_i64; 3]), "where i32 elements are expected"),
        ("tokenizer.ggml.token_type", Value::from(vec![0_i32; 4]), "4 elements for 3 tokens"),
        ("tokenizer.ggml.merges", Value::from(vec![1_u32]), "where array of string is expected"),
        ("toy.block_count", Value::from(0_u32), "0 blocks"),
        ("toy.block_count", Value::from(513_u32), "513 blocks"),
        ("toy.block_count", Value::from(1_u32 << 31), "2147483648 blocks"),
        ("toy.attention.head_count", Value::from(0_u32), "0 is not a possible size"),
        ("toy.embedding_length", Value::from(0_u32), "0 is not a possible size"),
    ] {
        let report = toy_with(key, value);
        let [fault] = &report.faults[..] else { panic!("one fault for {key}: {report}") };
        let message = fault.to_string();
        assert!(message.contains(&format!("key '{key}'")) && message.contains(expected), "{message}");
    }
    for (key, value) in [
        ("tokenizer.ggml.eos_token_id", Value::from(2_u32)),
        ("tokenizer.ggml.token_type", Value::from(vec![1_u32; 3])),
        ("toy.block_count", Value::from(512_u32)),
        ("toy.attention.head_count", Value::from(vec![8_u32, 0])),
    ] {
        let report = toy_with(key, value);
        assert!(report.is_ok(), "{report}");
    }
}

#[test]
fn heads_must_divide_the_width_unless_their_size_is_given() {
    let mut writer = Writer::new("toy");
    writer.metadata("toy.embedding_length", 100_u32).metadata("toy.attention.head_count", 3_u32);
    assert!(verify_bytes(bytes_of(&writer)).to_string().contains("3 heads do not divide"));
    writer.metadata("toy.attention.key_length", 64_u32);
    assert!(verify_bytes(bytes_of(&writer)).is_ok());
}

#[test]
fn a_model_must_name_its_architecture() {
    let entries = [text_entry("general.name", "toy")];
    assert!(
        verify_bytes(file(&entries, &[], 0)).to_string().contains("key 'general.architecture' is missing")
    );
    let matrix = [text_entry("general.type", "imatrix")];
    assert!(verify_bytes(file(&matrix, &[], 0)).is_ok());
}

#[test]
fn faults_of_all_parts_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let paths = toy_writer().write_split(folder.path(), "toy", 3).unwrap();
    for path in [&paths[0], &paths[2]] {
        std::fs::write(path, b"version https://git-lfs").unwrap();
    }
    let report = verify(&paths[1]);
    assert_eq!(report.fault_count(), 2, "{report}");
    let shown = report.to_string();
    assert!(shown.contains("toy-00001-of-00003.gguf: not") && shown.contains("toy-00003-of-00003.gguf: not"));
}
