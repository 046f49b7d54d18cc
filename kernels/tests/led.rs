//! Products whose first groups make their rows have the bits of the two launches that they replace.
#![cfg(feature = "host")]

mod support;

use paceline_conformance::random::Random;
use paceline_kernels::host;
use paceline_kernels::layout::{WeightKind, packed_bytes};
use paceline_kernels::params::cache::AttentionParts;
use paceline_kernels::params::elementwise::activation;
use paceline_kernels::params::fused::{GluQuantize, ItemsNormQuantize, JoinQuantize, NormQuantize};
use paceline_kernels::params::led::{LONGEST_ROW, LedLinear, Maker};
use paceline_kernels::params::linear::{Linear, LinearSegment, ORDER_BESIDE, ORDER_FIRST, quantized_bytes};
use paceline_kernels::params::{Parameters, View};
use support::{Buffer, WAVES, run};

const KINDS: [WeightKind; 10] = [
    WeightKind::Q8_0,
    WeightKind::Q4_0,
    WeightKind::Q4_1,
    WeightKind::Q5_0,
    WeightKind::Q5_1,
    WeightKind::Q4K,
    WeightKind::Q5K,
    WeightKind::Q6K,
    WeightKind::Iq4Nl,
    WeightKind::Mxfp4,
];
const HEADS: u32 = 4;
const COLUMNS: u32 = 3;

/// What makes rows, with the memory that it reads.
struct Made {
    maker: Maker,
    _memory: Vec<Buffer>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Norm,
    ItemsNorm,
    Join,
    Glu,
}

/// Rows of `k` elements, the last one not live where there are several.
fn made(kind: Kind, rows: u32, k: u32, quantized: u64, random: &mut Random) -> Made {
    let count = (rows * k) as usize;
    let mut floats = |count: usize| Buffer::of_floats(&random.floats(count, 1.5));
    let live = Buffer::of_integers(&[(rows - u32::from(rows > 1)) as i32]);
    let (x, gate, weight) = (floats(count), floats(count), floats(k as usize));
    let live_at = live.address();
    let (width, gate_of_items) = (k / HEADS, gate.view(HEADS, k / HEADS));
    let scratch_words = AttentionParts::scratch_bytes(rows, HEADS, width, COLUMNS) as usize / 4;
    let scratch =
        Buffer::of_floats(&floats(scratch_words).floats().iter().map(|v| v.abs() + 0.1).collect::<Vec<_>>());
    let spans: Vec<[i32; 4]> = (0..rows as i32).map(|row| [0, 0, 1 + 150 * row % 700, 0]).collect();
    let spans = Buffer::of_integers(spans.as_flattened());
    let maker = match kind {
        Kind::Norm => Maker::Norm(NormQuantize {
            x: x.view(1, k),
            weight: weight.address(),
            quantized,
            live: live_at,
            rows,
            width: k,
            epsilon: 1e-6,
            early: rows % 2,
            ..Default::default()
        }),
        Kind::ItemsNorm => Maker::ItemsNorm(ItemsNormQuantize {
            x: x.view(HEADS, width),
            gate: gate_of_items,
            weight: weight.address(),
            quantized,
            live: live_at,
            rows,
            items: HEADS,
            width,
            epsilon: 1e-6,
            ..Default::default()
        }),
        Kind::Join => Maker::Join(JoinQuantize {
            gate: if rows.is_multiple_of(2) { gate_of_items } else { View::default() },
            scratch: scratch.address(),
            spans: spans.address(),
            quantized,
            live: live_at,
            rows,
            heads: HEADS,
            width,
            table_columns: COLUMNS,
            chunk_blocks: 1,
            ..Default::default()
        }),
        Kind::Glu => Maker::Glu(GluQuantize {
            gate: x.view(1, k),
            up: gate.view(1, k),
            quantized,
            live: live_at,
            rows,
            width: k,
            kind: activation::SILU,
            ..Default::default()
        }),
    };
    Made { maker, _memory: vec![x, gate, weight, live, scratch, spans] }
}

fn make(maker: &Maker, wave: u32) {
    match maker {
        Maker::Norm(p) => run(p, wave),
        Maker::ItemsNorm(p) => run(p, wave),
        Maker::Join(p) => run(p, wave),
        Maker::Glu(p) => run(p, wave),
    }
}

/// The live count of what makes the rows.
fn live(maker: &Maker) -> u64 {
    match maker {
        Maker::Norm(p) => p.live,
        Maker::ItemsNorm(p) => p.live,
        Maker::Join(p) => p.live,
        Maker::Glu(p) => p.live,
    }
}

fn weights(kind: WeightKind, n: u32, k: u32, random: &mut Random) -> Buffer {
    let bytes = packed_bytes(kind, n as usize, k as usize).unwrap();
    // Any bits are a weight; these make no scale infinite or a NaN.
    let words: Vec<u32> = (0..bytes.div_ceil(4)).map(|_| random.bits() as u32 & 0x3b3b_3b3b).collect();
    Buffer::words(words.into_iter())
}

fn product(kind: WeightKind, weight: &Buffer, out: &Buffer, n: u32, [k, rows]: [u32; 2], x: u64) -> Linear {
    let segment = LinearSegment {
        weight: weight.address(),
        out: out.address(),
        n,
        out_row: n,
        kind: kind.gguf_id(),
        ..Default::default()
    };
    Linear { segment0: segment, segment1: segment_behind(&segment), x, k, rows, ..Default::default() }
}

