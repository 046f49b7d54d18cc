//! `qwen35`: the dense hybrid of Gated DeltaNet layers and gated full attention, with its multi-token prediction
//! block.
//!
//! One layer: x += mixer(rms(x)); x += down(silu(gate f) · up f) with f = rms(x). The mixer is either
//!
//! - **Gated DeltaNet**: m = Wqkv u through a causal convolution and silu, split into q, k (both L2-normed) and v; the
//!   delta rule with decay exp(a · softplus(Wα u + dt)) and strength sigmoid(Wβ u); its output normed per head and gated
//!   by silu(Wz u);
//! - **attention**: q and a gate from one projection, interleaved per head; q and k normed per head, rotated on their
//!   first dimensions; the output times sigmoid(gate).
//!
//! Norm weights are stored with their 1 added, and the values of heads in tiled order: value head h uses key head
//! h mod (number of key heads).

use super::{Family, NextnBlock};
use crate::error::{EngineError, Result};
use crate::model::{LayerKind, ModelShape, file_name};
use crate::step::StepInputs;
use crate::weights::{Tensors, Weight};
use paceline_gguf::{Gguf, ValueRef};
use paceline_plugin_api::graph::{Builder, ValueId};

pub(super) const ARCHITECTURE: &str = "qwen35";

/// More blocks than any published model has; protects against absurd files.
const MOST_BLOCKS: u32 = 512;
/// Largest size of any dimension.
const LARGEST_DIMENSION: u32 = 1 << 24;

/// Sizes that layers need.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    hidden: u32,
    head_dim: u32,
    heads: u32,
    kv_heads: u32,
    rotary: u32,
    rope_base: f64,
    attention_scale: f32,
    epsilon: f32,
    conv_taps: u32,
    key_heads: u32,
    value_heads: u32,
    state_dim: u32,
}

struct FeedForward {
    norm: Weight,
    gate: Weight,
    up: Weight,
    down: Weight,
}

struct Attention {
    q: Weight,
    k: Weight,
    v: Weight,
    output: Weight,
    q_norm: Weight,
    k_norm: Weight,
}

struct DeltaNet {
    qkv: Weight,
    z: Weight,
    beta: Weight,
    alpha: Weight,
    conv: Weight,
    dt: Weight,
    a: Weight,
    norm: Weight,
    output: Weight,
}

enum Mixer {
    Attention(Box<Attention>),
    DeltaNet(Box<DeltaNet>),
}

struct Layer {
    index: u32,
    norm: Weight,
    mixer: Mixer,
    feed_forward: FeedForward,
}

struct Nextn {
    layer: Layer,
    sizes: Sizes,
    projection: Weight,
    embedding_norm: Weight,
    hidden_norm: Weight,
    head_norm: Weight,
    embedding: Weight,
    head: Weight,
}

/// The family, opened on a file.
pub(super) struct Qwen35 {
    shape: ModelShape,
    sizes: Sizes,
    embedding: Weight,
    layers: Vec<Layer>,
    output_norm: Weight,
    head: Weight,
    nextn: Option<Nextn>,
}

/// Reads the keys under the family's prefix.
struct Metadata<'a> {
    gguf: &'a Gguf,
    tensors: Tensors<'a>,
}

