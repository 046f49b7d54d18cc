//! Times of everything but products, at the shapes of a model of 8 billion parameters and of one with delta-rule layers.

use crate::driver::{Buffer, Card};
use paceline_conformance::random::Random;
use paceline_kernels::params::cache::{
    AttentionJoin, AttentionParts, AttentionRows, HeadsToCache, RowSpans, rope_table,
};
use paceline_kernels::params::choice::{ArgmaxJoin, ArgmaxParts, TopK};
use paceline_kernels::params::elementwise::{Glu, activation};
use paceline_kernels::params::fused::{GluQuantize, JoinQuantize, NormQuantize};
use paceline_kernels::params::linear::quantized_bytes;
use paceline_kernels::params::norms::{AddRmsNorm, RmsNorm};
use paceline_kernels::params::recurrent::{ConvCausal, GatedDeltaNet, PLAIN, RECORDS};
use paceline_kernels::params::{Launch, Parameters, View};

const REPLAYS: usize = 15;
/// Launches in a row, as layers follow each other.
const LAUNCHES: usize = 24;

/// Microseconds of a launch among its like, one after the other and overlapping.
fn time<P: Parameters>(card: &mut Card, p: &P, launch: &Launch) -> [f64; 2] {
    [false, true].map(|overlap| {
        card.overlap = overlap;
        let seconds = card.time(REPLAYS, || (0..LAUNCHES).for_each(|_| card.launch_as(launch, p, None)));
        card.overlap = false;
        seconds / LAUNCHES as f64 * 1e6
    })
}

fn line<P: Parameters>(card: &mut Card, what: &str, p: &P, bytes: u64) {
    line_as(card, what, p, &p.launch(), bytes);
}

fn line_as<P: Parameters>(card: &mut Card, what: &str, p: &P, launch: &Launch, bytes: u64) {
    let [apart, overlapping] = time(card, p, launch);
    let rate = bytes as f64 / overlapping / 1e3;
    println!("{what:48} {apart:9.2} {overlapping:9.2} {rate:9.0}");
}

fn view(buffer: &Buffer, items: u32, width: u32) -> View {
    View::dense(buffer.address(), items, width)
}

/// Times all.
pub fn run(card: &mut Card) {
    header();
    small(card);
    attentions(card, true);
    delta(card);
}

/// Times what knows sequences, but for the portable form of attention.
pub fn sequences(card: &mut Card) {
    header();
    attentions(card, false);
    delta(card);
}

fn header() {
    println!("kernel                                            us apart  us overl.      GB/s");
}

fn attentions(card: &mut Card, portable: bool) {
    for context in [512u32, 4096, 16_384] {
        for rows in [1u32, 4, 8, 16] {
            attention(card, context, rows, portable);
        }
    }
    for context in [512, 2048] {
        attention(card, context, 512, portable);
    }
}

