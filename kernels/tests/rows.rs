//! Kernels that move rows and choose among logits, on the host.
#![cfg(feature = "host")]

mod support;

use paceline_conformance::random::Random;
use paceline_kernels::params::View;
use paceline_kernels::params::choice::{ArgmaxJoin, ArgmaxParts, DrawParts, TopK};
use paceline_kernels::params::rows::{Lookup, RowsLoad, RowsStore, SelectRows, TableUpdate};
use paceline_plugin_api::graph::noise::Noise;
use paceline_plugin_api::graph::{Builder, DType};
use support::{Buffer, Expected, WAVES, is_garbage, run};

const WIDTHS: [u32; 3] = [1, 70, 1500];

fn row_view(buffer: &Buffer, width: u32) -> View {
    buffer.view(1, width)
}

#[test]
fn selected_rows_and_loaded_entries() {
    for width in WIDTHS {
        for wave in WAVES {
            let data = Random::new(1).floats(4 * width as usize, 1.0);
            let (x, out) = (Buffer::of_floats(&data), Buffer::garbage(5 * width as usize, 0));
            let list = Buffer::of_integers(&[3, 0, -1, 3, 2]);
            let live = Buffer::of_integers(&[4]);
            let row = |i: usize| &data[i * width as usize..(i + 1) * width as usize];
            let zeros = vec![0.0; width as usize];
            let expected = [row(3), row(0), &zeros, row(3)].concat();
            let (list, live) = (list.address(), live.address());
            let p = SelectRows {
                x: row_view(&x, width),
                out: row_view(&out, width),
                list,
                live,
                rows: 5,
                x_rows: 4,
                width,
                reserved: 0,
            };
            run(&p, wave);
            assert_eq!(out.floats()[..expected.len()], expected);
            assert!(out.bits()[expected.len()..].iter().all(|&word| is_garbage(word)));
            let out = Buffer::garbage(5 * width as usize, 0);
            let state = x.address();
            let p = RowsLoad {
                out: row_view(&out, width),
                state,
                cells: list,
                live,
                rows: 5,
                entries: 4,
                width,
                reserved: 0,
            };
            run(&p, wave);
            assert_eq!(out.floats()[..expected.len()], expected);
            assert!(out.bits()[expected.len()..].iter().all(|&word| is_garbage(word)));
        }
    }
}

#[test]
fn looked_up_entries() {
    let ids: Vec<i32> = (0..300).map(|i| if i % 7 == 3 { -i } else { i % 40 }).collect();
    let table: Vec<i32> = (0..30).map(|i| 1000 + i).collect();
    let expected: Vec<i32> =
        ids.iter().map(|&id| if (0..30).contains(&id) { 1000 + id } else { 0 }).collect();
    for wave in WAVES {
        let (ids, table, out) =
            (Buffer::of_integers(&ids), Buffer::of_integers(&table), Buffer::garbage(300, 0));
        let p = Lookup {
            ids: ids.address(),
            table: table.address(),
            out: out.address(),
            live: 0,
            rows: 300,
            entries: 30,
        };
        run(&p, wave);
        assert_eq!(out.integers(), expected);
    }
}

#[test]
fn stored_rows_in_their_order() {
    for width in WIDTHS {
        for wave in WAVES {
            let rows = 300;
            let mut random = Random::new(2);
            let data = random.floats(rows * width as usize, 1.0);
            // Few entries, so that many rows meet; some cells are outside.
            let cells: Vec<i32> = (0..rows).map(|_| random.below(12) as i32 - 2).collect();
            let live = rows - 20;
            let mut expected = vec![0.5f32; 9 * width as usize];
            for (r, &cell) in cells[..live].iter().enumerate().filter(|&(_, cell)| (0..9).contains(cell)) {
                let (from, to) = (r * width as usize, cell as usize * width as usize);
                expected[to..to + width as usize].copy_from_slice(&data[from..from + width as usize]);
            }
            let (x, state) = (Buffer::of_floats(&data), Buffer::of_floats(&vec![0.5; 9 * width as usize]));
            let (cells, live) = (Buffer::of_integers(&cells), Buffer::of_integers(&[live as i32]));
            let p = RowsStore {
                x: row_view(&x, width),
                state: state.address(),
                cells: cells.address(),
                live: live.address(),
                rows: rows as u32,
                entries: 9,
                width,
                reserved: 0,
            };
            run(&p, wave);
            assert_eq!(state.floats(), expected);
        }
    }
}

