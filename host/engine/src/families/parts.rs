//! Parts that families share: the ends of a model, keys and values, the feed-forward part.

use super::metadata::{LARGEST_DIMENSION, Metadata};
use crate::error::Result;
use crate::step::StepInputs;
use crate::weights::{Tensors, Weight};
use paceline_plugin_api::graph::{Builder, Rotation, ValueId};

/// How queries and keys turn with their position.
#[derive(Clone, Debug)]
pub(super) struct Rope {
    pub rotary: u32,
    pub base: f64,
    /// Pairs are (2i, 2i + 1) instead of (i, i + rotary/2).
    pub adjacent: bool,
    /// What positions are divided by.
    pub divisor: f64,
    /// What the angle of each pair is divided by.
    pub factors: Option<Weight>,
}

impl Rope {
    pub fn apply(&self, b: &mut Builder, x: ValueId, positions: ValueId) -> ValueId {
        let factors = self.factors.as_ref().map(|factors| factors.value(b));
        let rotation = Rotation {
            rotary: self.rotary,
            base: self.base,
            adjacent: self.adjacent,
            divisor: self.divisor,
            factors,
        };
        b.rope_with(x, positions, &rotation)
    }
}

/// Sizes and numbers of attention, the same in all layers.
#[derive(Clone, Debug)]
pub(super) struct AttentionShape {
    pub hidden: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub scale: f32,
    pub epsilon: f32,
    pub rope: Rope,
}

impl AttentionShape {
    /// Reads the keys that all families have. The rotation is the plain one: pairs of halves, nothing slowed down.
    pub fn read(meta: &Metadata<'_>, blocks: u32) -> Result<Self> {
        let hidden = meta.dimension("embedding_length")?;
        let heads = meta.uniform("attention.head_count", blocks, None)?;
        let kv_heads = meta.uniform("attention.head_count_kv", blocks, Some(heads))?;
        let head_dim = meta.dimension_or("attention.key_length", (hidden / heads).max(1))?;
        if meta.dimension_or("attention.value_length", head_dim)? != head_dim || heads % kv_heads != 0 {
            return Err(meta.fault(format!(
                "heads do not fit: {heads} query and {kv_heads} KV heads, keys of {head_dim} and other values"
            )));
        }
        if u64::from(heads) * u64::from(head_dim) > u64::from(LARGEST_DIMENSION) {
            return Err(meta.fault(format!(
                "{heads} heads of {head_dim} (`{}`) are more than {LARGEST_DIMENSION}",
                meta.key("attention.head_count")
            )));
        }
        let rotary = meta.dimension_or("rope.dimension_count", head_dim)?;
        if rotary % 2 != 0 || rotary > head_dim {
            return Err(meta.fault(format!(
                "`{}` is {rotary}: it must be even and at most the head size {head_dim}",
                meta.key("rope.dimension_count")
            )));
        }
        let base = match meta.gguf.value(&meta.key("rope.freq_base")) {
            Some(_) => meta.positive_float("rope.freq_base")?,
            None => 10_000.0,
        };
        Ok(Self {
            hidden,
            heads,
            kv_heads,
            head_dim,
            scale: meta.positive_float_or("attention.scale", 1.0 / (head_dim as f32).sqrt())?,
            epsilon: meta.positive_float("attention.layer_norm_rms_epsilon")?,
            rope: Rope { rotary, base: base.into(), adjacent: false, divisor: 1.0, factors: None },
        })
    }

    /// Width of all queries of a row.
    pub fn query_width(&self) -> u32 {
        self.heads * self.head_dim
    }

    fn kv_width(&self) -> u32 {
        self.kv_heads * self.head_dim
    }
}

/// A matrix, with its bias if the file has one.
pub(super) struct Linear {
    weight: Weight,
    bias: Option<Weight>,
}

/// A [`Linear`] as values of a graph.
pub(super) struct LinearValues {
    weight: ValueId,
    bias: Option<ValueId>,
}

impl Linear {
    /// Opens `{name}.weight` and `{name}.bias`.
    pub fn open(t: &Tensors<'_>, name: &str, rows: u32, columns: u32) -> Result<Self> {
        Ok(Self {
            weight: t.matrix(&format!("{name}.weight"), rows, columns)?,
            bias: t.optional(&format!("{name}.bias"), |t, name| t.vector(name, rows))?,
        })
    }

    pub fn values(&self, b: &mut Builder) -> LinearValues {
        LinearValues { weight: self.weight.value(b), bias: self.bias.as_ref().map(|bias| bias.value(b)) }
    }
}

