//! What the kernel tests share.
#![allow(dead_code)]

use paceline_backend_cpu::kernels::SharedSlice;
use paceline_backend_cpu::level::Level;

/// Small deterministic generator (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in -1..1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / 8_388_608.0 - 1.0
    }

    /// `count` numbers in -scale..scale.
    pub fn floats(&mut self, count: usize, scale: f32) -> Vec<f32> {
        (0..count).map(|_| self.unit() * scale).collect()
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }
}

/// Bits, all NaN alike.
pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }).collect()
}

/// Runs a kernel that fills `len` floats.
pub fn filled(len: usize, run: impl FnOnce(SharedSlice<'_, f32>)) -> Vec<f32> {
    let mut out = vec![f32::NAN; len];
    run(SharedSlice::new(&mut out));
    out
}

/// Runs at every level, checks that all give the same bits, and returns them.
pub fn at_all_levels(mut run: impl FnMut(Level) -> Vec<f32>) -> Vec<f32> {
    let reference = run(Level::Scalar);
    for level in Level::available() {
        assert_eq!(bits(&run(level)), bits(&reference), "level {level}");
    }
    reference
}

/// Checks |x - expected| ≤ tolerance · max(1, |expected|).
#[track_caller]
pub fn assert_close(x: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(x.len(), expected.len());
    for (index, (&x, &expected)) in x.iter().zip(expected).enumerate() {
        let error = (f64::from(x) - expected).abs() / expected.abs().max(1.0);
        assert!(error <= tolerance, "element {index}: {x} instead of {expected}");
    }
}

/// Cuts `0..len` somewhere in the middle, for tests that split work.
pub fn halves(len: usize) -> [std::ops::Range<usize>; 2] {
    let middle = len * 2 / 5;
    [0..middle, middle..len]
}

/// Widths that meet every kind of tail.
pub const WIDTHS: [usize; 8] = [1, 7, 16, 33, 64, 80, 128, 256];
