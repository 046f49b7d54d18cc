//! What mixtures of experts need beside products: choosing, ordering and adding up.

use super::SharedSlice;
use super::lanes::{LANES, sum_lanes};
use super::math::{exp, sigmoid};
use super::top_k::{TopKOut, top_k_body};
use core::ops::Range;

/// How chosen experts are weighed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// Experts that a row chooses.
    pub count: usize,
    /// The sigmoid of each logit instead of the softmax of all.
    pub sigmoid: bool,
    /// Weights are divided by the sum of the chosen.
    pub normalize: bool,
    /// Factor of the weights.
    pub factor: f32,
}

per_level! {
    /// Chooses the `count` largest of each row of `logits[rows][width]`, as [`super::top_k`] does, and weighs them:
    /// `ids` and `weights` are `[rows][count]`. Sums of the chosen are taken in their order, that of all in lanes.
    pub fn route = route_body(
        logits: &[f32],
        width: usize,
        routing: &Routing,
        ids: SharedSlice<'_, i32>,
        weights: SharedSlice<'_, f32>,
        rows: Range<usize>,
    )
}

#[inline(always)]
unsafe fn route_body(
    logits: &[f32],
    width: usize,
    routing: &Routing,
    ids: SharedSlice<'_, i32>,
    weights: SharedSlice<'_, f32>,
    rows: Range<usize>,
) {
    let count = routing.count;
    for row in rows {
        let x = &logits[row * width..(row + 1) * width];
        let mut nans = [0];
        // SAFETY: the row belongs to the caller's work range.
        let chosen = unsafe {
            let to = TopKOut {
                values: SharedSlice::from_raw(weights.pointer(row * count), count),
                ids: SharedSlice::from_raw(ids.pointer(row * count), count),
                nans: SharedSlice::new(&mut nans),
            };
            top_k_body(x, width, count, &to, 0..1);
            weights.part(row * count..(row + 1) * count)
        };
        let largest = chosen[0];
        for weight in chosen.iter_mut() {
            *weight = if routing.sigmoid { sigmoid(*weight) } else { exp(*weight - largest) };
        }
        let sum = match (routing.normalize, routing.sigmoid) {
            (true, _) => chosen.iter().fold(0.0, |sum, weight| sum + weight),
            (false, true) => 1.0,
            (false, false) => sum_of_exponentials(x, largest),
        };
        for weight in chosen {
            *weight = *weight / sum * routing.factor;
        }
    }
}

/// Σ exp(x - largest) in lanes.
#[inline(always)]
fn sum_of_exponentials(x: &[f32], largest: f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    for chunk in x.chunks(LANES) {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += exp(x - largest);
        }
    }
    sum_lanes(lanes)
}

/// Rows by the experts that they chose. An *assignment* is one choice of one row: row · chosen + place. Assignments of
/// one expert get consecutive *positions*, in ascending order, experts in ascending order.
///
/// It lies in a list of i32 of [`Grouping::len`]: the number of groups, the first position and the expert of each group
/// (and the end of the last), the assignment at each position, the position of each assignment (-1 where the expert
/// does not exist), and counters that are only used while it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// Experts that there are.
    pub experts: usize,
    /// Most assignments.
    pub assignments: usize,
}

impl Grouping {
    /// Elements of the list.
    pub fn len(&self) -> usize {
        self.assignments_at() + 2 * self.assignments + self.experts
    }

    /// True if there is nothing to group.
    pub fn is_empty(&self) -> bool {
        self.assignments == 0
    }

    fn most_groups(&self) -> usize {
        self.experts.min(self.assignments)
    }

    fn experts_at(&self) -> usize {
        self.most_groups() + 2
    }

    fn assignments_at(&self) -> usize {
        self.experts_at() + self.most_groups()
    }

