//! The k largest elements of each row.

use super::SharedSlice;
use core::ops::Range;

/// Elements compared with the worst candidate at a time.
const STRIDE: usize = 64;

/// What [`top_k`] writes.
#[derive(Clone, Copy)]
pub struct TopKOut<'a> {
    /// Largest elements, descending `[rows][count]`.
    pub values: SharedSlice<'a, f32>,
    /// Their indices `[rows][count]`.
    pub ids: SharedSlice<'a, i32>,
    /// Number of NaN elements `[rows]`.
    pub nans: SharedSlice<'a, u32>,
}

per_level! {
    /// The `count` largest elements of each row of `x[rows][width]`, lower indices first among
    /// equals. NaN ranks below everything. `count` is at most `width`.
    pub fn top_k = top_k_body(
        x: &[f32],
        width: usize,
        count: usize,
        to: &TopKOut<'_>,
        rows: Range<usize>,
    )
}

#[inline(always)]
pub(super) unsafe fn top_k_body(x: &[f32], width: usize, count: usize, to: &TopKOut<'_>, rows: Range<usize>) {
    assert!(count <= width);
    for row in rows {
        let x = &x[row * width..(row + 1) * width];
        let span = row * count..(row + 1) * count;
        // SAFETY: the row belongs to the caller's work range.
        let (values, ids, nans) =
            unsafe { (to.values.part(span.clone()), to.ids.part(span), to.nans.part(row..row + 1)) };
        nans[0] = x.iter().fold(0u32, |sum, x| sum.wrapping_add(u32::from(x.is_nan())));
        if count > 0 {
            select(x, &mut Heap { values, ids });
        }
    }
}

/// Candidates, the worst at the root. It lies in the output itself.
struct Heap<'a> {
    values: &'a mut [f32],
    ids: &'a mut [i32],
}

/// Whether candidate `a` ranks below `b`.
#[inline(always)]
fn worse(a: (f32, i32), b: (f32, i32)) -> bool {
    if a.0 < b.0 || (a.0.is_nan() && !b.0.is_nan()) {
        return true;
    }
    let equal = a.0 == b.0 || (a.0.is_nan() && b.0.is_nan());
    equal && a.1 > b.1
}

impl Heap<'_> {
    #[inline(always)]
    fn entry(&self, index: usize) -> (f32, i32) {
        (self.values[index], self.ids[index])
    }

    #[inline(always)]
    fn swap(&mut self, a: usize, b: usize) {
        self.values.swap(a, b);
        self.ids.swap(a, b);
    }

    /// Restores the order of the first `len` entries below `root`.
    fn sift(&mut self, mut root: usize, len: usize) {
        loop {
            let mut child = 2 * root + 1;
            if child >= len {
                return;
            }
            if child + 1 < len && worse(self.entry(child + 1), self.entry(child)) {
                child += 1;
            }
            if !worse(self.entry(child), self.entry(root)) {
                return;
            }
            self.swap(child, root);
            root = child;
        }
    }

    /// Replaces the worst entry if the candidate ranks above it.
    fn offer(&mut self, value: f32, id: i32) {
        if worse(self.entry(0), (value, id)) {
            self.values[0] = value;
            self.ids[0] = id;
            self.sift(0, self.values.len());
        }
    }
}

#[inline(always)]
fn select(x: &[f32], heap: &mut Heap<'_>) {
    let count = heap.values.len();
    for (index, &value) in x[..count].iter().enumerate() {
        heap.values[index] = value;
        heap.ids[index] = index as i32;
    }
    for root in (0..count / 2).rev() {
        heap.sift(root, count);
    }
    let rest = &x[count..];
    for (number, chunk) in rest.chunks(STRIDE).enumerate() {
        // Hardly any chunk holds a candidate; an equal element comes later, so it is none.
        let worst = heap.values[0];
        if worst.is_nan() || chunk.iter().fold(false, |found, &value| found | (value > worst)) {
            for (within, &value) in chunk.iter().enumerate() {
                heap.offer(value, (count + number * STRIDE + within) as i32);
            }
        }
    }
    // Moves the worst of the remaining entries to the end, which leaves descending order.
    for len in (1..count).rev() {
        heap.swap(0, len);
        heap.sift(0, len);
    }
}
