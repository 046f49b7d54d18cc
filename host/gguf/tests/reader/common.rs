//! Files for the tests: a valid toy model, and pieces to build broken ones from.

// Shared by several test programs, none of which uses all of it.
#![allow(dead_code)]

use paceline_gguf::{Gguf, TensorType, Writer, verify_bytes};

pub const TYPE_U32: u32 = 4;
pub const TYPE_I32: u32 = 5;
pub const TYPE_BOOL: u32 = 7;
pub const TYPE_STRING: u32 = 8;
pub const TYPE_ARRAY: u32 = 9;

/// Counts and lengths that have overrun readers.
pub const HUGE: [u64; 3] = [1 << 63, u64::MAX, (1 << 32) + 1];

pub fn header(version: u32, tensors: u64, keys: u64) -> Vec<u8> {
    [&b"GGUF"[..], &version.to_le_bytes(), &tensors.to_le_bytes(), &keys.to_le_bytes()].concat()
}

pub fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

pub fn entry(key: &str, value_type: u32, value: &[u8]) -> Vec<u8> {
    [&string(key.as_bytes()), &value_type.to_le_bytes()[..], value].concat()
}

pub fn text_entry(key: &str, text: &str) -> Vec<u8> {
    entry(key, TYPE_STRING, &string(text.as_bytes()))
}

pub fn array_entry(key: &str, element_type: u32, count: u64, elements: &[u8]) -> Vec<u8> {
    let value = [&element_type.to_le_bytes(), &count.to_le_bytes()[..], elements].concat();
    entry(key, TYPE_ARRAY, &value)
}

pub fn tensor(name: &str, dims: &[u64], tensor_type: u32, offset: u64) -> Vec<u8> {
    let mut bytes = string(name.as_bytes());
    bytes.extend((dims.len() as u32).to_le_bytes());
    dims.iter().for_each(|dim| bytes.extend(dim.to_le_bytes()));
    bytes.extend(tensor_type.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes
}

/// A version 3 file of these entries, aligned to 32, with `data` zero bytes of tensor data.
pub fn file(entries: &[Vec<u8>], tensors: &[Vec<u8>], data: usize) -> Vec<u8> {
    let mut bytes = header(3, tensors.len() as u64, entries.len() as u64);
    bytes.extend(entries.concat());
    bytes.extend(tensors.concat());
    bytes.resize(bytes.len().next_multiple_of(32) + data, 0);
    bytes
}

/// A small valid model with every kind of metadata, its last tensor ending at the file's end.
pub fn toy_writer() -> Writer<'static> {
    let mut writer = Writer::new("toy");
    writer
        .metadata("toy.block_count", 2_u32)
        .metadata("toy.embedding_length", 32_u64)
        .metadata("toy.attention.head_count", 4_u8)
        .metadata("toy.epsilon", 1e-6_f32)
        .metadata("toy.wide", 0.5_f64)
        .metadata("toy.negative", -7_i16)
        .metadata("toy.flag", true)
        .metadata("toy.flags", vec![true, false, true])
        .metadata("toy.sections", vec![11_i32, 11, 10, 0])
        .metadata("toy.bytes", vec![1_u8, 2, 255])
        .metadata("tokenizer.ggml.tokens", vec!["<s>", "a", "é", ""])
        .metadata("tokenizer.ggml.token_type", vec![3_i32, 1, 1, 1])
        .metadata("tokenizer.ggml.scores", vec![0.0_f32, -1.0, -2.0, -3.0])
        .metadata("tokenizer.ggml.eos_token_id", 0_u32)
        .tensor("embed.weight", &[32, 2], TensorType::Q8_0, vec![1; 68])
        .tensor("norm.weight", &[8], TensorType::F32, vec![2; 32])
        .tensor("out.weight", &[4, 2, 2, 2], TensorType::F16, vec![3; 64]);
    writer
}

pub fn bytes_of(writer: &Writer<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    writer.write_to(&mut bytes).expect("the writer accepts a valid model");
    bytes
}

pub fn toy() -> Vec<u8> {
    bytes_of(&toy_writer())
}

/// The message with which a file is refused. Checks that the message says where the fault is, and
/// that `verify` finds it too.
#[track_caller]
pub fn refusal(bytes: Vec<u8>) -> String {
    let report = verify_bytes(bytes.clone());
    let message = Gguf::from_bytes(bytes).expect_err("the file must be refused").to_string();
    assert!(
        ["byte", "key '", "tensor '"].iter().any(|place| message.contains(place)),
        "says where: {message}"
    );
    assert!(!report.is_ok(), "verify finds a fault: {message}");
    message
}

/// Checks that a file is refused with a message containing all of `parts`.
#[track_caller]
pub fn assert_refused(bytes: Vec<u8>, parts: &[&str]) {
    let message = refusal(bytes);
    for part in parts {
        assert!(message.contains(part), "{part:?} is missing in: {message}");
    }
}
