//! Attention on the host, against the reference executor and against itself.
#![cfg(feature = "host")]

mod support;

use paceline_conformance::ReferenceExecutor;
use paceline_conformance::block::{ParameterBlock, floats};
use paceline_conformance::random::Random;
use paceline_conformance::suite::tolerance::of_caches;
use paceline_kernels::host;
use paceline_kernels::params::Parameters;
use paceline_kernels::params::cache::{AttentionJoin, AttentionParts, AttentionRows, KvAppend, RowSpans};
use paceline_kernels::params::elementwise::{Glu, activation};
use paceline_kernels::params::linear::{Quantize, quantized_bytes};
use paceline_plugin_api::graph::{Attribute, Builder, DType, Graph, StateKind};
use support::{Buffer, WAVES, bytes_of, check, is_garbage, node, run};

const SLOTS: u32 = 3;
const COLUMNS: u32 = 3;
const BLOCKS: u32 = 7;

#[derive(Clone, Copy)]
struct Shape {
    heads: u32,
    kv_heads: u32,
    width: u32,
    types: [DType; 2],
    softcap: f32,
    window: u32,
    causal: bool,
    sinks: bool,
}

const PLAIN: Shape = Shape {
    heads: 4,
    kv_heads: 2,
    width: 64,
    types: [DType::F16; 2],
    softcap: 0.0,
    window: 0,
    causal: true,
    sinks: false,
};

/// The kernels that there are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Portable,
    Matrix,
    /// On matrix units too, without partial results.
    Rows,
}

impl Shape {
    fn forms(self) -> Vec<Form> {
        let has_units = self.types == [DType::F16; 2] && [64, 128, 256].contains(&self.width);
        match (has_units, self.softcap == 0.0) {
            (true, true) => vec![Form::Portable, Form::Matrix, Form::Rows],
            (true, false) => vec![Form::Portable, Form::Matrix],
            (false, _) => vec![Form::Portable],
        }
    }
}

fn graph(shape: Shape, max_rows: u32) -> Graph {
    let mut b = Builder::new();
    let rows = b.parameter("rows", DType::I32, &[1], None);
    let sequence_count = b.parameter("sequence_count", DType::I32, &[1], None);
    let updates = b.parameter("updates", DType::I32, &[SLOTS * COLUMNS, 3], None);
    let cells = b.parameter("cells", DType::I32, &[max_rows], Some(rows));
    let sequences = b.parameter("sequences", DType::I32, &[SLOTS, 4], Some(sequence_count));
    let q = b.parameter("q", DType::F32, &[max_rows, shape.heads, shape.width], Some(rows));
    let [k, v] =
        ["k", "v"].map(|n| b.parameter(n, DType::F32, &[max_rows, shape.kv_heads, shape.width], Some(rows)));
    let table = b.state("table", StateKind::Table, DType::I32, &[SLOTS, COLUMNS]);
    let dims = [BLOCKS, 256, shape.kv_heads, shape.width];
    let caches = [("keys", shape.types[0]), ("values", shape.types[1])]
        .map(|(name, dtype)| b.state(name, StateKind::PerPosition, dtype, &dims));
    b.table_update(table, updates);
    b.kv_append(k, v, caches, cells);
    let mut inputs = vec![q, caches[0], caches[1], table, sequences];
    if shape.sinks {
        inputs.push(b.weight("sinks", DType::F32, &[shape.heads]));
    }
    let attributes = [
        ("scale", Attribute::Float(scale(shape).into())),
        ("softcap", Attribute::Float(shape.softcap.into())),
        ("window", Attribute::Integer(shape.window.into())),
        ("causal", Attribute::Integer(shape.causal.into())),
        ("sinks", Attribute::Integer(shape.sinks.into())),
    ];
    let out = node(&mut b, "attention", &inputs, &attributes);
    b.result("out", out);
    b.finish()
}