impl Metadata<'_> {
    fn fault(&self, what: impl Into<String>) -> EngineError {
        self.tensors.fault(what)
    }

    fn key(name: &str) -> String {
        format!("{ARCHITECTURE}.{name}")
    }

    /// A dimension: at least 1, and not absurd.
    fn dimension(&self, name: &str) -> Result<u32> {
        let key = Self::key(name);
        self.checked(&key, self.gguf.require_u32(&key)?)
    }

    fn dimension_or(&self, name: &str, default: u32) -> Result<u32> {
        let key = Self::key(name);
        match self.gguf.get_u32(&key)? {
            Some(value) => self.checked(&key, value),
            None => Ok(default),
        }
    }

    fn checked(&self, key: &str, value: u32) -> Result<u32> {
        if (1..=LARGEST_DIMENSION).contains(&value) {
            Ok(value)
        } else {
            Err(self.fault(format!("`{key}` is {value}, which is not a size from 1 to {LARGEST_DIMENSION}")))
        }
    }

    /// A number, or a list with one number per block.
    fn per_block(&self, name: &str, blocks: u32, default: Option<u32>) -> Result<Vec<u32>> {
        let key = Self::key(name);
        if !matches!(self.gguf.value(&key), Some(ValueRef::Array(_))) {
            let value = match default {
                Some(default) => self.dimension_or(name, default)?,
                None => self.dimension(name)?,
            };
            return Ok(vec![value; blocks as usize]);
        }
        let list: Vec<u32> = self
            .gguf
            .require_array_u32(&key)?
            .map(|value| self.checked(&key, value))
            .collect::<Result<_>>()?;
        if list.len() != blocks as usize {
            return Err(self.fault(format!("`{key}` has {} entries for {blocks} blocks", list.len())));
        }
        Ok(list)
    }

    /// One number for all blocks; a list must repeat it.
    fn uniform(&self, name: &str, blocks: u32, default: Option<u32>) -> Result<u32> {
        let list = self.per_block(name, blocks, default)?;
        match list.first() {
            Some(&first) if list.iter().all(|&v| v == first) => Ok(first),
            _ => Err(EngineError::Unsupported {
                file: file_name(self.gguf),
                what: format!("`{}` differs between layers, which is not supported", Self::key(name)),
            }),
        }
    }

    fn positive_float(&self, name: &str, value: f32) -> Result<f32> {
        if value.is_finite() && value > 0.0 {
            Ok(value)
        } else {
            Err(self.fault(format!("`{}` is {value}, which is not a positive number", Self::key(name))))
        }
    }
}

impl Qwen35 {
    pub fn open(gguf: &Gguf) -> Result<Self> {
        let meta = Metadata { gguf, tensors: Tensors::new(gguf) };
        let blocks = meta.dimension("block_count")?;
        let nextn = gguf.get_u32(&Metadata::key("nextn_predict_layers"))?.unwrap_or(0);
        if blocks > MOST_BLOCKS || nextn >= blocks {
            return Err(meta.fault(format!(
                "`{ARCHITECTURE}.block_count` is {blocks} with {nextn} prediction blocks; at most {MOST_BLOCKS}, \
                 and at least one must be a trunk layer"
            )));
        }
        let trunk = blocks - nextn;
        let sizes = read_sizes(&meta, blocks)?;
        let ffn = meta.per_block("feed_forward_length", blocks, None)?;
        let kinds = layer_kinds(&meta, blocks, trunk)?;

        let t = &meta.tensors;
        if !t.has("blk.0.attn_norm.weight") && nextn > 0 {
            return Err(EngineError::Unsupported {
                file: file_name(gguf),
                what: "it holds only a prediction block, not the model that it belongs to".into(),
            });
        }
        let (embedding, vocabulary) = t.rows_of("token_embd.weight", sizes.hidden)?;
        let head = t.optional("output.weight", |t, name| t.matrix(name, vocabulary, sizes.hidden))?;
        let head = head.unwrap_or_else(|| embedding.clone());
        let output_norm = t.vector("output_norm.weight", sizes.hidden)?;
        let layers = (0..trunk)
            .map(|i| Layer::open(t, &sizes, i, kinds[i as usize], ffn[i as usize]))
            .collect::<Result<Vec<_>>>()?;
        let nextn = match nextn {
            0 => None,
            1 => Some(Nextn::open(
                t,
                sizes,
                trunk,
                ffn[trunk as usize],
                vocabulary,
                [&embedding, &head, &output_norm],
            )?),
            // Several blocks exist in other families; here the trunk still runs.
            more => {
                tracing::warn!("{}: {more} prediction blocks are ignored; one is supported", file_name(gguf));
                None
            }
        };
        let shape = ModelShape {
            architecture: ARCHITECTURE.into(),
            vocabulary,
            hidden: sizes.hidden,
            layers: kinds[..trunk as usize].to_vec(),
            context: meta.dimension("context_length")?,
            has_nextn: nextn.is_some(),
        };
        Ok(Self { shape, sizes, embedding, layers, output_norm, head, nextn })
    }
}

