//! Packing of weights and quantisation of activations.

use std::ops::Range;

use paceline_backend_cpu::level::Level;
use paceline_backend_cpu::quantized::{QuantizedRows, quantize_row, row_bytes};
use paceline_backend_cpu::weights::{
    PackedMatrix, WeightError, WeightType, canonical_bytes, dequantize_row, pack, packed_bytes, panel_bytes,
    panel_count,
};

mod linear_support;
use linear_support::{Matrix, Numbers, quantize, random_values};

#[test]
fn packing_is_reversible() {
    let mut numbers = Numbers::new(11);
    for kind in WeightType::ALL {
        for n in [1, 15, 16, 17, 40] {
            for blocks in [1, 2, 5] {
                let k = blocks * kind.block();
                let matrix = Matrix::random(kind, n, k, &mut numbers);
                let row_bytes = matrix.canonical.len() / n;
                let mut values = vec![0.0; k];
                let mut expected = vec![0.0; k];
                for (i, canonical) in matrix.canonical.chunks_exact(row_bytes).enumerate() {
                    assert_eq!(matrix.view().canonical_row(i).unwrap(), canonical, "{kind} {n} x {k}");
                    matrix.view().unpack_row(i, &mut values).unwrap();
                    dequantize_row(kind, canonical, &mut expected).unwrap();
                    assert_eq!(values, expected, "{kind} {n} x {k}");
                }
                assert_eq!(matrix.view().canonical_row(n), Err(WeightError::Range));
            }
        }
    }
}

#[test]
fn packed_size_is_the_canonical_size_of_whole_panels() {
    for kind in WeightType::ALL {
        let k = 2 * kind.block();
        assert_eq!(packed_bytes(kind, 48, k), canonical_bytes(kind, 48, k));
        assert_eq!(packed_bytes(kind, 33, k), packed_bytes(kind, 48, k));
        assert_eq!(WeightType::from_gguf_id(kind.gguf_id()), Some(kind));
    }
    assert_eq!(WeightType::from_gguf_id(10), None);
}

#[test]
fn parts_packed_apart_equal_the_whole() {
    let mut numbers = Numbers::new(12);
    for kind in WeightType::ALL {
        let (n, k) = (70, 512);
        let matrix = Matrix::random(kind, n, k, &mut numbers);
        let panel = panel_bytes(kind, k).unwrap();
        let mut parts = vec![0; matrix.packed.len()];
        let (first, second) = parts.split_at_mut(2 * panel);
        pack(kind, &matrix.canonical, n, k, second, 2..panel_count(n)).unwrap();
        pack(kind, &matrix.canonical, n, k, first, 0..2).unwrap();
        assert_eq!(parts, matrix.packed, "{kind}");
    }
}

#[test]
fn unfit_matrices_are_errors() {
    let kind = WeightType::Q4K;
    assert_eq!(packed_bytes(kind, 16, 128), Err(WeightError::Width { kind, k: 128 }));
    assert_eq!(packed_bytes(kind, 16, 0), Err(WeightError::Width { kind, k: 0 }));
    assert_eq!(packed_bytes(kind, 0, 256), Err(WeightError::Size));
    assert_eq!(packed_bytes(kind, usize::MAX, 256), Err(WeightError::Size));
    assert_eq!(packed_bytes(WeightType::F32, 16, usize::MAX), Err(WeightError::Size));
    let mut out = vec![0; 2304];
    let mut pack =
        |canonical: usize, n, panels: Range<usize>| pack(kind, &vec![0; canonical], n, 256, &mut out, panels);
    assert_eq!(pack(144, 1, 0..1), Ok(()));
    assert!(matches!(pack(143, 1, 0..1), Err(WeightError::Length { .. })));
    assert!(matches!(pack(144 * 17, 17, 0..2), Err(WeightError::Length { .. })));
    assert_eq!(pack(144, 1, 1..2), Err(WeightError::Range));
    assert!(PackedMatrix::new(kind, 1, 256, &[0; 144]).is_err());
    assert!(dequantize_row(kind, &[0; 144], &mut [0.0; 128]).is_err());
}

