//! What this machine can do at best: limits that the speed of a model is held against.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::level::Level;
use crate::linear::lanes::{self, LANES, Lanes, Task};
use crate::pages::HUGE_PAGE;

/// Bytes that a thread reads, far more than its part of any cache.
const READ_BYTES: usize = 192 << 20;
/// Streams that a thread reads side by side: memory answers several faster than one.
const STREAMS: usize = 4;
/// Measurements, of which the best counts: what else the machine does only takes away.
const MEASUREMENTS: usize = 5;
/// Rounds of dot products in a measurement.
const DOT_ROUNDS: u32 = 100_000;
/// Sums that grow side by side, enough to hide how long an addition takes.
const SUMS: usize = 12;

/// Bytes per second that `threads` threads together read from memory: 192 MiB each, in huge pages where the system
/// gives them, the best of five measurements.
pub fn read_rate(threads: usize) -> f64 {
    let mut buffers: Vec<Vec<u64>> = (0..threads).map(|_| Vec::new()).collect();
    for buffer in &mut buffers {
        buffer.reserve_exact(READ_BYTES / size_of::<u64>());
        // The system takes advice for whole pages only, and the allocator's own words come before the buffer.
        let start = buffer.as_mut_ptr().cast::<u8>();
        let skipped = start.align_offset(HUGE_PAGE).min(READ_BYTES);
        crate::pages::advise_huge_pages(start.wrapping_add(skipped), READ_BYTES - skipped);
        buffer.resize(READ_BYTES / size_of::<u64>(), 1);
    }
    let slowest = best(threads, |thread| {
        black_box(sum(&buffers[thread]));
    });
    (threads * READ_BYTES) as f64 / slowest.as_secs_f64()
}

/// The sum of all numbers, read in several streams.
fn sum(numbers: &[u64]) -> u64 {
    const STEP: usize = 32;
    let stream = numbers.len() / STREAMS;
    let mut sums = [0u64; STEP];
    for start in (0..stream / STEP * STEP).step_by(STEP) {
        for number in 0..STREAMS {
            let values = &numbers[number * stream + start..][..STEP];
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum ^= value;
            }
        }
    }
    sums.iter().fold(0, |all, sum| all ^ sum)
}

/// Products of 8-bit numbers that `threads` threads together add up per second on a level, with operands in
/// the first level cache: the best of five measurements.
pub fn integer_rate(level: Level, threads: usize) -> f64 {
    let slowest = best(threads, |_| lanes::run(level, Dots));
    let products = threads as f64 * f64::from(DOT_ROUNDS) * (SUMS * 4 * LANES) as f64;
    products / slowest.as_secs_f64()
}

struct Dots;

impl Task for Dots {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: the caller vouches for the instructions of L; all arrays are as long as what is read.
        unsafe {
            // Other weights for each sum and other activations in each round, so that no product is known beforehand.
            let weights = black_box([[3u8; 4 * LANES]; SUMS]);
            let mut sums = [L::zero_ints(); SUMS];
            for round in 0..DOT_ROUNDS {
                let activations = L::splat_four(black_box(round).to_ne_bytes().as_ptr());
                for (sum, weights) in sums.iter_mut().zip(&weights) {
                    *sum = L::dot_in_order(*sum, L::load_bytes(weights.as_ptr()), activations);
                }
            }
            black_box(sums);
        }
    }
}

/// The time of the slowest thread in the best measurement; all threads begin together.
fn best(threads: usize, work: impl Fn(usize) + Sync) -> Duration {
    let barrier = Barrier::new(threads);
    let (barrier, work) = (&barrier, &work);
    let measure = || {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn(move || {
                        barrier.wait();
                        let start = Instant::now();
                        work(thread);
                        start.elapsed()
                    })
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).max().unwrap_or_default()
        })
    };
    (0..MEASUREMENTS).map(|_| measure()).min().unwrap_or_default().max(Duration::from_nanos(1))
}