/// The same weight again, half of it, with what the first half of the other's results is added to.
fn segment_behind(first: &LinearSegment) -> LinearSegment {
    let half = first.n / 32 * 16;
    LinearSegment { out: first.out + u64::from(first.n) * 4 * 16, n: half, ..*first }
}

fn check(kind: WeightKind, maker_kind: Kind, rows: u32, k: u32, wave: u32) {
    let n = 40;
    let mut random = Random::named(u64::from(rows + k), &format!("{maker_kind:?}"));
    let words = quantized_bytes(rows, k) as usize / 4;
    let [apart, together] = [0; 2].map(|_| Buffer::garbage(words, 0));
    let weight = weights(kind, n, k, &mut random);
    // Room for 16 rows of each of two segments.
    let [expected, out, beside] = [0; 3].map(|_| Buffer::garbage(2 * 16 * n as usize, 0));
    let mut made = made(maker_kind, rows, k, apart.address(), &mut random);
    make(&made.maker, wave);
    let live = live(&made.maker);
    run(&Linear { live, ..product(kind, &weight, &expected, n, [k, rows], apart.address()) }, wave);

    let to = match &mut made.maker {
        Maker::Norm(p) => &mut p.quantized,
        Maker::ItemsNorm(p) => &mut p.quantized,
        Maker::Join(p) => &mut p.quantized,
        Maker::Glu(p) => &mut p.quantized,
    };
    *to = together.address();
    assert!(made.maker.fits() && made.maker.quantized() == together.address());
    let counter = Buffer::of_integers(&[0]);
    let of = |out: &Buffer, order: u32| Linear {
        live,
        order,
        ..product(kind, &weight, out, n, [k, rows], together.address())
    };
    assert!(LedLinear::fits(&of(&out, 0)));
    let led = LedLinear::new(of(&out, ORDER_FIRST), made.maker, counter.address());
    run(&led, wave);
    run(&LedLinear::beside(&led, of(&beside, ORDER_BESIDE)), wave);
    let what = format!("{kind:?}, {maker_kind:?}, {rows} rows of {k}, waves of {wave}");
    assert_eq!(counter.integers(), [led.makers as i32], "{what}");
    assert_eq!(together.bits(), apart.bits(), "{what}");
    assert_eq!(out.bits(), expected.bits(), "{what}");
    assert_eq!(beside.bits(), expected.bits(), "{what}");
    assert!(out.floats()[..n as usize].iter().any(|v| *v != 0.0), "{what}");
}

#[test]
fn every_kind_of_weight_has_the_bits_of_two_launches() {
    for (kind, rows) in KINDS.into_iter().zip([1, 8, 16, 2, 9].into_iter().cycle()) {
        check(kind, Kind::Norm, rows, 256, 32);
    }
}

#[test]
fn everything_that_makes_rows_has_the_bits_of_its_own_launch() {
    for wave in WAVES {
        for kind in [Kind::Norm, Kind::ItemsNorm, Kind::Join, Kind::Glu] {
            for rows in [1, 5, 16] {
                check(WeightKind::Q8_0, kind, rows, 256, wave);
            }
        }
    }
    // Odd pairs of blocks, short and long rows, and the longest that fit.
    for (kind, k) in [
        (Kind::Norm, 992),
        (Kind::Norm, 1024),
        (Kind::Norm, 1056),
        (Kind::Norm, 4096),
        (Kind::Norm, LONGEST_ROW),
        (Kind::ItemsNorm, 1024),
        (Kind::Join, 1024),
        (Kind::Glu, 2080),
    ] {
        check(WeightKind::Q8_0, kind, 3, k, 32);
    }
}

#[test]
fn what_does_not_fit_is_left_to_two_launches() {
    let norm = NormQuantize { width: LONGEST_ROW + 32, ..Default::default() };
    let sum = NormQuantize { width: 64, y: View::dense(16, 1, 64), ..Default::default() };
    let glu = GluQuantize { kind: activation::GELU, ..Default::default() };
    assert!(!Maker::Norm(norm).fits() && !Maker::Norm(sum).fits() && !Maker::Glu(glu).fits());
    let of = |kind: WeightKind, rows| {
        let segment0 = LinearSegment { kind: kind.gguf_id(), ..Default::default() };
        LedLinear::fits(&Linear { segment0, rows, ..Default::default() })
    };
    assert!(of(WeightKind::Q4K, 16) && !of(WeightKind::Q4K, 17) && !of(WeightKind::F16, 1));
}

/// Who waits for rows that nobody makes would wait for ever on a device; here the process ends.
#[test]
fn every_kernel_takes_its_structure() {
    for kind in KINDS {
        for rows in [1, 8, 16] {
            let segment0 = LinearSegment { kind: kind.gguf_id(), ..Default::default() };
            let launch =
                LedLinear { product: Linear { segment0, rows, ..Default::default() }, ..Default::default() }
                    .launch();
            // The length is compared before anything runs.
            // SAFETY: nothing runs.
            let wrong = unsafe { host::launch(&launch, &[0; 4], 32) };
            assert!(wrong.is_err_and(|text| text.contains("does not take")), "{}", launch.entry);
        }
    }
}
