//! `general.alignment`: what is legal, and that data is found under it.

use paceline_gguf::{Gguf, TensorType, Writer};

use crate::common::*;

#[test]
fn tensors_are_found_under_every_legal_alignment() {
    for alignment in [8_u32, 16, 24, 32, 40, 64, 4096, 1 << 20] {
        // Text of every length moves the end of the tables on and off the boundary.
        let lengths = if alignment <= 64 { 0..alignment as usize + 1 } else { 0..2 };
        for length in lengths {
            let mut writer = Writer::new("toy");
            writer
                .metadata("pad", "x".repeat(length))
                .alignment(alignment)
                .tensor("a", &[3], TensorType::I8, vec![1, 2, 3])
                .tensor("b", &[24], TensorType::I8, vec![4; 24])
                .tensor("c", &[1], TensorType::I8, vec![5]);
            let model = Gguf::from_bytes(bytes_of(&writer)).unwrap();
            for (name, expected) in [("a", vec![1, 2, 3]), ("b", vec![4; 24]), ("c", vec![5])] {
                let tensor = model.require_tensor(name).unwrap();
                assert_eq!(tensor.offset % u64::from(alignment), 0);
                assert_eq!(model.tensor_bytes(&tensor).unwrap(), expected, "{name} at {alignment}");
            }
        }
    }
}

#[test]
fn other_alignments_are_refused() {
    for value in [0_u32, 1, 4, 12, 33, 1 << 30, (1 << 20) + 8, u32::MAX] {
        let entry = entry("general.alignment", TYPE_U32, &value.to_le_bytes());
        assert_refused(
            file(&[entry], &[], 0),
            &["key 'general.alignment'", &value.to_string(), "multiple of 8"],
        );
    }
    for (value_type, value, expected) in [
        (TYPE_I32, (-1_i32).to_le_bytes().to_vec(), "i32 (-1)"),
        (TYPE_I32, 32_i32.to_le_bytes().to_vec(), "i32 (32)"),
        (10, 32_u64.to_le_bytes().to_vec(), "u64 (32)"),
        (TYPE_STRING, string(b"32"), "string (\"32\")"),
        (6, 32_f32.to_le_bytes().to_vec(), "f32 (32)"),
    ] {
        let entry = entry("general.alignment", value_type, &value);
        assert_refused(file(&[entry], &[], 0), &["key 'general.alignment'", expected]);
    }
    let array = array_entry("general.alignment", TYPE_U32, 1, &32_u32.to_le_bytes());
    assert_refused(file(&[array], &[], 0), &["an array of 1 u32"]);
}
