//! Times of the launches of a token of a model of 27 billion parameters with delta-rule layers (Qwen3.6-27B in Q4_K_M), as they
//! follow each other, and of what is left of them without one.
//!
//! The numbers mean nothing: layers share weights, of which there are several times the L2 cache, and all read the same rows.

use crate::driver::{Buffer, Card};
use crate::samples;
use paceline_conformance::random::Random;
use paceline_kernels::layout::{self, WeightKind};
use paceline_kernels::params::cache::{AttentionParts, HeadsToCache, RowSpans, rope_table};
use paceline_kernels::params::elementwise::activation;
use paceline_kernels::params::fused::{GluQuantize, ItemsNormQuantize, JoinQuantize, NormQuantize};
use paceline_kernels::params::linear::{Linear, LinearSegment, ORDER_BESIDE, ORDER_FIRST, quantized_bytes};
use paceline_kernels::params::recurrent::{ConvCausal, GatedDeltaNet, PLAIN};
use paceline_kernels::params::{Launch, Parameters, View};

const REPLAYS: usize = 15;
const LAYERS: usize = 64;
const HIDDEN: u32 = 5120;
const FFN: u32 = 17_408;
const KEY_HEADS: u32 = 16;
const VALUE_HEADS: u32 = 48;
const WIDTH: u32 = 128;
const CHANNELS: u32 = (2 * KEY_HEADS + VALUE_HEADS) * WIDTH;
const VALUES: u32 = VALUE_HEADS * WIDTH;
const HEADS: u32 = 24;
const KV_HEADS: u32 = 4;
const HEAD: u32 = 256;
const CONTEXT: u32 = 256;
const COLUMNS: u32 = 16;

type Launcher = Box<dyn Fn(&Card)>;

/// Launches in order, each with its name.
struct Token {
    buffers: Vec<Buffer>,
    launches: Vec<(String, Launcher)>,
    rows: u32,
    live: u64,
}

/// A weight in memory.
#[derive(Clone, Copy)]
struct Weight {
    address: u64,
    n: u32,
    kind: WeightKind,
}

impl Token {
    fn keep(&mut self, buffer: Buffer) -> u64 {
        let address = buffer.address();
        self.buffers.push(buffer);
        address
    }

    fn room(&mut self, elements: u32) -> u64 {
        let buffer = Buffer::of(&vec![0.25f32; (elements * self.rows) as usize]);
        self.keep(buffer)
    }

    fn quantized(&mut self, width: u32) -> u64 {
        let bytes = quantized_bytes(self.rows, width) as usize;
        self.keep(Buffer::of(&vec![1u8; bytes]))
    }

    fn weight(&mut self, kind: WeightKind, n: u32, k: u32, random: &mut Random) -> Weight {
        let bytes = layout::packed_bytes(kind, n as usize, k as usize).expect("the shape suits the kind");
        let pattern = samples::packed(kind, 256, k as usize, random);
        let address = self.keep(Buffer::repeating(&pattern, bytes.next_multiple_of(layout::ALIGNMENT)));
        Weight { address, n, kind }
    }

    fn push<P: Parameters + 'static>(&mut self, name: &str, p: P) {
        let launch = p.launch();
        self.push_as(name, p, launch);
    }

    fn push_as<P: Parameters + 'static>(&mut self, name: &str, p: P, launch: Launch) {
        self.launches.push((name.into(), Box::new(move |card| card.launch_as(&launch, &p, None))));
    }

    fn product(&mut self, name: &str, x: u64, k: u32, order: u32, parts: &[(Weight, u64, u64)]) {
        let mut segments = [LinearSegment::default(); 4];
        for (segment, (weight, out, add)) in segments.iter_mut().zip(parts) {
            *segment = LinearSegment {
                weight: weight.address,
                bias: 0,
                add: *add,
                out: *out,
                n: weight.n,
                out_row: weight.n,
                add_row: weight.n,
                kind: weight.kind.gguf_id(),
            };
        }
        let [segment0, segment1, segment2, segment3] = segments;
        let (live, rows) = (self.live, self.rows);
        self.push(
            name,
            Linear {
                x,
                segment0,
                segment1,
                segment2,
                segment3,
                live,
                k,
                rows,
                x_row: k,
                order,
                ..Default::default()
            },
        );
    }
}