    /// Groups the assignments, whose experts are `ids`. An id out of range belongs to no group.
    pub fn group(&self, ids: &[i32], list: &mut [i32]) {
        assert!(ids.len() <= self.assignments && list.len() == self.len());
        let (head, rest) = list.split_at_mut(self.assignments_at());
        let (starts, experts) = head.split_at_mut(self.experts_at());
        let (order, rest) = rest.split_at_mut(self.assignments);
        let (places, counts) = rest.split_at_mut(self.assignments);
        let expert_of = |id: i32| usize::try_from(id).ok().filter(|&id| id < self.experts);
        counts.fill(0);
        for expert in ids.iter().filter_map(|&id| expert_of(id)) {
            counts[expert] += 1;
        }
        let (mut groups, mut position) = (0, 0);
        for (expert, count) in counts.iter_mut().enumerate() {
            if *count > 0 {
                (starts[1 + groups], experts[groups]) = (position, expert as i32);
                groups += 1;
                // From here on the counter is the next free position of the expert.
                position += std::mem::replace(count, position);
            }
        }
        (starts[0], starts[1 + groups]) = (groups as i32, position);
        for (assignment, &id) in ids.iter().enumerate() {
            places[assignment] = -1;
            if let Some(expert) = expert_of(id) {
                places[assignment] = counts[expert];
                order[counts[expert] as usize] = assignment as i32;
                counts[expert] += 1;
            }
        }
    }

    /// Number of groups.
    pub fn groups(&self, list: &[i32]) -> usize {
        list[0] as usize
    }

    /// Number of positions.
    pub fn positions(&self, list: &[i32]) -> usize {
        list[1 + self.groups(list)] as usize
    }

    /// Expert and positions of a group.
    pub fn of(&self, list: &[i32], group: usize) -> (usize, Range<usize>) {
        let expert = list[self.experts_at() + group] as usize;
        (expert, list[1 + group] as usize..list[2 + group] as usize)
    }

    /// The assignment at a position.
    pub fn assignment(&self, list: &[i32], position: usize) -> usize {
        list[self.assignments_at() + position] as usize
    }

    /// The position of an assignment, if its expert exists.
    pub fn position(&self, list: &[i32], assignment: usize) -> Option<usize> {
        usize::try_from(list[self.assignments_at() + self.assignments + assignment]).ok()
    }
}

per_level! {
    /// sum += weight · x, each by one fused multiply-add.
    pub fn add_weighted = add_weighted_body(sum: &mut [f32], weight: f32, x: &[f32])
}

#[inline(always)]
unsafe fn add_weighted_body(sum: &mut [f32], weight: f32, x: &[f32]) {
    for (sum, &x) in sum.iter_mut().zip(x) {
        *sum = x.mul_add(weight, *sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups hold every assignment of an expert that exists, once, in ascending order.
    fn check(experts: usize, most: usize, ids: &[i32]) {
        let grouping = Grouping { experts, assignments: most };
        let mut list = vec![-7; grouping.len()];
        grouping.group(ids, &mut list);
        let exists = |id: i32| (0..experts as i32).contains(&id);
        let mut expected: Vec<usize> = (0..ids.len()).filter(|&a| exists(ids[a])).collect();
        expected.sort_by_key(|&a| (ids[a], a));
        assert_eq!(grouping.positions(&list), expected.len());
        let found: Vec<usize> = (0..expected.len()).map(|p| grouping.assignment(&list, p)).collect();
        assert_eq!(found, expected);
        let mut next = 0;
        for group in 0..grouping.groups(&list) {
            let (expert, positions) = grouping.of(&list, group);
            assert!(positions.start == next && !positions.is_empty());
            assert!(positions.clone().all(|p| ids[expected[p]] == expert as i32));
            next = positions.end;
        }
        assert_eq!(next, expected.len());
        for (assignment, &id) in ids.iter().enumerate() {
            let place = expected.iter().position(|&a| a == assignment);
            assert_eq!(grouping.position(&list, assignment), place, "id {id}");
        }
    }

    #[test]
    fn assignments_are_grouped_by_expert() {
        check(4, 8, &[3, 0, 3, 1, 0, 3, 3, 0]);
        check(4, 20, &[2, 2, 2]);
        check(256, 3, &[255, 0, 255]);
        check(1, 6, &[0; 6]);
        check(5, 9, &[-1, 5, 4, i32::MAX, 0, i32::MIN, 4]);
        check(3, 4, &[7, -2]);
        check(3, 4, &[]);
    }
}
