//! `T1_58`: blocks of 256 values of -1, 0 and 1 in 54 bytes. Bytes 0 to 51 hold five digits to the base of three each,
//! the first the lowest, where the digit d stands for d - 1; what the last byte has too many is 1. Bytes 52 and 53 are
//! the block's factor, f16.

use half::f16;
use paceline_plugin_api::graph::DType;
use paceline_plugin_api::weight_types::ReferenceFormat;
use paceline_plugin_api::{Error, Result};

/// The type.
pub const TERNARY: DType = DType(200);
/// Elements of a block.
pub const ELEMENTS: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 54;

const DIGITS_PER_BYTE: usize = 5;
const FACTOR_AT: usize = 52;
/// Of a byte that holds digits: 3^5 - 1.
const LARGEST: u8 = 242;

/// What the bytes mean.
pub struct TernaryFormat;

impl ReferenceFormat for TernaryFormat {
    fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<()> {
        check(dtype, bytes.len(), out.len())?;
        for (block, values) in bytes.chunks_exact(BYTES).zip(out.chunks_exact_mut(ELEMENTS)) {
            let factor = f16::from_le_bytes([block[FACTOR_AT], block[FACTOR_AT + 1]]).to_f32();
            for (&byte, values) in block.iter().zip(values.chunks_mut(DIGITS_PER_BYTE)) {
                if byte > LARGEST {
                    return Err(Error::invalid(format!(
                        "a byte of T1_58 is {byte}, at most {LARGEST} can be"
                    )));
                }
                let mut rest = byte;
                for value in values {
                    *value = factor * (f32::from(rest % 3) - 1.0);
                    rest /= 3;
                }
            }
        }
        Ok(())
    }

    fn quantize(dtype: DType, values: &[f32], out: &mut [u8]) -> Result<()> {
        check(dtype, out.len(), values.len())?;
        for (values, block) in values.chunks_exact(ELEMENTS).zip(out.chunks_exact_mut(BYTES)) {
            let mean = values.iter().map(|value| value.abs()).sum::<f32>() / ELEMENTS as f32;
            let factor = f16::from_f32(mean);
            let digit = |value: f32| match mean {
                0.0 => 1,
                mean => ((value / mean).round().clamp(-1.0, 1.0) + 1.0) as u8,
            };
            for (values, byte) in values.chunks(DIGITS_PER_BYTE).zip(block.iter_mut()) {
                let padded = values.iter().map(|&value| digit(value)).chain(std::iter::repeat(1));
                let digits: Vec<u8> = padded.take(DIGITS_PER_BYTE).collect();
                *byte = digits.iter().rev().fold(0, |number, digit| number * 3 + digit);
            }
            block[FACTOR_AT..].copy_from_slice(&factor.to_le_bytes());
        }
        Ok(())
    }
}

fn check(dtype: DType, bytes: usize, elements: usize) -> Result<()> {
    if dtype != TERNARY {
        return Err(Error::invalid(format!("{dtype} is not one of this plugin's types")));
    }
    let blocks = bytes / BYTES;
    if blocks * BYTES != bytes || blocks * ELEMENTS != elements {
        return Err(Error::invalid(format!("{bytes} bytes of T1_58 do not hold {elements} elements")));
    }
    Ok(())
}