impl LinearValues {
    pub fn apply(&self, b: &mut Builder, x: ValueId) -> ValueId {
        match self.bias {
            Some(bias) => b.linear_bias(x, self.weight, bias),
            None => b.linear(x, self.weight),
        }
    }
}

/// What an attention layer caches.
pub(super) struct KeyValues {
    k: Linear,
    v: Linear,
    /// Per head, where the family has it.
    k_norm: Option<Weight>,
}

impl KeyValues {
    pub fn open(t: &Tensors<'_>, layer: u32, s: &AttentionShape, normed: bool) -> Result<Self> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        Ok(Self {
            k: Linear::open(t, &name("attn_k"), s.kv_width(), s.hidden)?,
            v: Linear::open(t, &name("attn_v"), s.kv_width(), s.hidden)?,
            k_norm: normed.then(|| t.vector(&name("attn_k_norm.weight"), s.head_dim)).transpose()?,
        })
    }

    /// Keys and values of the rows, rotated, appended to the layer's cache.
    pub fn append(
        &self,
        b: &mut Builder,
        step: &StepInputs,
        s: &AttentionShape,
        layer: u32,
        u: ValueId,
    ) -> [ValueId; 2] {
        let rows = step.rows();
        let [wk, wv] = [&self.k, &self.v].map(|linear| linear.values(b));
        let k_norm = self.k_norm.as_ref().map(|norm| norm.value(b));
        let k = wk.apply(b, u);
        let v = wv.apply(b, u);
        let k = b.reshape(k, &[rows, s.kv_heads, s.head_dim]);
        let v = b.reshape(v, &[rows, s.kv_heads, s.head_dim]);
        let k = match k_norm {
            Some(norm) => b.rms_norm(k, norm, s.epsilon),
            None => k,
        };
        let k = s.rope.apply(b, k, step.positions);
        let caches = step.kv_cache(b, layer, s.kv_heads, s.head_dim);
        b.kv_append(k, v, caches, step.cells);
        caches
    }
}

/// x + down(silu(gate f) · up f) with f = rms(x).
pub(super) struct FeedForward {
    norm: Weight,
    gate: Weight,
    up: Weight,
    down: Weight,
}

impl FeedForward {
    /// Opens the part of a layer; families give the norm different names.
    pub fn open(t: &Tensors<'_>, layer: u32, norm: &str, hidden: u32, inner: u32) -> Result<Self> {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        Ok(Self {
            norm: t.vector(&name(norm), hidden)?,
            gate: t.matrix(&name("ffn_gate"), inner, hidden)?,
            up: t.matrix(&name("ffn_up"), inner, hidden)?,
            down: t.matrix(&name("ffn_down"), hidden, inner)?,
        })
    }

    pub fn build(&self, b: &mut Builder, epsilon: f32, x: ValueId) -> ValueId {
        let norm = self.norm.value(b);
        let f = b.rms_norm(x, norm, epsilon);
        let [gate, up, down] = [&self.gate, &self.up, &self.down].map(|w| w.value(b));
        let gate = b.linear(f, gate);
        let up = b.linear(f, up);
        let inner = b.glu(gate, up, "silu");
        let out = b.linear(inner, down);
        b.add(x, out)
    }
}

/// What is before and behind the layers.
pub(super) struct Ends {
    pub vocabulary: u32,
    pub embedding: Weight,
    pub output_norm: Weight,
    /// The embedding, if the file has no head of its own.
    pub head: Weight,
}

impl Ends {
    /// The embedding says how many tokens there are.
    pub fn open(t: &Tensors<'_>, hidden: u32) -> Result<Self> {
        let (embedding, vocabulary) = t.rows_of("token_embd.weight", hidden)?;
        let head = t.optional("output.weight", |t, name| t.matrix(name, vocabulary, hidden))?;
        let head = head.unwrap_or_else(|| embedding.clone());
        Ok(Self { vocabulary, embedding, output_norm: t.vector("output_norm.weight", hidden)?, head })
    }

    pub fn embed(&self, b: &mut Builder, ids: ValueId) -> (ValueId, ValueId) {
        let table = self.embedding.value(b);
        b.embed(ids, table)
    }

    pub fn final_norm(&self, b: &mut Builder, epsilon: f32, x: ValueId) -> ValueId {
        let norm = self.output_norm.value(b);
        b.rms_norm(x, norm, epsilon)
    }

    pub fn head(&self, b: &mut Builder, hidden: ValueId) -> ValueId {
        let head = self.head.value(b);
        b.linear(hidden, head)
    }
}
