//! Canonical bytes of weight and cache types: exact readers and simple writers.
//!
//! Readers define what the bytes mean. Writers make valid bytes that come near to the given values; they are not
//! tuned as the tools that make models are, with one exception: what [`quantize`] writes for the types of a KV cache
//! is what `kv_append` stores.

mod large;
mod small;
mod tables;

use paceline_plugin_api::graph::DType;

/// Why bytes or values could not be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantError {
    /// A type that has no reader here.
    #[error("{0} has no reference reader")]
    UnknownType(DType),
    /// Counts that do not fit each other, or values that are not whole blocks.
    #[error("{bytes} bytes of {dtype} do not hold {elements} elements")]
    Length {
        /// The type.
        dtype: DType,
        /// Bytes given.
        bytes: usize,
        /// Elements given.
        elements: usize,
    },
}

/// Reads the bytes of one block.
type Read = fn(&[u8], &mut [f32]);
/// Writes the values of one block.
type Write = fn(&[f32], &mut [u8]);

/// Reader and writer of one block, with its size.
struct Format {
    elements: usize,
    bytes: usize,
    read: Read,
    write: Write,
}

/// Every type that can be read and written here.
pub const ALL: [DType; 13] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::IQ4_NL,
    DType::MXFP4,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
];

fn format(dtype: DType) -> Result<Format, QuantError> {
    let (read, write): (Read, Write) = match dtype {
        DType::F32 => (small::read_f32, small::write_f32),
        DType::F16 => (small::read_f16, small::write_f16),
        DType::BF16 => (small::read_bf16, small::write_bf16),
        DType::Q8_0 => (small::read_q8_0, small::write_q8_0),
        DType::Q4_0 => (small::read_q4_0, small::write_q4_0),
        DType::Q4_1 => (small::read_q4_1, small::write_q4_1),
        DType::Q5_0 => (small::read_q5_0, small::write_q5_0),
        DType::Q5_1 => (small::read_q5_1, small::write_q5_1),
        DType::IQ4_NL => (tables::read_iq4_nl, tables::write_iq4_nl),
        DType::MXFP4 => (tables::read_mxfp4, tables::write_mxfp4),
        DType::Q4_K => (large::read_q4_k, large::write_q4_k),
        DType::Q5_K => (large::read_q5_k, large::write_q5_k),
        DType::Q6_K => (large::read_q6_k, large::write_q6_k),
        _ => return Err(QuantError::UnknownType(dtype)),
    };
    let (elements, bytes) = dtype.block().ok_or(QuantError::UnknownType(dtype))?;
    Ok(Format { elements: elements as usize, bytes: bytes as usize, read, write })
}

/// True if the type can be read and written here.
pub fn is_supported(dtype: DType) -> bool {
    format(dtype).is_ok()
}

/// Reads canonical bytes; `out` has room for exactly the elements that they hold.
///
/// # Errors
/// A type without a reader, or lengths that do not fit each other.
pub fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), QuantError> {
    let format = format(dtype)?;
    let blocks = bytes.len() / format.bytes;
    if blocks * format.bytes != bytes.len() || blocks * format.elements != out.len() {
        return Err(QuantError::Length { dtype, bytes: bytes.len(), elements: out.len() });
    }
    for (block, values) in bytes.chunks_exact(format.bytes).zip(out.chunks_exact_mut(format.elements)) {
        (format.read)(block, values);
    }
    Ok(())
}

/// Writes values as canonical bytes. Values are finite; the last dimension of a tensor is whole blocks, so rows may
/// be given one after the other.
///
/// # Errors
/// A type without a writer, or values that are not whole blocks.
pub fn quantize(dtype: DType, values: &[f32]) -> Result<Vec<u8>, QuantError> {
    let format = format(dtype)?;
    let blocks = values.len() / format.elements;
    if blocks * format.elements != values.len() {
        return Err(QuantError::Length { dtype, bytes: 0, elements: values.len() });
    }
    let mut bytes = vec![0; blocks * format.bytes];
    for (block, values) in bytes.chunks_exact_mut(format.bytes).zip(values.chunks_exact(format.elements)) {
        (format.write)(values, block);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
