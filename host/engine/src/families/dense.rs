//! Models whose layers are all the same: plain attention and a feed-forward part.
//!
//! One layer: x += Wo attention(rope q, rope k, v); x += down(silu(gate f) · up f), each from the normed stream.
//! Families differ in the norm of queries and keys, and in how these turn.

use super::experts::{ExpertShape, FeedForwardPart, FeedForwardShape};
use super::metadata::Metadata;
use super::parts::{AttentionShape, Ends, KeyValues, Linear};
use super::{Family, Ports};
use crate::error::Result;
use crate::model::{LayerKind, ModelShape};
use crate::step::StepInputs;
use crate::weights::{Tensors, Weight};
use paceline_plugin_api::graph::{Builder, ValueId};

/// A model of such layers, opened on a file.
pub(super) struct Dense {
    shape: ModelShape,
    attention: AttentionShape,
    ends: Ends,
    layers: Vec<Layer>,
}

struct Layer {
    index: u32,
    norm: Weight,
    q: Linear,
    q_norm: Option<Weight>,
    key_values: KeyValues,
    output: Linear,
    feed_forward: FeedForwardPart,
}

impl Dense {
    /// Opens the tensors. `head_norms`: queries and keys are normed per head. With `experts` the feed-forward parts are
    /// mixtures of them.
    pub fn open(
        meta: &Metadata<'_>,
        attention: AttentionShape,
        head_norms: bool,
        experts: Option<&ExpertShape>,
    ) -> Result<Self> {
        let layers = meta.layers()?;
        let context = meta.dimension("context_length")?;
        refuse_other_computations(meta, context)?;
        let ffn: Vec<FeedForwardShape<'_>> = match experts {
            Some(shape) => (0..layers).map(|_| FeedForwardShape::Experts(shape)).collect(),
            None => {
                let widths = meta.per_block("feed_forward_length", layers, None)?;
                widths.into_iter().map(FeedForwardShape::Dense).collect()
            }
        };
        let t = &meta.tensors;
        let ends = Ends::open(t, attention.hidden)?;
        let layers = (0..layers)
            .zip(ffn)
            .map(|(index, ffn)| Layer::open(t, &attention, index, &ffn, head_norms))
            .collect::<Result<Vec<_>>>()?;
        t.refuse_unused(meta.architecture)?;
        let shape = ModelShape {
            architecture: meta.architecture.into(),
            vocabulary: ends.vocabulary,
            hidden: attention.hidden,
            layers: vec![LayerKind::Attention; layers.len()],
            head_width: attention.head_dim,
            context,
            has_nextn: false,
        };
        Ok(Self { shape, attention, ends, layers })
    }
}

/// Refuses mixtures of experts, which have other tensors: the reason is told before one is missed.
pub(super) fn refuse_experts(meta: &Metadata<'_>) -> Result<()> {
    let key = meta.key("expert_count");
    match meta.gguf.get_u32(&key)? {
        None | Some(0) => Ok(()),
        Some(count) => Err(meta.unsupported(format!(
            "`{key}` is {count}: mixtures of experts are not supported in `{}`",
            meta.architecture
        ))),
    }
}

/// What positions are divided by: 1, or the factor of linear scaling. `llama3` scaling is in the factors of
/// frequencies, if the file has them; no other kind is computed here.
pub(super) fn rope_divisor(meta: &Metadata<'_>, has_factors: bool) -> Result<f64> {
    let key = meta.key("rope.scaling.type");
    let older = meta.positive_float_or("rope.scale_linear", 1.0)?;
    match meta.gguf.get_str(&key)? {
        Some("none") => Ok(1.0),
        Some("llama3") if has_factors => Ok(1.0),
        // Files that name no kind but have a factor mean this one.
        None | Some("linear") => meta.positive_float_or("rope.scaling.factor", older).map(f64::from),
        Some(other) => Err(meta.unsupported(format!(
            "`{key}` is `{other}`, which is not supported; this version computes none and linear{}",
            if has_factors { ", and llama3 by `rope_freqs.weight`" } else { "" }
        ))),
    }
}

/// Keys with a number that changes what is computed, unless it is 0, or 1 for those that are factors.
const OTHER_NUMBERS: [(&str, bool); 6] = [
    ("embedding_scale", true),
    ("residual_scale", true),
    ("logit_scale", true),
    ("rope.scaling.attn_factor", true),
    ("attn_logit_softcapping", false),
    ("final_logit_softcapping", false),
];

