//! Depthwise causal convolution over the rows of a sequence.

use super::SharedSlice;
use super::math::silu;
use crate::level::Level;
use crate::linear::lanes::{self, LANES, Lanes, Task, prefetch};
use core::ops::Range;

/// Largest kernel width.
pub const MAX_TAPS: usize = 16;

/// Rows up to which the inputs are so few that fetching the rest takes longer than the sums.
const FETCHED_ROWS: usize = 8;

/// Inputs of [`causal_conv`], for the new rows of one sequence.
#[derive(Clone, Copy)]
pub struct CausalConv<'a> {
    /// Input `[rows][channels]`.
    pub x: &'a [f32],
    /// Kernels `[channels][taps]`, oldest input first.
    pub weight: &'a [f32],
    /// Number of channels.
    pub channels: usize,
    /// Kernel width, 1 to [`MAX_TAPS`].
    pub taps: usize,
    /// Whether silu follows.
    pub silu: bool,
}

/// The windows of a sequence: one plane, or several that later runs can go back to.
#[derive(Clone, Copy)]
pub struct ConvWindows<'a> {
    /// Windows `[planes][taps - 1][channels]`, each oldest input first.
    pub planes: SharedSlice<'a, f32>,
    /// Number of planes.
    pub count: usize,
    /// Plane of the window before the first row.
    pub before: usize,
    /// Whether the window before the first row is zeros, whatever the plane holds.
    pub fresh: bool,
}

/// What a fresh window holds, for as many channels as are worked on at once.
static ZEROS: [f32; LANES] = [0.0; LANES];

/// `out[t][c] = Σᵢ weight[c][i] · x[t - taps + 1 + i][c]`, taps ascending, then silu if asked.
///
/// Inputs before the first row stand in the window `before`. The last `taps - 1` inputs up to
/// row t go to plane `(before + 1 + t) % count`, for the last `count` rows. `out` like `x`. The
/// work range counts channels.
///
/// # Safety
/// See [the module](crate::kernels).
pub unsafe fn causal_conv(
    level: Level,
    work: &CausalConv<'_>,
    windows: &ConvWindows<'_>,
    out: SharedSlice<'_, f32>,
    channels: Range<usize>,
) {
    assert!((1..=MAX_TAPS).contains(&work.taps) && channels.end <= work.channels);
    assert!(work.x.len().is_multiple_of(work.channels) && windows.before < windows.count);
    if work.x.len() <= FETCHED_ROWS * work.channels {
        fetch(work, windows, &channels);
    }
    let mut rest = channels.start;
    if work.taps == FourTaps::TAPS {
        rest += channels.len() / LANES * LANES;
        lanes::run(level, FourTaps { work, windows, out, channels: channels.start..rest });
    }
    // SAFETY: the caller's contract is passed on.
    unsafe { any_taps(level, work, windows, out, rest..channels.end) }
}

/// Channels in whole vectors, of a convolution with the usual number of taps: kernels and window stay in registers.
struct FourTaps<'a> {
    work: &'a CausalConv<'a>,
    windows: &'a ConvWindows<'a>,
    out: SharedSlice<'a, f32>,
    /// Nobody else touches these of `windows` and `out`.
    channels: Range<usize>,
}

impl FourTaps<'_> {
    const TAPS: usize = 4;
    const BEFORE: usize = Self::TAPS - 1;
}

impl Task for FourTaps<'_> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let Self { work, windows, out, channels } = self;
        let stride = work.channels;
        let rows = work.x.len() / stride;
        assert!(channels.end <= stride && channels.len().is_multiple_of(LANES) && out.len() >= rows * stride);
        assert!(windows.planes.len() >= windows.count * Self::BEFORE * stride);
        assert!(work.weight.len() >= stride * Self::TAPS);
        let leaving = rows.saturating_sub(windows.count);
        for start in channels.step_by(LANES) {
            // SAFETY: all places are inside of what was checked, these channels are the caller's, and the processor has
            // the instructions of L.
            unsafe {
                let mut kernels = [0.0f32; Self::TAPS * LANES];
                let weight = work.weight.as_ptr().add(start * Self::TAPS);
                L::transpose_four(weight, Self::TAPS, kernels.as_mut_ptr());
                let kernels = kernels.as_ptr();
                let (a, b) = (L::load(kernels), L::load(kernels.add(LANES)));
                let (c, d) = (L::load(kernels.add(2 * LANES)), L::load(kernels.add(3 * LANES)));
                let (mut first, mut second, mut third) = (L::zero(), L::zero(), L::zero());
                if !windows.fresh {
                    let window = windows.planes.pointer(windows.before * Self::BEFORE * stride + start);
                    first = L::load(window);
                    second = L::load(window.add(stride));
                    third = L::load(window.add(2 * stride));
                }
                let mut plane = windows.before;
                for row in 0..rows {
                    let input = L::load(work.x.as_ptr().add(row * stride + start));
                    let sum = L::fma(b, second, L::fma(a, first, L::zero()));
                    let sum = L::fma(d, input, L::fma(c, third, sum));
                    let mut values = [0.0f32; LANES];
                    L::store(sum, values.as_mut_ptr());
                    if work.silu {
                        for value in &mut values {
                            *value = silu(*value);
                        }
                    }
                    L::store(L::load(values.as_ptr()), out.pointer(row * stride + start));
                    (first, second, third) = (second, third, input);
                    plane = if plane + 1 == windows.count { 0 } else { plane + 1 };
                    if row >= leaving {
                        let window = windows.planes.pointer(plane * Self::BEFORE * stride + start);
                        L::store(first, window);
                        L::store(second, window.add(stride));
                        L::store(third, window.add(2 * stride));
                    }
                }
            }
        }
    }
}