fn small(card: &mut Card) {
    let mut random = Random::new(9);
    let (hidden, heads, kv_heads, width, ffn, vocabulary) =
        (4096u32, 32u32, 8u32, 128u32, 12_288u32, 151_936u32);
    for rows in [1u32, 8, 512] {
        let x = Buffer::of(&random.floats((rows * 2 * ffn) as usize, 1.0));
        let [y, sum, out] = [0; 3].map(|_| Buffer::of(&vec![1f32; (rows * 2 * ffn) as usize]));
        let w = Buffer::of(&vec![1f32; ffn as usize]);
        let bytes = u64::from(rows) * u64::from(hidden) * 4;
        let v = |b: &Buffer| view(b, 1, hidden);
        let p = AddRmsNorm {
            x: v(&x),
            y: v(&y),
            sum: v(&sum),
            out: v(&out),
            weight: w.address(),
            rows,
            width: hidden,
            epsilon: 1e-6,
            ..Default::default()
        };
        line(card, &format!("add_rms_norm {rows} x {hidden}"), &p, 4 * bytes);
        let quantized = Buffer::new(quantized_bytes(rows, ffn) as usize);
        let p = NormQuantize {
            x: v(&x),
            weight: w.address(),
            quantized: quantized.address(),
            rows,
            width: hidden,
            epsilon: 1e-6,
            early: 1,
            ..Default::default()
        };
        line(card, &format!("norm_quantize {rows} x {hidden}"), &p, 2 * bytes);
        let p = GluQuantize {
            gate: View { address: x.address(), row: 2 * ffn, item: ffn },
            up: View { address: x.address() + 4 * u64::from(ffn), row: 2 * ffn, item: ffn },
            quantized: quantized.address(),
            rows,
            width: ffn,
            kind: activation::SILU,
            ..Default::default()
        };
        line(card, &format!("glu_quantize {rows} x {ffn}"), &p, 2 * u64::from(rows * ffn) * 4);
        let p = RmsNorm {
            x: view(&x, heads, width),
            out: view(&out, heads, width),
            weight: w.address(),
            rows,
            items: heads,
            width,
            epsilon: 1e-6,
            ..Default::default()
        };
        line(card, &format!("rms_norm {rows} x {heads} x {width}"), &p, 2 * bytes);
        let p = Glu {
            gate: View { address: x.address(), row: 2 * ffn, item: ffn },
            up: View { address: x.address() + 4 * u64::from(ffn), row: 2 * ffn, item: ffn },
            out: view(&out, 1, ffn),
            rows,
            items: 1,
            width: ffn,
            kind: activation::SILU,
            live: 0,
        };
        line(card, &format!("glu {rows} x {ffn}"), &p, 3 * u64::from(rows * ffn) * 4);
        let cache = [0; 2].map(|_| Buffer::of(&vec![0u16; (1024 * kv_heads * width) as usize]));
        let table = Buffer::of(&rope_table(width, 1e6, 1.0));
        let places = Buffer::of(&(0..rows as i32).collect::<Vec<_>>());
        let p = HeadsToCache {
            q: view(&x, heads + 2 * kv_heads, width),
            q_out: view(&out, heads, width),
            k: view(&x, heads + 2 * kv_heads, width),
            v: view(&x, heads + 2 * kv_heads, width),
            q_weight: w.address(),
            k_weight: w.address(),
            positions: places.address(),
            table: table.address(),
            k_cache: cache[0].address(),
            v_cache: cache[1].address(),
            cells: places.address(),
            rows,
            heads,
            kv_heads,
            width,
            pairs: width / 2,
            k_type: 1,
            v_type: 1,
            cells_end: 1024,
            epsilon: 1e-6,
            ..Default::default()
        };
        line(card, &format!("heads_to_cache {rows} x {heads} + {kv_heads}"), &p, 0);
    }
    for rows in [1u32, 8] {
        let x = Buffer::of(&random.floats((rows * vocabulary) as usize, 1.0));
        let scratch = Buffer::new(ArgmaxParts::scratch_bytes(rows, vocabulary) as usize);
        let [ids, faults, values] = [0; 3].map(|_| Buffer::new(rows as usize * 4096));
        let (x, scratch, width) = (x.address(), scratch.address(), vocabulary);
        let bytes = u64::from(rows * vocabulary) * 4;
        line(
            card,
            &format!("argmax_parts {rows} x {width}"),
            &ArgmaxParts { x, scratch, live: 0, rows, width },
            bytes,
        );
        let p = ArgmaxJoin {
            scratch,
            ids: ids.address(),
            faults: faults.address(),
            values: 0,
            live: 0,
            rows,
            width,
        };
        line(card, &format!("argmax_join {rows} x {width}"), &p, 0);
        let top_scratch = Buffer::new(TopK::scratch_bytes(rows, 40) as usize);
        let p = TopK {
            x,
            ids: ids.address(),
            values: values.address(),
            scratch: top_scratch.address(),
            live: 0,
            rows,
            width,
            k: 40,
            reserved: 0,
        };
        line(card, &format!("top_k 40 {rows} x {width}"), &p, bytes);
    }
}

