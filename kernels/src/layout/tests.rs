use super::*;
use paceline_conformance::quant;
use paceline_plugin_api::graph::DType;
use proptest::prelude::*;

fn random(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_packed_unpacks(
        kind in prop::sample::select(WeightKind::ALL.to_vec()),
        n in 1usize..40,
        blocks in 1usize..12,
        seed: u64,
    ) {
        let k = blocks * kind.block_elements();
        let canonical = random(canonical_bytes(kind, n, k).unwrap(), seed);
        let mut packed = random(packed_bytes(kind, n, k).unwrap(), seed ^ 5);
        pack(kind, n, k, &canonical, &mut packed).unwrap();
        let mut back = random(canonical.len(), seed ^ 9);
        unpack(kind, n, k, &packed, &mut back).unwrap();
        prop_assert_eq!(canonical, back);
    }

    #[test]
    fn parts_lie_one_after_another(
        kind in prop::sample::select(WeightKind::ALL.to_vec()),
        panels in 1usize..3,
        rest in 1usize..20,
        seed: u64,
    ) {
        let (first, k) = (panels * PANEL_ROWS, 2 * kind.block_elements());
        let n = first + rest;
        let canonical = random(canonical_bytes(kind, n, k).unwrap(), seed);
        let mut whole = vec![0; packed_bytes(kind, n, k).unwrap()];
        pack(kind, n, k, &canonical, &mut whole).unwrap();
        let mut parts = vec![0; whole.len()];
        let (a, b) = canonical.split_at(canonical.len() / n * first);
        let (to_a, to_b) = parts.split_at_mut(packed_bytes(kind, first, k).unwrap());
        pack(kind, first, k, a, to_a).unwrap();
        pack(kind, rest, k, b, to_b).unwrap();
        prop_assert_eq!(whole, parts);
    }
}

#[test]
fn whole_panels_and_units_take_no_more_than_a_file() {
    for kind in WeightKind::ALL {
        assert_eq!(packed_bytes(kind, 48, 512), canonical_bytes(kind, 48, 512), "{kind}");
    }
}

/// Levels of IQ4_NL.
const IQ4_NL: [f32; 16] =
    [-127., -104., -83., -65., -49., -35., -22., -10., 1., 13., 25., 38., 53., 69., 89., 113.];
/// Levels of MXFP4: a sign, two bits of exponent, one of mantissa.
const E2M1: [f32; 16] = [0., 0.5, 1., 1.5, 2., 3., 4., 6., -0., -0.5, -1., -1.5, -2., -3., -4., -6.];

