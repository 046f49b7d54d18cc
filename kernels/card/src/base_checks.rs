//! Everything but products, on the card and on the host.

use crate::checks::Both;
use crate::driver::Card;
use paceline_conformance::random::Random;
use paceline_kernels::host;
use paceline_kernels::params::cache::{
    AttentionJoin, AttentionParts, AttentionRows, HeadsToCache, KvAppend, Rope, RowSpans, rope_table,
};
use paceline_kernels::params::choice::{ArgmaxJoin, ArgmaxParts, TopK};
use paceline_kernels::params::elementwise::{Activation, Binary, DeltaGates, Glu, Scale};
use paceline_kernels::params::norms::{AddRmsNorm, L2Norm, RmsNorm, Softmax};
use paceline_kernels::params::recurrent::{ConvCausal, DeltaReplay, GatedDeltaNet, RECORDS, SNAPSHOTS};
use paceline_kernels::params::rows::{RowsStore, SelectRows};
use paceline_kernels::params::{Launch, Parameters, View};
use paceline_plugin_api::graph::DType;

const TYPES: [DType; 8] =
    [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1];

struct Checks<'c> {
    card: &'c Card,
    random: Random,
    wrong: usize,
    done: usize,
}

fn view(both: &Both, on_card: bool, items: u32, width: u32) -> View {
    View::dense(both.address(on_card), items, width)
}

