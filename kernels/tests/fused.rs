//! Fused kernels against the launches that they replace, bit by bit.
#![cfg(feature = "host")]

mod support;

use paceline_conformance::random::Random;
use paceline_kernels::params::View;
use paceline_kernels::params::cache::{AttentionJoin, AttentionParts};
use paceline_kernels::params::elementwise::{DeltaGates, Glu, activation};
use paceline_kernels::params::fused::{GluQuantize, ItemsNormQuantize, JoinQuantize, NormQuantize};
use paceline_kernels::params::linear::{Quantize, bf16_bytes, quantized_bytes};
use paceline_kernels::params::norms::{AddRmsNorm, RmsNorm};
use paceline_kernels::params::recurrent::{GatedDeltaNet, PLAIN};
use support::{Buffer, WAVES, run};

const ROWS: usize = 10;
const LIVE: usize = 9;
/// Short and long rows, whole and odd pairs of blocks.
const WIDTHS: [usize; 6] = [32, 64, 992, 1056, 4096, 8224];

/// Rows in int8, and in bf16.
const BF16_GROUPS: [u32; 2] = [0, (ROWS as u32).div_ceil(8)];

fn quantized_words(width: usize) -> usize {
    let (rows, k) = (ROWS as u32, width as u32);
    quantized_bytes(rows, k).max(bf16_bytes(rows, k)) as usize / 4
}

fn quantize(x: &Buffer, width: usize, live: &Buffer, wave: u32, bf16_groups: u32) -> Buffer {
    let out = Buffer::garbage(quantized_words(width), 0);
    let p = Quantize {
        x: x.address(),
        out: out.address(),
        live: live.address(),
        rows: ROWS as u32,
        k: width as u32,
        x_row: width as u32,
        bf16_groups,
    };
    run(&p, wave);
    out
}

/// Rows with a block of zeros and one with a NaN.
fn rows(width: usize, random: &mut Random) -> Buffer {
    let mut values = random.floats(ROWS * width, 2.0);
    values[width..width + 32].fill(0.0);
    values[3 * width + 5] = f32::NAN;
    Buffer::of_floats(&values)
}

#[test]
fn a_norm_that_is_quantised_has_the_bits_of_two_launches() {
    for width in WIDTHS {
        for (wave, (with_sum, with_weight)) in
            WAVES.into_iter().zip([(true, false), (false, true), (true, true)])
        {
            let mut random = Random::named(width as u64, "norm");
            let (x, y) = (rows(width, &mut random), rows(width, &mut random));
            let weight = Buffer::of_floats(&random.floats(width, 1.0));
            let live = Buffer::of_integers(&[LIVE as i32]);
            let view = |buffer: &Buffer| buffer.view(1, width as u32);
            let weight_address = if with_weight { weight.address() } else { 0 };
            let (norm, sum) = (Buffer::garbage(ROWS * width, 0), Buffer::garbage(ROWS * width, 0));
            if with_sum {
                let p = AddRmsNorm {
                    x: view(&x),
                    y: view(&y),
                    sum: view(&sum),
                    out: view(&norm),
                    weight: weight_address,
                    live: live.address(),
                    rows: ROWS as u32,
                    width: width as u32,
                    epsilon: 1e-6,
                    ..Default::default()
                };
                run(&p, wave);
            } else {
                let p = RmsNorm {
                    x: view(&x),
                    out: view(&norm),
                    weight: weight_address,
                    live: live.address(),
                    rows: ROWS as u32,
                    items: 1,
                    width: width as u32,
                    epsilon: 1e-6,
                    ..Default::default()
                };
                run(&p, wave);
            }
            let (fused_norm, fused_sum) =
                (Buffer::garbage(ROWS * width, 0), Buffer::garbage(ROWS * width, 0));
            for bf16_groups in BF16_GROUPS {
                let expected = quantize(&norm, width, &live, wave, bf16_groups);
                let quantized = Buffer::garbage(quantized_words(width), 0);
                let p = NormQuantize {
                    x: view(&x),
                    y: if with_sum { view(&y) } else { View::default() },
                    sum: if with_sum { view(&fused_sum) } else { View::default() },
                    out: view(&fused_norm),
                    weight: weight_address,
                    quantized: quantized.address(),
                    live: live.address(),
                    rows: ROWS as u32,
                    width: width as u32,
                    epsilon: 1e-6,
                    early: u32::from(wave == 32),
                    bf16_groups,
                    reserved: 0,
                };
                run(&p, wave);
                assert_eq!(quantized.bits(), expected.bits(), "{width}");
                assert_eq!(fused_norm.bits(), norm.bits(), "{width}");
                assert_eq!(fused_sum.bits(), sum.bits(), "{width}");
                let alone = Buffer::garbage(quantized_words(width), 0);
                run(&NormQuantize { out: View::default(), quantized: alone.address(), ..p }, wave);
                assert_eq!(alone.bits(), expected.bits(), "{width}");
            }
        }
    }
}