/// Element by element, as the module's table says, against the values that the reference reads from the file.
#[test]
fn the_planes_hold_what_the_reference_reads() {
    let half = |bytes: &[u8], at: usize| half::f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
    for kind in WeightKind::ALL {
        let dtype = DType(kind.gguf_id());
        if !kind.is_quantized() || !quant::is_supported(dtype) {
            continue;
        }
        let (n, k) = (19, 768);
        let values: Vec<f32> = random(n * k, 3).into_iter().map(|b| f32::from(b as i8) / 50.0).collect();
        let canonical = quant::quantize(dtype, &values).unwrap();
        let mut expected = vec![0.0; n * k];
        quant::dequantize(dtype, &canonical, &mut expected).unwrap();
        let mut packed = vec![0; packed_bytes(kind, n, k).unwrap()];
        pack(kind, n, k, &canonical, &mut packed).unwrap();
        let panel_bytes = packed.len() / 2;
        let (blocks, pairs, units) = (k / 32, k / 64, k / 256);
        for (i, &expected) in expected.iter().enumerate() {
            let (row, column) = (i / k, i % k);
            let (panel, r, b, e) = (&packed[row / 16 * panel_bytes..], row % 16, column / 32, column % 32);
            let (unit, s) = (b / 8, b % 8);
            let byte = 16 * (r % 8 * 4 + e % 16 / 4) + 4 * (r / 8 + 2 * (e / 16)) + e % 4;
            let nibble = u32::from(panel[b / 2 * 512 + byte] >> (4 * (b % 2)) & 15);
            let word = u32::from_le_bytes(panel[b / 2 * 512 + byte - e % 4..][..4].try_into().unwrap());
            let looked_up = (word >> (16 * (b % 2) + 4 * (e % 4)) & 15) as usize;
            let fifth = |at: usize| u32::from(panel[at + unit * 512 + byte] >> s & 1) << 4;
            let signed = |code: u32, bits: u32| ((code << (32 - bits)) as i32 >> (32 - bits)) as f32;
            let scale_at = |plane: usize| (unit * 16 + r) * 16 + 2 * s + plane * units * 256;
            let (nibbles, bits) = (pairs * 512, units * 512);
            let head = |at: usize| {
                let h = &panel[at + (unit * 16 + r) * 16..][..16];
                let p = &h[4..];
                let (scale, minimum) = if s < 4 {
                    (p[s] & 63, p[s + 4] & 63)
                } else {
                    ((p[s + 4] & 15) | (p[s - 4] >> 6) << 4, (p[s + 4] >> 4) | (p[s] >> 6) << 4)
                };
                (half(h, 0) * f32::from(scale), half(h, 2) * f32::from(minimum))
            };
            let value = match kind {
                WeightKind::Q8_0 => {
                    half(panel, blocks * 512 + scale_at(0)) * f32::from(panel[b * 512 + byte] as i8)
                }
                WeightKind::Q4_0 => half(panel, nibbles + scale_at(0)) * signed(nibble, 4),
                WeightKind::Q5_0 => {
                    half(panel, nibbles + bits + scale_at(0)) * signed(nibble | fifth(nibbles), 5)
                }
                WeightKind::Q4_1 => {
                    half(panel, nibbles + scale_at(0)) * nibble as f32 + half(panel, nibbles + scale_at(1))
                }
                WeightKind::Q5_1 => {
                    let at = nibbles + bits;
                    half(panel, at + scale_at(0)) * (nibble | fifth(nibbles)) as f32
                        + half(panel, at + scale_at(1))
                }
                WeightKind::Q4K => {
                    let (d, m) = head(nibbles);
                    d * nibble as f32 - m
                }
                WeightKind::Q5K => {
                    let (d, m) = head(nibbles + bits);
                    d * (nibble | fifth(nibbles)) as f32 - m
                }
                WeightKind::Q6K => {
                    let pair =
                        u32::from(panel[nibbles + unit * 1024 + s / 4 * 512 + byte] >> (2 * (s % 4)) & 3);
                    let scales = nibbles + units * 1024;
                    let scale = panel[scales + (unit * 16 + r) * 16 + 2 * s + e / 16] as i8;
                    let d = half(panel, scales + units * 256 + (unit * 16 + r) * 2);
                    d * f32::from(scale) * signed(nibble | pair << 4, 6)
                }
                WeightKind::Iq4Nl => half(panel, nibbles + scale_at(0)) * IQ4_NL[looked_up],
                WeightKind::Mxfp4 => {
                    let exponent = i32::from(panel[nibbles + (unit * 16 + r) * 8 + s]) - 127;
                    2f32.powi(exponent) * E2M1[looked_up]
                }
                _ => unreachable!(),
            };
            assert_eq!(value, expected, "{kind}, row {row}, column {column}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    assert_eq!(
        packed_bytes(WeightKind::Q4K, 4, 96).unwrap_err().to_string(),
        "a row of 96 elements is no whole number of Q4_K blocks of 256"
    );
    assert_eq!(packed_bytes(WeightKind::Q8_0, 0, 32), Err(LayoutError::Size));
    assert_eq!(packed_bytes(WeightKind::F32, usize::MAX / 4, 32), Err(LayoutError::Size));
    let error = pack(WeightKind::F16, 2, 3, &[0; 12], &mut [0; 12]).unwrap_err();
    assert_eq!(error.to_string(), "the packed rows take 32 bytes, but there are 12");
    assert!(unpack(WeightKind::F16, 2, 3, &[0; 32], &mut [0; 11]).is_err());
}
