//! Rotation and the KV cache on the host.
#![cfg(feature = "host")]

mod support;

use paceline_conformance::quant;
use paceline_conformance::random::Random;
use paceline_conformance::suite::tolerance::Tolerance;
use paceline_kernels::params::View;
use paceline_kernels::params::cache::{ADJACENT, HALVES, HeadsToCache, KvAppend, Rope, rope_table};
use paceline_kernels::params::norms::RmsNorm;
use paceline_plugin_api::graph::{Builder, DType, Rotation};
use support::{Buffer, Expected, WAVES, bytes_of, check, is_garbage, run};

const TYPES: [DType; 8] =
    [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1];

#[test]
fn rotation_is_exact_at_any_position() {
    let (rows, live, heads) = (9u32, 8u32, 3u32);
    let positions = [0, 1, 7, 255, 4_097, 131_071, 1_000_003, 16_777_215, 5];
    // Angles as exact as f32 can tell, at all positions.
    let tolerance = Tolerance { absolute: 2e-6, relative: 1e-6, of_row: 0.0 };
    for (width, rotary, base, divisor, with_factors) in [
        (64u32, 64u32, 1e4f64, 1.0f64, false),
        (128, 64, 1e6, 4.0, false),
        (6, 2, 1e4, 1.0, true),
        (80, 80, 5e5, 1.0, true),
    ] {
        for (adjacent, pairing) in [(false, HALVES), (true, ADJACENT)] {
            let mut random = Random::new(21);
            let factors: Vec<f32> = (0..rotary / 2).map(|_| random.between(0.7, 8.0)).collect();
            let x = random.floats((rows * heads * width) as usize, 1.0);
            let mut b = Builder::new();
            let count = b.parameter("rows", DType::I32, &[1], None);
            let input = b.parameter("x", DType::F32, &[rows, heads, width], Some(count));
            let places = b.parameter("positions", DType::I32, &[rows], Some(count));
            let factors_value = with_factors.then(|| b.weight("factors", DType::F32, &[rotary / 2]));
            let out = b.rope_with(
                input,
                places,
                &Rotation { rotary, base, adjacent, divisor, factors: factors_value },
            );
            b.result("out", out);
            let graph = b.finish();
            let weights = if with_factors { vec![bytes_of(&factors)] } else { Vec::new() };
            let expected = Expected::of(&graph, weights, |block| {
                block.set_integers("rows", &[live as i32]).set_integers("positions", &positions);
                block.set_floats("x", 0, &x);
            })
            .floats("out");
            let table = Buffer::of_floats(&rope_table(rotary, base, divisor).concat());
            for wave in WAVES {
                let (x, out) = (Buffer::of_floats(&x), Buffer::garbage(x.len(), 0));
                let (positions, factors) = (Buffer::of_integers(&positions), Buffer::of_floats(&factors));
                let live = Buffer::of_integers(&[live as i32]);
                let p = Rope {
                    x: x.view(heads, width),
                    out: out.view(heads, width),
                    positions: positions.address(),
                    table: table.address(),
                    factors: if with_factors { factors.address() } else { 0 },
                    live: live.address(),
                    rows,
                    heads,
                    width,
                    pairs: rotary / 2,
                    pairing,
                    reserved: 0,
                };
                run(&p, wave);
                let what = format!("{rotary} of {width}, pairing {pairing}, wave {wave}");
                check(&what, &out.floats()[..expected.len()], &expected, width, tolerance);
                assert!(out.bits()[expected.len()..].iter().all(|&word| is_garbage(word)), "{what}");
                // In place, the same.
                run(&Rope { out: x.view(heads, width), ..p }, wave);
                assert_eq!(x.bits()[..expected.len()], out.bits()[..expected.len()], "{what}, in place");
            }
        }
    }
}

/// Values that try the writers: ordinary ones, zeros, equal ones, halves of a step, subnormal and large ones.
fn cached(count: usize, random: &mut Random) -> Vec<f32> {
    (0..count)
        .map(|i| match i / 32 % 8 {
            0 => 0.0,
            1 => -1.5,
            2 => (random.below(256) as f32 - 127.5) / 2.0,
            3 => f32::from_bits(random.below(1 << 22)),
            4 => random.bell() * 1e4,
            5 => random.bell() * 1e-6,
            _ => random.bell(),
        })
        .collect()
}

#[test]
fn appended_rows_have_the_bytes_of_the_reference() {
    let (rows, live, heads, blocks) = (6usize, 5usize, 3u32, 2usize);
    let cells = [5, -1, 511, 256, 512, 0];
    for k_type in TYPES {
        for v_type in TYPES {
            let is_odd = k_type.is_plain() && v_type.is_plain();
            let width = if is_odd { 70 } else { 64 };
            let mut random = Random::named(22, &format!("{k_type} {v_type}"));
            let row = (heads * width) as usize;
            let [k, v] = [0, 1].map(|_| cached(rows * row, &mut random));
            let head_bytes = |dtype| quant::quantize(dtype, &vec![0.0; width as usize]).unwrap().len();
            let wanted = |dtype, data: &[f32]| {
                let cell = head_bytes(dtype) * heads as usize;
                let mut cache = vec![0xA5; blocks * 256 * cell];
                for (&place, row) in cells[..live].iter().zip(data.chunks_exact(row)) {
                    if (0..512).contains(&place) {
                        let at = place as usize * cell;
                        cache[at..at + cell].copy_from_slice(&quant::quantize(dtype, row).unwrap());
                    }
                }
                cache
            };
            let expected = [wanted(k_type, &k), wanted(v_type, &v)];
            for wave in WAVES {
                let (k, v, cells) =
                    (Buffer::of_floats(&k), Buffer::of_floats(&v), Buffer::of_integers(&cells));
                let live = Buffer::of_integers(&[live as i32]);
                let caches = expected.each_ref().map(|bytes| Buffer::of_bytes(&vec![0xA5; bytes.len()]));
                let p = KvAppend {
                    k: k.view(heads, width),
                    v: v.view(heads, width),
                    k_cache: caches[0].address(),
                    v_cache: caches[1].address(),
                    cells: cells.address(),
                    live: live.address(),
                    rows: rows as u32,
                    heads,
                    k_width: width,
                    v_width: width,
                    k_type: k_type.0,
                    v_type: v_type.0,
                    cells_end: blocks as u32 * 256,
                    reserved: 0,
                };
                run(&p, wave);
                for (cache, expected) in caches.iter().zip(&expected) {
                    assert!(cache.bytes(expected.len()) == *expected, "{k_type} and {v_type}, wave {wave}");
                }
            }
        }
    }
}