impl Checks<'_> {
    fn floats(&mut self, count: u32, deviation: f32) -> Both {
        Both::of(&self.random.floats(count as usize, deviation))
    }

    fn run_as<P: Parameters>(&self, make: impl Fn(bool) -> P, launch: impl Fn(&P) -> Launch) {
        let (on_card, on_host) = (make(true), make(false));
        self.card.launch_as(&launch(&on_card), &on_card, None);
        self.card.wait();
        // SAFETY: the addresses are those of memory that `Both` holds.
        if let Err(error) = unsafe { host::launch(&launch(&on_host), on_host.as_bytes(), 32) } {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }

    fn run<P: Parameters>(&self, make: impl Fn(bool) -> P) {
        self.run_as(make, |p| p.launch());
    }

    /// Words must be the same, but for NaN, of which there are many; `most` is what numbers may be off.
    fn compare(&mut self, what: &str, outputs: &[&Both], most: f32) {
        self.done += 1;
        for (index, both) in outputs.iter().enumerate() {
            let (host, card) = both.floats();
            let differs = |(h, c): &(&f32, &f32)| {
                let same = h.to_bits() == c.to_bits() || (h.is_nan() && c.is_nan());
                !(same || (*h - *c).abs() <= most)
            };
            let different: Vec<_> =
                host.iter().zip(&card).enumerate().filter(|(_, pair)| differs(pair)).collect();
            if let Some((at, (host, card))) = different.first() {
                self.wrong += 1;
                println!(
                    "{what}: {} of {} of output {index} differ, first {at}: host {host:e}, card {card:e}",
                    different.len(),
                    both.floats().0.len()
                );
            }
        }
    }

    fn elementwise(&mut self) {
        for (items, width) in [(3u32, 7u32), (2, 128), (1, 4100)] {
            let (rows, count) = (3, 3 * items * width);
            let (x, y) = (self.floats(count, 3.0), self.floats(count, 1.0));
            let out = Both::of(&vec![0f32; count as usize]);
            let v = |both: &Both, on_card| view(both, on_card, items, width);
            for kind in 0..2 {
                self.run(|c| Binary {
                    x: v(&x, c),
                    y: v(&y, c),
                    out: v(&out, c),
                    live: 0,
                    rows,
                    items,
                    width,
                    kind,
                });
                self.compare("binary", &[&out], 0.0);
            }
            self.run(|c| Scale { x: v(&x, c), out: v(&out, c), live: 0, rows, items, width, factor: 0.3 });
            self.compare("scale", &[&out], 0.0);
            for kind in 0..7 {
                for softcap in [0.0, 2.5] {
                    self.run(|c| Activation {
                        x: v(&x, c),
                        out: v(&out, c),
                        live: 0,
                        rows,
                        items,
                        width,
                        kind,
                        softcap,
                        reserved: 0,
                    });
                    self.compare(&format!("activation {kind}, softcap {softcap}"), &[&out], 0.0);
                }
                self.run(|c| Glu {
                    gate: v(&x, c),
                    up: v(&y, c),
                    out: v(&out, c),
                    live: 0,
                    rows,
                    items,
                    width,
                    kind,
                });
                self.compare(&format!("glu {kind}"), &[&out], 0.0);
            }
        }
        let heads = 48;
        let [alpha, beta, dt, a] = [0; 4].map(|_| self.floats(3 * heads, 1.0));
        let [g_out, beta_out] = [0; 2].map(|_| Both::of(&vec![0f32; 3 * heads as usize]));
        self.run(|c| DeltaGates {
            alpha: view(&alpha, c, heads, 1),
            beta: view(&beta, c, heads, 1),
            g_out: view(&g_out, c, heads, 1),
            beta_out: view(&beta_out, c, heads, 1),
            dt: dt.address(c),
            a: a.address(c),
            live: 0,
            rows: 3,
            heads,
        });
        self.compare("delta_gates", &[&g_out, &beta_out], 0.0);
    }

    fn norms(&mut self) {
        for (items, width) in [(5u32, 33u32), (16, 128), (1, 1024), (2, 4096), (1, 5121)] {
            let (rows, count) = (3, 3 * items * width);
            let [x, z, w] = [count, count, width].map(|n| self.floats(n, 2.0));
            let out = Both::of(&vec![0f32; count as usize]);
            let sum = Both::of(&vec![0f32; count as usize]);
            let v = |both: &Both, on_card| view(both, on_card, items, width);
            let epsilon = 1e-6;
            self.run(|c| RmsNorm {
                x: v(&x, c),
                gate: v(&z, c),
                out: v(&out, c),
                weight: w.address(c),
                live: 0,
                rows,
                items,
                width,
                epsilon,
            });
            self.compare(&format!("rms_norm of {width}"), &[&out], 0.0);
            self.run(|c| L2Norm { x: v(&x, c), out: v(&out, c), live: 0, rows, items, width, epsilon });
            self.compare(&format!("l2_norm of {width}"), &[&out], 0.0);
            self.run(|c| Softmax { x: v(&x, c), out: v(&out, c), live: 0, rows, items, width, reserved: 0 });
            self.compare(&format!("softmax of {width}"), &[&out], 0.0);
            let v = |both: &Both, on_card| view(both, on_card, 1, width);
            self.run(|c| AddRmsNorm {
                x: v(&x, c),
                y: v(&z, c),
                sum: v(&sum, c),
                out: v(&out, c),
                weight: w.address(c),
                live: 0,
                rows,
                width,
                epsilon,
                reserved: 0,
            });
            self.compare(&format!("add_rms_norm of {width}"), &[&sum, &out], 0.0);
        }
    }

    fn choices(&mut self) {
        for (rows, width) in [(3u32, 1000u32), (2, 151_936)] {
            let mut x = self.random.floats((rows * width) as usize, 1.0);
            x.iter_mut().for_each(|v| *v = (*v * 64.0).round() / 64.0);
            x[width as usize + 5] = f32::NAN;
            let x = Both::of(&x);
            let scratch = Both::of(&vec![0u8; ArgmaxParts::scratch_bytes(rows, width) as usize]);
            let (ids, faults) = (Both::of(&vec![0i32; rows as usize]), Both::of(&[0i32]));
            let join = |c: bool| ArgmaxJoin {
                scratch: scratch.address(c),
                ids: ids.address(c),
                faults: faults.address(c),
                values: 0,
                live: 0,
                rows,
                width,
            };
            self.run(|c| ArgmaxParts { x: x.address(c), scratch: scratch.address(c), live: 0, rows, width });
            self.run(join);
            self.compare("argmax", &[&ids, &faults], 0.0);
            for k in [2, 40, 900] {
                let scratch = Both::of(&vec![0u8; TopK::scratch_bytes(rows, k) as usize]);
                let values = Both::of(&vec![0f32; (rows * k) as usize]);
                let ids = Both::of(&vec![0i32; (rows * k) as usize]);
                self.run(|c| TopK {
                    x: x.address(c),
                    ids: ids.address(c),
                    values: values.address(c),
                    scratch: scratch.address(c),
                    live: 0,
                    rows,
                    width,
                    k,
                    reserved: 0,
                });
                self.compare(&format!("top {k} of {width}"), &[&ids, &values], 0.0);
            }
        }
        let (width, cells) = (1500, Both::of(&[3, -1, 0, 3, 9, 2]));
        let x = self.floats(6 * width, 1.0);
        let (state, out) = (self.floats(5 * width, 1.0), Both::of(&vec![0f32; 6 * width as usize]));
        self.run(|c| RowsStore {
            x: view(&x, c, 1, width),
            state: state.address(c),
            cells: cells.address(c),
            live: 0,
            rows: 6,
            entries: 5,
            width,
            reserved: 0,
        });
        self.run(|c| SelectRows {
            x: view(&x, c, 1, width),
            out: view(&out, c, 1, width),
            list: cells.address(c),
            live: 0,
            rows: 6,
            x_rows: 6,
            width,
            reserved: 0,
        });
        self.compare("rows_store and select_rows", &[&state, &out], 0.0);
    }

    fn caches(&mut self) {
        let (rows, heads, kv_heads, blocks) = (6u32, 8u32, 2u32, 2u32);
        let cells = Both::of(&[0, 300, -1, 511, 7, 8]);
        let positions = Both::of(&[0, 1, 77, 4097, 1_000_003, 16_777_215]);
        for width in [64u32, 128, 256] {
            let pairs = width / 4;
            let table = Both::of(&rope_table(2 * pairs, 1e6, 1.0));
            let [q, k, v] = [heads, kv_heads, kv_heads].map(|h| self.floats(rows * h * width, 1.0));
            let [q_weight, k_weight] = [0; 2].map(|_| self.floats(width, 1.0));
            let out = Both::of(&vec![0f32; (rows * heads * width) as usize]);
            self.run(|c| Rope {
                x: view(&q, c, heads, width),
                out: view(&out, c, heads, width),
                positions: positions.address(c),
                table: table.address(c),
                factors: 0,
                live: 0,
                rows,
                heads,
                width,
                pairs,
                pairing: 0,
                reserved: 0,
            });
            self.compare("rope", &[&out], 0.0);
            for dtype in TYPES {
                let (elements, bytes) = dtype.block().unwrap_or((1, 4));
                let size = (blocks * 256 * kv_heads * width / elements * bytes) as usize;
                let caches = [0; 4].map(|_| Both::of(&vec![0u8; size]));
                let (k_type, v_type) = (dtype.0, dtype.0);
                self.run(|c| KvAppend {
                    k: view(&k, c, kv_heads, width),
                    v: view(&v, c, kv_heads, width),
                    k_cache: caches[0].address(c),
                    v_cache: caches[1].address(c),
                    cells: cells.address(c),
                    live: 0,
                    rows,
                    heads: kv_heads,
                    k_width: width,
                    v_width: width,
                    k_type,
                    v_type,
                    cells_end: blocks * 256,
                    reserved: 0,
                });
                self.run(|c| HeadsToCache {
                    q: view(&q, c, heads, width),
                    q_out: view(&out, c, heads, width),
                    k: view(&k, c, kv_heads, width),
                    v: view(&v, c, kv_heads, width),
                    q_weight: q_weight.address(c),
                    k_weight: k_weight.address(c),
                    positions: positions.address(c),
                    table: table.address(c),
                    factors: 0,
                    k_cache: caches[2].address(c),
                    v_cache: caches[3].address(c),
                    cells: cells.address(c),
                    live: 0,
                    rows,
                    heads,
                    kv_heads,
                    width,
                    pairs,
                    pairing: 0,
                    k_type,
                    v_type,
                    cells_end: blocks * 256,
                    epsilon: 1e-6,
                    early: 1,
                    reserved: 0,
                });
                let [a, b, c, d] = caches.each_ref();
                self.compare(&format!("kv_append and heads_to_cache, {dtype}"), &[a, b, c, d, &out], 0.0);
            }
        }
    }

    fn attention(&mut self) {
        let (heads, kv_heads, columns, blocks, rows) = (8u32, 2u32, 3u32, 4u32, 20u32);
        let sequences = Both::of(&[[0, 5, 300, 0], [5, 12, 700, 1]]);
        let table = Both::of(&[[3, 1, 0], [0, 2, 3]]);
        let spans = Both::of(&vec![0i32; 4 * rows as usize]);
        self.run(|c| RowSpans {
            sequences: sequences.address(c),
            live_sequences: 0,
            spans: spans.address(c),
            live: 0,
            rows,
            max_sequences: 2,
            window: 0,
            causal: 1,
        });
        self.compare("row_spans", &[&spans], 0.0);
        for (dtype, width) in
            TYPES.iter().map(|&t| (t, 128)).chain([(DType::F16, 64), (DType::F16, 256), (DType::F32, 72)])
        {
            let cells = blocks * 256;
            let elements = cells * kv_heads * width;
            let (per_block, bytes) = dtype.block().unwrap_or((1, 4));
            let caches = [0; 2].map(|_| Both::of(&vec![0u8; (elements / per_block * bytes) as usize]));
            let [k, v] = [0; 2].map(|_| self.floats(elements, 1.0));
            let places = Both::of(&(0..cells as i32).collect::<Vec<_>>());
            self.run(|c| KvAppend {
                k: view(&k, c, kv_heads, width),
                v: view(&v, c, kv_heads, width),
                k_cache: caches[0].address(c),
                v_cache: caches[1].address(c),
                cells: places.address(c),
                live: 0,
                rows: cells,
                heads: kv_heads,
                k_width: width,
                v_width: width,
                k_type: dtype.0,
                v_type: dtype.0,
                cells_end: cells,
                reserved: 0,
            });
            let q = self.floats(rows * heads * width, 1.0);
            let scratch =
                Both::of(&vec![0u8; AttentionParts::scratch_bytes(rows, heads, width, columns) as usize]);
            let out = Both::of(&vec![0f32; (rows * heads * width) as usize]);
            let parts = |c: bool| AttentionParts {
                q: view(&q, c, heads, width),
                k_cache: caches[0].address(c),
                v_cache: caches[1].address(c),
                table: table.address(c),
                spans: spans.address(c),
                scratch: scratch.address(c),
                live: 0,
                cells: if rows <= 32 { places.address(c) } else { 0 },
                rows,
                heads,
                kv_heads,
                width,
                k_type: dtype.0,
                v_type: dtype.0,
                table_columns: columns,
                blocks,
                chunk_blocks: 1,
                splits: 2,
                scale: 1.0 / (width as f32).sqrt(),
                softcap: 0.0,
                early: 1,
                reserved: 0,
            };
            let join = |c: bool| AttentionJoin {
                out: view(&out, c, heads, width),
                scratch: scratch.address(c),
                spans: spans.address(c),
                sinks: 0,
                live: 0,
                rows,
                heads,
                width,
                table_columns: columns,
                chunk_blocks: 1,
                reserved: 0,
            };
            self.run(parts);
            self.run(join);
            self.compare(&format!("attention, {dtype}, heads of {width}"), &[&out], 0.0);
            if parts(true).launch_matrix().is_some() {
                self.run_as(parts, |p| p.launch_matrix().unwrap_or(p.launch()));
                self.run(join);
                // Matrix units sum in an order of their own.
                self.compare(&format!("attention on matrix units, heads of {width}"), &[&out], 2e-6);
                let on_card = || out.floats().1.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                let before = on_card();
                self.run(|c| AttentionRows {
                    out: view(&out, c, heads, width),
                    ..AttentionRows::of(&parts(c)).unwrap_or_default()
                });
                self.compare(&format!("attention of many rows, heads of {width}"), &[&out], 2e-6);
                self.done += 1;
                if before != on_card() {
                    self.wrong += 1;
                    println!("attention of many rows, heads of {width}: other bits than parts and join have");
                }
            }
        }
    }

    fn recurrent(&mut self) {
        let sequences = Both::of(&[[0, 3, 4, 1], [3, 9, 0, 0]]);
        let rollback = Both::of(&[[2, 1, 2], [0, 0, 0]]);
        let (rows, slots, planes, channels, taps) = (12u32, 2u32, 5u32, 300u32, 4u32);
        let [x, w, state] =
            [rows * channels, channels * taps, slots * planes * 3 * channels].map(|n| self.floats(n, 1.0));
        let out = Both::of(&vec![0f32; (rows * channels) as usize]);
        for planned in [rows, 4096] {
            self.run(|c| ConvCausal {
                x: view(&x, c, 1, channels),
                out: view(&out, c, 1, channels),
                weight: w.address(c),
                state: state.address(c),
                sequences: sequences.address(c),
                live_sequences: 0,
                rollback: rollback.address(c),
                max_sequences: 2,
                channels,
                taps,
                planes,
                slots,
                silu: 1,
                rows: planned,
                early: 0,
            });
            self.compare("conv_causal", &[&out, &state], 0.0);
        }
        for (key_width, value_width) in [(48u32, 40u32), (128, 128), (256, 64)] {
            for mode in [SNAPSHOTS, RECORDS] {
                let (key_heads, value_heads, count) = (2u32, 4u32, 4u32);
                let planes = if mode == SNAPSHOTS { planes } else { 1 };
                let [q, k] = [0; 2].map(|_| self.floats(rows * key_heads * key_width, 1.0));
                let v = self.floats(rows * value_heads * value_width, 1.0);
                let g = self.random.floats((rows * value_heads) as usize, 1.0);
                let g = Both::of(&g.into_iter().map(|g| -g.abs()).collect::<Vec<_>>());
                let beta = self.floats(rows * value_heads, 0.2);
                let state = self.floats(slots * planes * value_heads * key_width * value_width, 0.1);
                let width = value_heads * (value_width + 1) + key_heads * key_width;
                let records = self.floats(slots * 2 * count * width, 0.1);
                let out = Both::of(&vec![0f32; (rows * value_heads * value_width) as usize]);
                if mode == RECORDS {
                    self.run(|c| DeltaReplay {
                        state: state.address(c),
                        records: records.address(c),
                        sequences: sequences.address(c),
                        live_sequences: 0,
                        rollback: rollback.address(c),
                        max_sequences: 2,
                        key_heads,
                        value_heads,
                        key_width,
                        value_width,
                        slots,
                        records_count: count,
                        reserved: 0,
                    });
                }
                let [dt, a] = [0; 2].map(|_| self.floats(value_heads, 1.0));
                self.run(|c| GatedDeltaNet {
                    q: view(&q, c, key_heads, key_width),
                    k: view(&k, c, key_heads, key_width),
                    v: view(&v, c, value_heads, value_width),
                    g: view(&g, c, value_heads, 1),
                    beta: view(&beta, c, value_heads, 1),
                    out: view(&out, c, value_heads, value_width),
                    state: state.address(c),
                    records: records.address(c),
                    sequences: sequences.address(c),
                    live_sequences: 0,
                    rollback: rollback.address(c),
                    max_sequences: 2,
                    key_heads,
                    value_heads,
                    key_width,
                    value_width,
                    slots,
                    planes,
                    mode,
                    records_count: count,
                    scale: 0.1,
                    dt: dt.address(c),
                    a: a.address(c),
                    normalize: 1,
                    epsilon: 1e-6,
                    early: mode % 2,
                    reserved: 0,
                });
                self.compare(
                    &format!("delta rule, keys of {key_width}, mode {mode}"),
                    &[&out, &state, &records],
                    0.0,
                );
            }
        }
    }
}

/// Runs all checks; false if anything differs.
pub fn run_all(card: &Card) -> bool {
    let mut checks = Checks { card, random: Random::new(5), wrong: 0, done: 0 };
    checks.elementwise();
    checks.norms();
    checks.choices();
    checks.caches();
    checks.attention();
    checks.recurrent();
    println!("{} checks, {} differ", checks.done, checks.wrong);
    checks.wrong == 0
}
