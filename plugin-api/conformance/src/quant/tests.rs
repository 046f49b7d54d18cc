use super::*;
use crate::random::Random;

/// Blocks of every type: a writer's error stays below a part of the largest value of the block.
#[test]
fn what_is_written_reads_back_within_the_type_s_step() {
    let bounds = [
        (DType::F32, 0.0),
        (DType::F16, 0.0006),
        (DType::BF16, 0.005),
        (DType::Q8_0, 0.005),
        (DType::Q4_0, 0.13),
        (DType::Q4_1, 0.07),
        (DType::Q5_0, 0.065),
        (DType::Q5_1, 0.035),
        (DType::IQ4_NL, 0.1),
        (DType::MXFP4, 0.25),
        (DType::Q4_K, 0.11),
        (DType::Q5_K, 0.06),
        (DType::Q6_K, 0.03),
    ];
    assert_eq!(bounds.map(|(dtype, _)| dtype), ALL);
    let mut random = Random::new(1);
    for (dtype, bound) in bounds {
        for deviation in [0.01, 1.0, 30.0] {
            let values = random.floats(512, deviation);
            let mut read = vec![0.0; 512];
            dequantize(dtype, &quantize(dtype, &values).unwrap(), &mut read).unwrap();
            for (values, read) in values.chunks(256).zip(read.chunks(256)) {
                let largest = values.iter().fold(0.0f32, |a, v| a.max(v.abs()));
                let error = values.iter().zip(read).fold(0.0f32, |a, (v, r)| a.max((v - r).abs()));
                assert!(error <= bound * largest, "{dtype}: {error} of {largest}");
            }
        }
    }
}

#[test]
fn zeros_stay_zeros() {
    for dtype in ALL {
        let mut read = vec![1.0; 256];
        dequantize(dtype, &quantize(dtype, &[0.0; 256]).unwrap(), &mut read).unwrap();
        assert!(read.iter().all(|&v| v == 0.0), "{dtype}");
    }
}

/// A block of bytes by hand, read element by element with the formulas of the format.
#[test]
fn a_q4_k_block_by_the_formula() {
    let mut random = Random::new(2);
    let mut block: Vec<u8> = (0..144).map(|_| random.bits() as u8).collect();
    // 0.5 and 2.0.
    block[..4].copy_from_slice(&[0x00, 0x38, 0x00, 0x40]);
    let mut read = vec![0.0; 256];
    dequantize(DType::Q4_K, &block, &mut read).unwrap();
    let b = &block[4..16];
    for part in 0..8usize {
        let (scale, minimum) = if part < 4 {
            (b[part] & 63, b[part + 4] & 63)
        } else {
            ((b[part + 4] & 15) | ((b[part - 4] >> 6) << 4), (b[part + 4] >> 4) | ((b[part] >> 6) << 4))
        };
        for i in 0..32 {
            let byte = block[16 + 32 * (part / 2) + i];
            let nibble = if part % 2 == 0 { byte & 15 } else { byte >> 4 };
            let expected = 0.5 * f32::from(scale) * f32::from(nibble) - 2.0 * f32::from(minimum);
            assert_eq!(read[32 * part + i], expected);
        }
    }
}

#[test]
fn a_q5_k_block_by_the_formula() {
    let mut block = vec![0u8; 176];
    // Unit 1.0, no minima, scale 3 for part 0 and 2 for part 5.
    block[..2].copy_from_slice(&[0x00, 0x3C]);
    block[4] = 3;
    block[4 + 9] = 2;
    // Element 7 of part 0: fifth bit and nibble 9; element 7 of part 5: fifth bit and nibble 4.
    block[16 + 7] = 0b10_0001;
    block[48 + 7] = 0x09;
    block[48 + 2 * 32 + 7] = 0x40;
    let mut read = vec![0.0; 256];
    dequantize(DType::Q5_K, &block, &mut read).unwrap();
    assert_eq!((read[7], read[5 * 32 + 7]), (3.0 * 25.0, 2.0 * 20.0));
    assert_eq!(read.iter().filter(|v| **v != 0.0).count(), 2);
}