#[test]
fn table_updates_in_their_order() {
    let (rows, columns) = (4, 6);
    let mut random = Random::new(3);
    let updates: Vec<i32> =
        (0..600).flat_map(|i| [random.below(5) as i32, random.below(8) as i32 - 1, i]).collect();
    let live = 550;
    let mut expected = vec![-7; (rows * columns) as usize];
    for update in updates[..live * 3].chunks_exact(3) {
        if (0..rows).contains(&update[0]) && (0..columns).contains(&update[1]) {
            expected[(update[0] * columns + update[1]) as usize] = update[2];
        }
    }
    for wave in WAVES {
        let table = Buffer::of_integers(&vec![-7; (rows * columns) as usize]);
        let (updates, live) = (Buffer::of_integers(&updates), Buffer::of_integers(&[live as i32]));
        let p = TableUpdate {
            table: table.address(),
            updates: updates.address(),
            live: live.address(),
            count: 600,
            rows: rows as u32,
            columns: columns as u32,
            reserved: 0,
        };
        run(&p, wave);
        assert_eq!(table.integers(), expected);
    }
}

/// Logits with many equal ones, and rows with NaN, infinities and nothing but one number.
fn logits(rows: usize, width: usize) -> Vec<f32> {
    let mut random = Random::named(4, &format!("{rows} {width}"));
    let mut logits: Vec<f32> = (0..rows * width)
        .map(|_| match random.below(3) {
            0 => random.below(9) as f32 - 6.0,
            1 => -0.0,
            _ => random.bell(),
        })
        .collect();
    for (row, logits) in logits.chunks_exact_mut(width).enumerate() {
        let place = random.below(width as u32) as usize;
        match row % 6 {
            1 => logits[place] = f32::NAN,
            2 => logits[place] = f32::INFINITY,
            3 => logits.fill(f32::NEG_INFINITY),
            4 => logits.fill(f32::NAN),
            _ => {}
        }
    }
    logits
}

