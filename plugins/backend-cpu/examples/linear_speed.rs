//! Speed of the matrix kernels, one thread.
//!
//! `cargo run --release -p paceline-backend-cpu --example linear_speed -- [TYPE] [LEVEL] [ROWS]`
//! where each argument may be `all`; rows may be any number. The variables `K` and `MIB` change the length of a weight
//! row (1024) and the size of the weights (33).

use std::error::Error;
use std::time::{Duration, Instant};

use paceline_backend_cpu::level::Level;
use paceline_backend_cpu::linear::{Activations, Output, linear};
use paceline_backend_cpu::quantized::{QuantizedRows, quantize_row, row_bytes};
use paceline_backend_cpu::weights::{PackedMatrix, WeightType, packed_bytes};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |i: usize, name: &str| arguments.get(i).is_none_or(|a| a == "all" || a == name);
    let rows: Vec<usize> = match arguments.get(2) {
        Some(rows) if rows != "all" => vec![rows.parse()?],
        _ => vec![1, 2, 4, 8, 64],
    };
    println!("{:<6}{:<13}{:>5}{:>12}{:>10}{:>10}", "type", "level", "rows", "us", "GB/s", "GMAC/s");
    for kind in WeightType::ALL.into_iter().filter(|kind| wanted(0, kind.name())) {
        for level in Level::available().into_iter().filter(|level| wanted(1, level.name())) {
            for &rows in &rows {
                measure(kind, level, rows)?;
            }
        }
    }
    Ok(())
}

/// A number from the environment.
fn variable(name: &str, default: usize) -> Result<usize, Box<dyn Error>> {
    Ok(std::env::var(name).map_or(Ok(default), |text| text.parse())?)
}

fn measure(kind: WeightType, level: Level, rows: usize) -> Result<(), Box<dyn Error>> {
    let k = variable("K", 1024)?;
    let n = (variable("MIB", 33)? << 20) / packed_bytes(kind, 16, k)? * 16;
    let needed = packed_bytes(kind, n, k)?;
    // Any bytes do as weights, as long as no scale is an infinity, a NaN or a subnormal.
    let mut bytes: Vec<u8> =
        (0..needed + 64).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8 & 0x3f | 0x20).collect();
    let start = bytes.as_ptr().align_offset(64);
    let bytes = &mut bytes[start..start + needed];
    let weights = PackedMatrix::new(kind, n, k, bytes)?;

    let values: Vec<f32> = (0..rows * k).map(|i| (i as f32 * 0.37).sin()).collect();
    let mut quantized = vec![0; rows * row_bytes(k)];
    for (values, row) in values.chunks_exact(k).zip(quantized.chunks_exact_mut(row_bytes(k))) {
        quantize_row(level, values, row)?;
    }
    let activations = if kind.is_quantized() {
        Activations::Quantized(QuantizedRows::new(&quantized, rows, k)?)
    } else {
        Activations::F32 { values: &values, rows }
    };

    let mut out = vec![0.0f32; rows * n];
    let output = Output { start: out.as_mut_ptr(), stride: n };
    let mut best = Duration::MAX;
    let begin = Instant::now();
    for run in 0.. {
        let started = Instant::now();
        // SAFETY: `out` holds `rows` rows of `n` and nothing else uses it.
        unsafe { linear(level, &weights, activations, None, output, 0..weights.panels())? };
        best = best.min(started.elapsed());
        if run >= 2 && begin.elapsed() > Duration::from_millis(300) {
            break;
        }
    }
    let seconds = best.as_secs_f64();
    println!(
        "{:<6}{:<13}{rows:>5}{:>12.0}{:>10.1}{:>10.1}",
        kind.name(),
        level.name(),
        seconds * 1e6,
        needed as f64 / seconds / 1e9,
        (rows * n * k) as f64 / seconds / 1e9,
    );
    Ok(())
}
