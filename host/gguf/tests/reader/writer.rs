//! What the writer refuses.

use paceline_gguf::{Gguf, TensorType, Writer};

use crate::common::{bytes_of, toy};

#[test]
fn invalid_models_are_not_written() {
    type Spoil = for<'w> fn(&'w mut Writer<'static>) -> &'w mut Writer<'static>;
    let cases: [(Spoil, &str); 10] = [
        (|writer| writer.metadata("a", 1_u8).metadata("a", 2_u8), "key 'a' was added twice"),
        (|writer| writer.metadata("k".repeat(70_000), 1_u8), "key is 70000 bytes long"),
        (|writer| writer.alignment(12), "multiple of 8"),
        (|writer| writer.metadata("general.alignment", 32_i32), "must be u32, not i32"),
        (|writer| writer.tensor("t", &[2], TensorType::F32, vec![0; 7]), "has 7 bytes, not 8"),
        (|writer| writer.tensor("t", &[33], TensorType::Q8_0, vec![0; 34]), "block of 32"),
        (|writer| writer.tensor("t", &[], TensorType::F32, vec![]), "has 0 dimensions"),
        (|writer| writer.tensor("t", &[1; 5], TensorType::I8, vec![0]), "has 5 dimensions"),
        (|writer| writer.tensor("t", &[1], TensorType::Unknown(105), vec![]), "has 0 bytes"),
        (
            |writer| {
                let bytes = vec![0];
                writer.tensor("t", &[1], TensorType::I8, bytes.clone()).tensor(
                    "t",
                    &[1],
                    TensorType::I8,
                    bytes,
                )
            },
            "tensor 't' was added twice",
        ),
    ];
    for (spoil, expected) in cases {
        let mut writer = Writer::new("toy");
        spoil(&mut writer);
        let mut out = Vec::new();
        let message = writer.write_to(&mut out).unwrap_err().to_string();
        assert!(message.contains(expected), "{expected:?} is missing in: {message}");
        assert!(out.is_empty(), "nothing is written");
    }
    assert!(Writer::new("toy").write_split(".", "toy", 0).is_err());
}

#[test]
fn text_that_cannot_be_copied_is_named() {
    let mut writer = Writer::new("toy");
    writer.metadata("toy.name", "?").tensor("t", &[1], TensorType::I8, vec![0]);
    let mut bytes = bytes_of(&writer);
    let place = bytes.iter().position(|byte| *byte == b'?').unwrap();
    bytes[place] = 0xff;
    let model = Gguf::from_bytes(bytes).unwrap();
    let message = Writer::copy_of(&model).unwrap_err().to_string();
    assert!(message.contains("'toy.name': a string is not UTF-8"), "{message}");
}

#[test]
fn a_copy_can_be_added_to() {
    let model = Gguf::from_bytes(toy()).unwrap();
    let mut writer = Writer::copy_of(&model).unwrap();
    writer.tensor("more", &[2], TensorType::I32, vec![7; 8]);
    let copy = Gguf::from_bytes(bytes_of(&writer)).unwrap();
    assert_eq!(copy.tensor_count(), model.tensor_count() + 1);
    assert!(copy.entries().map(|(key, _)| key).eq(model.entries().map(|(key, _)| key)));
    assert_eq!(copy.tensor_bytes(&copy.require_tensor("more").unwrap()).unwrap(), [7; 8]);
}

#[test]
fn types_without_a_layout_are_copied_as_they_are() {
    let mut writer = Writer::new("toy");
    writer.tensor("odd", &[1], TensorType::Unknown(105), (0..64).collect::<Vec<u8>>());
    writer.tensor("even", &[2], TensorType::I32, vec![7; 8]);
    let bytes = bytes_of(&writer);
    let model = Gguf::from_bytes(bytes.clone()).unwrap();
    assert!(bytes_of(&Writer::copy_of(&model).unwrap()) == bytes);
}