/// The reference's argmax, faults and top k of the first `live` rows.
fn choices(x: &[f32], rows: usize, live: usize, width: usize, k: u32) -> (Vec<i32>, i32, Vec<i32>, Vec<f32>) {
    let mut b = Builder::new();
    let count = b.parameter("rows", DType::I32, &[1], None);
    let input = b.parameter("x", DType::F32, &[rows as u32, width as u32], Some(count));
    let (ids, faults) = b.argmax(input);
    let (top_ids, top_values) = b.top_k(input, k);
    for (name, value) in [("ids", ids), ("faults", faults), ("top_ids", top_ids), ("top", top_values)] {
        b.result(name, value);
    }
    let graph = b.finish();
    let expected = Expected::of(&graph, Vec::new(), |block| {
        block.set_integers("rows", &[live as i32]).set_floats("x", 0, x);
    });
    let (ids, faults) = (expected.integers("ids"), expected.integers("faults")[0]);
    (ids, faults, expected.integers("top_ids"), expected.floats("top"))
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn choices_among_logits() {
    for (rows, live, width) in [(1, 1, 1), (7, 6, 33), (20, 19, 4096), (6, 6, 10_001)] {
        let x = logits(rows, width);
        for k in [1, 5, 40, 700] {
            let k = k.min(width as u32);
            let (ids, faults, top_ids, top) = choices(&x, rows, live, width, k);
            for (wave, offset) in [(32, 0), (64, 1)] {
                let x = Buffer::floats_at(&x, offset);
                let live_count = Buffer::of_integers(&[live as i32]);
                let (rows, width) = (rows as u32, width as u32);
                let scratch = Buffer::garbage(ArgmaxParts::scratch_bytes(rows, width) as usize / 4, 0);
                let (x, live_count, scratch) = (x.address(), live_count.address(), scratch.address());
                run(&ArgmaxParts { x, scratch, live: live_count, rows, width }, wave);
                let [own_ids, own_faults] = [rows as usize, 1].map(|n| Buffer::garbage(n, 0));
                let join = ArgmaxJoin {
                    scratch,
                    ids: own_ids.address(),
                    faults: own_faults.address(),
                    values: 0,
                    live: live_count,
                    rows,
                    width,
                };
                run(&join, wave);
                assert_eq!((&own_ids.integers()[..live], own_faults.integers()[0]), (&ids[..], faults));
                assert!(own_ids.bits()[live..].iter().all(|&word| is_garbage(word)));

                let own_values = Buffer::garbage((rows * k) as usize, 0);
                let own_ids = Buffer::garbage((rows * k) as usize, 0);
                if k == 1 {
                    let (ids, values) = (own_ids.address(), own_values.address());
                    run(&ArgmaxJoin { ids, values, faults: 0, ..join }, wave);
                } else {
                    let scratch = Buffer::garbage(TopK::scratch_bytes(rows, k) as usize / 4, 0);
                    let p = TopK {
                        x,
                        ids: own_ids.address(),
                        values: own_values.address(),
                        scratch: scratch.address(),
                        live: live_count,
                        rows,
                        width,
                        k,
                        reserved: 0,
                    };
                    run(&p, wave);
                }
                let what = format!("top {k} of {width}, wave {wave}");
                assert_eq!(own_ids.integers()[..top_ids.len()], top_ids, "{what}");
                assert_eq!(bits(&own_values.floats()[..top.len()]), bits(&top), "{what}");
            }
        }
    }
}

#[test]
fn tokens_that_are_drawn() {
    for (rows, live, width) in [(1, 1, 1), (7, 6, 33), (6, 6, 10_001)] {
        let x = logits(rows, width);
        let tokens: Vec<i32> = (0..width as i32).rev().map(|i| i * 3).collect();
        let noise: Vec<i32> = (0..rows as u64)
            .flat_map(|row| {
                let factor = [1.0, 2.5, 0.0, f32::INFINITY][row as usize % 4];
                Noise { key: row << 40 | 77, factor, floor: [9.0, 0.0][row as usize / 4 % 2] }.to_row()
            })
            .collect();
        for with_tokens in [false, true] {
            let mut b = Builder::new();
            let count = b.parameter("rows", DType::I32, &[1], None);
            let input = b.parameter("x", DType::F32, &[rows as u32, width as u32], Some(count));
            let noises = b.parameter("noise", DType::I32, &[rows as u32, 4], Some(count));
            let table = with_tokens.then(|| b.weight("tokens", DType::I32, &[width as u32]));
            let (ids, faults) = b.draw(input, noises, table);
            b.result("ids", ids);
            b.result("faults", faults);
            let weights = with_tokens.then(|| tokens.iter().flat_map(|t| t.to_ne_bytes()).collect());
            let graph = b.finish();
            let expected = Expected::of(&graph, weights.into_iter().collect(), |block| {
                block
                    .set_integers("rows", &[live as i32])
                    .set_floats("x", 0, &x)
                    .set_integers("noise", &noise);
            });
            for wave in WAVES {
                let [x, live_count] = [Buffer::of_floats(&x), Buffer::of_integers(&[live as i32])];
                let [noise, tokens] = [Buffer::of_integers(&noise), Buffer::of_integers(&tokens)];
                let (live_count, rows, width) = (live_count.address(), rows as u32, width as u32);
                let words = ArgmaxParts::scratch_bytes(rows, width) as usize / 4;
                let [largest, drawn] = [words, words].map(|words| Buffer::garbage(words, 0));
                let (x, largest, scratch) = (x.address(), largest.address(), drawn.address());
                run(&ArgmaxParts { x, scratch: largest, live: live_count, rows, width }, wave);
                let (noise, tokens) = (noise.address(), if with_tokens { tokens.address() } else { 0 });
                run(&DrawParts { x, noise, tokens, largest, scratch, live: live_count, rows, width }, wave);
                let [ids, faults] = [rows as usize, 1].map(|n| Buffer::garbage(n, 0));
                let own = [ids.address(), faults.address()];
                let join = ArgmaxJoin {
                    scratch,
                    ids: own[0],
                    faults: own[1],
                    values: 0,
                    live: live_count,
                    rows,
                    width,
                };
                run(&join, wave);
                assert_eq!(ids.integers()[..live], expected.integers("ids")[..], "{width}, wave {wave}");
                assert_eq!(faults.integers(), expected.integers("faults"));
            }
        }
    }
}
