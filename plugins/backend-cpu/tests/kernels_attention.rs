//! The cache and attention: against f64 on what the cache holds, the same bits however the rows
//! come, are split and are tiled.

mod kernels_support;

use half::f16;
use kernels_support::{Random, assert_close, bits, filled, halves};
use paceline_backend_cpu::kernels::SharedSlice;
use paceline_backend_cpu::kernels::attention::spans::span_of;
use paceline_backend_cpu::kernels::attention::{
    Attention, MOST_SHARED_ROWS, attention, attention_scratch_floats, attention_span, combine_spans,
    part_floats,
};
use paceline_backend_cpu::kernels::kv::{
    BLOCK, CellFormat, KvAppend, KvPlane, cache_bytes, cell_bytes, kv_append, read_cell, write_cell,
};
use paceline_backend_cpu::level::Level;

const FORMATS: [CellFormat; 7] = CellFormat::ALL;

/// A model's layer with a context of `len` positions in scattered blocks.
struct Context {
    formats: (CellFormat, CellFormat),
    heads: (usize, usize),
    width: usize,
    key: Vec<f32>,
    value: Vec<f32>,
    blocks: Vec<i32>,
}

impl Context {
    fn random(len: usize, formats: (CellFormat, CellFormat), heads: (usize, usize), width: usize) -> Self {
        let mut random = Random(len as u64);
        let count = len.div_ceil(BLOCK) as i32;
        Self {
            formats,
            heads,
            width,
            key: random.floats(len * heads.1 * width, 2.0),
            value: random.floats(len * heads.1 * width, 2.0),
            // Descending physical blocks, with one unused in front.
            blocks: (0..count).map(|block| count - block).collect(),
        }
    }

    fn len(&self) -> usize {
        self.key.len() / self.heads.1 / self.width
    }

    fn slot(&self, position: usize) -> i32 {
        self.blocks[position / BLOCK] * BLOCK as i32 + (position % BLOCK) as i32
    }

    /// A plane full of what must not matter.
    fn memory(&self, format: CellFormat) -> Vec<u8> {
        vec![0xff; cache_bytes(format, self.blocks.len() + 1, self.heads.1, self.width)]
    }

    fn plane<'a>(&self, format: CellFormat, bytes: &'a mut [u8]) -> KvPlane<'a> {
        KvPlane { format, heads: self.heads.1, width: self.width, bytes: SharedSlice::new(bytes) }
    }

    /// The cache after appends of `step` rows each.
    fn fill(&self, level: Level, step: usize, keys: &KvPlane<'_>, values: &KvPlane<'_>) {
        let row = self.heads.1 * self.width;
        for start in (0..self.len()).step_by(step) {
            let rows = start..self.len().min(start + step);
            let slots: Vec<i32> = rows.clone().map(|position| self.slot(position)).collect();
            let span = rows.start * row..rows.end * row;
            let work = KvAppend { key: &self.key[span.clone()], value: &self.value[span], slots: &slots };
            for items in halves(rows.len() * self.heads.1) {
                // SAFETY: one thread.
                unsafe { kv_append(level, &work, keys, values, items) };
            }
        }
    }

    fn read(&self, plane: &KvPlane<'_>, position: usize, head: usize) -> Vec<f64> {
        let mut x = vec![0.0; self.width];
        // SAFETY: one thread.
        unsafe { read_cell(Level::detect(), plane, self.slot(position) as usize, head, &mut x) };
        x.into_iter().map(f64::from).collect()
    }
}

/// Runs attention over all rows, in tiles as they come or cut in the middle.
fn attend(level: Level, work: &Attention<'_>, rows: &[std::ops::Range<usize>]) -> Vec<f32> {
    let kv_heads = work.keys.heads;
    // NaN in the scratch must not matter.
    let scratch = attention_scratch_floats(work.query_heads, kv_heads, work.keys.width);
    let mut scratch = vec![f32::NAN; scratch];
    filled(work.query.len(), |out| {
        for rows in rows {
            for head in 0..kv_heads {
                // SAFETY: one thread.
                unsafe { attention(level, work, out, head, rows.clone(), &mut scratch) };
            }
        }
    })
}

