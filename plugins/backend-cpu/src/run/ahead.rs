//! What a thread that waits can bring near meanwhile: the weights that it is going to read next.

use super::Run;
use crate::program::{Kernel, Program};
use crate::weights::PANEL_ROWS;

/// Bytes that are fetched ahead at most: a part of a second-level cache.
const MOST_BYTES: usize = 128 * 1024;

/// For each phase, the next one behind it that reads weights; the number of phases where there is none.
pub(crate) fn next_products(program: &Program) -> Vec<usize> {
    let count = program.phases.len();
    let mut next = vec![count; count];
    for phase in (0..count.saturating_sub(1)).rev() {
        let has_product = program.phases[phase + 1].iter().any(|kernel| matches!(kernel, Kernel::Linear(_)));
        next[phase] = if has_product { phase + 1 } else { next[phase + 1] };
    }
    next
}

impl Run<'_> {
    /// Where `thread` begins to read weights in the first phase behind `phase` that has products, and how many bytes are
    /// worth fetching there.
    pub(super) fn ahead(&self, phase: usize, thread: usize) -> (*const u8, usize) {
        let none = (core::ptr::null(), 0);
        let Some(kernels) =
            self.bound.next_products.get(phase).and_then(|&next| self.bound.program.phases.get(next))
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
            let Kernel::Linear(work) = kernel else { return none };
            let (region, size) = (self.region(work.weight), self.panels_per_chunk(work));
            let panel_bytes = region.bytes / work.n.div_ceil(PANEL_ROWS).max(1);
            let from = (start * size * panel_bytes).min(region.bytes);
            let to = (end * size * panel_bytes).min(region.bytes);
            return (region.start.wrapping_add(from), (to - from).min(MOST_BYTES));
        }
        none
    }
}
