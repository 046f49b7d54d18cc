//! What a model computes, in float64 and as plainly as possible: the measure for every other implementation.
//!
//! Nothing here is shared with the host or a backend except the reading of files and of quantised blocks. All
//! functions begin at position 0 with empty caches and compute all tokens that they are given.

mod attention;
mod delta_net;
mod dense;
mod drafter;
mod experts;
mod math;
mod mtp;
mod weights;

use paceline_gguf::Gguf;

use crate::AnyError;
use attention::GatedAttention;
use delta_net::DeltaNet;
use dense::PlainAttention;
use experts::Experts;
use math::{Rotary, add_rows, rms_norm_rows};
use mtp::Nextn;
use weights::{FeedForward, Matrix, Tensors};

pub use drafter::DrafterReference;
pub use math::argmax;
pub use mtp::{MtpRows, shifted};

/// One vector per token.
pub type Rows = Vec<Vec<f64>>;

/// A `qwen35`, `qwen35moe`, `qwen3` or `llama` model: trunk and, if the file has one, MTP block.
pub struct Reference {
    epsilon: f64,
    rotary: Rotary,
    attention_scale: f64,
    embedding: Matrix,
    layers: Vec<Layer>,
    output_norm: Vec<f64>,
    /// `None` if the embedding is the output head.
    output: Option<Matrix>,
    nextn: Option<Nextn>,
}

/// What the trunk computes for n tokens.
#[derive(Clone, Debug)]
pub struct Trunk {
    /// `[n][vocabulary]`: entry p predicts the token after token p.
    pub logits: Rows,
    /// `[n][hidden]`, after the final norm: what the output head and the MTP block read.
    pub hidden: Rows,
    /// `[layers + 1][n][hidden]`: the residual stream before each layer, and after the last.
    pub layer_inputs: Vec<Rows>,
}

/// One layer: x += mixer(RMS(x)); x += ffn(RMS(x)).
struct Layer {
    mixer_norm: Vec<f64>,
    mixer: Mixer,
    feed_forward_norm: Vec<f64>,
    feed_forward: Feed,
}

enum Feed {
    Dense(FeedForward),
    Experts(Box<Experts>),
}

enum Mixer {
    Attention(GatedAttention),
    PlainAttention(PlainAttention),
    Recurrent(DeltaNet),
}

/// Numbers that all layers share.
struct Shared<'a> {
    rotary: &'a Rotary,
    attention_scale: f64,
    epsilon: f64,
}

impl Layer {
    /// `experts`: how many a token goes through, if there are any.
    fn take(
        tensors: &mut Tensors,
        block: usize,
        is_recurrent: bool,
        experts: Option<usize>,
    ) -> Result<Self, AnyError> {
        let prefix = format!("blk.{block}.");
        Ok(Layer {
            mixer_norm: tensors.vector(&format!("{prefix}attn_norm.weight"))?,
            mixer: if is_recurrent {
                Mixer::Recurrent(DeltaNet::take(tensors, &prefix)?)
            } else {
                Mixer::Attention(GatedAttention::take(tensors, &prefix)?)
            },
            feed_forward_norm: tensors.vector(&format!("{prefix}post_attention_norm.weight"))?,
            feed_forward: match experts {
                Some(used) => Feed::Experts(Box::new(Experts::take(tensors, &prefix, used)?)),
                None => Feed::Dense(FeedForward::take(tensors, &prefix)?),
            },
        })
    }

    fn apply(&self, rows: &mut [Vec<f64>], shared: &Shared<'_>) {
        let input = rms_norm_rows(rows, &self.mixer_norm, shared.epsilon);
        let mixed = match &self.mixer {
            Mixer::Attention(attention) => {
                attention.apply(&input, shared.rotary, shared.attention_scale, shared.epsilon)
            }
            Mixer::PlainAttention(attention) => {
                attention.apply(&input, shared.rotary, shared.attention_scale, shared.epsilon)
            }
            Mixer::Recurrent(delta_net) => delta_net.apply(&input, shared.epsilon),
        };
        add_rows(rows, &mixed);
        let input = rms_norm_rows(rows, &self.feed_forward_norm, shared.epsilon);
        let made = match &self.feed_forward {
            Feed::Dense(feed_forward) => feed_forward.apply(&input),
            Feed::Experts(experts) => experts.apply(&input),
        };
        add_rows(rows, &made);
    }
}

impl Reference {
    /// Reads a model.
    ///
    /// # Errors
    /// If the file is of another architecture, lacks something, or has a tensor that would change the result and is
    /// not supported here.
    pub fn load(file: &Gguf) -> Result<Self, AnyError> {
        match file.architecture()? {
            "qwen35" | "qwen35moe" => Self::load_qwen35(file),
            "qwen3" | "qwen3moe" | "llama" => Self::load_dense(file),
            other => Err(format!("architecture '{other}' is not known to the reference").into()),
        }
    }

