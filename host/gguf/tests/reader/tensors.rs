//! Broken tensor tables, and tensors of unknown types.

use paceline_gguf::{Fault, Gguf, TensorType, TypeLayout};

use crate::common::*;

const F32: u32 = 0;
const Q4_K: u32 = 12;

/// A tensor table, the length of its data, and parts of the message.
type Case = (Vec<Vec<u8>>, usize, &'static [&'static str]);

#[test]
fn broken_tables_are_refused() {
    let huge = 1_u64 << 62;
    let mut five_dims = tensor("t", &[1, 1, 1, 1], F32, 0);
    five_dims[9] = 5;
    let cases: Vec<Case> = vec![
        (vec![tensor("t", &[], F32, 0)], 32, &["tensor 't' has 0 dimensions at byte 33"]),
        (vec![five_dims], 32, &["tensor 't' has 5 dimensions"]),
        (vec![tensor("t", &[4, 0], F32, 0)], 32, &["tensor 't'", "dimension 1 is 0"]),
        (vec![tensor("t", &[u64::MAX, 2], F32, 0)], 32, &["tensor 't'", "elements overflows"]),
        (vec![tensor("t", &[u64::MAX; 4], F32, 0)], 32, &["tensor 't'", "elements overflows"]),
        (vec![tensor("t", &[huge], F32, 0)], 32, &["tensor 't'", "bytes overflows"]),
        (vec![tensor("t", &[255], Q4_K, 0)], 256, &["tensor 't'", "Q4_K", "block of 256"]),
        (vec![tensor("t", &[128, 2], Q4_K, 0)], 256, &["tensor 't'", "block of 256"]),
        (vec![tensor("t", &[8], F32, 8)], 64, &["tensor 't'", "not a multiple of the alignment 32"]),
        (vec![tensor("t", &[8], F32, 32)], 32, &["tensor 't'", "cut short"]),
        (vec![tensor("t", &[8], F32, !31)], 32, &["tensor 't'", "cut short"]),
        (
            vec![tensor("a", &[8], F32, 0), tensor("b", &[8], F32, 0)],
            64,
            &["tensor 'b'", "end of tensor 'a' at 32"],
        ),
        (
            vec![tensor("a", &[16], F32, 0), tensor("b", &[8], F32, 32)],
            96,
            &["tensor 'b'", "tensor 'a' at 64"],
        ),
        (vec![tensor("a", &[8], F32, 32), tensor("b", &[8], F32, 0)], 64, &["tensor 'b'", "tensor 'a'"]),
        (vec![tensor("t", &[8], F32, 0), tensor("t", &[8], F32, 32)], 64, &["tensor 't' appears twice"]),
        // One size that wraps to 0 when padded to 32 bytes.
        (vec![tensor("t", &[4, (1 << 30) - 1, (1 << 30) + 1], F32, 0)], 64, &["tensor 't'", "cut short"]),
        // Two sizes whose sum wraps to a small number.
        (
            vec![tensor("a", &[1 << 61], F32, 0), tensor("b", &[(1 << 61) + 8], F32, 1 << 63)],
            64,
            &["tensor 'a'", "9223372036854775", "the file has"],
        ),
    ];
    for (tensors, data, expected) in cases {
        assert_refused(file(&[], &tensors, data), expected);
    }
}

#[test]
fn names_are_checked() {
    for length in HUGE {
        let table = [header(3, 1, 0), length.to_le_bytes().to_vec(), vec![0; 32]].concat();
        assert_refused(table, &["name of tensor 0 at byte 24", &length.to_string()]);
    }
    let mut bytes = file(&[], &[tensor("t", &[8], F32, 0)], 32);
    bytes[32] = 0xc0;
    assert_refused(bytes, &["name of tensor 0 at byte 32 is not valid UTF-8"]);
    // Longer than some tools accept, but harmless.
    let long = "n".repeat(200);
    let model = Gguf::from_bytes(file(&[], &[tensor(&long, &[8], F32, 0)], 32)).unwrap();
    assert!(model.tensor(&long).is_some());
}

#[test]
fn a_short_data_section_is_named_with_both_lengths() {
    let tensors = [tensor("a", &[8], F32, 0), tensor("b", &[8], F32, 32), tensor("c", &[8], F32, 64)];
    let whole = file(&[], &tensors, 96);
    let length = whole.len();
    Gguf::from_bytes(whole.clone()).unwrap();
    assert_refused(
        whole[..length - 40].to_vec(),
        &["cut short", "tensor 'b'", &format!("need {length} bytes"), &format!("has {}", length - 40)],
    );
}

#[test]
fn gaps_between_tensors_are_accepted() {
    let tensors = [tensor("a", &[8], F32, 64), tensor("b", &[8], F32, 160)];
    let model = Gguf::from_bytes(file(&[], &tensors, 192)).unwrap();
    assert_eq!(model.tensor("b").unwrap().offset - model.tensor("a").unwrap().offset, 96);
}