fn read_sizes(meta: &Metadata<'_>, blocks: u32) -> Result<Sizes> {
    let gguf = meta.gguf;
    let hidden = meta.dimension("embedding_length")?;
    let heads = meta.uniform("attention.head_count", blocks, None)?;
    let kv_heads = meta.uniform("attention.head_count_kv", blocks, Some(heads))?;
    let head_dim = meta.dimension_or("attention.key_length", (hidden / heads).max(1))?;
    if meta.dimension_or("attention.value_length", head_dim)? != head_dim || heads % kv_heads != 0 {
        return Err(meta.fault(format!(
            "heads do not fit: {heads} query and {kv_heads} KV heads, keys of {head_dim} and other values"
        )));
    }
    let epsilon = gguf.require_f32(&Metadata::key("attention.layer_norm_rms_epsilon"))?;
    let scale = gguf.get_f32(&Metadata::key("attention.scale"))?.filter(|&s| s != 0.0);
    let base = gguf.get_f32(&Metadata::key("rope.freq_base"))?.unwrap_or(10_000.0);
    let rotary = meta.dimension_or("rope.dimension_count", head_dim)?;
    if rotary % 2 != 0 || rotary > head_dim {
        return Err(meta.fault(format!(
            "`{ARCHITECTURE}.rope.dimension_count` is {rotary}: it must be even and at most the head size {head_dim}"
        )));
    }
    check_sections(meta, rotary)?;
    let (key_heads, value_heads) =
        (meta.dimension("ssm.group_count")?, meta.dimension("ssm.time_step_rank")?);
    let state_dim = meta.dimension("ssm.state_size")?;
    let inner = meta.dimension("ssm.inner_size")?;
    if u64::from(value_heads) * u64::from(state_dim) != u64::from(inner) || value_heads % key_heads != 0 {
        return Err(meta.fault(format!(
            "recurrent sizes do not fit: `ssm.inner_size` {inner} is not {value_heads} value heads of {state_dim}, or \
             {key_heads} key heads do not divide them"
        )));
    }
    let conv_taps = meta.dimension("ssm.conv_kernel")?;
    if conv_taps < 2 {
        return Err(
            meta.fault(format!("`{ARCHITECTURE}.ssm.conv_kernel` is {conv_taps}: it must be at least 2"))
        );
    }
    Ok(Sizes {
        hidden,
        head_dim,
        heads,
        kv_heads,
        rotary,
        rope_base: f64::from(meta.positive_float("rope.freq_base", base)?),
        attention_scale: scale.unwrap_or_else(|| 1.0 / (head_dim as f32).sqrt()),
        epsilon: meta.positive_float("attention.layer_norm_rms_epsilon", epsilon)?,
        conv_taps,
        key_heads,
        value_heads,
        state_dim,
    })
}

/// With text, time, height and width have the same position and a fourth axis has 0, so interleaved sections are
/// plain rotation as long as no pair falls to the fourth.
fn check_sections(meta: &Metadata<'_>, rotary: u32) -> Result<()> {
    let key = Metadata::key("rope.dimension_sections");
    let sections: Vec<i32> = meta.gguf.require_array_i32(&key)?.collect();
    let covered = |pair: i32| match sections.get((pair % 3) as usize) {
        Some(&width) => i64::from(pair) < 3 * i64::from(width),
        None => false,
    };
    match (0..rotary as i32 / 2).find(|&pair| !covered(pair)) {
        None => Ok(()),
        Some(pair) => Err(meta.fault(format!(
            "`{key}` is {sections:?}: pair {pair} of {} belongs to none of the first three axes",
            rotary / 2
        ))),
    }
}

fn layer_kinds(meta: &Metadata<'_>, blocks: u32, trunk: u32) -> Result<Vec<LayerKind>> {
    let kind = |recurrent: bool| if recurrent { LayerKind::Recurrent } else { LayerKind::Attention };
    let key = Metadata::key("attention.recurrent_layers");
    if let Some(list) = meta.gguf.array_bool(&key)? {
        let kinds: Vec<LayerKind> = list.map(kind).collect();
        if kinds.len() < trunk as usize {
            return Err(meta.fault(format!("`{key}` has {} entries for {trunk} layers", kinds.len())));
        }
        return Ok(kinds);
    }
    let interval = meta.dimension_or("full_attention_interval", 4)?;
    Ok((0..blocks).map(|i| kind(!(i + 1).is_multiple_of(interval))).collect())
}

