//! The chunks of a phase, cut into a share for each thread.
//!
//! A thread takes chunks from the front of its own share, half of what is left at a time: it walks over memory in one
//! direction and meets nobody. Whoever has nothing left takes half of what another one has, from the back. So threads
//! meet a few times a phase, however many chunks it has, and a late thread does not hold up the others.
//!
//! A share is one word: the serial number of the phase that it was last taken from in, and the chunks that are left of
//! it. A word of an older phase stands for a share that nobody took from yet, so a phase is opened without touching
//! any share.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const SERIAL_BITS: u32 = 24;
const CHUNK_BITS: u32 = 20;
const SERIAL_MASK: u32 = (1 << SERIAL_BITS) - 1;
/// Places of a share; where there are more chunks, one place stands for several.
const MOST_PLACES: usize = (1 << CHUNK_BITS) - 1;
/// How old a word may get, in phases: old enough, it would look like a new one.
const RENEWED_AFTER: u32 = 1 << (SERIAL_BITS - 2);

/// A share on a cache line of its own.
#[repr(align(64))]
struct Share(AtomicU64);

/// See the module's documentation.
pub(crate) struct Shares(Vec<Share>);

fn pack(serial: u32, left: &Range<usize>) -> u64 {
    let place = |place: usize| place as u64 & MOST_PLACES as u64;
    (u64::from(serial & SERIAL_MASK) << (2 * CHUNK_BITS))
        | (place(left.start) << CHUNK_BITS)
        | place(left.end)
}

impl Shares {
    /// Shares of so many threads.
    pub fn new(threads: usize) -> Self {
        let old = pack(0u32.wrapping_sub(1), &(0..0));
        Self((0..threads.max(1)).map(|_| Share(AtomicU64::new(old))).collect())
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.0.len()
    }

    /// Must be called before a phase with this serial number is opened. Serial numbers only grow, by one, and wrap.
    pub fn open(&self, serial: u32) {
        if serial.is_multiple_of(RENEWED_AFTER) {
            let old = pack(serial.wrapping_sub(1), &(0..0));
            self.0.iter().for_each(|share| share.0.store(old, Ordering::Relaxed));
        }
    }

    /// Takes chunks of the phase `serial`, which has `chunks` of them, for a thread; `None` when all are taken, or the
    /// phase is over.
    pub fn take(&self, serial: u32, chunks: usize, thread: usize) -> Option<Range<usize>> {
        let unit = chunks.div_ceil(MOST_PLACES).max(1);
        let places = if unit == 1 { chunks } else { chunks.div_ceil(unit) };
        let owners = (thread..self.0.len()).chain(0..thread.min(self.0.len()));
        owners
            .into_iter()
            .find_map(|owner| self.take_from(owner, serial, places, owner == thread))
            .map(|taken| taken.start * unit..(taken.end * unit).min(chunks))
    }

    fn take_from(&self, owner: usize, serial: u32, places: usize, is_own: bool) -> Option<Range<usize>> {
        let share = &self.0[owner].0;
        // What the chunks read and write is ordered by the opening and the end of the phase, not by the shares.
        let mut word = share.load(Ordering::Relaxed);
        loop {
            let left = self.left(word, owner, serial, places);
            if left.is_empty() {
                return None;
            }
            let count = if self.0.len() == 1 { left.len() } else { left.len().div_ceil(2) };
            let (taken, rest) = if is_own {
                (left.start..left.start + count, left.start + count..left.end)
            } else {
                (left.end - count..left.end, left.start..left.end - count)
            };
            let new = pack(serial, &rest);
            match share.compare_exchange_weak(word, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(taken),
                Err(now) => word = now,
            }
        }
    }

    /// What is left of a share, by its word.
    fn left(&self, word: u64, owner: usize, serial: u32, places: usize) -> Range<usize> {
        let age = serial.wrapping_sub((word >> (2 * CHUNK_BITS)) as u32) & SERIAL_MASK;
        let place = |shift: u32| (word >> shift) as usize & MOST_PLACES;
        match age {
            0 => place(CHUNK_BITS)..place(0),
            _ if age <= SERIAL_MASK / 2 => {
                let threads = self.0.len();
                places * owner / threads..places * (owner + 1) / threads
            }
            // The word is of a later phase.
            _ => 0..0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_is_taken_once() {
        let mut random = 0x2545_F491_4F6C_DD1Du64;
        let mut below = move |limit: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as usize % limit
        };
        for first in [1, RENEWED_AFTER - 40, SERIAL_MASK - 40, u32::MAX - 40] {
            for threads in 1..6 {
                let shares = Shares::new(threads);
                shares.open(first / RENEWED_AFTER * RENEWED_AFTER);
                let mut serial = first;
                for _ in 0..80 {
                    let chunks = below(40);
                    let mut times_taken = vec![0; chunks];
                    shares.open(serial);
                    while let Some(taken) = shares.take(serial, chunks, below(threads)) {
                        taken.for_each(|chunk| times_taken[chunk] += 1);
                    }
                    assert!(
                        times_taken.iter().all(|&times| times == 1),
                        "{serial} {threads} {times_taken:?}"
                    );
                    // A thread that still looks at the phase before finds nothing in it.
                    let before = serial;
                    serial = serial.wrapping_add(1);
                    shares.open(serial);
                    assert!(shares.take(serial, threads, 0).is_some());
                    assert_eq!(shares.take(before, chunks, 0), None);
                    while shares.take(serial, threads, 0).is_some() {}
                    serial = serial.wrapping_add(1);
                }
            }
        }
    }

    #[test]
    fn more_chunks_than_a_word_can_say_are_all_taken() {
        let shares = Shares::new(3);
        let chunks = 3 * MOST_PLACES + 5;
        let mut next = std::iter::from_fn(|| shares.take(1, chunks, 1));
        let mut ranges: Vec<_> = next.by_ref().collect();
        ranges.sort_by_key(|range| range.start);
        let end = ranges.iter().try_fold(0, |end, range| (range.start == end).then_some(range.end));
        assert_eq!(end, Some(chunks));
    }

    #[test]
    fn a_thread_walks_over_its_own_share_first() {
        let shares = Shares::new(2);
        let taken: Vec<_> = std::iter::from_fn(|| shares.take(1, 16, 0)).take(4).collect();
        assert_eq!(taken, [0..4, 4..6, 6..7, 7..8]);
        assert_eq!(shares.take(1, 16, 0), Some(12..16));
        assert_eq!(shares.take(1, 16, 1), Some(8..10));
    }
}
