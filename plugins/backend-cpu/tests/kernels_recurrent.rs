//! Kernels with a state: against f64, a prompt at once or piece by piece, split or not.

mod kernels_support;

use kernels_support::{Random, assert_close, bits, filled, halves};
use paceline_backend_cpu::kernels::SharedSlice;
use paceline_backend_cpu::kernels::conv::{CausalConv, causal_conv};
use paceline_backend_cpu::kernels::gdn::{GatedDeltaNet, GatedDeltaNetOut, gated_delta_net};
use paceline_backend_cpu::level::Level;

const ROWS: usize = 9;

/// Cuts of the rows into calls.
const PIECES: [&[usize]; 4] = [&[9], &[1; 9], &[2, 1, 6], &[5, 4]];

/// One sequence's inputs.
struct Sequence {
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    log_decay: Vec<f32>,
    beta: Vec<f32>,
    state: Vec<f32>,
    heads: (usize, usize),
    widths: (usize, usize),
}

impl Sequence {
    fn random(heads: (usize, usize), widths: (usize, usize)) -> Self {
        let mut random = Random(11);
        let norm = (widths.0 as f32).sqrt();
        Self {
            query: random.floats(ROWS * heads.0 * widths.0, 1.7 / norm),
            key: random.floats(ROWS * heads.0 * widths.0, 1.7 / norm),
            value: random.floats(ROWS * heads.1 * widths.1, 1.0),
            log_decay: (0..ROWS * heads.1).map(|_| -random.unit().abs()).collect(),
            beta: (0..ROWS * heads.1).map(|_| random.unit().abs()).collect(),
            state: random.floats(heads.1 * widths.0 * widths.1, 1.0),
            heads,
            widths,
        }
    }

    fn rows(&self, first: usize, count: usize) -> GatedDeltaNet<'_> {
        let cut = |x: &[f32]| first * (x.len() / ROWS)..(first + count) * (x.len() / ROWS);
        GatedDeltaNet {
            query: &self.query[cut(&self.query)],
            key: &self.key[cut(&self.key)],
            value: &self.value[cut(&self.value)],
            log_decay: &self.log_decay[cut(&self.log_decay)],
            beta: &self.beta[cut(&self.beta)],
            key_heads: self.heads.0,
            value_heads: self.heads.1,
            key_width: self.widths.0,
            value_width: self.widths.1,
            scale: 0.25,
        }
    }

    /// Outputs, deltas and final state.
    fn run(&self, level: Level, pieces: &[usize], split: bool) -> [Vec<f32>; 3] {
        let mut state = self.state.clone();
        let (mut outs, mut all_deltas) = (Vec::new(), Vec::new());
        let mut first = 0;
        for &count in pieces {
            let work = self.rows(first, count);
            let mut out = vec![f32::NAN; work.value.len()];
            let mut deltas = out.clone();
            let to = GatedDeltaNetOut {
                state: SharedSlice::new(&mut state),
                out: SharedSlice::new(&mut out),
                deltas: Some(SharedSlice::new(&mut deltas)),
            };
            for head in 0..self.heads.1 {
                let whole = [0..self.widths.1, 0..0];
                for columns in if split { halves(self.widths.1) } else { whole } {
                    // SAFETY: one thread.
                    unsafe { gated_delta_net(level, &work, &to, head, columns) };
                }
            }
            outs.extend(out);
            all_deltas.extend(deltas);
            first += count;
        }
        [outs, all_deltas, state]
    }

    fn exact(&self) -> [Vec<f64>; 3] {
        let ((key_heads, value_heads), (key_width, value_width)) = (self.heads, self.widths);
        let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| f64::from(x)).collect() };
        let (query, key, value) = (wide(&self.query), wide(&self.key), wide(&self.value));
        let mut state = wide(&self.state);
        let (mut outs, mut deltas) = (Vec::new(), Vec::new());
        for row in 0..ROWS {
            for head in 0..value_heads {
                let state = &mut state[head * key_width * value_width..][..key_width * value_width];
                let scalar = row * value_heads + head;
                let k = &key[(row * key_heads + head % key_heads) * key_width..][..key_width];
                let q = &query[(row * key_heads + head % key_heads) * key_width..][..key_width];
                for s in state.iter_mut() {
                    *s *= f64::from(self.log_decay[scalar]).exp();
                }
                for j in 0..value_width {
                    let column = |state: &[f64], x: &[f64]| -> f64 {
                        x.iter().enumerate().map(|(i, x)| x * state[i * value_width + j]).sum()
                    };
                    let delta =
                        f64::from(self.beta[scalar]) * (value[scalar * value_width + j] - column(state, k));
                    for i in 0..key_width {
                        state[i * value_width + j] += k[i] * delta;
                    }
                    outs.push(0.25 * column(state, q));
                    deltas.push(delta);
                }
            }
        }
        [outs, deltas, state]
    }
}

