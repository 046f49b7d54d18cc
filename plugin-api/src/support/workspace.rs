//! Places in the workspace.

use std::cmp::Reverse;
use std::collections::HashMap;

/// An intermediate value that needs a place in the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intermediate {
    /// The backend's own number of the value.
    pub id: usize,
    /// Its size, which is rounded up to the alignment.
    pub bytes: u64,
}

struct Placed {
    first: usize,
    last: usize,
    start: u64,
    end: u64,
}

/// Places of intermediates in a workspace, in bytes, such that values that live at the same time never overlap. Gives the
/// offset of each by its id, and the end of the last.
///
/// `touches` says which step reads or writes which value, as (step, id); ids that are no intermediates are passed over.
/// Steps are numbered in the order in which they run; those that may run at the same time have one number. A value
/// lives from the first step that touches it to the last; one that none touches gets no place. Larger values are placed
/// first, each at the lowest multiple of `alignment` that is free for its whole life, from `from` on, which is such a multiple
/// too. What is too large to be counted ends at `u64::MAX`, which no device has.
pub fn place_intermediates(
    touches: impl IntoIterator<Item = (usize, usize)>,
    intermediates: &[Intermediate],
    alignment: u64,
    from: u64,
) -> (Vec<(usize, u64)>, u64) {
    let mut lives: HashMap<usize, (usize, usize)> = HashMap::new();
    for (step, id) in touches {
        let (first, last) = lives.entry(id).or_insert((step, step));
        (*first, *last) = (step.min(*first), step.max(*last));
    }
    let mut order: Vec<_> =
        intermediates.iter().filter_map(|i| lives.get(&i.id).map(|life| (*i, *life))).collect();
    order.sort_by_key(|(intermediate, (first, _))| (Reverse(intermediate.bytes), *first));

    let mut placed: Vec<Placed> = Vec::with_capacity(order.len());
    let mut offsets = Vec::with_capacity(order.len());
    let mut total = from;
    for (intermediate, (first, last)) in order {
        let bytes = intermediate.bytes.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        let mut others: Vec<&Placed> =
            placed.iter().filter(|other| other.first <= last && first <= other.last).collect();
        others.sort_by_key(|other| other.start);
        let mut start = from;
        for other in others {
            if start.saturating_add(bytes) <= other.start {
                break;
            }
            start = start.max(other.end);
        }
        let end = start.saturating_add(bytes);
        placed.push(Placed { first, last, start, end });
        offsets.push((intermediate.id, start));
        total = total.max(end);
    }
    (offsets, total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_chain_takes_less_than_all_of_its_values() {
        let sizes = [1000, 3000, 500, 3000, 200];
        let list: Vec<_> = sizes.iter().enumerate().map(|(id, &bytes)| Intermediate { id, bytes }).collect();
        let touches = (0..4).flat_map(|step| [(step, step), (step, step + 1)]);
        let (offsets, end) = place_intermediates(touches, &list, 256, 512);
        assert_eq!(offsets.len(), 5);
        assert!(end < 512 + sizes.iter().map(|b| b.next_multiple_of(256)).sum::<u64>());
    }

    #[test]
    fn what_nothing_touches_takes_no_place() {
        let list = [Intermediate { id: 7, bytes: 100 }];
        assert_eq!(place_intermediates([(0, 0), (0, 1)], &list, 256, 256), (vec![], 256));
    }

    #[test]
    fn what_cannot_be_counted_ends_where_no_memory_does() {
        let list = [u64::MAX, u64::MAX / 2, 300].map(|bytes| Intermediate { id: bytes as usize, bytes });
        let (offsets, end) = place_intermediates(list.map(|i| (0, i.id)), &list, 256, 0);
        assert_eq!((offsets.len(), end), (3, u64::MAX));
    }

    proptest! {
        #[test]
        fn values_share_memory_only_at_different_times(
            sizes in prop::collection::vec(0u64..5000, 1..20),
            touches in prop::collection::vec((0usize..12, 0usize..20), 0..60),
        ) {
            let list: Vec<_> =
                sizes.iter().enumerate().map(|(id, &bytes)| Intermediate { id, bytes }).collect();
            let life = |id| {
                let steps = || touches.iter().filter(|t| t.1 == id).map(|t| t.0);
                steps().min().zip(steps().max())
            };
            let (offsets, end) = place_intermediates(touches.iter().copied(), &list, 64, 128);
            prop_assert_eq!(offsets.len(), list.iter().filter(|i| life(i.id).is_some()).count());
            for (index, &(a, at_a)) in offsets.iter().enumerate() {
                prop_assert!(at_a >= 128 && at_a % 64 == 0 && at_a + sizes[a] <= end);
                for &(b, at_b) in &offsets[..index] {
                    let ((a_first, a_last), (b_first, b_last)) = (life(a).unwrap(), life(b).unwrap());
                    let is_apart = at_a + sizes[a] <= at_b || at_b + sizes[b] <= at_a;
                    prop_assert!(is_apart || a_last < b_first || b_last < a_first, "{a} and {b}");
                }
            }
        }
    }
}