/// Refuses what other models under the same name may ask for and is not computed here.
fn refuse_other_computations(meta: &Metadata<'_>, context: u32) -> Result<()> {
    for (name, is_factor) in OTHER_NUMBERS {
        let key = meta.key(name);
        let value = meta.gguf.get_f32(&key)?.unwrap_or(0.0);
        if value != 0.0 && !(is_factor && value == 1.0) {
            return Err(meta.unsupported(format!("`{key}` is {value}, which is not supported")));
        }
    }
    let key = meta.key("attention.causal");
    if meta.gguf.get_bool(&key)? == Some(false) {
        return Err(meta.unsupported(format!("`{key}` is false: only causal attention is supported")));
    }
    let key = meta.key("attention.sliding_window");
    match meta.gguf.get_u32(&key)? {
        // A window that holds the whole context hides nothing.
        Some(window) if window > 0 && window < context => Err(meta.unsupported(format!(
            "`{key}` is {window}, less than the context of {context}; windows are not supported"
        ))),
        _ => Ok(()),
    }
}

impl Layer {
    fn open(
        t: &Tensors<'_>,
        s: &AttentionShape,
        index: u32,
        ffn: &FeedForwardShape<'_>,
        head_norms: bool,
    ) -> Result<Self> {
        let name = |part: &str| format!("blk.{index}.{part}");
        Ok(Self {
            index,
            norm: t.vector(&name("attn_norm.weight"), s.hidden)?,
            q: Linear::open(t, &name("attn_q"), s.query_width(), s.hidden)?,
            q_norm: head_norms.then(|| t.vector(&name("attn_q_norm.weight"), s.head_dim)).transpose()?,
            key_values: KeyValues::open(t, index, s, head_norms)?,
            output: Linear::open(t, &name("attn_output"), s.hidden, s.query_width())?,
            feed_forward: FeedForwardPart::open(t, index, "ffn_norm", s.hidden, ffn)?,
        })
    }

    fn build(&self, b: &mut Builder, step: &StepInputs, s: &AttentionShape, x: ValueId) -> ValueId {
        let norm = self.norm.value(b);
        let u = b.rms_norm(x, norm, s.epsilon);
        let caches = self.key_values.append(b, step, s, self.index, u);
        let q = self.q.values(b).apply(b, u);
        let q = b.reshape(q, &[step.rows(), s.heads, s.head_dim]);
        let q = match &self.q_norm {
            Some(norm) => {
                let norm = norm.value(b);
                b.rms_norm(q, norm, s.epsilon)
            }
            None => q,
        };
        let q = s.rope.apply(b, q, step.positions);
        let o = b.attention(q, caches, step.table, step.sequences, s.scale);
        let o = b.reshape(o, &[step.rows(), s.query_width()]);
        let o = self.output.values(b).apply(b, o);
        let x = b.add(x, o);
        self.feed_forward.build(b, s.epsilon, x)
    }
}

impl Family for Dense {
    fn shape(&self) -> &ModelShape {
        &self.shape
    }

    fn embed(&self, b: &mut Builder, ids: ValueId) -> (ValueId, ValueId) {
        self.ends.embed(b, ids)
    }

    fn trunk(
        &self,
        b: &mut Builder,
        step: &StepInputs,
        ports: &mut dyn Ports,
        mut x: ValueId,
    ) -> Result<ValueId> {
        for (index, layer) in (0..).zip(&self.layers) {
            ports.layer_input(b, step, index, x);
            x = layer.build(b, step, &self.attention, x);
        }
        ports.layer_input(b, step, self.layers.len() as u32, x);
        Ok(x)
    }

    fn final_norm(&self, b: &mut Builder, x: ValueId) -> ValueId {
        self.ends.final_norm(b, self.attention.epsilon, x)
    }

    fn head(&self, b: &mut Builder, hidden: ValueId) -> ValueId {
        self.ends.head(b, hidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_gguf::{Gguf, Value, Writer};

    fn divisor(keys: &[(&str, Value)], has_factors: bool) -> f64 {
        let mut writer = Writer::new("llama");
        for (name, value) in keys {
            writer.metadata(format!("llama.{name}"), value.clone());
        }
        let mut bytes = Vec::new();
        writer.write_to(&mut bytes).unwrap();
        let gguf = Gguf::from_bytes(bytes).unwrap();
        rope_divisor(&Metadata::new(&gguf, "llama"), has_factors).unwrap()
    }

    #[test]
    fn linear_scaling_divides_positions() {
        let kind = |kind: &str| ("rope.scaling.type", Value::from(kind));
        let factor = |factor: f32| ("rope.scaling.factor", Value::from(factor));
        let older = |factor: f32| ("rope.scale_linear", Value::from(factor));
        assert_eq!(divisor(&[], false), 1.0);
        assert_eq!(divisor(&[kind("linear")], false), 1.0);
        assert_eq!(divisor(&[kind("linear"), factor(4.0)], true), 4.0);
        assert_eq!(divisor(&[factor(4.0)], false), 4.0);
        assert_eq!(divisor(&[older(2.0)], false), 2.0);
        assert_eq!(divisor(&[kind("linear"), factor(4.0), older(2.0)], false), 4.0);
        assert_eq!(divisor(&[factor(0.0)], false), 1.0);
        assert_eq!(divisor(&[kind("none"), factor(4.0)], false), 1.0);
        assert_eq!(divisor(&[kind("llama3"), factor(8.0)], true), 1.0);
    }
}
