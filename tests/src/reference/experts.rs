//! Feed-forward parts that are mixtures of experts.

use super::Rows;
use super::math::sigmoid;
use super::weights::{FeedForward, Matrix, Tensors};
use crate::AnyError;

/// The experts with the largest router probabilities, weighed by these after they are made to sum to 1, and, where the
/// file has one, a shared expert with a gate of its own.
pub(super) struct Experts {
    router: Matrix,
    experts: Vec<FeedForward>,
    used: usize,
    /// With its gate, of one row.
    shared: Option<(FeedForward, Matrix)>,
}

impl Experts {
    pub fn take(tensors: &mut Tensors, prefix: &str, used: usize) -> Result<Self, AnyError> {
        let mut matrix = |part: &str| tensors.matrix(&format!("{prefix}{part}.weight"));
        let router = matrix("ffn_gate_inp")?;
        let count = router.outputs;
        if used == 0 || used > count {
            return Err(format!("{used} of {count} experts are used").into());
        }
        let downs = matrix("ffn_down_exps")?.split(count);
        let (gates, ups) = match tensors.optional_matrix(&format!("{prefix}ffn_gate_up_exps.weight")) {
            Some(both) => {
                // Of each expert the gate, then up.
                let mut both = both.split(2 * count).into_iter();
                let pairs = (0..count).filter_map(|_| both.next().zip(both.next()));
                pairs.unzip()
            }
            None => {
                let mut matrix = |part: &str| tensors.matrix(&format!("{prefix}{part}.weight"));
                (matrix("ffn_gate_exps")?.split(count), matrix("ffn_up_exps")?.split(count))
            }
        };
        let experts = gates.into_iter().zip(ups).zip(downs);
        let shared_gate = tensors.optional_matrix(&format!("{prefix}ffn_gate_inp_shexp.weight"));
        let mut matrix = |part: &str| tensors.matrix(&format!("{prefix}{part}.weight"));
        let shared = match shared_gate {
            Some(gate) => Some((
                FeedForward {
                    gate: matrix("ffn_gate_shexp")?,
                    up: matrix("ffn_up_shexp")?,
                    down: matrix("ffn_down_shexp")?,
                },
                gate,
            )),
            None => None,
        };
        Ok(Experts {
            router,
            experts: experts.map(|((gate, up), down)| FeedForward { gate, up, down }).collect(),
            used,
            shared,
        })
    }

    pub fn apply(&self, rows: &[Vec<f64>]) -> Rows {
        rows.iter().map(|row| self.apply_one(row)).collect()
    }

    fn apply_one(&self, row: &[f64]) -> Vec<f64> {
        let row = [row.to_vec()];
        let logits = self.router.apply(&row).remove(0);
        let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let exponentials: Vec<f64> = logits.iter().map(|logit| (logit - largest).exp()).collect();
        let all: f64 = exponentials.iter().sum();
        let probabilities: Vec<f64> = exponentials.iter().map(|value| value / all).collect();
        let mut order: Vec<usize> = (0..probabilities.len()).collect();
        order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]).then(a.cmp(&b)));
        let chosen = &order[..self.used];
        let sum: f64 = chosen.iter().map(|&expert| probabilities[expert]).sum();

        let mut output = vec![0.0; row[0].len()];
        if let Some((shared, gate)) = &self.shared {
            let gate = sigmoid(gate.apply(&row)[0][0]);
            output.iter_mut().zip(&shared.apply(&row)[0]).for_each(|(output, value)| *output = gate * value);
        }
        for &expert in chosen {
            let weight = probabilities[expert] / sum;
            for (output, value) in output.iter_mut().zip(&self.experts[expert].apply(&row)[0]) {
                *output += weight * value;
            }
        }
        output
    }
}