impl Layer {
    fn open(t: &Tensors<'_>, s: &Sizes, index: u32, kind: LayerKind, ffn: u32) -> Result<Self> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let mixer = match kind {
            LayerKind::Attention => Mixer::Attention(Box::new(Attention {
                q: t.matrix(&name("attn_q.weight"), 2 * s.heads * s.head_dim, s.hidden)?,
                k: t.matrix(&name("attn_k.weight"), s.kv_heads * s.head_dim, s.hidden)?,
                v: t.matrix(&name("attn_v.weight"), s.kv_heads * s.head_dim, s.hidden)?,
                output: t.matrix(&name("attn_output.weight"), s.hidden, s.heads * s.head_dim)?,
                q_norm: t.vector(&name("attn_q_norm.weight"), s.head_dim)?,
                k_norm: t.vector(&name("attn_k_norm.weight"), s.head_dim)?,
            })),
            LayerKind::Recurrent => Mixer::DeltaNet(Box::new(DeltaNet {
                qkv: t.matrix(&name("attn_qkv.weight"), s.channels(), s.hidden)?,
                z: t.matrix(&name("attn_gate.weight"), s.value_width(), s.hidden)?,
                beta: t.matrix(&name("ssm_beta.weight"), s.value_heads, s.hidden)?,
                alpha: t.matrix(&name("ssm_alpha.weight"), s.value_heads, s.hidden)?,
                conv: t.matrix(&name("ssm_conv1d.weight"), s.channels(), s.conv_taps)?,
                dt: t.vector(&name("ssm_dt.bias"), s.value_heads)?,
                a: t.vector(&name("ssm_a"), s.value_heads)?,
                norm: t.vector(&name("ssm_norm.weight"), s.state_dim)?,
                output: t.matrix(&name("ssm_out.weight"), s.hidden, s.value_width())?,
            })),
        };
        Ok(Self {
            index,
            norm: t.vector(&name("attn_norm.weight"), s.hidden)?,
            mixer,
            feed_forward: FeedForward {
                norm: t.vector(&name("post_attention_norm.weight"), s.hidden)?,
                gate: t.matrix(&name("ffn_gate.weight"), ffn, s.hidden)?,
                up: t.matrix(&name("ffn_up.weight"), ffn, s.hidden)?,
                down: t.matrix(&name("ffn_down.weight"), s.hidden, ffn)?,
            },
        })
    }

    fn build(&self, b: &mut Builder, step: &StepInputs, s: &Sizes, x: ValueId) -> ValueId {
        let norm = self.norm.value(b);
        let u = b.rms_norm(x, norm, s.epsilon);
        let mixed = match &self.mixer {
            Mixer::Attention(attention) => attention.build(b, step, s, self.index, u),
            Mixer::DeltaNet(delta_net) => delta_net.build(b, step, s, self.index, u),
        };
        let x = b.add(x, mixed);
        self.feed_forward.build(b, s, x)
    }
}

impl Sizes {
    fn key_width(&self) -> u32 {
        self.key_heads * self.state_dim
    }

    fn value_width(&self) -> u32 {
        self.value_heads * self.state_dim
    }

    fn channels(&self) -> u32 {
        2 * self.key_width() + self.value_width()
    }
}

impl FeedForward {
    fn build(&self, b: &mut Builder, s: &Sizes, x: ValueId) -> ValueId {
        let norm = self.norm.value(b);
        let f = b.rms_norm(x, norm, s.epsilon);
        let [gate, up, down] = [&self.gate, &self.up, &self.down].map(|w| w.value(b));
        let gate = b.linear(f, gate);
        let up = b.linear(f, up);
        let inner = b.glu(gate, up, "silu");
        let out = b.linear(inner, down);
        b.add(x, out)
    }
}