#[test]
fn known_blocks_have_their_values() {
    // 1.0 as f16 is 0x3c00.
    let mut q4_0 = [0u8; 18];
    q4_0[1] = 0x3c;
    q4_0[2] = 0xf1;
    let mut values = [0.0; 32];
    dequantize_row(WeightType::Q4_0, &q4_0, &mut values).unwrap();
    assert_eq!((values[0], values[16], values[1]), (-7.0, 7.0, -8.0));

    let mut q4_1 = [0u8; 20];
    (q4_1[1], q4_1[3], q4_1[4]) = (0x3c, 0xbc, 0xf1);
    dequantize_row(WeightType::Q4_1, &q4_1, &mut values).unwrap();
    assert_eq!((values[0], values[16], values[1]), (0.0, 14.0, -1.0));

    let mut q5_0 = [0u8; 22];
    // Fifth bits of elements 0 and 17.
    (q5_0[1], q5_0[2], q5_0[4], q5_0[6], q5_0[7]) = (0x3c, 1, 2, 0x43, 0x20);
    dequantize_row(WeightType::Q5_0, &q5_0, &mut values).unwrap();
    assert_eq!((values[0], values[16], values[17], values[1]), (3.0, -12.0, 2.0, -16.0));

    let mut q5_1 = [0u8; 24];
    (q5_1[1], q5_1[3], q5_1[4], q5_1[6], q5_1[8], q5_1[9]) = (0x3c, 0x3c, 1, 2, 0x43, 0x20);
    dequantize_row(WeightType::Q5_1, &q5_1, &mut values).unwrap();
    assert_eq!((values[0], values[16], values[17], values[1]), (20.0, 5.0, 19.0, 1.0));

    let mut iq4_nl = [0x88u8; 18];
    (iq4_nl[0], iq4_nl[1], iq4_nl[2]) = (0, 0x3c, 0xf0);
    dequantize_row(WeightType::Iq4Nl, &iq4_nl, &mut values).unwrap();
    assert_eq!((values[0], values[16], values[1]), (-127.0, 113.0, 1.0));

    let mut mxfp4 = [0u8; 17];
    (mxfp4[0], mxfp4[1]) = (128, 0xf3);
    dequantize_row(WeightType::Mxfp4, &mxfp4, &mut values).unwrap();
    assert_eq!((values[0], values[16], values[1]), (3.0, -12.0, 0.0));

    let mut q4_k = [0u8; 144];
    (q4_k[1], q4_k[3]) = (0x3c, 0x3c);
    // Sub-block 0: scale 5, minimum 2. Sub-block 4: scale 3 | 1 << 4, minimum 7 | 2 << 4.
    (q4_k[4], q4_k[8], q4_k[12]) = (5 | 1 << 6, 2 | 2 << 6, 3 | 7 << 4);
    q4_k[16] = 0x0a;
    q4_k[16 + 64] = 0x0b;
    let mut values = [0.0; 256];
    dequantize_row(WeightType::Q4K, &q4_k, &mut values).unwrap();
    assert_eq!((values[0], values[1], values[128]), (48.0, -2.0, 11.0 * 19.0 - 39.0));

    let mut q5_k = [0u8; 176];
    q5_k[1] = 0x3c;
    (q5_k[4 + 3], q5_k[16 + 9], q5_k[48 + 32 + 9]) = (1, 1 << 3, 0xf0);
    dequantize_row(WeightType::Q5K, &q5_k, &mut values).unwrap();
    assert_eq!((values[3 * 32 + 9], values[3 * 32 + 8]), (31.0, 0.0));

    let mut q6_k = [0u8; 210];
    q6_k[209] = 0x3c;
    q6_k[192..208].fill(1);
    // Element 96 + 2: nibble in the high half of byte 32 + 2, pair in the top bits of byte 2.
    (q6_k[34], q6_k[128 + 2]) = (0x50, 0xc0);
    dequantize_row(WeightType::Q6K, &q6_k, &mut values).unwrap();
    assert_eq!((values[98], values[99]), (5.0 + 48.0 - 32.0, -32.0));
}

#[test]
fn quantised_rows_follow_the_formula() {
    let mut numbers = Numbers::new(13);
    let k = 320;
    let mut values = random_values(k, &mut numbers);
    values[32..64].fill(0.0);
    values[64..96].iter_mut().for_each(|v| *v *= 1e-35);
    values[96..128].iter_mut().for_each(|v| *v *= 8e37);
    values[130] = f32::NAN;
    values[170] = f32::NEG_INFINITY;
    values[192..224].fill(-0.5);
    // Ties: multiples of one half of the step.
    values[224..256].iter_mut().enumerate().for_each(|(i, v)| *v = i as f32 - 15.5);
    values[224] = 127.0;
    let bytes = quantize(Level::Scalar, &values, k);
    for level in Level::available() {
        assert_eq!(quantize(level, &values, k), bytes, "{level}");
    }
    let rows = QuantizedRows::new(&bytes, 1, k).unwrap();
    for (i, values) in values.chunks_exact(32).enumerate() {
        let block = rows.block(0, i);
        let sum = |half: usize| block.quants[16 * half..][..16].iter().map(|&q| i32::from(q)).sum::<i32>();
        assert_eq!(block.offsets, [-128 * sum(0), -128 * sum(1)]);
        match i {
            4 | 5 => {
                assert!(block.scale.is_nan() && block.scaled_sum.is_nan());
                assert_eq!(block.quants, [0; 32]);
            }
            1 | 2 => assert_eq!((block.quants, block.scale, block.scaled_sum), ([0; 32], 0.0, 0.0)),
            _ => {
                let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
                assert_eq!(block.scale, largest / 127.0);
                assert_eq!(block.scaled_sum, block.scale * (sum(0) + sum(1)) as f32);
                for (value, quant) in values.iter().zip(block.quants) {
                    assert_eq!(f32::from(quant), (value * (127.0 / largest)).round_ties_even());
                }
            }
        }
    }
}

#[test]
fn unfit_rows_are_errors() {
    let mut row = vec![0; row_bytes(64)];
    assert_eq!(quantize_row(Level::detect(), &[1.0; 64], &mut row), Ok(()));
    assert!(quantize_row(Level::detect(), &[1.0; 63], &mut row).is_err());
    assert!(quantize_row(Level::detect(), &[1.0; 320], &mut row).is_err());
    let rows = QuantizedRows::new(&row, 1, 64).unwrap();
    assert!(rows.slice(0, 1).is_ok() && rows.slice(1, 0).is_ok() && rows.slice(1, 1).is_err());
}