#[test]
fn unknown_types_are_tolerated_until_their_bytes_are_used() {
    for id in [4, 5, 31, 32, 33, 42, 105, 255, u32::MAX] {
        let tensors = [tensor("a", &[8], F32, 0), tensor("odd", &[7, 3], id, 32), tensor("b", &[8], F32, 96)];
        let model = Gguf::from_bytes(file(&[], &tensors, 128)).unwrap();
        let odd = model.require_tensor("odd").unwrap();
        assert_eq!((odd.tensor_type, odd.byte_len), (TensorType::Unknown(id), 64));
        let error = model.tensor_bytes(&odd).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("tensor 'odd'") && message.contains(&id.to_string()), "{message}");
        assert!(matches!(error.fault(), Fault::UnknownTensorType { id: found, .. } if *found == id));
        let known = model.require_tensor("b").unwrap();
        assert_eq!(model.tensor_bytes(&known).unwrap().len(), 32);

        // As the last tensor it reaches to the end of the file, and so does not hide a cut.
        let last = [tensor("a", &[8], F32, 0), tensor("odd", &[7, 3], id, 32)];
        let model = Gguf::from_bytes(file(&[], &last, 100)).unwrap();
        assert_eq!(model.tensor("odd").unwrap().byte_len, 68);
        assert_refused(file(&[], &last, 32), &["tensor 'odd'", "cut short"]);
        // Two at one place overlap, whatever their size is.
        let both = [tensor("odd", &[7], id, 0), tensor("b", &[8], F32, 0)];
        assert_refused(file(&[], &both, 64), &["tensor 'b'", "tensor 'odd'"]);
    }
    assert!(Gguf::from_bytes(file(&[], &[tensor("t", &[32], 39, 0)], 32)).is_ok(), "MXFP4 is known");
}

#[test]
fn a_caller_can_bring_the_layout_of_an_unknown_type() {
    let layout = |block_elements, block_bytes| TypeLayout { block_elements, block_bytes };
    // 2 rows of 2 blocks; 64 bytes of room, then another tensor, then one that reaches to the end of the file.
    let tensors = [tensor("own", &[8, 2], 200, 0), tensor("b", &[8], F32, 64), tensor("last", &[8], 200, 96)];
    let model = Gguf::from_bytes(file(&[], &tensors, 107)).unwrap();
    let bytes = |name: &str, layout| {
        model.tensor_bytes_as(&model.require_tensor(name).unwrap(), layout).map(<[u8]>::len)
    };
    assert_eq!(bytes("own", layout(4, 5)).unwrap(), 20);
    assert_eq!(bytes("own", layout(4, 16)).unwrap(), 64);
    assert_eq!(bytes("last", layout(8, 11)).unwrap(), 11);
    assert_eq!(bytes("b", layout(4, 1)).unwrap(), 32, "a known type keeps its layout");
    let message = |name: &str, layout| bytes(name, layout).unwrap_err().to_string();
    for (name, layout, parts) in [
        ("own", layout(4, 17), ["needs 68 bytes", "has room for 64"]),
        ("last", layout(8, 12), ["needs 12 bytes", "has room for 11"]),
        ("own", layout(3, 1), ["tensor 'own'", "not a multiple of the block of 3"]),
        ("own", layout(0, 1), ["tensor 'own'", "not a multiple of the block of 0"]),
        ("own", layout(1, u64::MAX), ["tensor 'own'", "overflows 64 bits"]),
    ] {
        let message = message(name, layout);
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
    let large = Gguf::from_bytes(file(&[], &[tensor("t", &[800], 200, 3200)], 6400)).unwrap();
    let error = model.tensor_bytes_as(&large.require_tensor("t").unwrap(), layout(1, 4)).unwrap_err();
    assert!(matches!(error.fault(), Fault::ForeignTensor { .. }));
}

#[test]
fn tensors_of_another_model_give_an_error() {
    let large = Gguf::from_bytes(file(&[], &[tensor("t", &[800], F32, 0)], 3200)).unwrap();
    let small = Gguf::from_bytes(file(&[], &[tensor("t", &[8], F32, 0)], 32)).unwrap();
    let error = small.tensor_bytes(&large.require_tensor("t").unwrap()).unwrap_err();
    assert!(matches!(error.fault(), Fault::ForeignTensor { .. }));
}

#[test]
fn joined_files_are_recognised() {
    for first in [toy(), file(&[], &[], 0)] {
        let joined = [first.clone(), toy()].concat();
        assert_refused(joined, &[&format!("starts at byte {}", first.len()), "cat", "split tool"]);
    }
    // Other bytes after the data are harmless.
    Gguf::from_bytes([toy(), vec![0; 100]].concat()).unwrap();
}
