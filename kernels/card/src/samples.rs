//! Weights for checks and timings.

use paceline_conformance::random::Random;
use paceline_kernels::layout::{self, WeightKind};

/// Canonical rows of random quants and scales of ordinary size.
pub fn canonical(kind: WeightKind, n: usize, k: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0u8; layout::canonical_bytes(kind, n, k).expect("the shape suits the kind")];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&random.bits().to_le_bytes()[..chunk.len()]);
    }
    // f16 values between 2^-8 and 2^-6, where the kind has its scales.
    let halves: &[usize] = match kind {
        WeightKind::F32 | WeightKind::F16 | WeightKind::Bf16 | WeightKind::Mxfp4 => &[],
        WeightKind::Q6K => &[208],
        WeightKind::Q4_1 | WeightKind::Q5_1 | WeightKind::Q4K | WeightKind::Q5K => &[0, 2],
        _ => &[0],
    };
    for block in bytes.chunks_exact_mut(kind.block_bytes()) {
        for &at in halves {
            block[at + 1] = 0x1c | (block[at + 1] & 0x83);
        }
        match kind {
            // No infinities and no NaN.
            WeightKind::F32 | WeightKind::Bf16 => {
                let last = block.len() - 1;
                block[last] = 0x3c | (block[last] & 0x81);
            }
            WeightKind::F16 => block[1] &= 0xbf,
            WeightKind::Mxfp4 => block[0] = 120 + block[0] % 8,
            _ => (),
        }
    }
    bytes
}

/// The same rows in the layout of their kind.
pub fn packed(kind: WeightKind, n: usize, k: usize, random: &mut Random) -> Vec<u8> {
    let canonical = canonical(kind, n, k, random);
    let mut packed = vec![0; layout::packed_bytes(kind, n, k).expect("the shape suits the kind")];
    layout::pack(kind, n, k, &canonical, &mut packed).expect("the lengths fit");
    packed
}
