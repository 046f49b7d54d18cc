//! Typed access to the metadata of valid files.

use paceline_gguf::{Array, Gguf, ValueRef, ValueType, Writer};

use crate::common::{bytes_of, toy};

#[test]
fn values_come_back_with_their_types() {
    let model = Gguf::from_bytes(toy()).unwrap();
    assert_eq!(model.require_u32("toy.block_count").unwrap(), 2);
    assert_eq!(model.require_f32("toy.epsilon").unwrap(), 1e-6);
    assert_eq!(model.require_f64("toy.wide").unwrap(), 0.5);
    assert!(model.require_bool("toy.flag").unwrap());
    assert_eq!(model.get_str("absent").unwrap(), None);
    assert_eq!(model.require_array_bool("toy.flags").unwrap().collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(model.require_array_i32("toy.sections").unwrap().collect::<Vec<_>>(), [11, 11, 10, 0]);
    let tokens = model.require_array_str("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens.len(), 4);
    assert_eq!(tokens.collect::<Vec<_>>(), ["<s>", "a", "é", ""]);
    let scores = model.array_f32("tokenizer.ggml.scores").unwrap().unwrap();
    assert_eq!(scores.collect::<Vec<_>>(), [0.0, -1.0, -2.0, -3.0]);
    let array: Array<'_> = model.require("toy.bytes").unwrap();
    assert_eq!((array.element_type(), array.len()), (ValueType::U8, 3));
    assert_eq!(model.entries().next(), Some(("general.architecture", ValueRef::Str(b"toy"))));
    assert_eq!(model.entries().len(), model.key_count());
}

#[test]
fn integers_convert_where_they_fit() {
    let model = Gguf::from_bytes(toy()).unwrap();
    assert_eq!(model.require_u32("toy.embedding_length").unwrap(), 32, "from u64");
    assert_eq!(model.require_u64("toy.attention.head_count").unwrap(), 4, "from u8");
    assert_eq!(model.require_i32("toy.negative").unwrap(), -7, "from i16");
    assert_eq!(model.require_array_u32("toy.bytes").unwrap().collect::<Vec<_>>(), [1, 2, 255]);
    assert_eq!(model.require::<i8>("toy.negative").unwrap(), -7);
}

#[test]
fn faults_name_key_and_types() {
    let mut writer = Writer::new("toy");
    writer
        .metadata("huge", u64::MAX)
        .metadata("below", vec![1_i32, -2])
        .metadata("wide", 1e300_f64)
        .metadata("none", Vec::<u8>::new());
    let model = Gguf::from_bytes(bytes_of(&writer)).unwrap();
    for (result, expected) in [
        (model.require_u32("absent").err(), "key 'absent' is missing (u32 expected)"),
        (model.get_u32("huge").err(), "key 'huge' is 18446744073709551615, which does not fit u32"),
        (model.get_str("huge").err(), "key 'huge' is u64 where string is expected"),
        (model.get_f32("huge").err(), "key 'huge' is u64 where f32 is expected"),
        (model.get_f32("wide").err(), "which does not fit f32"),
        (model.get_bool("general.architecture").err(), "is string where bool is expected"),
        (model.array_u32("below").err(), "key 'below' element 1 is -2, which does not fit array of u32"),
        (model.array_f32("below").err(), "is an array of 2 i32 where array of f32 is expected"),
        (model.array_str("below").err(), "is an array of 2 i32 where array of string is expected"),
        (model.array_f32("none").err(), "is an array of 0 u8 where array of f32 is expected"),
        (model.array_i32("huge").err(), "is u64 where array of i32 is expected"),
        (model.get_u32("below").err(), "is an array of 2 i32 where u32 is expected"),
    ] {
        let message = result.expect("a mismatch is an error").to_string();
        assert!(message.contains(expected), "{expected:?} is missing in: {message}");
    }
    assert_eq!(model.array_i32("none").unwrap().unwrap().count(), 0);
}

#[test]
fn values_show_safely() {
    let mut writer = Writer::new("toy");
    writer.metadata("text", "a\u{1b}[2Jb").metadata("long", (0..100_u8).collect::<Vec<_>>());
    let model = Gguf::from_bytes(bytes_of(&writer)).unwrap();
    assert_eq!(model.value("text").unwrap().to_string(), r#""a\u{1b}[2Jb""#);
    assert_eq!(model.value("long").unwrap().to_string(), "[0, 1, 2, 3, 4, 5, 6, 7, ... 100 in all]");
}