#[test]
fn a_gate_that_is_quantised_has_the_bits_of_two_launches() {
    for (width, kind) in WIDTHS
        .into_iter()
        .zip([activation::SILU, activation::GELU_TANH, activation::GELU].into_iter().cycle())
    {
        let mut random = Random::named(width as u64, "glu");
        let (gate, up) = (rows(width, &mut random), rows(width, &mut random));
        let live = Buffer::of_integers(&[LIVE as i32]);
        let product = Buffer::garbage(ROWS * width, 0);
        let view = |buffer: &Buffer| buffer.view(1, width as u32);
        let p = Glu {
            gate: view(&gate),
            up: view(&up),
            out: view(&product),
            live: live.address(),
            rows: ROWS as u32,
            items: 1,
            width: width as u32,
            kind,
        };
        run(&p, 32);
        for bf16_groups in BF16_GROUPS {
            let quantized = Buffer::garbage(quantized_words(width), 0);
            let fused = GluQuantize {
                gate: view(&gate),
                up: view(&up),
                quantized: quantized.address(),
                live: live.address(),
                rows: ROWS as u32,
                width: width as u32,
                kind,
                bf16_groups,
            };
            run(&fused, 64);
            assert_eq!(quantized.bits(), quantize(&product, width, &live, 32, bf16_groups).bits(), "{width}");
        }
    }
}

#[test]
fn items_that_are_normed_and_gated_have_the_bits_of_two_launches() {
    for (items, width, is_gated, wave) in
        [(3, 128, true, 32), (48, 128, true, 64), (2, 32, false, 32), (9, 64, true, 64), (2, 256, false, 64)]
    {
        let mut random = Random::named(width as u64, "items");
        let row = items * width;
        let x = rows(row, &mut random);
        // Gates lie beside something else.
        let gate = Buffer::of_floats(&random.floats(ROWS * row * 2, 2.0));
        let gate_view = View { row: 2 * row as u32, item: 2 * width as u32, ..gate.view(1, 1) };
        let weight = Buffer::of_floats(&random.floats(width, 1.0));
        let live = Buffer::of_integers(&[LIVE as i32]);
        let view = |buffer: &Buffer| buffer.view(items as u32, width as u32);
        let norm = Buffer::garbage(ROWS * row, 0);
        let p = RmsNorm {
            x: view(&x),
            gate: if is_gated { gate_view } else { View::default() },
            out: view(&norm),
            weight: weight.address(),
            live: live.address(),
            rows: ROWS as u32,
            items: items as u32,
            width: width as u32,
            epsilon: 1e-6,
        };
        run(&p, wave);
        for bf16_groups in BF16_GROUPS {
            let quantized = Buffer::garbage(quantized_words(row), 0);
            let fused = ItemsNormQuantize {
                x: p.x,
                gate: p.gate,
                weight: p.weight,
                quantized: quantized.address(),
                live: p.live,
                rows: p.rows,
                items: p.items,
                width: p.width,
                epsilon: p.epsilon,
                early: u32::from(is_gated),
                bf16_groups,
            };
            run(&fused, wave);
            let expected = quantize(&norm, row, &live, wave, bf16_groups);
            assert_eq!(quantized.bits(), expected.bits(), "{items} of {width}");
        }
    }
}