fn token(card: &Card, rows: u32) -> Token {
    let mut random = Random::new(5);
    let mut t = Token { buffers: Vec::new(), launches: Vec::new(), rows, live: 0 };
    t.live = t.keep(Buffer::of(&[rows as i32]));
    let live = t.live;
    let mut weight = |t: &mut Token, kind, n, k| t.weight(kind, n, k, &mut random);
    let (q4, q6) = (WeightKind::Q4K, WeightKind::Q6K);
    let qkv = [weight(&mut t, q4, CHANNELS, HIDDEN), weight(&mut t, q6, CHANNELS, HIDDEN)];
    let z = weight(&mut t, q4, VALUES, HIDDEN);
    let gates = weight(&mut t, q4, VALUE_HEADS, HIDDEN);
    let output = weight(&mut t, q4, HIDDEN, VALUES);
    let up = weight(&mut t, q4, FFN, HIDDEN);
    let gate = weight(&mut t, q4, FFN, HIDDEN);
    let down = [weight(&mut t, q4, HIDDEN, FFN), weight(&mut t, q6, HIDDEN, FFN)];
    let query = weight(&mut t, q4, 2 * HEADS * HEAD, HIDDEN);
    let key = weight(&mut t, q4, KV_HEADS * HEAD, HIDDEN);
    let value = weight(&mut t, q6, KV_HEADS * HEAD, HIDDEN);
    let mut random = Random::new(6);
    let x = t.keep(Buffer::of(&random.floats((HIDDEN * rows) as usize, 1.0)));
    let [middle, end] = [0; 2].map(|_| t.room(HIDDEN));
    let [to_mixer, to_output, to_ffn, to_down] =
        [HIDDEN, VALUES, HIDDEN, FFN].map(|width| t.quantized(width));
    let [channels, convolved, zs, alphas, betas, mixed, gated, upped] =
        [CHANNELS, CHANNELS, VALUES, VALUE_HEADS, VALUE_HEADS, VALUES, FFN, FFN].map(|width| t.room(width));
    let [queries, turned, keys, values] =
        [2 * HEADS * HEAD, HEADS * HEAD, KV_HEADS * HEAD, KV_HEADS * HEAD].map(|width| t.room(width));
    let ones = t.keep(Buffer::of(&vec![1f32; FFN as usize]));
    let minus = t.keep(Buffer::of(&vec![-0.1f32; VALUE_HEADS as usize]));
    let taps = t.keep(Buffer::of(&random.floats((CHANNELS * 4) as usize, 0.3)));
    let slots = LAYERS as u32;
    let windows = t.keep(Buffer::of(&vec![0f32; (slots * 3 * CHANNELS) as usize]));
    let state_elements = (VALUE_HEADS * WIDTH * WIDTH) as usize;
    let states = t.keep(Buffer::of(&vec![0.01f32; slots as usize * state_elements]));
    let cells = (2 * CONTEXT * KV_HEADS * HEAD) as usize;
    let caches = [0; 2].map(|_| {
        let numbers = (0..cells).map(|_| 0x3000 | (random.bits() as u16 & 0x8fff));
        t.keep(Buffer::of(&numbers.collect::<Vec<u16>>()))
    });
    let table = t.keep(Buffer::of(&(0..COLUMNS as i32).map(|i| i % 2).collect::<Vec<_>>()));
    let rope = t.keep(Buffer::of(&rope_table(64, 1e6, 1.0)));
    let first = (CONTEXT - 16) as i32;
    let positions = t.keep(Buffer::of(&(first..first + rows as i32).collect::<Vec<_>>()));
    let sequences = t.keep(Buffer::of(&[0, rows as i32, first, 0]));
    let one = t.keep(Buffer::of(&[1i32]));
    let spans = t.keep(Buffer::new(rows as usize * 16));
    let scratch = t.keep(Buffer::new(AttentionParts::scratch_bytes(rows, HEADS, HEAD, COLUMNS) as usize));
    card.launch(
        &RowSpans {
            sequences,
            spans,
            rows,
            max_sequences: 1,
            causal: 1,
            live_sequences: one,
            ..Default::default()
        },
        None,
    );
    let dense = |address, width| View::dense(address, 1, width);
    for layer in 0..LAYERS {
        let more_bits = usize::from(!(8..56).contains(&layer) || (layer - 8) % 3 == 2);
        let norm = NormQuantize {
            x: dense(x, HIDDEN),
            weight: ones,
            quantized: to_mixer,
            live,
            rows,
            width: HIDDEN,
            epsilon: 1e-6,
            early: 1,
            ..Default::default()
        };
        t.push("norm", norm);
        if layer % 4 == 3 {
            t.product("mixer in", to_mixer, HIDDEN, ORDER_FIRST, &[(query, queries, 0), (key, keys, 0)]);
            t.product("v", to_mixer, HIDDEN, ORDER_BESIDE, &[(value, values, 0)]);
            t.push(
                "heads",
                HeadsToCache {
                    q: View { address: queries, row: 2 * HEADS * HEAD, item: 2 * HEAD },
                    q_out: View::dense(turned, HEADS, HEAD),
                    k: View::dense(keys, KV_HEADS, HEAD),
                    v: View::dense(values, KV_HEADS, HEAD),
                    q_weight: ones,
                    k_weight: ones,
                    positions,
                    table: rope,
                    k_cache: caches[0],
                    v_cache: caches[1],
                    cells: positions,
                    live,
                    rows,
                    heads: HEADS,
                    kv_heads: KV_HEADS,
                    width: HEAD,
                    pairs: 32,
                    k_type: 1,
                    v_type: 1,
                    cells_end: 2 * CONTEXT,
                    epsilon: 1e-6,
                    early: 1,
                    ..Default::default()
                },
            );
            let parts = AttentionParts {
                q: View::dense(turned, HEADS, HEAD),
                k_cache: caches[0],
                v_cache: caches[1],
                table,
                spans,
                scratch,
                live,
                cells: positions,
                rows,
                heads: HEADS,
                kv_heads: KV_HEADS,
                width: HEAD,
                k_type: 1,
                v_type: 1,
                table_columns: COLUMNS,
                blocks: 2,
                chunk_blocks: AttentionParts::chunk_blocks(COLUMNS),
                splits: AttentionParts::splits(COLUMNS),
                scale: 0.0625,
                softcap: 0.0,
                early: 1,
                reserved: 0,
            };
            let launch = parts.launch_matrix().unwrap_or_else(|| parts.launch());
            t.push_as("attention", parts, launch);
            t.push(
                "join",
                JoinQuantize {
                    gate: View {
                        address: queries + 4 * u64::from(HEAD),
                        row: 2 * HEADS * HEAD,
                        item: 2 * HEAD,
                    },
                    scratch,
                    spans,
                    quantized: to_output,
                    live,
                    rows,
                    heads: HEADS,
                    width: HEAD,
                    table_columns: COLUMNS,
                    chunk_blocks: parts.chunk_blocks,
                    ..Default::default()
                },
            );
        } else {
            let others = [(z, zs, 0), (gates, alphas, 0), (gates, betas, 0)];
            let first = (qkv[more_bits], channels, 0);
            if more_bits == 1 {
                t.product("mixer in", to_mixer, HIDDEN, ORDER_FIRST, &[first]);
                t.product("z", to_mixer, HIDDEN, ORDER_BESIDE, &others);
            } else {
                t.product("mixer in", to_mixer, HIDDEN, 0, &[&[first][..], &others[..]].concat());
            }
            t.push(
                "conv",
                ConvCausal {
                    x: dense(channels, CHANNELS),
                    out: dense(convolved, CHANNELS),
                    weight: taps,
                    state: windows + (layer as u64) * u64::from(3 * CHANNELS) * 4,
                    sequences,
                    live_sequences: one,
                    max_sequences: 1,
                    channels: CHANNELS,
                    taps: 4,
                    planes: 1,
                    slots: 1,
                    silu: 1,
                    rows,
                    early: 1,
                    ..Default::default()
                },
            );
            let part = |at: u32| View { address: convolved + 4 * u64::from(at), row: CHANNELS, item: WIDTH };
            t.push(
                "delta",
                GatedDeltaNet {
                    q: part(0),
                    k: part(KEY_HEADS * WIDTH),
                    v: part(2 * KEY_HEADS * WIDTH),
                    g: View::dense(alphas, VALUE_HEADS, 1),
                    beta: View::dense(betas, VALUE_HEADS, 1),
                    out: View::dense(mixed, VALUE_HEADS, WIDTH),
                    state: states + (layer * state_elements * 4) as u64,
                    sequences,
                    live_sequences: one,
                    dt: ones,
                    a: minus,
                    max_sequences: 1,
                    key_heads: KEY_HEADS,
                    value_heads: VALUE_HEADS,
                    key_width: WIDTH,
                    value_width: WIDTH,
                    slots: 1,
                    planes: 1,
                    mode: PLAIN,
                    scale: 0.088,
                    normalize: 1,
                    epsilon: 1e-6,
                    early: 1,
                    ..Default::default()
                },
            );
            t.push(
                "items norm",
                ItemsNormQuantize {
                    x: View::dense(mixed, VALUE_HEADS, WIDTH),
                    gate: View::dense(zs, VALUE_HEADS, WIDTH),
                    weight: ones,
                    quantized: to_output,
                    live,
                    rows,
                    items: VALUE_HEADS,
                    width: WIDTH,
                    epsilon: 1e-6,
                    early: 1,
                    ..Default::default()
                },
            );
        }
        t.product("mixer out", to_output, VALUES, 0, &[(output, middle, x)]);
        t.push("norm", NormQuantize { x: dense(middle, HIDDEN), quantized: to_ffn, ..norm });
        t.product("gate and up", to_ffn, HIDDEN, 0, &[(gate, gated, 0), (up, upped, 0)]);
        t.push(
            "glu",
            GluQuantize {
                gate: dense(gated, FFN),
                up: dense(upped, FFN),
                quantized: to_down,
                live,
                rows,
                width: FFN,
                kind: activation::SILU,
                bf16_groups: 0,
            },
        );
        t.product(
            if more_bits == 1 { "down, Q6_K" } else { "down, Q4_K" },
            to_down,
            FFN,
            0,
            &[(down[more_bits], end, middle)],
        );
    }
    t
}

/// Times a token of so many rows whole and without the launches of each name.
pub fn run(card: &mut Card, rows: &[u32], with_parts: bool) {
    for &rows in rows {
        let token = token(card, rows);
        card.wait();
        card.overlap = true;
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in &token.launches {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let time = |without: &dyn Fn(&str) -> bool| {
            let wanted = || token.launches.iter().filter(|(name, _)| !without(name));
            1e6 * card.time(REPLAYS, || wanted().for_each(|(_, launch)| launch(card)))
        };
        let whole = time(&|_| false);
        println!("{rows} rows: {whole:.0} us");
        if with_parts {
            for name in names {
                let count = token.launches.iter().filter(|(other, _)| other == name).count();
                let rest = time(&|other| other == name);
                let each = (whole - rest) / count as f64;
                println!("  {name:14} {count:4} launches, {:6.0} us, each {each:6.2}", whole - rest);
            }
            let small = ["norm", "conv", "delta", "items norm", "heads", "attention", "join", "glu"];
            println!("  products alone {:.0} us", time(&|name| small.contains(&name)));
        }
        card.overlap = false;
    }
}