    fn load_qwen35(file: &Gguf) -> Result<Self, AnyError> {
        let architecture = file.architecture()?;
        let key_of = |key: &str| format!("{architecture}.{key}");
        let size = |key: &str| file.require_u32(&key_of(key)).map(|value| value as usize);
        let blocks = size("block_count")?;
        let nextn = file.get_u32(&key_of("nextn_predict_layers"))?.unwrap_or(0) as usize;
        let trunk = blocks.checked_sub(nextn).ok_or("more MTP blocks than blocks")?;
        let recurrent = recurrent_layers(file, architecture, trunk)?;
        let sections: Vec<i32> = file.require_array_i32(&key_of("rope.dimension_sections"))?.collect();
        let sections = sections.try_into().map_err(|_| "rope.dimension_sections needs 4 numbers")?;
        let head_dim = match file.get_u32(&key_of("attention.key_length"))? {
            Some(length) => length as usize,
            None => size("embedding_length")? / size("attention.head_count")?,
        };
        let rotary_width =
            file.get_u32(&key_of("rope.dimension_count"))?.map_or(head_dim, |width| width as usize);
        let base = file.get_f32(&key_of("rope.freq_base"))?.unwrap_or(1e4);
        let scale = file.get_f32(&key_of("attention.scale"))?;

        let experts = file.get_u32(&key_of("expert_used_count"))?.map(|used| used as usize);

        let mut tensors = Tensors::read(file)?;
        let layers: Vec<Layer> = (0..trunk)
            .map(|layer| Layer::take(&mut tensors, layer, recurrent[layer], experts))
            .collect::<Result<_, _>>()?;
        let reference = Reference {
            epsilon: file.require_f32(&key_of("attention.layer_norm_rms_epsilon"))?.into(),
            rotary: Rotary::interleaved(rotary_width, base.into(), sections),
            attention_scale: scale.map_or_else(|| 1.0 / (head_dim as f64).sqrt(), f64::from),
            embedding: tensors.matrix("token_embd.weight")?,
            output_norm: tensors.vector("output_norm.weight")?,
            output: tensors.optional_matrix("output.weight"),
            nextn: (nextn > 0).then(|| Nextn::take(&mut tensors, trunk, experts)).transpose()?,
            layers,
        };
        tensors.finish()?;
        reference.check_shapes(head_dim, &size)?;
        Ok(reference)
    }

    /// Shapes are taken from the tensors; the metadata has to say the same.
    fn check_shapes<E: Into<AnyError>>(
        &self,
        head_dim: usize,
        size: &impl Fn(&str) -> Result<usize, E>,
    ) -> Result<(), AnyError> {
        let size = |key: &str| size(key).map_err(Into::into);
        let mut pairs = vec![("embedding_length", self.embedding.inputs)];
        for layer in &self.layers {
            match &layer.mixer {
                Mixer::Attention(attention) if attention.head_dim() != head_dim => {
                    return Err(format!("heads of {}, not {head_dim}", attention.head_dim()).into());
                }
                Mixer::Attention(_) | Mixer::PlainAttention(_) => {}
                Mixer::Recurrent(delta_net) => pairs.extend([
                    ("ssm.state_size", delta_net.head_dim()),
                    ("ssm.group_count", delta_net.key_heads()),
                    ("ssm.time_step_rank", delta_net.value_heads()),
                    ("ssm.inner_size", delta_net.value_heads() * delta_net.head_dim()),
                    ("ssm.conv_kernel", delta_net.convolution()),
                ]),
            }
        }
        for (key, found) in pairs {
            let expected: usize = size(key)?;
            if expected != found {
                return Err(format!("{key} is {expected}, but tensors are shaped for {found}").into());
            }
        }
        Ok(())
    }

    /// Number of tokens.
    pub fn vocabulary(&self) -> usize {
        self.embedding.outputs
    }

    /// Width of the residual stream.
    pub fn hidden(&self) -> usize {
        self.embedding.inputs
    }

    /// Whether the file has an MTP block.
    pub fn has_mtp(&self) -> bool {
        self.nextn.is_some()
    }

    /// The trunk for `tokens` at positions from 0.
    ///
    /// # Panics
    /// If a token is not in the vocabulary.
    pub fn trunk(&self, tokens: &[u32]) -> Trunk {
        let mut rows = embed(&self.embedding, tokens);
        let mut layer_inputs = vec![rows.clone()];
        for layer in &self.layers {
            layer.apply(&mut rows, &self.shared());
            layer_inputs.push(rows.clone());
        }
        let hidden = rms_norm_rows(&rows, &self.output_norm, self.epsilon);
        Trunk { logits: self.head().apply(&hidden), hidden, layer_inputs }
    }

    /// `count` tokens after `prompt`, always the most likely. Each step computes all tokens anew.
    pub fn greedy(&self, prompt: &[u32], count: usize) -> Vec<u32> {
        let mut tokens = prompt.to_vec();
        for _ in 0..count {
            let trunk = self.trunk(&tokens);
            tokens.push(argmax(&trunk.logits[tokens.len() - 1]));
        }
        tokens.split_off(prompt.len())
    }

    fn head(&self) -> &Matrix {
        self.output.as_ref().unwrap_or(&self.embedding)
    }

    fn shared(&self) -> Shared<'_> {
        Shared { rotary: &self.rotary, attention_scale: self.attention_scale, epsilon: self.epsilon }
    }
}

fn embed(embedding: &Matrix, tokens: &[u32]) -> Rows {
    tokens.iter().map(|token| embedding.row(*token as usize)).collect()
}

/// Which trunk layers are recurrent: `attention.recurrent_layers` if it is there, else all but every
/// `full_attention_interval`-th.
fn recurrent_layers(file: &Gguf, architecture: &str, trunk: usize) -> Result<Vec<bool>, AnyError> {
    if let Some(layers) = file.array_bool(&format!("{architecture}.attention.recurrent_layers"))? {
        let layers: Vec<bool> = layers.collect();
        if layers.len() < trunk {
            return Err("attention.recurrent_layers is too short".into());
        }
        return Ok(layers);
    }
    let interval = file.get_u32(&format!("{architecture}.full_attention_interval"))?.unwrap_or(4) as usize;
    Ok((0..trunk).map(|layer| !(layer + 1).is_multiple_of(interval)).collect())
}