impl Attention {
    /// Keys and values of the rows, normed and rotated, appended to the layer's cache.
    fn append_kv(
        &self,
        b: &mut Builder,
        step: &StepInputs,
        s: &Sizes,
        layer: u32,
        u: ValueId,
    ) -> [ValueId; 2] {
        let rows = step.rows();
        let [wk, wv, k_norm] = [&self.k, &self.v, &self.k_norm].map(|w| w.value(b));
        let k = b.linear(u, wk);
        let v = b.linear(u, wv);
        let k = b.reshape(k, &[rows, s.kv_heads, s.head_dim]);
        let v = b.reshape(v, &[rows, s.kv_heads, s.head_dim]);
        let k = b.rms_norm(k, k_norm, s.epsilon);
        let k = b.rope(k, step.positions, s.rotary, s.rope_base);
        let caches = step.kv_cache(b, layer, s.kv_heads, s.head_dim);
        b.kv_append(k, v, caches, step.cells);
        caches
    }

    fn build(&self, b: &mut Builder, step: &StepInputs, s: &Sizes, layer: u32, u: ValueId) -> ValueId {
        let rows = step.rows();
        let caches = self.append_kv(b, step, s, layer, u);
        let [wq, q_norm, output] = [&self.q, &self.q_norm, &self.output].map(|w| w.value(b));
        let q_and_gate = b.linear(u, wq);
        let q_and_gate = b.reshape(q_and_gate, &[rows, s.heads, 2 * s.head_dim]);
        let q = b.slice(q_and_gate, 0, s.head_dim);
        let gate = b.slice(q_and_gate, s.head_dim, s.head_dim);
        let q = b.rms_norm(q, q_norm, s.epsilon);
        let q = b.rope(q, step.positions, s.rotary, s.rope_base);
        let o = b.attention(q, caches, step.table, step.sequences, s.attention_scale);
        let gate = b.activation(gate, "sigmoid");
        let o = b.mul(o, gate);
        let o = b.reshape(o, &[rows, s.heads * s.head_dim]);
        b.linear(o, output)
    }
}

impl DeltaNet {
    fn build(&self, b: &mut Builder, step: &StepInputs, s: &Sizes, layer: u32, u: ValueId) -> ValueId {
        let rows = step.rows();
        let [qkv, z, beta, alpha] = [&self.qkv, &self.z, &self.beta, &self.alpha].map(|w| {
            let w = w.value(b);
            b.linear(u, w)
        });
        let beta = b.activation(beta, "sigmoid");
        let [dt, a] = [&self.dt, &self.a].map(|w| w.value(b));
        let g = b.add(alpha, dt);
        let g = b.activation(g, "softplus");
        let g = b.mul(g, a);

        let conv = self.conv.value(b);
        let window = step.slot_state(b, layer, "conv", &[s.conv_taps - 1, s.channels()]);
        let c = b.conv_causal_silu(qkv, conv, window, step.sequences);
        let part = |b: &mut Builder, offset: u32, heads: u32| {
            let part = b.slice(c, offset, heads * s.state_dim);
            b.reshape(part, &[rows, heads, s.state_dim])
        };
        let q = part(b, 0, s.key_heads);
        let k = part(b, s.key_width(), s.key_heads);
        let v = part(b, 2 * s.key_width(), s.value_heads);
        let q = b.l2_norm(q, s.epsilon);
        let k = b.l2_norm(k, s.epsilon);
        let state = step.slot_state(b, layer, "delta", &[s.value_heads, s.state_dim, s.state_dim]);
        let scale = 1.0 / (s.state_dim as f32).sqrt();
        let o = b.gated_delta_net([q, k, v, g, beta], state, step.sequences, scale);

        let z = b.reshape(z, &[rows, s.value_heads, s.state_dim]);
        let norm = self.norm.value(b);
        let y = b.rms_norm_gated(o, norm, z, s.epsilon);
        let y = b.reshape(y, &[rows, s.value_width()]);
        let output = self.output.value(b);
        b.linear(y, output)
    }
}

impl Family for Qwen35 {
    fn shape(&self) -> &ModelShape {
        &self.shape
    }

