//! The same launches on the card and on the host.

use crate::bf16_checks;
use crate::driver::{Buffer, Card};
use crate::samples;
use paceline_conformance::random::Random;
use paceline_kernels::host;
use paceline_kernels::layout::WeightKind;
use paceline_kernels::params::Parameters;
use paceline_kernels::params::linear::{Embed, Linear, LinearSegment, Quantize, quantized_bytes};

/// Host memory that is aligned as the card's is.
struct Lines(Vec<Line>);

#[repr(C, align(256))]
#[derive(Clone, Copy)]
struct Line([u8; 256]);

impl Lines {
    fn of<T: Copy>(values: &[T]) -> Self {
        let mut lines = vec![Line([0; 256]); size_of_val(values).div_ceil(256).max(1)];
        // SAFETY: the lines have room for the values.
        unsafe {
            std::ptr::copy_nonoverlapping(
                values.as_ptr().cast::<u8>(),
                lines.as_mut_ptr().cast(),
                size_of_val(values),
            );
        }
        Self(lines)
    }

    fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    fn bytes(&self) -> impl Iterator<Item = u8> {
        self.0.iter().flat_map(|line| line.0)
    }
}

/// Memory on both sides, with the same contents at first.
pub struct Both {
    host: Lines,
    card: Buffer,
    bytes: usize,
}

impl Both {
    /// Both sides with these values.
    pub fn of<T: Copy>(values: &[T]) -> Self {
        Self { host: Lines::of(values), card: Buffer::of(values), bytes: size_of_val(values) }
    }

    /// The address on one side.
    pub fn address(&self, on_card: bool) -> u64 {
        if on_card { self.card.address() } else { self.host.address() }
    }

    /// Number of bytes that differ.
    pub fn differences(&self) -> usize {
        let card: Vec<u8> = self.card.read();
        self.host.bytes().take(self.bytes).zip(card).filter(|(a, b)| a != b).count()
    }

    /// The f32 on the host and on the card.
    pub fn floats(&self) -> (Vec<f32>, Vec<f32>) {
        let bytes: Vec<u8> = self.host.bytes().take(self.bytes).collect();
        let host = bytes.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect();
        (host, self.card.read())
    }
}

/// Runs the parameters that `make` gives for each side.
pub fn run<P: Parameters>(card: &Card, make: impl Fn(bool) -> P) {
    card.launch(&make(true), None);
    card.wait();
    run_on_host(&make(false));
}

/// Runs parameters whose addresses are of the host's side.
pub fn run_on_host(parameters: &impl Parameters) {
    // SAFETY: the addresses are those of memory that `Both` holds.
    if let Err(error) = unsafe { host::run(parameters, 32) } {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

/// Runs all checks, each kind in a thread of its own; false if anything differs.
pub fn run_all(card: &Card) -> bool {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            WeightKind::ALL.into_iter().map(|kind| scope.spawn(move || run_kind(card, kind))).collect();
        threads.into_iter().all(|thread| thread.join().unwrap_or(false))
    })
}

fn run_kind(card: &Card, kind: WeightKind) -> bool {
    card.enter();
    let widths: &[usize] = match kind.block_elements() {
        256 => &[256, 4608],
        32 => &[32, 288, 4640],
        _ => &[5, 1032, 4096],
    };
    let mut right = true;
    for &k in widths {
        let n = if k > 4000 { 21 } else { 53 };
        let mut random = Random::named(k as u64, kind.name());
        let weight = Both::of(&samples::packed(kind, n, k, &mut random));
        for rows in [1usize, 3, 8, 9, 16, 17, 70] {
            if let Err(what) = product(card, kind, &weight, n, k, rows, &mut random) {
                println!("{kind} {n} x {k}, {rows} rows: {what}");
                right = false;
            }
        }
        let different = gather(card, kind, &weight, n, k);
        if different > 0 {
            println!("{kind} gather of {n} x {k}: {different} bytes differ");
            right = false;
        }
    }
    // One row has another form where there are many groups.
    let (n, k) = (4805, if kind.block_elements() == 256 { 512 } else { 288 });
    let mut random = Random::named(n as u64, kind.name());
    let weight = Both::of(&samples::packed(kind, n, k, &mut random));
    if let Err(what) = product(card, kind, &weight, n, k, 1, &mut random) {
        println!("{kind} {n} x {k}, one row: {what}");
        right = false;
    }
    let is_there = kind.is_quantized() && card.function("linear_q8_0_bf16_128", None).is_some();
    if let Err(what) = if is_there { bf16_checks::run_kind(card, kind) } else { Ok(()) } {
        println!("{kind} in bf16: {what}");
        right = false;
    }
    println!("{kind}: {}", if right { "the same bits" } else { "DIFFERENT" });
    right
}

fn product(
    card: &Card,
    kind: WeightKind,
    weight: &Both,
    n: usize,
    k: usize,
    rows: usize,
    random: &mut Random,
) -> Result<(), String> {
    let x_row = k.next_multiple_of(4);
    let mut values = random.floats(rows * x_row, 1.0);
    if rows > 8 {
        // Rows of small and of no numbers.
        values[x_row..2 * x_row].iter_mut().for_each(|v| *v *= 2f32.powi(-98));
        values[2 * x_row] = f32::NAN;
    }
    let x = Both::of(&values);
    let quantized = Both::of(&vec![0u8; quantized_bytes(rows as u32, k as u32) as usize]);
    let (bias, add) = (Both::of(&random.floats(n, 1.0)), Both::of(&random.floats(rows * n, 1.0)));
    let out = Both::of(&vec![0f32; rows * 2 * n]);
    let live = Both::of(&[rows as i32 - (rows > 20) as i32]);
    if kind.is_quantized() {
        run(card, |on_card| Quantize {
            x: x.address(on_card),
            out: quantized.address(on_card),
            rows: rows as u32,
            k: k as u32,
            x_row: x_row as u32,
            ..Default::default()
        });
        let different = quantized.differences();
        if different > 0 {
            return Err(format!("{different} bytes of quantised activations differ"));
        }
    }
    run(card, |on_card| {
        let segment = LinearSegment {
            weight: weight.address(on_card),
            out: out.address(on_card),
            n: n as u32,
            out_row: 2 * n as u32,
            kind: kind.gguf_id(),
            ..Default::default()
        };
        Linear {
            x: if kind.is_quantized() { quantized.address(on_card) } else { x.address(on_card) },
            live: live.address(on_card),
            segment0: segment,
            segment1: LinearSegment {
                out: segment.out + 4 * n as u64,
                bias: bias.address(on_card),
                add: add.address(on_card),
                add_row: n as u32,
                ..segment
            },
            k: k as u32,
            rows: rows as u32,
            x_row: x_row as u32,
            ..Default::default()
        }
    });
    match out.differences() {
        0 => Ok(()),
        different => Err(format!("{different} bytes differ")),
    }
}

fn gather(card: &Card, kind: WeightKind, table: &Both, n: usize, width: usize) -> usize {
    let ids = Both::of(&[n as i32 - 1, 0, n as i32, -1, 7]);
    let (out, faults) = (Both::of(&vec![0f32; 5 * width]), Both::of(&[9i32]));
    run(card, |on_card| Embed {
        ids: ids.address(on_card),
        table: table.address(on_card),
        out: out.address(on_card),
        faults: faults.address(on_card),
        live: 0,
        rows: 5,
        width: width as u32,
        entries: n as u32,
        kind: kind.gguf_id(),
    });
    out.differences() + faults.differences()
}