fn scale(shape: Shape) -> f32 {
    1.0 / (shape.width as f32).sqrt()
}

/// One run: sequences (first row, rows, length before, slot) and the content of its rows.
struct Step {
    sequences: Vec<[i32; 4]>,
    rows: u32,
    cells: Vec<i32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

/// Blocks of the slots, scattered, the last column of the last slot nowhere.
const TABLE: [[i32; COLUMNS as usize]; SLOTS as usize] = [[4, 0, 6], [1, 3, 2], [5, 100, 100]];

impl Step {
    /// Rows that no sequence covers stand at the end.
    fn new(shape: Shape, sequences: &[[i32; 4]], uncovered: u32, random: &mut Random) -> Self {
        let covered: i32 = sequences.iter().map(|s| s[1]).sum();
        let rows = covered as u32 + uncovered;
        let mut cells = vec![-1; rows as usize];
        for &[first, count, length, slot] in sequences {
            for i in 0..count {
                let position = length + i;
                cells[(first + i) as usize] =
                    TABLE[slot as usize][(position / 256) as usize] * 256 + position % 256;
            }
        }
        let mut content = |heads: u32| random.floats((rows * heads * shape.width) as usize, 1.0);
        let (q, k, v) = (content(shape.heads), content(shape.kv_heads), content(shape.kv_heads));
        Self { sequences: sequences.to_vec(), rows, cells, q, k, v }
    }
}

/// Caches and tables in memory of kernels; what nobody wrote is NaN in plain types.
struct Memory {
    caches: [Buffer; 2],
    table: Buffer,
}

impl Memory {
    fn new(shape: Shape) -> Self {
        let caches = shape.types.map(|dtype| {
            let (elements, bytes) = dtype.block().unwrap();
            let size = BLOCKS * 256 * shape.kv_heads * shape.width / elements * bytes;
            Buffer::of_bytes(&vec![0xFF; size as usize])
        });
        Self { caches, table: Buffer::of_integers(TABLE.as_flattened()) }
    }

    fn append(&self, shape: Shape, step: &Step, wave: u32) {
        let (k, v, cells) =
            (Buffer::of_floats(&step.k), Buffer::of_floats(&step.v), Buffer::of_integers(&step.cells));
        let p = KvAppend {
            k: k.view(shape.kv_heads, shape.width),
            v: v.view(shape.kv_heads, shape.width),
            k_cache: self.caches[0].address(),
            v_cache: self.caches[1].address(),
            cells: cells.address(),
            live: 0,
            rows: step.rows,
            heads: shape.kv_heads,
            k_width: shape.width,
            v_width: shape.width,
            k_type: shape.types[0].0,
            v_type: shape.types[1].0,
            cells_end: BLOCKS * 256,
            reserved: 0,
        };
        run(&p, wave);
    }