#[test]
fn a_q6_k_block_by_the_formula() {
    let mut random = Random::new(3);
    let mut block: Vec<u8> = (0..210).map(|_| random.bits() as u8).collect();
    // 0.25.
    block[208..].copy_from_slice(&[0x00, 0x34]);
    let mut read = vec![0.0; 256];
    dequantize(DType::Q6_K, &block, &mut read).unwrap();
    let (ql, qh, scales) = (&block[..128], &block[128..192], &block[192..208]);
    for n in 0..2 {
        for l in 0..32 {
            let q = [
                (ql[64 * n + l] & 15) | ((qh[32 * n + l] & 3) << 4),
                (ql[64 * n + l + 32] & 15) | (((qh[32 * n + l] >> 2) & 3) << 4),
                (ql[64 * n + l] >> 4) | (((qh[32 * n + l] >> 4) & 3) << 4),
                (ql[64 * n + l + 32] >> 4) | (((qh[32 * n + l] >> 6) & 3) << 4),
            ];
            for (quarter, q) in q.into_iter().enumerate() {
                let element = 128 * n + 32 * quarter + l;
                let expected = 0.25 * f32::from(scales[element / 16] as i8) * (f32::from(q) - 32.0);
                assert_eq!(read[element], expected, "element {element}");
            }
        }
    }
}

#[test]
fn small_blocks_by_hand() {
    let mut read = vec![0.0; 32];
    // Scale 0.5.
    let mut q8 = vec![0u8; 34];
    q8[1] = 0x38;
    q8[2] = 3;
    q8[33] = 0xFF;
    dequantize(DType::Q8_0, &q8, &mut read).unwrap();
    assert_eq!((read[0], read[31], read[1]), (1.5, -0.5, 0.0));
    let mut q4 = vec![0x88u8; 18];
    q4[..2].copy_from_slice(&[0x00, 0x38]);
    q4[2] = 0xF1;
    dequantize(DType::Q4_0, &q4, &mut read).unwrap();
    assert_eq!((read[0], read[16], read[5]), (-3.5, 3.5, 0.0));
}

#[test]
fn blocks_with_tables_by_hand() {
    let mut read = vec![0.0; 32];
    // Scale 0.5, levels 0, 15 and 8.
    let mut block = vec![0x88u8; 18];
    block[..3].copy_from_slice(&[0x00, 0x38, 0xF0]);
    dequantize(DType::IQ4_NL, &block, &mut read).unwrap();
    assert_eq!((read[0], read[16], read[5]), (-63.5, 56.5, 0.5));
    // Scale 4, levels 7, 9 and 0; then the smallest scale.
    let mut block = vec![0u8; 17];
    (block[0], block[1]) = (129, 0x97);
    dequantize(DType::MXFP4, &block, &mut read).unwrap();
    assert_eq!((read[0], read[16], read[5]), (24.0, -2.0, 0.0));
    block[0] = 0;
    dequantize(DType::MXFP4, &block, &mut read).unwrap();
    assert_eq!((read[0], read[16]), (6.0 * 2.0f32.powi(-127), -0.5 * 2.0f32.powi(-127)));
}

#[test]
fn what_does_not_fit_is_refused() {
    let unknown = DType(9999);
    assert_eq!(quantize(unknown, &[0.0]), Err(QuantError::UnknownType(unknown)));
    assert_eq!(dequantize(DType::I32, &[0; 4], &mut [0.0]), Err(QuantError::UnknownType(DType::I32)));
    assert!(matches!(quantize(DType::Q8_0, &[0.0; 33]), Err(QuantError::Length { .. })));
    assert!(matches!(dequantize(DType::Q8_0, &[0; 34], &mut [0.0; 31]), Err(QuantError::Length { .. })));
    assert!(matches!(dequantize(DType::Q8_0, &[0; 33], &mut [0.0; 32]), Err(QuantError::Length { .. })));
}