#[test]
fn a_join_that_is_quantised_has_the_bits_of_several_launches() {
    const COLUMNS: u32 = 6;
    for (heads, width, is_gated, wave) in
        [(4u32, 128u32, false, 32), (3, 64, true, 64), (2, 256, true, 32), (6, 32, false, 64)]
    {
        let mut random = Random::named(u64::from(width), "join");
        let bytes = AttentionParts::scratch_bytes(ROWS as u32, heads, width, COLUMNS);
        let parts: Vec<f32> = random.floats(bytes as usize / 4, 1.0).iter().map(|v| v.abs() + 0.1).collect();
        let scratch = Buffer::of_floats(&parts);
        // Rows of several chunks, of one, of none, and of nobody.
        let span = |row: usize| match row {
            2 => [0, 0, 0, 0],
            5 => [-1, 0, 0, 0],
            _ => [0, 0, 1 + 150 * row as i32, 0],
        };
        let spans = Buffer::of_integers((0..ROWS).map(span).collect::<Vec<_>>().as_flattened());
        let live = Buffer::of_integers(&[LIVE as i32]);
        let row = (heads * width) as usize;
        let gate = Buffer::of_floats(&random.floats(ROWS * row * 2, 2.0));
        let gate_view = View { row: 2 * row as u32, item: 2 * width, ..gate.view(1, 1) };
        let sinks = Buffer::of_floats(&random.floats(heads as usize, 1.0));
        let joined = Buffer::garbage(ROWS * row, 0);
        let p = AttentionJoin {
            out: joined.view(heads, width),
            scratch: scratch.address(),
            spans: spans.address(),
            sinks: if is_gated { sinks.address() } else { 0 },
            live: live.address(),
            rows: ROWS as u32,
            heads,
            width,
            table_columns: COLUMNS,
            chunk_blocks: 1,
            reserved: 0,
        };
        run(&p, wave);
        if is_gated {
            let p = Glu {
                gate: gate_view,
                up: joined.view(heads, width),
                out: joined.view(heads, width),
                live: live.address(),
                rows: ROWS as u32,
                items: heads,
                width,
                kind: activation::SIGMOID,
            };
            run(&p, wave);
        }
        for bf16_groups in BF16_GROUPS {
            let quantized = Buffer::garbage(quantized_words(row), 0);
            let fused = JoinQuantize {
                gate: if is_gated { gate_view } else { View::default() },
                scratch: p.scratch,
                spans: p.spans,
                sinks: p.sinks,
                quantized: quantized.address(),
                live: p.live,
                rows: p.rows,
                heads,
                width,
                table_columns: COLUMNS,
                chunk_blocks: 1,
                bf16_groups,
            };
            run(&fused, wave);
            let expected = quantize(&joined, row, &live, wave, bf16_groups);
            assert_eq!(quantized.bits(), expected.bits(), "{heads} of {width}");
        }
    }
}

#[test]
fn gates_in_the_delta_rule_have_the_bits_of_two_launches() {
    let (key_heads, heads, width) = (2u32, 4u32, 32u32);
    let mut random = Random::new(5);
    let mut floats = |count: u32| Buffer::of_floats(&random.floats(count as usize, 1.0));
    let rows = ROWS as u32;
    let [q, k] = [0; 2].map(|_| floats(rows * key_heads * width));
    let (v, alpha, beta) = (floats(rows * heads * width), floats(rows * heads), floats(rows * heads));
    let (dt, a) = (floats(heads), floats(heads));
    let (g_out, beta_out) =
        (Buffer::garbage(ROWS * heads as usize, 0), Buffer::garbage(ROWS * heads as usize, 0));
    let p = DeltaGates {
        alpha: alpha.view(heads, 1),
        beta: beta.view(heads, 1),
        g_out: g_out.view(heads, 1),
        beta_out: beta_out.view(heads, 1),
        dt: dt.address(),
        a: a.address(),
        live: 0,
        rows,
        heads,
    };
    run(&p, 32);
    let sequences = Buffer::of_integers(&[0, LIVE as i32, 3, 0]);
    let initial = random.floats((heads * width * width) as usize, 0.5);
    let results = [false, true].map(|is_fused| {
        let state = Buffer::of_floats(&initial);
        let out = Buffer::garbage(ROWS * (heads * width) as usize, 0);
        let p = GatedDeltaNet {
            q: q.view(key_heads, width),
            k: k.view(key_heads, width),
            v: v.view(heads, width),
            g: if is_fused { alpha.view(heads, 1) } else { g_out.view(heads, 1) },
            beta: if is_fused { beta.view(heads, 1) } else { beta_out.view(heads, 1) },
            out: out.view(heads, width),
            state: state.address(),
            sequences: sequences.address(),
            dt: if is_fused { dt.address() } else { 0 },
            a: if is_fused { a.address() } else { 0 },
            max_sequences: 1,
            key_heads,
            value_heads: heads,
            key_width: width,
            value_width: width,
            slots: 1,
            planes: 1,
            mode: PLAIN,
            scale: 0.2,
            early: is_fused.into(),
            ..Default::default()
        };
        run(&p, if is_fused { 64 } else { 32 });
        (out.bits(), state.bits())
    });
    assert!(results[0] == results[1]);
}