/// Runs attention over few rows with the spans one by one, the last first.
fn attend_by_spans(level: Level, work: &Attention<'_>) -> Vec<f32> {
    let (kv_heads, width) = (work.keys.heads, work.keys.width);
    let mut scratch = vec![f32::NAN; attention_scratch_floats(work.query_heads, kv_heads, width)];
    let spans = span_of(work.blocks.len() - 1) + 1;
    let mut parts = vec![f32::NAN; spans * work.begin.len() * work.query_heads * part_floats(width)];
    for span in (0..spans).rev() {
        for head in 0..kv_heads {
            // SAFETY: one thread.
            unsafe { attention_span(level, work, SharedSlice::new(&mut parts), head, span, &mut scratch) };
        }
    }
    filled(work.query.len(), |out| {
        for head in 0..kv_heads {
            // SAFETY: one thread.
            unsafe { combine_spans(level, work, &parts, out, head, &mut scratch) };
        }
    })
}

fn exact(context: &Context, work: &Attention<'_>) -> Vec<f64> {
    let (query_heads, width) = (work.query_heads, context.width);
    let mut result = Vec::new();
    for (item, query) in work.query.chunks(width).enumerate() {
        let (row, head) = (item / query_heads, item % query_heads);
        let kv_head = head / (query_heads / context.heads.1);
        let visible = work.begin[row] as usize..work.end[row] as usize;
        let scores: Vec<f64> = visible
            .clone()
            .map(|position| {
                let key = context.read(&work.keys, position, kv_head);
                let dot: f64 = key.iter().zip(query).map(|(k, &q)| k * f64::from(q)).sum();
                let score = dot * f64::from(work.scale);
                work.cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
            })
            .collect();
        let sink = work.sinks.map_or(0.0, |sinks| f64::from(sinks[head]).exp());
        let sum = scores.iter().map(|score| score.exp()).sum::<f64>() + sink;
        let mut out = vec![0.0; width];
        for (position, score) in visible.zip(scores) {
            for (out, value) in out.iter_mut().zip(context.read(&work.values, position, kv_head)) {
                *out += score.exp() / sum * value;
            }
        }
        result.extend(out);
    }
    result
}

/// One context in every way of computing it.
fn check(context: &Context, begin: &[i32], end: &[i32], cap: Option<f32>, sinks: Option<&[f32]>) {
    let (query_heads, width) = (context.heads.0, context.width);
    let count = begin.len();
    let query = Random(77).floats(count * query_heads * width, 1.0);
    let mut reference: Option<(Vec<f32>, Vec<u8>, Vec<u8>)> = None;
    for level in Level::available() {
        for step in [1, 64, usize::MAX / 2] {
            let mut key_bytes = context.memory(context.formats.0);
            let mut value_bytes = context.memory(context.formats.1);
            let keys = context.plane(context.formats.0, &mut key_bytes);
            let values = context.plane(context.formats.1, &mut value_bytes);
            context.fill(level, step.min(context.len()), &keys, &values);
            let scale = 1.0 / (width as f32).sqrt();
            let blocks = &context.blocks;
            let work =
                Attention { query: &query, query_heads, keys, values, blocks, begin, end, scale, cap, sinks };
            let result = attend(level, &work, std::slice::from_ref(&(0..count)));
            if let Some((reference, ..)) = &reference {
                assert_eq!(bits(&result), bits(reference), "{level}, appended by {step}");
            } else {
                assert_close(&result, &exact(context, &work), 3e-6);
            }
            assert_eq!(bits(&attend(level, &work, &halves(count))), bits(&result), "split");
            let alone: Vec<_> = (0..count).map(|row| row..row + 1).collect();
            assert_eq!(bits(&attend(level, &work, &alone)), bits(&result), "rows alone");
            if count <= MOST_SHARED_ROWS {
                assert_eq!(bits(&attend_by_spans(level, &work)), bits(&result), "by spans");
            }
            match &reference {
                None => reference = Some((result, key_bytes, value_bytes)),
                Some((_, key_reference, value_reference)) => {
                    assert!(key_bytes == *key_reference && value_bytes == *value_reference);
                }
            }
        }
    }
}

