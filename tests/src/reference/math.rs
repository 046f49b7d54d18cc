//! The functions that models are made of, in float64.

use super::Rows;

/// x * sigmoid(x).
pub(super) fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// ln(1 + e^x), and x above 20 as models are trained with.
pub(super) fn softplus(x: f64) -> f64 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// weight * x / sqrt(mean(x^2) + epsilon).
pub(super) fn rms_norm(x: &[f64], weight: &[f64], epsilon: f64) -> Vec<f64> {
    assert_eq!(x.len(), weight.len());
    let mean = x.iter().map(|value| value * value).sum::<f64>() / x.len() as f64;
    let factor = 1.0 / (mean + epsilon).sqrt();
    x.iter().zip(weight).map(|(value, weight)| weight * value * factor).collect()
}

/// [`rms_norm`] of every row.
pub(super) fn rms_norm_rows(rows: &[Vec<f64>], weight: &[f64], epsilon: f64) -> Rows {
    rows.iter().map(|row| rms_norm(row, weight, epsilon)).collect()
}

/// [`rms_norm`] of every head of every row; heads are as wide as `weight`.
pub(super) fn rms_norm_heads(rows: &[Vec<f64>], weight: &[f64], epsilon: f64) -> Rows {
    rows.iter()
        .map(|row| row.chunks_exact(weight.len()).flat_map(|head| rms_norm(head, weight, epsilon)).collect())
        .collect()
}

/// x / sqrt(sum(x^2) + epsilon).
pub(super) fn l2_norm(x: &[f64], epsilon: f64) -> Vec<f64> {
    let sum: f64 = x.iter().map(|value| value * value).sum();
    let factor = 1.0 / (sum + epsilon).sqrt();
    x.iter().map(|value| value * factor).collect()
}

/// `rows[i] += more[i]`.
pub(super) fn add_rows(rows: &mut [Vec<f64>], more: &[Vec<f64>]) {
    for (row, more) in rows.iter_mut().zip(more) {
        row.iter_mut().zip(more).for_each(|(value, more)| *value += more);
    }
}

/// The rotation of queries and keys by their position.
pub(super) struct Rotary {
    /// Angle per position of each pair of a head; values from 2 * pairs on are not rotated.
    frequencies: Vec<f64>,
    /// Pairs are (2 i, 2 i + 1) instead of (i, i + pairs).
    is_adjacent: bool,
}

impl Rotary {
    /// Pair i turns by base^(-2 i / width) per position.
    pub fn new(width: usize, base: f64) -> Self {
        let frequency = |pair: usize| base.powf(-2.0 * pair as f64 / width as f64);
        Rotary { frequencies: (0..width / 2).map(frequency).collect(), is_adjacent: false }
    }

    /// Interleaved M-RoPE for text. Pair i takes its position from the axis i mod 3 if the axis' section is long
    /// enough, else from a fourth axis. For text the three axes are the token's position and the fourth is 0.
    pub fn interleaved(width: usize, base: f64, sections: [i32; 4]) -> Self {
        let mut rotary = Rotary::new(width, base);
        for (pair, frequency) in rotary.frequencies.iter_mut().enumerate() {
            if pair as i32 >= 3 * sections[pair % 3] {
                *frequency = 0.0;
            }
        }
        rotary
    }

    /// The same with pairs (2 i, 2 i + 1).
    pub fn of_adjacent_pairs(self) -> Self {
        Rotary { is_adjacent: true, ..self }
    }

    /// Divides all angles.
    pub fn slow_down(&mut self, divisor: f64) {
        self.frequencies.iter_mut().for_each(|frequency| *frequency /= divisor);
    }

    /// Divides the angle of each pair by a factor of its own.
    pub fn slow_down_each(&mut self, factors: &[f64]) {
        assert_eq!(factors.len(), self.frequencies.len(), "one factor per pair");
        self.frequencies.iter_mut().zip(factors).for_each(|(frequency, factor)| *frequency /= factor);
    }

    /// Rotates every head of `rows`, row i being at position `first + i`.
    pub fn apply(&self, rows: &mut [Vec<f64>], head_dim: usize, first: usize) {
        let pairs = self.frequencies.len();
        for (index, row) in rows.iter_mut().enumerate() {
            let position = (first + index) as f64;
            for head in row.chunks_exact_mut(head_dim) {
                for (pair, frequency) in self.frequencies.iter().enumerate() {
                    let (sine, cosine) = (position * frequency).sin_cos();
                    let (first, second) =
                        if self.is_adjacent { (2 * pair, 2 * pair + 1) } else { (pair, pair + pairs) };
                    let (a, b) = (head[first], head[second]);
                    head[first] = a * cosine - b * sine;
                    head[second] = a * sine + b * cosine;
                }
            }
        }
    }
}

/// Softmax attention. Query head j reads KV head j / (query heads / KV heads); query row i sees the key rows for
/// which `sees(i, row)` holds, at least one.
pub(super) fn attend(
    queries: &[Vec<f64>],
    keys: &[Vec<f64>],
    values: &[Vec<f64>],
    head_dim: usize,
    scale: f64,
    sees: impl Fn(usize, usize) -> bool,
) -> Rows {
    let heads = queries[0].len() / head_dim;
    let group = heads / (keys[0].len() / head_dim);
    let mut output = vec![vec![0.0; heads * head_dim]; queries.len()];
    for (row, query) in queries.iter().enumerate() {
        for head in 0..heads {
            let query = &query[head * head_dim..][..head_dim];
            let part = head / group * head_dim..(head / group + 1) * head_dim;
            let visible: Vec<usize> = (0..keys.len()).filter(|key| sees(row, *key)).collect();
            let scores: Vec<f64> = visible
                .iter()
                .map(|key| {
                    scale * query.iter().zip(&keys[*key][part.clone()]).map(|(q, k)| q * k).sum::<f64>()
                })
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            let output = &mut output[row][head * head_dim..][..head_dim];
            for (key, weight) in visible.iter().zip(&weights) {
                for (sum, value) in output.iter_mut().zip(&values[*key][part.clone()]) {
                    *sum += weight / total * value;
                }
            }
        }
    }
    output
}

/// The place of the largest value, the first of equals.
pub fn argmax(values: &[f64]) -> u32 {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best as u32
}
