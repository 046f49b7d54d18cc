//! Places in the workspace.

use super::{ALIGNMENT, Id, Kernel};
use std::collections::HashMap;

/// An intermediate value that needs a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Intermediate {
    pub id: Id,
    pub bytes: usize,
}

/// Offsets for intermediates such that values that live in the same phase never overlap, and the total.
///
/// A value lives from the first phase that touches it to the last. Larger values are placed first, each at the
/// lowest offset that is free for its whole life.
pub(super) fn assign(phases: &[Vec<Kernel>], intermediates: &[Intermediate]) -> (Vec<(Id, usize)>, usize) {
    struct Placed {
        first: usize,
        last: usize,
        start: usize,
        end: usize,
    }
    let mut lives: HashMap<Id, (usize, usize)> = HashMap::new();
    for (phase, kernel) in
        phases.iter().enumerate().flat_map(|(p, kernels)| kernels.iter().map(move |k| (p, k)))
    {
        for id in kernel.reads().into_iter().chain(kernel.writes()) {
            lives.entry(id).or_insert((phase, phase)).1 = phase;
        }
    }
    let mut order: Vec<_> =
        intermediates.iter().filter_map(|i| lives.get(&i.id).map(|life| (*i, *life))).collect();
    order.sort_by_key(|(intermediate, (first, _))| (std::cmp::Reverse(intermediate.bytes), *first));

    let mut placed: Vec<Placed> = Vec::with_capacity(order.len());
    let mut offsets = Vec::with_capacity(order.len());
    let mut total = 0;
    for (intermediate, (first, last)) in order {
        let bytes = intermediate.bytes.next_multiple_of(ALIGNMENT);
        let mut others: Vec<&Placed> =
            placed.iter().filter(|other| other.first <= last && first <= other.last).collect();
        others.sort_by_key(|other| other.start);
        let mut start = 0;
        for other in others {
            if start + bytes <= other.start {
                break;
            }
            start = start.max(other.end);
        }
        placed.push(Placed { first, last, start, end: start + bytes });
        offsets.push((intermediate.id, start));
        total = total.max(start + bytes);
    }
    (offsets, total)
}