#[test]
fn attention_over_contexts_of_every_kind() {
    for len in [1, 255, 256, 257, 600] {
        for format in FORMATS {
            let context = Context::random(len, (format, format), (4, 2), 64);
            // The last rows of the context, each seeing up to itself.
            let count = len.min(11) as i32;
            let end: Vec<i32> = (0..count).map(|row| len as i32 - count + 1 + row).collect();
            check(&context, &vec![0; end.len()], &end, None, None);
        }
    }
}

#[test]
fn spans_of_long_contexts_are_combined_alike_by_whomever() {
    // Spans of one, two and four blocks, and rows that begin or end in the middle of one.
    let context = Context::random(26 * BLOCK + 17, (CellFormat::F16, CellFormat::Q8_0), (4, 2), 32);
    let end = [6673, 6672, 6401, 6400, 2048, 2049, 1, 300];
    let begin = [0, 3000, 2048, 2047, 0, 2048, 0, 300];
    check(&context, &begin, &end, None, Some(&[0.5, -3.0, 4.0, 0.0]));
    check(&context, &begin[..1], &end[..1], Some(5.0), None);
}

#[test]
fn attention_with_windows_caps_sinks_and_odd_widths() {
    let mixed = [
        ((CellFormat::F16, CellFormat::F32), (3, 1), 7),
        ((CellFormat::F32, CellFormat::F16), (6, 2), 80),
        ((CellFormat::Q8_0, CellFormat::F16), (2, 2), 256),
        ((CellFormat::F16, CellFormat::Q8_0), (8, 2), 128),
        ((CellFormat::Q5_1, CellFormat::Q4_0), (4, 2), 64),
        ((CellFormat::Q4_1, CellFormat::Q5_0), (3, 3), 96),
        ((CellFormat::F32, CellFormat::F32), (2, 1), 1),
        ((CellFormat::F16, CellFormat::F16), (2, 1), 33),
    ];
    let sinks = [0.5, -3.0, 4.0, 0.0, 1.0, 2.0, 3.0, -1.0];
    for (formats, heads, width) in mixed {
        let context = Context::random(600, formats, heads, width);
        // Windows that start in other blocks, one that ends early, and a row that sees nothing.
        let begin = [0, 10, 255, 256, 300, 300, 511, 513, 5, 0];
        let end = [600, 400, 257, 257, 600, 300, 600, 514, 6, 1];
        check(&context, &begin, &end, None, Some(&sinks[..heads.0]));
        check(&context, &begin, &end, Some(5.0), None);
    }
}

#[test]
fn cells_round_as_their_format_says() {
    let mut random = Random(9);
    for width in [32, 64, 256] {
        for format in FORMATS {
            let mut bytes = vec![0; cache_bytes(format, 2, 3, width)];
            assert_eq!(bytes.len(), 2 * 3 * 256 * cell_bytes(format, width));
            let plane = KvPlane { format, heads: 3, width, bytes: SharedSlice::new(&mut bytes) };
            let mut x = random.floats(width, 5.0);
            x[..32].fill(0.0);
            let mut back = vec![0.0; width];
            // SAFETY: one thread.
            unsafe {
                write_cell(Level::detect(), &plane, 300, 2, &x);
                read_cell(Level::detect(), &plane, 300, 2, &mut back);
            }
            for (group, (x, back)) in x.chunks(32).zip(back.chunks(32)).enumerate() {
                let largest = x.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
                for (x, back) in x.iter().zip(back) {
                    match format {
                        CellFormat::F32 => assert_eq!(x, back),
                        CellFormat::F16 => assert_eq!(f16::from_f32(*x).to_f32(), *back),
                        // Half a step, and what rounding the step to f16 does to 127 of them.
                        CellFormat::Q8_0 => {
                            assert!((x - back).abs() <= largest * (0.5 / 127.0 + 5e-4), "group {group}");
                        }
                        // A whole step: there is one quant less above the middle than below.
                        CellFormat::Q4_0 => {
                            assert!((x - back).abs() <= largest * (1.0 / 8.0 + 1e-3), "group {group}")
                        }
                        CellFormat::Q5_0 => {
                            assert!((x - back).abs() <= largest * (1.0 / 16.0 + 1e-3), "group {group}")
                        }
                        // Half a step of a range of at most twice the largest.
                        CellFormat::Q4_1 => {
                            assert!((x - back).abs() <= largest * (1.0 / 15.0 + 2e-3), "group {group}")
                        }
                        CellFormat::Q5_1 => {
                            assert!((x - back).abs() <= largest * (1.0 / 31.0 + 2e-3), "group {group}")
                        }
                    }
                }
            }
        }
    }
}

