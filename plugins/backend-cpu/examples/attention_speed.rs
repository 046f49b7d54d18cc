//! Speed of attention with few rows, by one thread over all KV heads.
//!
//!     cargo run --release -p paceline-backend-cpu --example attention_speed [POSITIONS[,POSITIONS...]]
//!
//! Times are the median of many runs: with everything in near caches, and after others have read 4 MiB (so that cells
//! come from the third level cache) or 128 MiB (so that they come from memory). `WIDTH`, `HEADS` and `KV_HEADS` choose
//! the shape, `FORMAT` the cells (`f16`, `f32`, `q8_0`), `LEVEL` the instructions.

use paceline_backend_cpu::kernels::SharedSlice;
use paceline_backend_cpu::kernels::attention::{Attention, attention, attention_scratch_floats};
use paceline_backend_cpu::kernels::kv::{BLOCK, CellFormat, KvPlane, cache_bytes, write_cell};
use paceline_backend_cpu::level::Level;
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

const HUGE_PAGE: usize = 2 << 20;
const ROWS: [usize; 5] = [1, 2, 4, 8, 64];

/// A shape of attention.
struct Shape {
    width: usize,
    heads: usize,
    kv_heads: usize,
    format: CellFormat,
    level: Level,
}

fn main() -> Result<(), Box<dyn Error>> {
    let shape = Shape {
        width: variable("WIDTH", 64)?,
        heads: variable("HEADS", 8)?,
        kv_heads: variable("KV_HEADS", 2)?,
        format: match std::env::var("FORMAT").as_deref() {
            Err(_) | Ok("f16") => CellFormat::F16,
            Ok("f32") => CellFormat::F32,
            Ok("q8_0") => CellFormat::Q8_0,
            Ok(other) => return Err(format!("FORMAT is {other}: give f16, f32 or q8_0").into()),
        },
        level: std::env::var("LEVEL").map_or(Ok(Level::detect()), |name| name.parse())?,
    };
    let positions: Vec<usize> = match std::env::args().nth(1) {
        Some(list) => list.split(',').map(str::parse).collect::<Result<_, _>>()?,
        None => vec![100, 400, 1500],
    };
    println!("{:>9}{:>6}{:>12}{:>12}{:>12}", "positions", "rows", "near us", "third us", "memory us");
    for positions in positions {
        for rows in ROWS.into_iter().filter(|&rows| rows <= positions) {
            measure(&shape, positions, rows);
        }
    }
    Ok(())
}

/// A number from the environment.
fn variable(name: &str, default: usize) -> Result<usize, Box<dyn Error>> {
    Ok(std::env::var(name).map_or(Ok(default), |text| text.parse())?)
}

fn measure(shape: &Shape, positions: usize, rows: usize) {
    let &Shape { width, heads, kv_heads, format, level } = shape;
    let count = positions.div_ceil(BLOCK);
    let mut memory = [0, 1].map(|_| vec![0u8; 2 * HUGE_PAGE + cache_bytes(format, count, kv_heads, width)]);
    let mut planes = memory.each_mut().map(|memory| {
        let start = memory.as_ptr().align_offset(HUGE_PAGE);
        #[cfg(target_os = "linux")]
        // SAFETY: advice about memory that is ours, and which changes no contents.
        unsafe {
            libc::madvise(memory[start..].as_mut_ptr().cast(), memory.len() - start, libc::MADV_HUGEPAGE);
        }
        &mut memory[start..start + cache_bytes(format, count, kv_heads, width)]
    });
    for bytes in planes.iter_mut() {
        let plane = KvPlane { format, heads: kv_heads, width, bytes: SharedSlice::new(bytes) };
        for slot in 0..count * BLOCK {
            for head in 0..kv_heads {
                let x: Vec<f32> =
                    (0..width).map(|i| ((slot * 31 + head * 7 + i) as f32 * 0.37).sin()).collect();
                // SAFETY: one thread.
                unsafe { write_cell(level, &plane, slot, head, &x) };
            }
        }
    }
    let [keys, values] = &mut planes;
    let plane = |bytes| KvPlane { format, heads: kv_heads, width, bytes: SharedSlice::new(bytes) };
    let query: Vec<f32> = (0..rows * heads * width).map(|i| (i as f32 * 0.73).cos()).collect();
    let blocks: Vec<i32> = (0..count as i32).collect();
    let begin = vec![0; rows];
    let end: Vec<i32> = (0..rows).map(|row| (positions - rows + row + 1) as i32).collect();
    let work = Attention {
        query: &query,
        query_heads: heads,
        keys: plane(keys),
        values: plane(values),
        blocks: &blocks,
        begin: &begin,
        end: &end,
        scale: 1.0 / (width as f32).sqrt(),
        cap: None,
        sinks: None,
    };
    let mut others_cells = [0, 1].map(|_| vec![0u8; cache_bytes(format, 1, kv_heads, width)]);
    let [other_keys, other_values] = &mut others_cells;
    let few = vec![16; rows];
    let warm =
        Attention { keys: plane(other_keys), values: plane(other_values), blocks: &[0], end: &few, ..work };
    let mut out = vec![0.0; query.len()];
    let mut scratch = vec![0.0; attention_scratch_floats(heads, kv_heads, width)];
    let others = vec![1u64; 128 << 17];
    let micros = [0, 4usize << 20, 128 << 20].map(|flushed| {
        let runs = if flushed > 8 << 20 { 20 } else { 300 };
        let mut times: Vec<f64> = (0..runs)
            .map(|_| {
                black_box(others[..flushed / 8].iter().copied().fold(0, u64::wrapping_add));
                // In a model queries were just made, and instructions ran for the layer before.
                // SAFETY: one thread.
                unsafe { attention(level, &warm, SharedSlice::new(&mut out), 0, 0..rows, &mut scratch) };
                let started = Instant::now();
                for head in 0..kv_heads {
                    // SAFETY: one thread.
                    unsafe {
                        attention(level, &work, SharedSlice::new(&mut out), head, 0..rows, &mut scratch);
                    }
                }
                started.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[runs / 2]
    });
    println!("{positions:>9}{rows:>6}{:>12.1}{:>12.1}{:>12.1}", micros[0], micros[1], micros[2]);
}
