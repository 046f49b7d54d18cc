//! Places in the workspace.

use super::{ALIGNMENT, Id, Step};
use std::collections::HashMap;

/// An intermediate value that needs a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Intermediate {
    pub id: Id,
    pub bytes: u64,
}

struct Placed {
    first: usize,
    last: usize,
    start: u64,
    end: u64,
}

/// Offsets from `from` on for intermediates such that values that live at the same time never overlap, and the end.
///
/// A value lives from the first step that touches it to the last. Larger values are placed first, each at the lowest
/// offset that is free for its whole life.
pub(super) fn assign(steps: &[Step], intermediates: &[Intermediate], from: u64) -> (Vec<(Id, u64)>, u64) {
    let mut lives: HashMap<Id, (usize, usize)> = HashMap::new();
    for (index, step) in steps.iter().enumerate() {
        for id in step.touches() {
            lives.entry(id).or_insert((index, index)).1 = index;
        }
    }
    let mut order: Vec<_> =
        intermediates.iter().filter_map(|i| lives.get(&i.id).map(|life| (*i, *life))).collect();
    order.sort_by_key(|(intermediate, (first, _))| (std::cmp::Reverse(intermediate.bytes), *first));

    let mut placed: Vec<Placed> = Vec::with_capacity(order.len());
    let mut offsets = Vec::with_capacity(order.len());
    let mut total = from;
    for (intermediate, (first, last)) in order {
        let bytes = intermediate.bytes.next_multiple_of(ALIGNMENT);
        let mut others: Vec<&Placed> =
            placed.iter().filter(|other| other.first <= last && first <= other.last).collect();
        others.sort_by_key(|other| other.start);
        let mut start = from;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{KernelStep, Ref};
    use paceline_kernels::params::View;
    use paceline_kernels::params::elementwise::CopyItems;

    fn copy(from: Id, to: Id) -> Step {
        let view = |id| View::dense(Ref::new(id, 0).token(), 1, 4);
        Step::Kernel(KernelStep::new(&CopyItems { x: view(from), out: view(to), ..Default::default() }))
    }

    #[test]
    fn values_share_memory_only_at_different_times() {
        let sizes = [1000, 3000, 500, 3000, 200];
        let steps = [copy(0, 1), copy(1, 2), copy(2, 3), copy(3, 4)];
        let list: Vec<Intermediate> =
            sizes.iter().enumerate().map(|(id, &bytes)| Intermediate { id, bytes }).collect();
        let (offsets, end) = assign(&steps, &list, 512);
        let at: HashMap<Id, u64> = offsets.into_iter().collect();
        assert_eq!(at.len(), 5);
        for pair in 0..4 {
            let (a, b) = (at[&pair], at[&(pair + 1)]);
            assert!(a + sizes[pair] <= b || b + sizes[pair + 1] <= a, "{pair}: {at:?}");
        }
        assert!(at.values().all(|&offset| offset >= 512 && offset % ALIGNMENT == 0));
        assert!(end < 512 + sizes.iter().map(|b| b.next_multiple_of(ALIGNMENT)).sum::<u64>());
    }

    #[test]
    fn what_nothing_touches_takes_no_place() {
        let (offsets, end) = assign(&[copy(0, 1)], &[Intermediate { id: 7, bytes: 100 }], 256);
        assert_eq!((offsets.len(), end), (0, 256));
    }
}