/// What the formats of files mean by these bytes, element by element.
#[test]
fn cells_of_few_bits_are_groups_as_files_have_them() {
    use paceline_backend_cpu::weights::{WeightType, dequantize_row};
    let mut random = Random(10);
    let pairs = [
        (CellFormat::Q8_0, WeightType::Q8_0),
        (CellFormat::Q4_0, WeightType::Q4_0),
        (CellFormat::Q4_1, WeightType::Q4_1),
        (CellFormat::Q5_0, WeightType::Q5_0),
        (CellFormat::Q5_1, WeightType::Q5_1),
    ];
    for (format, weight) in pairs {
        let width = 96;
        let x = random.floats(width, 3.0);
        let mut cells = Vec::new();
        for level in Level::available() {
            let mut bytes = vec![0; cache_bytes(format, 1, 1, width)];
            let plane = KvPlane { format, heads: 1, width, bytes: SharedSlice::new(&mut bytes) };
            let (mut back, mut expected) = (vec![0.0; width], vec![0.0; width]);
            // SAFETY: one thread.
            unsafe {
                write_cell(level, &plane, 0, 0, &x);
                read_cell(level, &plane, 0, 0, &mut back);
            }
            bytes.truncate(cell_bytes(format, width));
            dequantize_row(weight, &bytes, &mut expected).unwrap();
            assert_eq!(bits(&back), bits(&expected), "{weight} {level}");
            cells.push(bytes);
        }
        assert!(cells.windows(2).all(|pair| pair[0] == pair[1]), "{weight}: levels store other bytes");
    }
}

#[test]
fn every_half_converts_alike_at_every_level() {
    let width = 1 << 14;
    let cells: Vec<u16> = (0..4 * width as u32).map(|half| half as u16).collect();
    let mut bytes = vec![0; cache_bytes(CellFormat::F16, 1, 1, width)];
    for (bytes, half) in bytes.chunks_mut(2).zip(&cells) {
        bytes.copy_from_slice(&half.to_ne_bytes());
    }
    let bytes = SharedSlice::new(&mut bytes);
    let plane = KvPlane { format: CellFormat::F16, heads: 1, width, bytes };
    for level in Level::available() {
        let mut out = vec![0.0; width];
        for slot in 0..4 {
            // SAFETY: one thread.
            unsafe { read_cell(level, &plane, slot, 0, &mut out) };
            let expected: Vec<f32> =
                cells[slot * width..(slot + 1) * width].iter().map(|&h| f16::from_bits(h).to_f32()).collect();
            assert_eq!(bits(&out), bits(&expected));
        }
    }
}

#[test]
fn rows_without_slot_are_dropped() {
    let mut bytes = vec![7; cache_bytes(CellFormat::F32, 1, 1, 4)];
    let mut others = bytes.clone();
    let plane = |bytes| KvPlane { format: CellFormat::F32, heads: 1, width: 4, bytes };
    let (keys, values) = (plane(SharedSlice::new(&mut bytes)), plane(SharedSlice::new(&mut others)));
    let x = [1.0; 8];
    let work = KvAppend { key: &x, value: &x, slots: &[-1, 3] };
    // SAFETY: one thread.
    unsafe { kv_append(Level::detect(), &work, &keys, &values, 0..2) };
    assert!(bytes[..48].iter().chain(&bytes[64..]).all(|&byte| byte == 7));
    assert_eq!(bytes[48..64], others[48..64]);
}