per_level! {
    /// [`causal_conv`] with any number of taps.
    fn any_taps = any_taps_body(
        work: &CausalConv<'_>,
        windows: &ConvWindows<'_>,
        out: SharedSlice<'_, f32>,
        channels: Range<usize>,
    )
}

#[inline(always)]
unsafe fn any_taps_body(
    work: &CausalConv<'_>,
    windows: &ConvWindows<'_>,
    out: SharedSlice<'_, f32>,
    channels: Range<usize>,
) {
    let mut at = channels.start;
    while at < channels.end {
        let left = channels.end - at;
        // SAFETY: these channels belong to the caller's work range.
        at += unsafe {
            match left {
                LANES.. => convolve::<LANES>(work, windows, out, at),
                _ => convolve::<1>(work, windows, out, at),
            }
        };
    }
}

/// Asks for what the channels need that no run leaves in a near cache: kernels, the window before the first row, and the
/// places of those behind.
#[inline(always)]
fn fetch(work: &CausalConv<'_>, windows: &ConvWindows<'_>, channels: &Range<usize>) {
    let lines = |start: *const u8, bytes: usize| {
        (0..bytes).step_by(64).for_each(|at| prefetch(start.wrapping_add(at)));
    };
    let bytes = channels.len() * size_of::<f32>();
    let before = work.taps - 1;
    for plane in 0..=(work.x.len() / work.channels).min(windows.count - 1) {
        for kept in 0..before {
            let place = ((windows.before + plane) % windows.count * before + kept) * work.channels;
            lines(windows.planes.pointer(place + channels.start).cast_const().cast(), bytes);
        }
    }
    lines(work.weight[channels.start * work.taps..].as_ptr().cast(), bytes * work.taps);
}

/// `N` channels from `start` on, through all rows. Returns `N`.
///
/// # Safety
/// Nobody else touches these channels of `windows` and `out`.
#[inline(always)]
unsafe fn convolve<const N: usize>(
    work: &CausalConv<'_>,
    windows: &ConvWindows<'_>,
    out: SharedSlice<'_, f32>,
    start: usize,
) -> usize {
    let taps = work.taps;
    let (channels, before) = (work.channels, taps - 1);
    let rows = work.x.len() / channels;
    // Kernels with the channel last, to be read like the inputs.
    let mut weight = [[0.0f32; N]; MAX_TAPS];
    let of_channels = &work.weight[start * taps..(start + N) * taps];
    for (channel, of_channel) in of_channels.chunks_exact(taps).enumerate() {
        for (weight, &value) in weight.iter_mut().zip(of_channel) {
            weight[channel] = value;
        }
    }
    // Input `index`, counted from the oldest of the window.
    let input = |index: usize| -> &[f32] {
        match index.checked_sub(before) {
            Some(row) => &work.x[row * channels + start..][..N],
            None if windows.fresh => &ZEROS[..N],
            None => {
                let place = (windows.before * before + index) * channels + start;
                // SAFETY: nobody else touches these channels, and they are written last.
                unsafe { windows.planes.read(place..place + N) }
            }
        }
    };
    for row in 0..rows {
        let mut sum = [0.0f32; N];
        for (tap, weight) in weight[..taps].iter().enumerate() {
            let input = input(row + tap);
            for channel in 0..N {
                sum[channel] = weight[channel].mul_add(input[channel], sum[channel]);
            }
        }
        if work.silu {
            for sum in &mut sum {
                *sum = silu(*sum);
            }
        }
        let place = row * channels + start;
        // SAFETY: these channels belong to the caller's work range.
        unsafe { out.part(place..place + N) }.copy_from_slice(&sum);
    }
    // The plane that holds the window before the first row comes last: the others are read from it.
    let last_planes = rows.saturating_sub(windows.count)..rows;
    let onto_before = |row: &usize| (row + 1).is_multiple_of(windows.count);
    for row in last_planes.clone().filter(|row| !onto_before(row)).chain(last_planes.filter(onto_before)) {
        let plane = (windows.before + 1 + row) % windows.count;
        for kept in 0..before {
            let mut values = [0.0f32; N];
            // Ascending, so that what moves down inside the window is read before it is overwritten.
            values.copy_from_slice(input(row + 1 + kept));
            let place = (plane * before + kept) * channels + start;
            // SAFETY: these channels belong to the caller's work range.
            unsafe { windows.planes.part(place..place + N) }.copy_from_slice(&values);
        }
    }
    N
}