    fn embed(&self, b: &mut Builder, ids: ValueId) -> (ValueId, ValueId) {
        let table = self.embedding.value(b);
        b.embed(ids, table)
    }

    fn trunk(&self, b: &mut Builder, step: &StepInputs, x: ValueId) -> ValueId {
        self.layers.iter().fold(x, |x, layer| layer.build(b, step, &self.sizes, x))
    }

    fn final_norm(&self, b: &mut Builder, x: ValueId) -> ValueId {
        let norm = self.output_norm.value(b);
        b.rms_norm(x, norm, self.sizes.epsilon)
    }

    fn head(&self, b: &mut Builder, hidden: ValueId) -> ValueId {
        let head = self.head.value(b);
        b.linear(hidden, head)
    }

    fn nextn(&self) -> Option<&dyn NextnBlock> {
        self.nextn.as_ref().map(|nextn| nextn as &dyn NextnBlock)
    }
}

impl Nextn {
    /// `shared` are the trunk's embedding, head and final norm, used where the block has none of its own.
    fn open(
        t: &Tensors<'_>,
        sizes: Sizes,
        index: u32,
        ffn: u32,
        vocabulary: u32,
        shared: [&Weight; 3],
    ) -> Result<Self> {
        let name = |part: &str| format!("blk.{index}.nextn.{part}.weight");
        let own_or = |part: &str, other: &Weight, rows: Option<u32>| {
            let own = t.optional(&name(part), |t, name| match rows {
                Some(rows) => t.matrix(name, rows, sizes.hidden),
                None => t.vector(name, sizes.hidden),
            });
            own.map(|own| own.unwrap_or_else(|| other.clone()))
        };
        let [embedding, head, norm] = shared;
        Ok(Self {
            layer: Layer::open(t, &sizes, index, LayerKind::Attention, ffn)?,
            sizes,
            projection: t.matrix(&name("eh_proj"), sizes.hidden, 2 * sizes.hidden)?,
            embedding_norm: t.vector(&name("enorm"), sizes.hidden)?,
            hidden_norm: t.vector(&name("hnorm"), sizes.hidden)?,
            head_norm: own_or("shared_head_norm", norm, None)?,
            embedding: own_or("embed_tokens", embedding, Some(vocabulary))?,
            head: own_or("shared_head_head", head, Some(vocabulary))?,
        })
    }

    /// The block's input: the normed embedding and the normed hidden state, projected together.
    fn fuse(&self, b: &mut Builder, embedded: ValueId, hidden: ValueId) -> ValueId {
        let [embedding_norm, hidden_norm, projection] =
            [&self.embedding_norm, &self.hidden_norm, &self.projection].map(|w| w.value(b));
        let e = b.rms_norm(embedded, embedding_norm, self.sizes.epsilon);
        let h = b.rms_norm(hidden, hidden_norm, self.sizes.epsilon);
        let both = b.concat(&[e, h]);
        b.linear(both, projection)
    }
}

impl NextnBlock for Nextn {
    fn full(&self, b: &mut Builder, step: &StepInputs, embedded: ValueId, hidden: ValueId) -> ValueId {
        let x = self.fuse(b, embedded, hidden);
        let x = self.layer.build(b, step, &self.sizes, x);
        let norm = self.head_norm.value(b);
        b.rms_norm(x, norm, self.sizes.epsilon)
    }

    fn kv_only(&self, b: &mut Builder, step: &StepInputs, embedded: ValueId, hidden: ValueId) {
        let x = self.fuse(b, embedded, hidden);
        let norm = self.layer.norm.value(b);
        let u = b.rms_norm(x, norm, self.sizes.epsilon);
        if let Mixer::Attention(attention) = &self.layer.mixer {
            attention.append_kv(b, step, &self.sizes, self.layer.index, u);
        }
    }

    fn head(&self, b: &mut Builder, hidden: ValueId) -> ValueId {
        let head = self.head.value(b);
        b.linear(hidden, head)
    }

    fn embed(&self, b: &mut Builder, ids: ValueId) -> (ValueId, ValueId) {
        let table = self.embedding.value(b);
        b.embed(ids, table)
    }
}
