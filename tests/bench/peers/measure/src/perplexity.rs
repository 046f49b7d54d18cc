//! How well an engine's model predicts a text.

use crate::{Engine, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What one engine makes of a text, as a JSON line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Perplexity {
    /// Name of the engine.
    pub engine: String,
    /// Negative log-likelihood (natural logarithm) of each id but the first of each window, in their order.
    pub surprises: Vec<f64>,
    /// Exponential of their mean.
    pub perplexity: f64,
}

impl Perplexity {
    /// Measures in windows of `window` tokens, each in an empty sequence, so that its first token is not scored.
    ///
    /// # Errors
    /// Whatever the engine reports; a text of less than two tokens; logits that are no numbers.
    pub fn measure(name: &str, engine: &mut impl Engine, ids: &[u32], window: usize) -> Result<Self> {
        let mut surprises = Vec::with_capacity(ids.len());
        for ids in ids.chunks(window.max(2)) {
            // Nothing follows the last token.
            let Some((_, rows)) = ids.split_last().filter(|(_, rows)| !rows.is_empty()) else { continue };
            engine.logits(rows, &mut |index, logits| {
                surprises.push(surprise(logits, ids[index + 1]).ok_or("the logits are no numbers")?);
                Ok(())
            })?;
        }
        if surprises.is_empty() {
            return Err("a text of at least two tokens is needed".into());
        }
        let mean = surprises.iter().sum::<f64>() / surprises.len() as f64;
        Ok(Self { engine: name.into(), surprises, perplexity: mean.exp() })
    }
}

/// Reads ids with white space between.
pub(crate) fn read_ids(path: &Path) -> Result<Vec<u32>> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    text.split_whitespace()
        .map(|id| id.parse().map_err(|_| format!("{}: `{id}` is no token id", path.display()).into()))
        .collect()
}

/// The negative log-likelihood of an id; `None` if the logits are no numbers.
fn surprise(logits: &[f32], id: u32) -> Option<f64> {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
    let surprise = largest + sum.ln() - f64::from(*logits.get(id as usize)?);
    (!surprise.is_nan()).then_some(surprise)
}

#[cfg(test)]
mod tests {
    use super::surprise;

    #[test]
    fn equal_logits_surprise_by_the_logarithm_of_their_number() {
        let of_four = surprise(&[2.5; 4], 3).unwrap();
        assert!((of_four - 4f64.ln()).abs() < 1e-12);
        assert_eq!(surprise(&[f32::NAN; 4], 0), None);
        assert_eq!(surprise(&[0.0; 4], 4), None);
    }
}