    /// Attention of the first `live` rows of `max_rows`, with rows of `q` and the sequences as given.
    fn attend(
        &self,
        shape: Shape,
        sinks: &[f32],
        (q, sequences): (&[f32], &[[i32; 4]]),
        [chunk_blocks, splits, wave]: [u32; 3],
        form: Form,
    ) -> Vec<f32> {
        let rows = q.len() as u32 / (shape.heads * shape.width);
        let max_rows = rows + 2;
        // Kernels may read rows that are not live, so memory has them.
        let q = Buffer::of_floats_and_garbage(q, (max_rows * shape.heads * shape.width) as usize);
        let (live, live_sequences) =
            (Buffer::of_integers(&[rows as i32]), Buffer::of_integers(&[sequences.len() as i32]));
        let sequences = Buffer::of_integers(sequences.as_flattened());
        let spans = Buffer::garbage(max_rows as usize * 4, 0);
        // Nothing is written here while attention runs, so any cells do.
        let cells = Buffer::of_integers(&(0..max_rows as i32).map(|row| row * 67).collect::<Vec<_>>());
        let p = RowSpans {
            sequences: sequences.address(),
            live_sequences: live_sequences.address(),
            spans: spans.address(),
            live: live.address(),
            rows: max_rows,
            max_sequences: SLOTS,
            window: shape.window,
            causal: shape.causal.into(),
        };
        run(&p, wave);
        let bytes = AttentionParts::scratch_bytes(max_rows, shape.heads, shape.width, COLUMNS);
        let scratch = Buffer::garbage(bytes as usize / 4, 0);
        let p = AttentionParts {
            q: q.view(shape.heads, shape.width),
            k_cache: self.caches[0].address(),
            v_cache: self.caches[1].address(),
            table: self.table.address(),
            spans: spans.address(),
            scratch: scratch.address(),
            live: live.address(),
            cells: if splits == 3 { cells.address() } else { 0 },
            rows: max_rows,
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            width: shape.width,
            k_type: shape.types[0].0,
            v_type: shape.types[1].0,
            table_columns: COLUMNS,
            blocks: BLOCKS,
            chunk_blocks,
            splits,
            scale: scale(shape),
            softcap: shape.softcap,
            early: splits % 2,
            reserved: 0,
        };
        let out = Buffer::garbage((max_rows * shape.heads * shape.width) as usize, 0);
        let sinks = Buffer::of_floats(sinks);
        let count = (rows * shape.heads * shape.width) as usize;
        if form == Form::Rows {
            let sinks = if shape.sinks { sinks.address() } else { 0 };
            let out_view = out.view(shape.heads, shape.width);
            let many = AttentionRows { out: out_view, sinks, ..AttentionRows::of(&p).unwrap() };
            run(&many, wave);
            if splits == 1 {
                gated_and_quantized(many, &out, live.address(), wave);
            }
            assert!(out.bits()[count..].iter().all(|&word| is_garbage(word)), "rows that are not live");
            return out.floats()[..count].to_vec();
        }
        let launch = if form == Form::Matrix { p.launch_matrix().unwrap() } else { p.launch() };
        // SAFETY: the buffers live to the end of the function and are as long as the parameters say.
        unsafe { host::launch(&launch, p.as_bytes(), wave) }.unwrap();
        let p = AttentionJoin {
            out: out.view(shape.heads, shape.width),
            scratch: scratch.address(),
            spans: spans.address(),
            sinks: if shape.sinks { sinks.address() } else { 0 },
            live: live.address(),
            rows: max_rows,
            heads: shape.heads,
            width: shape.width,
            table_columns: COLUMNS,
            chunk_blocks,
            reserved: 0,
        };
        run(&p, wave);
        out.floats()[..count].to_vec()
    }
}

/// A result that is gated and quantised at once has the bits of launches for each.
fn gated_and_quantized(many: AttentionRows, plain: &Buffer, live: u64, wave: u32) {
    let (rows, width) = (many.rows, many.heads * many.width);
    let gate = Buffer::of_floats(&Random::new(33).floats((rows * width) as usize, 2.0));
    let gated = Buffer::garbage((rows * width) as usize, 0);
    let [expected, given] = [0; 2].map(|_| Buffer::garbage(quantized_bytes(rows, width) as usize / 4, 0));
    let glu = Glu {
        gate: gate.view(many.heads, many.width),
        up: plain.view(many.heads, many.width),
        out: gated.view(many.heads, many.width),
        live,
        rows,
        items: many.heads,
        width: many.width,
        kind: activation::SIGMOID,
    };
    run(&glu, wave);
    let quantize = Quantize {
        x: gated.address(),
        out: expected.address(),
        live,
        rows,
        k: width,
        x_row: width,
        ..Default::default()
    };
    run(&quantize, wave);
    run(&AttentionRows { quantized: given.address(), gate: glu.gate, ..many }, wave);
    assert_eq!(given.bits(), expected.bits(), "{width} elements of {rows} rows, quantised");
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Fills caches with a long run, then compares a run of some rows of each sequence.
fn compare(name: &str, shape: Shape) {
    let mut random = Random::named(31, name);
    let first = Step::new(shape, &[[0, 290, 0, 1], [290, 250, 0, 0]], 0, &mut random);
    // Rows on both sides of the border of a block, a sequence that begins, one without rows, rows of nobody.
    let second = Step::new(shape, &[[0, 5, 250, 0], [5, 0, 0, 2], [5, 3, 290, 1]], 2, &mut random);
    let graph = graph(shape, 540);
    let sinks = random.floats(shape.heads as usize, 1.0);
    let weights = if shape.sinks { vec![bytes_of(&sinks)] } else { Vec::new() };
    let mut reference = ReferenceExecutor::new(&graph, weights).unwrap();
    let mut expected = Vec::new();
    for step in [&first, &second] {
        let mut block = ParameterBlock::new(&graph);
        let updates: Vec<i32> = TABLE
            .iter()
            .enumerate()
            .flat_map(|(slot, row)| {
                row.iter().enumerate().flat_map(move |(column, &b)| [slot as i32, column as i32, b])
            })
            .collect();
        block
            .set_integers("rows", &[step.rows as i32])
            .set_integers("sequence_count", &[step.sequences.len() as i32])
            .set_integers("updates", &updates)
            .set_integers("cells", &step.cells)
            .set_integers("sequences", step.sequences.as_flattened())
            .set_floats("q", 0, &step.q)
            .set_floats("k", 0, &step.k)
            .set_floats("v", 0, &step.v);
        let results = reference.run(block.bytes()).unwrap();
        expected = floats(&graph, block.bytes(), &results, "out");
    }
    let compared = |&form: &Form| compare_kernels(name, shape, [&first, &second], &sinks, &expected, form);
    let bits: Vec<Vec<u32>> = shape.forms().iter().map(compared).collect();
    if let [_, matrix, rows] = &bits[..] {
        assert!(matrix == rows, "{name}: bits of many rows");
    }
}

fn compare_kernels(
    name: &str,
    shape: Shape,
    [first, second]: [&Step; 2],
    sinks: &[f32],
    expected: &[f32],
    form: Form,
) -> Vec<u32> {
    let mut known: Option<Vec<u32>> = None;
    // Matrix units want a team in one wave. Narrow waves meet at other barriers, which the shape has nothing to do with.
    let has_narrow = form == Form::Portable && ["f16", "q8_0 and f16", "all of it"].contains(&name);
    // One width says as much about the long form, whose teams share nothing but memory.
    let is_wanted = |wave: u32| match form {
        Form::Rows => wave == 64 || (wave == 32 && name == "f16"),
        _ => wave >= 32 || has_narrow,
    };
    for wave in WAVES.into_iter().filter(|&wave| is_wanted(wave)) {
        let memory = Memory::new(shape);
        memory.append(shape, first, wave);
        memory.append(shape, second, wave);
        let spread: &[(u32, u32)] = if form == Form::Rows { &[(1, 1)] } else { &[(1, 3), (1, 1), (2, 2)] };
        for &(chunk_blocks, splits) in spread {
            let rows = (&second.q[..], &second.sequences[..]);
            let given = memory.attend(shape, sinks, rows, [chunk_blocks, splits, wave], form);
            let what = format!("{name}, wave {wave}, {form:?}");
            check(&what, &given, expected, shape.width, of_caches(shape.types));
            if chunk_blocks == 1 {
                let given = bits(&given);
                assert!(
                    known.as_ref().is_none_or(|known| *known == given),
                    "{name}: bits of splits or waves"
                );
                known = Some(given);
            }
        }
        // Each row alone has the bits that it has among others.
        let row = (shape.heads * shape.width) as usize;
        for &[first_row, count, length, slot] in second.sequences.iter().filter(|s| shape.causal && s[1] > 0)
        {
            for i in [0, count - 1] {
                let at = (first_row + i) as usize * row;
                let alone = (&second.q[at..at + row], &[[0, 1, length + i, slot]][..]);
                let given = memory.attend(shape, sinks, alone, [1, 3, wave], form);
                assert_eq!(known.as_ref().unwrap()[at..at + row], bits(&given), "{name}: row {i} alone");
            }
        }
    }
    known.unwrap_or_default()
}

#[test]
fn plain_types() {
    compare("f16", PLAIN);
    compare("bf16 and f32", Shape { types: [DType::BF16, DType::F32], ..PLAIN });
    compare("f32, heads of 6", Shape { heads: 2, kv_heads: 1, width: 6, types: [DType::F32; 2], ..PLAIN });
    compare("f16, heads of 10", Shape { heads: 3, kv_heads: 3, width: 10, ..PLAIN });
}

#[test]
fn shapes_of_heads() {
    compare("f16, heads of 256", Shape { width: 256, ..PLAIN });
    compare("f16, heads of 128, 12 for each", Shape { heads: 12, kv_heads: 1, width: 128, ..PLAIN });
    compare("f16, heads of 160", Shape { heads: 6, kv_heads: 2, width: 160, ..PLAIN });
}

#[test]
fn block_types() {
    for types in
        [[DType::Q8_0; 2], [DType::Q8_0, DType::F16], [DType::Q4_0, DType::Q4_1], [DType::Q5_0, DType::Q5_1]]
    {
        compare(&format!("{} and {}", types[0], types[1]), Shape { types, ..PLAIN });
    }
}

#[test]
fn windows_caps_and_sinks() {
    compare("window of 5", Shape { window: 5, ..PLAIN });
    compare("window of 300", Shape { window: 300, ..PLAIN });
    compare("softcap", Shape { softcap: 2.0, types: [DType::F32; 2], ..PLAIN });
    compare("sinks", Shape { sinks: true, ..PLAIN });
    compare("free inside of the run", Shape { causal: false, ..PLAIN });
    let all = Shape { softcap: 3.0, window: 17, sinks: true, types: [DType::F32; 2], ..PLAIN };
    compare("all of it", all);
}

/// No weight times infinity is not nothing, so what a row does not see must not be multiplied either.
#[test]
fn a_value_beyond_its_type_reaches_the_rows_that_see_it() {
    let shapes = [(64, 0), (128, 3), (256, 0)];
    let forms = [Form::Matrix, Form::Rows];
    for ((width, window), form) in shapes.into_iter().flat_map(|shape| forms.map(|form| (shape, form))) {
        let shape = Shape { width, window, ..PLAIN };
        let mut random = Random::named(32, "beyond");
        let first = Step::new(shape, &[[0, 250, 0, 0]], 0, &mut random);
        let mut second = Step::new(shape, &[[0, 8, 250, 0]], 0, &mut random);
        let row = (shape.heads * width) as usize;
        let outputs = [1.0f32, 1e6].map(|size| {
            let at = (3 * shape.kv_heads * width) as usize;
            second.v[at..at + (shape.kv_heads * width) as usize].fill(size);
            let memory = Memory::new(shape);
            memory.append(shape, &first, 32);
            memory.append(shape, &second, 32);
            let rows = (&second.q[..], &second.sequences[..]);
            memory.attend(shape, &[0.0], rows, [1, 3, 64], form)
        });
        for (i, (plain, beyond)) in outputs[0].chunks(row).zip(outputs[1].chunks(row)).enumerate() {
            let sees = i >= 3 && (window == 0 || i < 3 + window as usize);
            match sees {
                true => assert!(beyond.iter().all(|v| !v.is_finite()), "{form:?}, width {width}, row {i}"),
                false => assert_eq!(bits(plain), bits(beyond), "{form:?}, width {width}, row {i}"),
            }
        }
    }
}