#[test]
fn gated_delta_net_in_pieces_and_splits() {
    for (heads, widths) in
        [((1, 1), (1, 1)), ((2, 4), (7, 16)), ((2, 4), (33, 80)), ((3, 3), (128, 128)), ((1, 2), (64, 7))]
    {
        let sequence = Sequence::random(heads, widths);
        let reference = sequence.run(Level::Scalar, PIECES[0], false);
        for (result, exact) in reference.iter().zip(&sequence.exact()) {
            assert_close(result, exact, 2e-6);
        }
        for level in Level::available() {
            for pieces in PIECES {
                for split in [false, true] {
                    let result = sequence.run(level, pieces, split);
                    for (result, reference) in result.iter().zip(&reference) {
                        assert_eq!(bits(result), bits(reference), "{level} {pieces:?} {split}");
                    }
                }
            }
        }
    }
}

/// Outputs and final window.
fn convolve(
    level: Level,
    whole: &CausalConv<'_>,
    window: &[f32],
    pieces: &[usize],
    split: bool,
) -> [Vec<f32>; 2] {
    let mut window = window.to_vec();
    let mut outs = Vec::new();
    let mut first = 0;
    for &count in pieces {
        let x = &whole.x[first * whole.channels..(first + count) * whole.channels];
        let work = CausalConv { x, ..*whole };
        outs.extend(filled(x.len(), |out| {
            let window = SharedSlice::new(&mut window);
            for channels in if split { halves(whole.channels) } else { [0..whole.channels, 0..0] } {
                // SAFETY: one thread.
                unsafe { causal_conv(level, &work, window, out, channels) };
            }
        }));
        first += count;
    }
    [outs, window]
}

#[test]
fn causal_conv_in_pieces_and_splits() {
    let mut random = Random(12);
    for channels in [1, 7, 33, 80, 256] {
        for taps in [1, 2, 4, 8] {
            for silu in [false, true] {
                let x = random.floats(ROWS * channels, 2.0);
                let weight = random.floats(channels * taps, 1.0);
                let window = random.floats((taps - 1) * channels, 2.0);
                let work = CausalConv { x: &x, weight: &weight, channels, taps, silu };
                let reference = convolve(Level::Scalar, &work, &window, PIECES[0], false);

                let all: Vec<f32> = window.iter().chain(&x).copied().collect();
                let expected: Vec<f64> = (0..x.len())
                    .map(|i| {
                        let (row, channel) = (i / channels, i % channels);
                        let product = |tap: usize| {
                            f64::from(weight[channel * taps + tap])
                                * f64::from(all[(row + tap) * channels + channel])
                        };
                        let sum: f64 = (0..taps).map(product).sum();
                        if silu { sum / (1.0 + (-sum).exp()) } else { sum }
                    })
                    .collect();
                assert_close(&reference[0], &expected, 2e-6);
                assert_eq!(reference[1], all[ROWS * channels..]);

                for level in Level::available() {
                    for pieces in PIECES {
                        for split in [false, true] {
                            let result = convolve(level, &work, &window, pieces, split);
                            assert_eq!(bits(&result[0]), bits(&reference[0]), "{level} {pieces:?}");
                            assert_eq!(bits(&result[1]), bits(&reference[1]), "{level} {pieces:?}");
                        }
                    }
                }
            }
        }
    }
}
