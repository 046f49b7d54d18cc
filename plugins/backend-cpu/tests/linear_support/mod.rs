//! Random matrices and a call of the kernels, for the tests of the products.

use half::{bf16, f16};
use paceline_backend_cpu::level::Level;
use paceline_backend_cpu::quantized::{quantize_row, row_bytes};
use paceline_backend_cpu::weights::{PackedMatrix, WeightType, canonical_bytes, pack, packed_bytes};

/// A small generator of reproducible numbers.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Numbers(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in -1..1.
    pub fn value(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// Where a canonical block holds `f16` scales, and its bytes.
pub fn scale_positions(kind: WeightType) -> (usize, &'static [usize]) {
    match kind {
        WeightType::F32 => (4, &[]),
        WeightType::F16 | WeightType::Bf16 => (2, &[]),
        WeightType::Q8_0 => (34, &[0]),
        WeightType::Q4_0 | WeightType::Iq4Nl => (18, &[0]),
        WeightType::Q4_1 => (20, &[0, 2]),
        WeightType::Q5_0 => (22, &[0]),
        WeightType::Q5_1 => (24, &[0, 2]),
        WeightType::Mxfp4 => (17, &[]),
        WeightType::Q4K => (144, &[0, 2]),
        WeightType::Q5K => (176, &[0, 2]),
        WeightType::Q6K => (210, &[208]),
    }
}

/// Sets all scales of a canonical block of a quantised type to about `scale`.
pub fn set_scales(kind: WeightType, block: &mut [u8], scale: f32) {
    for &at in scale_positions(kind).1 {
        block[at..at + 2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
    }
    if kind == WeightType::Mxfp4 {
        block[0] = (127.0 + scale.abs().max(1e-6).log2().round()) as u8;
    }
}

/// A canonical matrix of random bytes with finite scales (or of random finite floats).
pub fn random_canonical(kind: WeightType, n: usize, k: usize, numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = vec![0u8; canonical_bytes(kind, n, k).unwrap()];
    let (block, _) = scale_positions(kind);
    for block in bytes.chunks_exact_mut(block) {
        match kind {
            WeightType::F32 => block.copy_from_slice(&numbers.value().to_le_bytes()),
            WeightType::F16 => block.copy_from_slice(&f16::from_f32(numbers.value()).to_le_bytes()),
            WeightType::Bf16 => block.copy_from_slice(&bf16::from_f32(numbers.value()).to_le_bytes()),
            _ => {
                block.iter_mut().for_each(|byte| *byte = numbers.bits() as u8);
                let scale = numbers.value() / 64.0;
                set_scales(kind, block, scale);
                // Not the same number for `d` and what stands beside it.
                if let [_, other] = scale_positions(kind).1 {
                    let second = f16::from_f32(numbers.value() / 64.0);
                    block[*other..*other + 2].copy_from_slice(&second.to_le_bytes());
                }
            }
        }
    }
    bytes
}

/// A matrix in both forms.
pub struct Matrix {
    pub kind: WeightType,
    pub n: usize,
    pub k: usize,
    pub canonical: Vec<u8>,
    pub packed: Vec<u8>,
}

impl Matrix {
    pub fn new(kind: WeightType, n: usize, k: usize, canonical: Vec<u8>) -> Self {
        let mut packed = vec![0xaa; packed_bytes(kind, n, k).unwrap()];
        pack(kind, &canonical, n, k, &mut packed, 0..n.div_ceil(16)).unwrap();
        Matrix { kind, n, k, canonical, packed }
    }

    pub fn random(kind: WeightType, n: usize, k: usize, numbers: &mut Numbers) -> Self {
        Matrix::new(kind, n, k, random_canonical(kind, n, k, numbers))
    }

    pub fn view(&self) -> PackedMatrix<'_> {
        PackedMatrix::new(self.kind, self.n, self.k, &self.packed).unwrap()
    }
}

/// Quantises rows of `k` values.
pub fn quantize(level: Level, values: &[f32], k: usize) -> Vec<u8> {
    if !k.is_multiple_of(32) {
        return Vec::new();
    }
    let mut quantized = vec![0u8; values.len() / k * row_bytes(k)];
    for (values, row) in values.chunks_exact(k).zip(quantized.chunks_exact_mut(row_bytes(k))) {
        quantize_row(level, values, row).unwrap();
    }
    quantized
}

/// Random activations.
pub fn random_values(count: usize, numbers: &mut Numbers) -> Vec<f32> {
    (0..count).map(|_| numbers.value() * 4.0).collect()
}