fn attention(card: &mut Card, context: u32, rows: u32, portable: bool) {
    let (heads, kv_heads, width) = (32u32, 8u32, 128u32);
    let columns = 128u32;
    let blocks = context.div_ceil(256) + 2;
    let mut random = Random::new(3);
    let cells = (blocks * 256 * kv_heads * width) as usize;
    let caches = [0; 2].map(|_| {
        Buffer::of(&(0..cells).map(|_| 0x3000 | (random.bits() as u16 & 0x8fff)).collect::<Vec<u16>>())
    });
    let table = Buffer::of(&(0..columns).map(|i| (i % blocks) as i32).collect::<Vec<_>>());
    let q = Buffer::of(&random.floats((rows * heads * width) as usize, 1.0));
    let out = Buffer::new((rows * heads * width * 4) as usize);
    let spans = Buffer::new(rows as usize * 16);
    let sequences = Buffer::of(&[0, rows as i32, (context - rows) as i32, 0]);
    let written = Buffer::of(&(context as i32 - rows as i32..context as i32).collect::<Vec<_>>());
    let scratch = Buffer::new(AttentionParts::scratch_bytes(rows, heads, width, columns) as usize);
    let p = RowSpans {
        sequences: sequences.address(),
        spans: spans.address(),
        rows,
        max_sequences: 1,
        causal: 1,
        ..Default::default()
    };
    card.launch(&p, None);
    card.wait();
    let parts = AttentionParts {
        q: view(&q, heads, width),
        k_cache: caches[0].address(),
        v_cache: caches[1].address(),
        table: table.address(),
        spans: spans.address(),
        scratch: scratch.address(),
        live: 0,
        cells: if rows <= 32 { written.address() } else { 0 },
        rows,
        heads,
        kv_heads,
        width,
        k_type: 1,
        v_type: 1,
        table_columns: columns,
        blocks,
        chunk_blocks: AttentionParts::chunk_blocks(columns),
        splits: AttentionParts::splits(columns),
        scale: 0.088,
        softcap: 0.0,
        early: 1,
        reserved: 0,
    };
    let bytes = u64::from(context * kv_heads * width) * 4;
    let what = format!("{rows} rows, context {context}");
    // The portable form takes long, and where caches are f16 nobody runs it.
    if portable && context * rows <= 4096 {
        line(card, &format!("attention_parts, {what}"), &parts, bytes);
    }
    if let Some(launch) = parts.launch_matrix() {
        line_as(card, &format!("attention_parts_f16, {what}"), &parts, &launch, bytes);
    }
    if let Some(many) = AttentionRows::of(&parts).filter(|_| rows > 16) {
        let many = AttentionRows { out: view(&out, heads, width), ..many };
        line(card, &format!("attention_rows_f16, {what}"), &many, bytes);
    }
    let join = AttentionJoin {
        out: view(&out, heads, width),
        scratch: scratch.address(),
        spans: spans.address(),
        rows,
        heads,
        width,
        table_columns: columns,
        chunk_blocks: parts.chunk_blocks,
        ..Default::default()
    };
    line(card, &format!("attention_join, {what}"), &join, 0);
    let quantized = Buffer::new(quantized_bytes(rows, heads * width) as usize);
    let p = JoinQuantize {
        scratch: scratch.address(),
        spans: spans.address(),
        quantized: quantized.address(),
        rows,
        heads,
        width,
        table_columns: columns,
        chunk_blocks: parts.chunk_blocks,
        ..Default::default()
    };
    line(card, &format!("join_quantize, {what}"), &p, 0);
}

fn delta(card: &mut Card) {
    let (key_heads, value_heads, width, channels, slots) = (16u32, 48u32, 128u32, 10_240u32, 4u32);
    let mut random = Random::new(4);
    for rows in [1u32, 4, 8, 16, 512] {
        let x = Buffer::of(&random.floats((rows * channels) as usize, 1.0));
        let gates = Buffer::of(&vec![-0.1f32; (rows * value_heads) as usize]);
        let out = Buffer::new((rows * channels * 4) as usize);
        let weight = Buffer::of(&random.floats((channels * 4) as usize, 0.1));
        let windows = Buffer::of(&vec![0f32; (slots * 3 * channels) as usize]);
        let sequences = Buffer::of(&[0, rows as i32, 100, 1]);
        let rollback = Buffer::of(&[0, 0, 0]);
        let p = ConvCausal {
            x: view(&x, 1, channels),
            out: view(&out, 1, channels),
            weight: weight.address(),
            state: windows.address(),
            sequences: sequences.address(),
            max_sequences: 1,
            channels,
            taps: 4,
            planes: 1,
            slots,
            silu: 1,
            rows,
            early: 1,
            ..Default::default()
        };
        line(card, &format!("conv_causal {rows} x {channels}"), &p, u64::from(rows * channels) * 8);
        let state_bytes = u64::from(value_heads * width * width) * 4;
        let state = Buffer::of(&vec![0f32; (slots * value_heads * width * width) as usize]);
        let count = 16;
        let record = value_heads * (width + 1) + key_heads * width;
        let records = Buffer::of(&vec![0f32; (slots * 2 * count * record) as usize]);
        for (mode, name) in [(PLAIN, "plain"), (RECORDS, "records")] {
            let part = |at: u32, heads: u32| View {
                address: x.address() + 4 * u64::from(at),
                row: channels,
                item: width.min(heads * width),
            };
            let p = GatedDeltaNet {
                q: part(0, key_heads),
                k: part(key_heads * width, key_heads),
                v: part(2 * key_heads * width, value_heads),
                g: view(&gates, value_heads, 1),
                beta: view(&gates, value_heads, 1),
                out: view(&out, value_heads, width),
                state: state.address(),
                records: records.address(),
                sequences: sequences.address(),
                rollback: rollback.address(),
                max_sequences: 1,
                key_heads,
                value_heads,
                key_width: width,
                value_width: width,
                slots,
                planes: 1,
                mode,
                records_count: count,
                scale: 0.088,
                normalize: 1,
                epsilon: 1e-6,
                early: 1,
                ..Default::default()
            };
            line(card, &format!("gated_delta_net {name}, {rows} rows"), &p, 2 * state_bytes);
        }
    }
}
