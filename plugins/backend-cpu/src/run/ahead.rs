//! What a thread that waits can bring near meanwhile: the weights or states that it is going to read next.

use super::Run;
use crate::program::{DeltaMode, DeltaWork, Kernel, Program};
use crate::weights::PANEL_ROWS;
use std::ops::Range;

/// Bytes that are fetched ahead at most: a part of a second-level cache.
const MOST_BYTES: usize = 128 * 1024;

/// For each phase, the next one behind it that reads weights or states of the delta rule; the number of phases where
/// there is none.
pub(crate) fn next_readers(program: &Program) -> Vec<usize> {
    let count = program.phases.len();
    let mut next = vec![count; count];
    for phase in (0..count.saturating_sub(1)).rev() {
        let reads = |kernel: &Kernel| matches!(kernel, Kernel::Linear(_) | Kernel::Delta(_));
        next[phase] = if program.phases[phase + 1].iter().any(reads) { phase + 1 } else { next[phase + 1] };
    }
    next
}

impl Run<'_> {
    /// Where `thread` begins to read in the next of [`next_readers`] behind `phase`, and how many bytes are worth fetching
    /// there.
    pub(super) fn ahead(&self, phase: usize, thread: usize) -> (*const u8, usize) {
        let none = (core::ptr::null(), 0);
        let Some(kernels) =
            self.bound.next_readers.get(phase).and_then(|&next| self.bound.program.phases.get(next))
        else {
            return none;
        };
        let threads = self.bound.threads;
        let chunks: usize = kernels.iter().map(|kernel| self.chunks(kernel)).sum();
        // As shares are cut.
        let (mut start, mut end) = (chunks * thread / threads, chunks * (thread + 1) / threads);
        for kernel in kernels {
            let chunks = self.chunks(kernel);
            if start >= chunks {
                (start, end) = (start - chunks, end - chunks);
                continue;
            }
            let work = match kernel {
                Kernel::Linear(work) => work,
                Kernel::Delta(work) => {
                    return self.states_ahead(work, start..end.min(chunks)).unwrap_or(none);
                }
                _ => return none,
            };
            let (region, size) = (self.region(work.weight), self.panels_per_chunk(work));
            let panel_bytes = region.bytes / work.n.div_ceil(PANEL_ROWS).max(1);
            let from = (start * size * panel_bytes).min(region.bytes);
            let to = (end * size * panel_bytes).min(region.bytes);
            return (region.start.wrapping_add(from), (to - from).min(MOST_BYTES));
        }
        none
    }

    /// States that some chunks of the delta rule begin with, where rows leave no states of their own.
    fn states_ahead(&self, work: &DeltaWork, chunks: Range<usize>) -> Option<(*const u8, usize)> {
        let DeltaMode::Records { .. } = work.mode else { return None };
        let per_sequence = self.delta_chunks_of_sequence(work);
        let sequence =
            self.sequences(work.sequences, work.sequences_live).nth(chunks.start / per_sequence)?;
        let parts = per_sequence / work.value_heads;
        let state = work.key_width * work.value_width * size_of::<f32>();
        let first = (sequence.slot * work.value_heads + chunks.start % per_sequence / parts) * state;
        let region = self.region(work.state);
        let bytes = (chunks.len() / parts * state).min(MOST_BYTES);
        (first + bytes <= region.bytes).then(|| (region.start.wrapping_add(first).cast_const(), bytes))
    }
}
