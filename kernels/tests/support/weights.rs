//! Weights of all kinds with the values that they stand for.

use super::Buffer;
use paceline_conformance::quant;
use paceline_conformance::random::Random;
use paceline_kernels::layout::{self, WeightKind};
use paceline_kernels::params::linear::LinearSegment;
use paceline_plugin_api::graph::DType;

/// A weight with the values that it stands for.
pub struct Weight {
    pub kind: WeightKind,
    pub n: usize,
    pub k: usize,
    pub packed: Buffer,
    pub values: Vec<f32>,
}

impl Weight {
    pub fn random(kind: WeightKind, n: usize, k: usize, random: &mut Random) -> Self {
        let canonical = canonical(kind, n * k, random);
        let mut packed = vec![0; layout::packed_bytes(kind, n, k).unwrap()];
        layout::pack(kind, n, k, &canonical, &mut packed).unwrap();
        Self { kind, n, k, packed: Buffer::of_bytes(&packed), values: dequantize(kind, &canonical) }
    }
}

fn canonical(kind: WeightKind, elements: usize, random: &mut Random) -> Vec<u8> {
    match kind {
        WeightKind::Iq4Nl => {
            let mut block = |_| {
                let scale = half::f16::from_f32(random.between(-0.01, 0.01)).to_le_bytes();
                let mut nibbles = || random.bits().to_le_bytes();
                [&scale[..], &nibbles(), &nibbles()].concat()
            };
            (0..elements / 32).flat_map(&mut block).collect()
        }
        WeightKind::Mxfp4 => {
            let mut block = |_| {
                let exponent = [(120 + random.below(8)) as u8];
                let mut nibbles = || random.bits().to_le_bytes();
                [&exponent[..], &nibbles(), &nibbles()].concat()
            };
            (0..elements / 32).flat_map(&mut block).collect()
        }
        // Wide ranges, so that minima, scales and all levels occur.
        _ => quant::quantize(DType(kind.gguf_id()), &random.floats(elements, 0.3)).unwrap(),
    }
}

fn dequantize(kind: WeightKind, canonical: &[u8]) -> Vec<f32> {
    const IQ4_NL: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let nibble = |bytes: &[u8], e: usize| usize::from(bytes[e % 16] >> (e / 16 * 4) & 15);
    match kind {
        WeightKind::Iq4Nl => {
            let value = |block: &[u8], e: usize| {
                half::f16::from_le_bytes([block[0], block[1]]).to_f32()
                    * f32::from(IQ4_NL[nibble(&block[2..], e)])
            };
            canonical.chunks_exact(18).flat_map(|block| (0..32).map(move |e| value(block, e))).collect()
        }
        WeightKind::Mxfp4 => {
            let value = |block: &[u8], e: usize| {
                let code = nibble(&block[1..], e);
                let size = 2f32.powi(i32::from(block[0]) - 127) * E2M1[code % 8];
                if code < 8 { size } else { -size }
            };
            canonical.chunks_exact(17).flat_map(|block| (0..32).map(move |e| value(block, e))).collect()
        }
        _ => {
            let mut values = vec![0.0; canonical.len() / kind.block_bytes() * kind.block_elements()];
            quant::dequantize(DType(kind.gguf_id()), canonical, &mut values).unwrap();
            values
        }
    }
}

/// What a product takes of a weight, whose outputs go to `out`.
pub fn segment(weight: &Weight, out: u64, out_row: usize) -> LinearSegment {
    LinearSegment {
        weight: weight.packed.address(),
        out,
        n: weight.n as u32,
        out_row: out_row as u32,
        kind: weight.kind.gguf_id(),
        ..Default::default()
    }
}

/// Widths that have whole units, parts of units, odd blocks; for float kinds parts of vectors.
pub fn widths(kind: WeightKind) -> &'static [usize] {
    match kind.block_elements() {
        256 => &[256, 2560],
        32 => &[32, 96, 1056],
        _ => &[1, 7, 517, 1280],
    }
}

/// The same numbers for as many elements.
pub fn random_row(elements: usize) -> Buffer {
    Buffer::of_floats(&Random::new(9).floats(elements, 1.0))
}
