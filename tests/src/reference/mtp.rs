//! The MTP (NextN) block, which guesses the token after the next.

use super::math::{argmax, rms_norm_rows};
use super::weights::{Matrix, Tensors};
use super::{Layer, Reference, Rows, embed};
use crate::AnyError;

/// The MTP block: a layer of gated attention with a way in and a way out.
pub(super) struct Nextn {
    layer: Layer,
    /// From embedding and hidden state, one after the other.
    combine: Matrix,
    embedding_norm: Vec<f64>,
    hidden_norm: Vec<f64>,
    /// Without it the trunk's final norm.
    output_norm: Option<Vec<f64>>,
    /// Without it the trunk's embedding.
    embedding: Option<Matrix>,
    /// Without it the trunk's output head.
    output: Option<Matrix>,
}

/// What the MTP block computes for n tokens.
#[derive(Clone, Debug)]
pub struct MtpRows {
    /// `[n][vocabulary]`: entry p, which reads token p, predicts the token after it.
    pub logits: Rows,
    /// `[n][hidden]`, after the block's final norm: what the next step of a chain reads.
    pub hidden: Rows,
}

impl Nextn {
    pub fn take(tensors: &mut Tensors, block: usize, experts: Option<usize>) -> Result<Self, AnyError> {
        let name = |suffix: &str| format!("blk.{block}.nextn.{suffix}.weight");
        Ok(Nextn {
            layer: Layer::take(tensors, block, false, experts)?,
            combine: tensors.matrix(&name("eh_proj"))?,
            embedding_norm: tensors.vector(&name("enorm"))?,
            hidden_norm: tensors.vector(&name("hnorm"))?,
            output_norm: tensors.optional_vector(&name("shared_head_norm")),
            embedding: tensors.optional_matrix(&name("embed_tokens")),
            output: tensors.optional_matrix(&name("shared_head_head")),
        })
    }
}

/// Hidden states moved on by one token, zeros first: what the MTP block reads with the same tokens. `[n][hidden]`.
pub fn shifted(hidden: &[Vec<f64>]) -> Rows {
    let zeros = hidden.first().map(|row| vec![0.0; row.len()]);
    zeros.into_iter().chain(hidden.iter().cloned()).take(hidden.len()).collect()
}

impl Reference {
    /// The MTP block for `tokens` at positions from 0. Row p reads token p and `incoming[p]`, which is the trunk's
    /// hidden state of token p - 1 (see [`shifted`]) or, in a chain, the block's own.
    ///
    /// # Panics
    /// If the model has no MTP block, or there are not as many states as tokens.
    pub fn mtp(&self, tokens: &[u32], incoming: &[Vec<f64>]) -> MtpRows {
        let nextn = self.nextn.as_ref().expect("the model has an MTP block");
        assert_eq!(tokens.len(), incoming.len(), "one hidden state per token");
        let embedded = embed(nextn.embedding.as_ref().unwrap_or(&self.embedding), tokens);
        let mut pairs = rms_norm_rows(&embedded, &nextn.embedding_norm, self.epsilon);
        for (pair, state) in pairs.iter_mut().zip(rms_norm_rows(incoming, &nextn.hidden_norm, self.epsilon)) {
            pair.extend(state);
        }
        let mut rows = nextn.combine.apply(&pairs);
        nextn.layer.apply(&mut rows, &self.shared());
        let norm = nextn.output_norm.as_ref().unwrap_or(&self.output_norm);
        let hidden = rms_norm_rows(&rows, norm, self.epsilon);
        let head = nextn.output.as_ref().unwrap_or_else(|| self.head());
        MtpRows { logits: head.apply(&hidden), hidden }
    }

    /// The logits of `steps` greedy drafts after `tokens`, of which the trunk has seen all but the last.
    /// `[steps][vocabulary]`.
    ///
    /// The first step reads the last token and the trunk's state before it, each later one the draft and the state
    /// of the step before.
    ///
    /// # Panics
    /// If the model has no MTP block, or there are less than two tokens.
    pub fn mtp_chain(&self, tokens: &[u32], steps: usize) -> Rows {
        let hidden = self.trunk(&tokens[..tokens.len() - 1]).hidden;
        let mut incoming = shifted(&hidden);
        incoming.push(hidden.last().expect("the trunk has seen a token").clone());
        let mut tokens = tokens.to_vec();
        let mut logits = Rows::new();
        for _ in 0..steps {
            let mut rows = self.mtp(&tokens, &incoming);
            let last = rows.logits.pop().expect("a row per token");
            incoming.push(rows.hidden.pop().expect("a row per token"));
            tokens.push(argmax(&last));
            logits.push(last);
        }
        logits
    }
}
