//! What every kernel does with the sums of a tile: bias, NaN, store.

use super::lanes::{LANES, Lanes, prefetch_to_write};

/// Where the sums of a tile go: some rows of one panel.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    /// First row, first lane.
    pub start: *mut f32,
    /// Distance of two rows, in elements.
    pub stride: usize,
    /// Lanes that are rows of the matrix (1..=16); the others are padding.
    pub lanes: usize,
    /// One value for each of these lanes.
    pub bias: Option<&'a [f32]>,
}

impl Target<'_> {
    /// Asks for the places of `R` rows before they are computed: each is a line of its own, far from the others, and a
    /// store would wait for it. One row's places follow each other.
    #[inline(always)]
    pub fn fetch<const R: usize>(&self) {
        if R > 1 {
            for r in 0..R {
                prefetch_to_write(self.start.wrapping_add(r * self.stride).cast());
            }
        }
    }

    /// Writes the sums of `R` rows.
    ///
    /// # Safety
    /// The processor has the instructions of `L`, and all elements named are valid for writes.
    #[inline(always)]
    pub unsafe fn write<L: Lanes, const R: usize>(&self, sums: [L::Floats; R]) {
        let mut padded_bias = [0.0; LANES];
        if let Some(bias) = self.bias {
            padded_bias[..self.lanes].copy_from_slice(bias);
        }
        for (r, mut sum) in sums.into_iter().enumerate() {
            // SAFETY: the row is one of the target's; a full vector is written only where all
            // lanes belong to the matrix.
            unsafe {
                if self.bias.is_some() {
                    sum = L::add(sum, L::load(padded_bias.as_ptr()));
                }
                let sum = L::one_nan(sum);
                let to = self.start.add(r * self.stride);
                if self.lanes == LANES {
                    L::store(sum, to);
                } else {
                    let mut all = [0.0; LANES];
                    L::store(sum, all.as_mut_ptr());
                    std::ptr::copy_nonoverlapping(all.as_ptr(), to, self.lanes);
                }
            }
        }
    }
}