#[test]
fn heads_to_cache_has_the_bits_of_its_parts() {
    let (rows, live, blocks) = (4u32, 3i32, 1u32);
    for (heads, kv_heads, width, pairs, pairing, types) in [
        (5u32, 2u32, 64u32, 32u32, HALVES, [DType::F16; 2]),
        (4, 4, 128, 32, ADJACENT, [DType::Q8_0, DType::F16]),
        (3, 1, 256, 64, HALVES, [DType::Q4_0, DType::Q5_1]),
        (0, 3, 70, 35, HALVES, [DType::F32, DType::BF16]),
    ] {
        for (is_normed, with_factors, wave) in [(true, false, 32), (false, true, 64), (true, true, 64)] {
            let mut random = Random::named(23, &format!("{heads} {width}"));
            let mut part = |count: u32| Buffer::of_floats(&random.floats(count.max(1) as usize, 1.0));
            let (q, k, v) =
                (part(rows * heads * width), part(rows * kv_heads * width), part(rows * kv_heads * width));
            let (q_weight, k_weight) = (part(width), part(width));
            let factors =
                Buffer::of_floats(&(0..pairs).map(|_| random.between(0.7, 8.0)).collect::<Vec<_>>());
            let table = Buffer::of_floats(&rope_table(2 * pairs, 1e4, 1.0).concat());
            let positions = Buffer::of_integers(&[0, 200, 3000, 1]);
            let cells = Buffer::of_integers(&[3, -1, 255, 9]);
            let live = Buffer::of_integers(&[live]);
            let caches = || {
                types.map(|dtype| {
                    let head = quant::quantize(dtype, &vec![0.0; width as usize]).unwrap().len();
                    Buffer::of_bytes(&vec![0xA5; head * (blocks * 256 * kv_heads) as usize])
                })
            };
            let (fused_caches, caches) = (caches(), caches());
            let fused_q = Buffer::garbage((rows * heads * width).max(1) as usize, 0);
            let weight_of = |buffer: &Buffer| if is_normed { buffer.address() } else { 0 };
            let fused = HeadsToCache {
                q: q.view(heads, width),
                q_out: fused_q.view(heads, width),
                k: k.view(kv_heads, width),
                v: v.view(kv_heads, width),
                q_weight: weight_of(&q_weight),
                k_weight: weight_of(&k_weight),
                positions: positions.address(),
                table: table.address(),
                factors: if with_factors { factors.address() } else { 0 },
                k_cache: fused_caches[0].address(),
                v_cache: fused_caches[1].address(),
                cells: cells.address(),
                live: live.address(),
                rows,
                heads,
                kv_heads,
                width,
                pairs,
                pairing,
                k_type: types[0].0,
                v_type: types[1].0,
                cells_end: blocks * 256,
                epsilon: 1e-6,
                early: u32::from(wave == 32),
                reserved: 0,
            };
            run(&fused, wave);
            // The parts, over the same memory.
            let turn = |x: &Buffer, weight: &Buffer, heads: u32| {
                let out = Buffer::garbage((rows * heads * width).max(1) as usize, 0);
                if heads == 0 {
                    return out;
                }
                if is_normed {
                    let p = RmsNorm {
                        x: x.view(heads, width),
                        gate: View::default(),
                        out: out.view(heads, width),
                        weight: weight.address(),
                        live: fused.live,
                        rows,
                        items: heads,
                        width,
                        epsilon: 1e-6,
                    };
                    run(&p, wave);
                }
                let p = Rope {
                    x: if is_normed { out.view(heads, width) } else { x.view(heads, width) },
                    out: out.view(heads, width),
                    positions: fused.positions,
                    table: fused.table,
                    factors: fused.factors,
                    live: fused.live,
                    rows,
                    heads,
                    width,
                    pairs,
                    pairing,
                    reserved: 0,
                };
                run(&p, wave);
                out
            };
            let (q, k) = (turn(&q, &q_weight, heads), turn(&k, &k_weight, kv_heads));
            let p = KvAppend {
                k: k.view(kv_heads, width),
                v: fused.v,
                k_cache: caches[0].address(),
                v_cache: caches[1].address(),
                cells: fused.cells,
                live: fused.live,
                rows,
                heads: kv_heads,
                k_width: width,
                v_width: width,
                k_type: fused.k_type,
                v_type: fused.v_type,
                cells_end: fused.cells_end,
                reserved: 0,
            };
            run(&p, wave);
            let what = format!("{heads} heads of {width}, {} and {}, wave {wave}", types[0], types[1]);
            assert_eq!(fused_q.bits(), q.bits(), "{what}");
            for (fused, parts) in fused_caches.iter().zip(&caches) {
                assert!(fused.bits() == parts.bits(), "{what}");
            }
        }
    }
}
