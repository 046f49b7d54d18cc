//! Random bytes that are valid blocks, for big models where quantising normal numbers would take too long.

use half::f16;
use paceline_plugin_api::graph::DType;

use super::generator::Generator;

/// 1.0 as f16.
const F16_EXPONENT_BIAS: i32 = 15;
/// The same for bf16 and f32.
const F32_EXPONENT_BIAS: i32 = 127;
/// Root mean square of the magnitudes 1 to 2, all equally likely: sqrt(7/3).
const MANTISSA_RMS: f32 = 1.527_525;
/// Root mean square of the levels of IQ4_NL.
const IQ4_NL_RMS: f32 = 67.44;
/// The same for MXFP4, whose scale is a power of two.
const E2M1_RMS: f32 = 2.926;
/// The scale of every part of a Q4_K or Q5_K block, chosen so that it packs into bytes that are all alike.
const PART_SCALE: u8 = 16;
/// The same for Q6_K. Greater ones would make the f16 unit so small that it is denormal.
const Q6_PART_SCALE: u8 = 8;

/// True if [`fill_blocks`] can make blocks of this type.
pub(super) fn has_random_blocks(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::F16
            | DType::BF16
            | DType::Q8_0
            | DType::Q4_0
            | DType::Q4_1
            | DType::Q5_0
            | DType::Q5_1
            | DType::IQ4_NL
            | DType::MXFP4
            | DType::Q4_K
            | DType::Q5_K
            | DType::Q6_K
    )
}

/// Fills `bytes`, whole blocks, so that the values have mean 0 (nearly) and about the given standard deviation.
/// Levels are uniform, all scales are equal.
pub(super) fn fill_blocks(dtype: DType, deviation: f32, generator: &mut Generator, bytes: &mut [u8]) {
    for chunk in bytes.chunks_mut(8) {
        let random = generator.bits().to_le_bytes();
        chunk.copy_from_slice(&random[..chunk.len()]);
    }
    match dtype {
        DType::F16 => set_exponents(bytes, 10, F16_EXPONENT_BIAS, 0x83FF, deviation),
        DType::BF16 => set_exponents(bytes, 7, F32_EXPONENT_BIAS, 0x807F, deviation),
        DType::Q8_0 => set_scales(bytes, 34, |block| write_f16(deviation / level_deviation(256), block)),
        DType::Q4_0 => set_scales(bytes, 18, |block| {
            write_f16_of_any_sign(deviation / level_deviation(16), block);
        }),
        DType::Q5_0 => set_scales(bytes, 22, |block| {
            write_f16_of_any_sign(deviation / level_deviation(32), block);
        }),
        DType::IQ4_NL => set_scales(bytes, 18, |block| write_f16_of_any_sign(deviation / IQ4_NL_RMS, block)),
        DType::Q4_1 => set_scales(bytes, 20, |block| set_scale_and_minimum(block, 16, deviation)),
        DType::Q5_1 => set_scales(bytes, 24, |block| set_scale_and_minimum(block, 32, deviation)),
        DType::MXFP4 => {
            let exponent = (deviation / E2M1_RMS).log2().round() as i32 + F32_EXPONENT_BIAS;
            set_scales(bytes, 17, |block| block[0] = exponent.max(0) as u8);
        }
        DType::Q4_K => set_scales(bytes, 144, |block| set_part_scales(block, 16, deviation)),
        DType::Q5_K => set_scales(bytes, 176, |block| set_part_scales(block, 32, deviation)),
        DType::Q6_K => set_scales(bytes, 210, |block| {
            block[192..208].fill(Q6_PART_SCALE);
            write_f16_of_any_sign(
                deviation / level_deviation(64) / f32::from(Q6_PART_SCALE),
                &mut block[208..],
            );
        }),
        _ => unreachable!("asked for by has_random_blocks"),
    }
}

/// Standard deviation of `levels` consecutive integers, all equally likely: sqrt((n^2 - 1) / 12).
fn level_deviation(levels: u32) -> f32 {
    let levels = levels as f32;
    ((levels * levels - 1.0) / 12.0).sqrt()
}

/// Keeps sign and mantissa of 16-bit floats and gives all the same exponent.
fn set_exponents(bytes: &mut [u8], mantissa_bits: u32, bias: i32, kept: u16, deviation: f32) {
    let exponent = (deviation / MANTISSA_RMS).log2().round() as i32 + bias;
    let exponent = (exponent.max(1) as u16) << mantissa_bits;
    for float in bytes.chunks_exact_mut(2) {
        let bits = u16::from_le_bytes([float[0], float[1]]) & kept | exponent;
        float.copy_from_slice(&bits.to_le_bytes());
    }
}

fn set_scales(bytes: &mut [u8], block_bytes: usize, set: impl Fn(&mut [u8])) {
    bytes.chunks_exact_mut(block_bytes).for_each(set);
}

/// Q4_1 and Q5_1: value = d * level + m, with m chosen so that the mean is 0.
fn set_scale_and_minimum(block: &mut [u8], levels: u32, deviation: f32) {
    let unit = deviation / level_deviation(levels);
    write_f16(unit, block);
    write_f16(-unit * (levels - 1) as f32 / 2.0, &mut block[2..]);
}

/// Q4_K and Q5_K: value = d * 16 * level - dmin * 16, with dmin chosen so that the mean is 0.
fn set_part_scales(block: &mut [u8], levels: u32, deviation: f32) {
    let unit = deviation / level_deviation(levels) / f32::from(PART_SCALE);
    write_f16(unit, block);
    write_f16(unit * (levels - 1) as f32 / 2.0, &mut block[2..]);
    // Six bits are for the scale (or minimum) of one part, the two above them for the upper bits of that of another
    // part, whose lower bits, in the last four bytes, are 0.
    block[4..12].fill(PART_SCALE | (PART_SCALE >> 4) << 6);
    block[12..16].fill(0);
}

fn write_f16(value: f32, bytes: &mut [u8]) {
    bytes[..2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}

/// [`write_f16`] that keeps the sign of the random bytes. Levels reach one further down than up, so that scales of
/// one sign would shift the mean; in files of these types both signs occur.
fn write_f16_of_any_sign(value: f32, bytes: &mut [u8]) {
    let sign = bytes[1] & 0x80;
    write_f16(value, bytes);
    bytes[1] |= sign;
}

#[cfg(test)]
mod tests {
    use paceline_conformance::quant::{ALL, dequantize};

    use super::*;

    #[test]
    fn values_have_the_wanted_mean_and_deviation() {
        for dtype in ALL.into_iter().filter(|dtype| *dtype != DType::F32) {
            assert!(has_random_blocks(dtype), "{dtype}");
            let (elements, block_bytes) = dtype.block().unwrap();
            let count = 1 << 16;
            let mut bytes = vec![0; (count / elements * block_bytes) as usize];
            fill_blocks(dtype, 0.03, &mut Generator::new(1, "blocks"), &mut bytes);
            let mut values = vec![0.0; count as usize];
            dequantize(dtype, &bytes, &mut values).unwrap();
            let mean = values.iter().sum::<f32>() / count as f32;
            let deviation = (values.iter().map(|x| x * x).sum::<f32>() / count as f32).sqrt();
            assert!(mean.abs() < 0.001, "{dtype}: mean {mean}");
            assert!((0.02..0.045).contains(&deviation), "{dtype}: deviation {deviation}");
        }
    }
}
