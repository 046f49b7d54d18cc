//! Layers of the dense families `qwen3` and `llama`.

use paceline_gguf::Gguf;

use super::experts::Experts;
use super::math::{Rotary, add_rows, attend, rms_norm_heads};
use super::weights::{FeedForward, Matrix, Tensors};
use super::{Feed, Layer, Mixer, Reference, Rows};
use crate::AnyError;

/// Plain attention: with norms on heads in `qwen3`, without in `llama`.
pub(super) struct PlainAttention {
    head_dim: usize,
    query: Product,
    key: Product,
    value: Product,
    output: Product,
    /// Norms of query and key heads.
    norms: Option<[Vec<f64>; 2]>,
}

/// A matrix and its bias.
struct Product {
    matrix: Matrix,
    bias: Option<Vec<f64>>,
}

impl Product {
    fn take(tensors: &mut Tensors, name: &str) -> Result<Self, AnyError> {
        Ok(Product {
            matrix: tensors.matrix(&format!("{name}.weight"))?,
            bias: tensors.optional_vector(&format!("{name}.bias")),
        })
    }

    fn apply(&self, rows: &[Vec<f64>]) -> Rows {
        let mut output = self.matrix.apply(rows);
        if let Some(bias) = &self.bias {
            let biases = vec![bias.clone(); output.len()];
            add_rows(&mut output, &biases);
        }
        output
    }
}

impl PlainAttention {
    fn take(tensors: &mut Tensors, prefix: &str, head_dim: usize, has_norms: bool) -> Result<Self, AnyError> {
        let name = |suffix: &str| format!("{prefix}{suffix}");
        let query = Product::take(tensors, &name("attn_q"))?;
        if query.matrix.outputs % head_dim != 0 {
            return Err(format!("{} query values are not heads of {head_dim}", query.matrix.outputs).into());
        }
        let norms = if has_norms {
            Some([tensors.vector(&name("attn_q_norm.weight"))?, tensors.vector(&name("attn_k_norm.weight"))?])
        } else {
            None
        };
        Ok(PlainAttention {
            head_dim,
            query,
            key: Product::take(tensors, &name("attn_k"))?,
            value: Product::take(tensors, &name("attn_v"))?,
            output: Product::take(tensors, &name("attn_output"))?,
            norms,
        })
    }

    /// Wo attention(rope(q), rope(k), v). Row i is at position i and sees the rows up to itself.
    pub fn apply(&self, rows: &[Vec<f64>], rotary: &Rotary, scale: f64, epsilon: f64) -> Rows {
        let mut turned = [self.query.apply(rows), self.key.apply(rows)];
        if let Some(norms) = &self.norms {
            for (rows, norm) in turned.iter_mut().zip(norms) {
                *rows = rms_norm_heads(rows, norm, epsilon);
            }
        }
        turned.iter_mut().for_each(|rows| rotary.apply(rows, self.head_dim, 0));
        let [queries, keys] = turned;
        let values = self.value.apply(rows);
        self.output.apply(&attend(&queries, &keys, &values, self.head_dim, scale, |row, key| key <= row))
    }
}

impl Reference {
    /// Reads a `qwen3`, `qwen3moe` or `llama` model.
    pub(super) fn load_dense(file: &Gguf) -> Result<Self, AnyError> {
        let architecture = file.architecture()?;
        let is_llama = architecture == "llama";
        let key = |name: &str| format!("{architecture}.{name}");
        let size = |name: &str| file.require_u32(&key(name)).map(|value| value as usize);
        let optional = |name: &str| file.get_u32(&key(name)).map(|value| value.map(|value| value as usize));
        let head_dim = match optional("attention.key_length")? {
            Some(length) => length,
            None => size("embedding_length")? / size("attention.head_count")?,
        };
        let rotary_width = optional("rope.dimension_count")?.unwrap_or(head_dim);
        let base = file.get_f32(&key("rope.freq_base"))?.unwrap_or(1e4);
        let mut rotary = Rotary::new(rotary_width, base.into());
        match file.get_str(&key("rope.scaling.type"))? {
            None => {}
            Some("linear") => rotary.slow_down(file.require_f32(&key("rope.scaling.factor"))?.into()),
            Some(other) => return Err(format!("the reference does not know the scaling '{other}'").into()),
        }
        let experts = optional("expert_used_count")?;
        let mut tensors = Tensors::read(file)?;
        if is_llama {
            rotary = rotary.of_adjacent_pairs();
            if let Some(factors) = tensors.optional_vector("rope_freqs.weight") {
                rotary.slow_down_each(&factors);
            }
        }
        let layers: Vec<Layer> = (0..size("block_count")?)
            .map(|layer| {
                let prefix = format!("blk.{layer}.");
                let attention = PlainAttention::take(&mut tensors, &prefix, head_dim, !is_llama)?;
                Ok::<_, AnyError>(Layer {
                    mixer_norm: tensors.vector(&format!("{prefix}attn_norm.weight"))?,
                    mixer: Mixer::PlainAttention(attention),
                    feed_forward_norm: tensors.vector(&format!("{prefix}ffn_norm.weight"))?,
                    feed_forward: match experts {
                        Some(used) => Feed::Experts(Box::new(Experts::take(&mut tensors, &prefix, used)?)),
                        None => Feed::Dense(FeedForward::take(&mut tensors, &prefix)?),
                    },
                })
            })
            .collect::<Result<_, _>>()?;
        let reference = Reference {
            epsilon: file.require_f32(&key("attention.layer_norm_rms_epsilon"))?.into(),
            rotary,
            attention_scale: 1.0 / (head_dim as f64).sqrt(),
            embedding: tensors.matrix("token_embd.weight")?,
            output_norm: tensors.vector("output_norm.weight")?,
            output: tensors.optional_matrix("output.weight"),
            nextn: None,
            layers,
        };
        tensors.finish()?;
        Ok(reference)
    }
}
