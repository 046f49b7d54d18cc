//! `qwen35`: the hybrid of Gated DeltaNet layers and gated full attention, with its multi-token prediction block, and
//! `qwen35moe`, whose feed-forward parts are mixtures of experts with a shared one.
//!
//! One layer: x += mixer(rms(x)); x += down(silu(gate f) · up f) with f = rms(x), or the mixture. The mixer is either
//!
//! - **Gated DeltaNet**: m = Wqkv u through a causal convolution and silu, split into q, k (both L2-normed) and v; the
//!   delta rule with decay exp(a · softplus(Wα u + dt)) and strength sigmoid(Wβ u); its output normed per head and gated
//!   by silu(Wz u);
//! - **attention**: q and a gate from one projection, interleaved per head; q and k normed per head, rotated on their
//!   first dimensions; the output times sigmoid(gate).
//!
//! Norm weights are stored with their 1 added, and the values of heads in tiled order: value head h uses key head
//! h mod (number of key heads).

use super::experts::{ExpertShape, FeedForwardPart, FeedForwardShape};
use super::metadata::{MOST_BLOCKS, Metadata};
use super::parts::{AttentionShape, Ends, KeyValues, Linear};
use super::{Closed, Family, NextnBlock, Ports};
use crate::error::Result;
use crate::model::{LayerKind, ModelShape, file_name};
use crate::step::StepInputs;
use crate::weights::{Tensors, Weight};
use paceline_gguf::Gguf;
use paceline_plugin_api::graph::{Builder, ValueId};
use paceline_plugin_api::strategy::DeltaNetShape;

pub(super) const ARCHITECTURE: &str = "qwen35";
pub(super) const WITH_EXPERTS: &str = "qwen35moe";

/// Sizes that layers need.
#[derive(Clone, Debug)]
struct Sizes {
    attention: AttentionShape,
    hidden: u32,
    epsilon: f32,
    conv_taps: u32,
    key_heads: u32,
    value_heads: u32,
    state_dim: u32,
}

struct Attention {
    /// Each query is followed by its gate.
    q: Linear,
    q_norm: Weight,
    key_values: KeyValues,
    output: Linear,
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
    feed_forward: FeedForwardPart,
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
    draft_head: Option<DraftHead>,
}

/// A head over the tokens that a draft is most likely to need.
struct DraftHead {
    head: Weight,
    /// Token id of each row.
    ids: Weight,
    rows: u32,
}

/// The family, opened on a file.
pub(super) struct Qwen35 {
    shape: ModelShape,
    sizes: Sizes,
    ends: Ends,
    layers: Vec<Layer>,
    nextn: Option<Nextn>,
}

impl Qwen35 {
    /// `architecture` is one of the two of this family.
    pub fn open(gguf: &Gguf, architecture: &'static str) -> Result<Self> {
        let meta = Metadata::new(gguf, architecture);
        let blocks = meta.dimension("block_count")?;
        let nextn = gguf.get_u32(&meta.key("nextn_predict_layers"))?.unwrap_or(0);
        if blocks > MOST_BLOCKS || nextn >= blocks {
            return Err(meta.fault(format!(
                "`{architecture}.block_count` is {blocks} with {nextn} prediction blocks; at most {MOST_BLOCKS}, \
                 and at least one must be a trunk layer"
            )));
        }
        let trunk = blocks - nextn;
        let sizes = read_sizes(&meta, blocks)?;
        let experts = match architecture == WITH_EXPERTS {
            true => Some(ExpertShape::read(&meta, true)?),
            false => None,
        };
        let feed_forwards: Vec<FeedForwardShape<'_>> = match &experts {
            Some(shape) => (0..blocks).map(|_| FeedForwardShape::Experts(shape)).collect(),
            None => {
                let widths = meta.per_block("feed_forward_length", blocks, None)?;
                widths.into_iter().map(FeedForwardShape::Dense).collect()
            }
        };
        let kinds = layer_kinds(&meta, blocks, trunk)?;

        let t = &meta.tensors;
        if !t.has("blk.0.attn_norm.weight") && nextn > 0 {
            return Err(
                meta.unsupported("it holds only a prediction block, not the model that it belongs to")
            );
        }
        let ends = Ends::open(t, sizes.hidden)?;
        let layers = (0..trunk)
            .map(|i| Layer::open(t, &sizes, i, kinds[i as usize], &feed_forwards[i as usize]))
            .collect::<Result<Vec<_>>>()?;
        let nextn = match nextn {
            0 => None,
            1 => Some(Nextn::open(t, &sizes, trunk, &feed_forwards[trunk as usize], &ends)?),
            // Several blocks exist in other families; here the trunk still runs.
            more => {
                tracing::warn!("{}: {more} prediction blocks are ignored; one is supported", file_name(gguf));
                None
            }
        };
        let shape = ModelShape {
            architecture: architecture.into(),
            vocabulary: ends.vocabulary,
            hidden: sizes.hidden,
            layers: kinds[..trunk as usize].to_vec(),
            head_width: sizes.attention.head_dim,
            context: meta.dimension("context_length")?,
            has_nextn: nextn.is_some(),
        };
        Ok(Self { shape, sizes, ends, layers, nextn })
    }
}

fn read_sizes(meta: &Metadata<'_>, blocks: u32) -> Result<Sizes> {
    let attention = AttentionShape::read(meta, blocks)?;
    check_sections(meta, attention.rope.rotary)?;
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
            meta.fault(format!("`{}` is {conv_taps}: it must be at least 2", meta.key("ssm.conv_kernel")))
        );
    }
    Ok(Sizes {
        hidden: attention.hidden,
        epsilon: attention.epsilon,
        attention,
        conv_taps,
        key_heads,
        value_heads,
        state_dim,
    })
}

/// With text, time, height and width have the same position and a fourth axis has 0, so interleaved sections are
/// plain rotation as long as no pair falls to the fourth.
fn check_sections(meta: &Metadata<'_>, rotary: u32) -> Result<()> {
    let key = meta.key("rope.dimension_sections");
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
    let key = meta.key("attention.recurrent_layers");
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
    fn open(
        t: &Tensors<'_>,
        s: &Sizes,
        index: u32,
        kind: LayerKind,
        ffn: &FeedForwardShape<'_>,
    ) -> Result<Self> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let mixer = match kind {
            LayerKind::Attention => Mixer::Attention(Box::new(Attention {
                q: Linear::open(t, &name("attn_q"), 2 * s.attention.query_width(), s.hidden)?,
                q_norm: t.vector(&name("attn_q_norm.weight"), s.attention.head_dim)?,
                key_values: KeyValues::open(t, index, &s.attention, true)?,
                output: Linear::open(t, &name("attn_output"), s.hidden, s.attention.query_width())?,
            })),
            LayerKind::Recurrent => Mixer::DeltaNet(Box::new(DeltaNet {
                qkv: t.matrix(&name("attn_qkv.weight"), s.channels(), s.hidden)?,
                z: t.matrix(&name("attn_gate.weight"), s.value_width(), s.hidden)?,
                beta: t.matrix(&name("ssm_beta.weight"), s.value_heads, s.hidden)?,
                alpha: t.matrix(&name("ssm_alpha.weight"), s.value_heads, s.hidden)?,
                conv: t.elements(&name("ssm_conv1d.weight"), &[s.channels(), s.conv_taps])?,
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
            feed_forward: FeedForwardPart::open(t, index, "post_attention_norm", s.hidden, ffn)?,
        })
    }

    fn build(
        &self,
        b: &mut Builder,
        step: &StepInputs,
        ports: &mut dyn Ports,
        s: &Sizes,
        x: ValueId,
    ) -> Result<ValueId> {
        let norm = self.norm.value(b);
        let u = b.rms_norm(x, norm, s.epsilon);
        let mixed = match &self.mixer {
            Mixer::Attention(attention) => attention.build(b, step, &s.attention, self.index, u),
            Mixer::DeltaNet(delta_net) => delta_net.build(b, step, ports, s, self.index, u)?,
        };
        let x = b.add(x, mixed);
        Ok(self.feed_forward.build(b, s.epsilon, x))
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

    fn delta_net(&self, step: &StepInputs) -> DeltaNetShape {
        DeltaNetShape {
            rows: step.rows(),
            sequences: step.context.sequences.min(step.rows()),
            slots: step.context.sequences,
            depth: step.context.rollback_depth,
            key_heads: self.key_heads,
            value_heads: self.value_heads,
            key_width: self.state_dim,
            value_width: self.state_dim,
            scale: 1.0 / (self.state_dim as f32).sqrt(),
        }
    }
}

impl Attention {
    fn build(
        &self,
        b: &mut Builder,
        step: &StepInputs,
        s: &AttentionShape,
        layer: u32,
        u: ValueId,
    ) -> ValueId {
        let rows = step.rows();
        let caches = self.key_values.append(b, step, s, layer, u);
        let (wq, q_norm, output) = (self.q.values(b), self.q_norm.value(b), self.output.values(b));
        let q_and_gate = wq.apply(b, u);
        let q_and_gate = b.reshape(q_and_gate, &[rows, s.heads, 2 * s.head_dim]);
        let q = b.slice(q_and_gate, 0, s.head_dim);
        let gate = b.slice(q_and_gate, s.head_dim, s.head_dim);
        let q = b.rms_norm(q, q_norm, s.epsilon);
        let q = s.rope.apply(b, q, step.positions);
        let o = b.attention(q, caches, step.table, step.sequences, s.scale);
        let gate = b.activation(gate, "sigmoid");
        let o = b.mul(o, gate);
        let o = b.reshape(o, &[rows, s.query_width()]);
        output.apply(b, o)
    }
}

impl DeltaNet {
    fn build(
        &self,
        b: &mut Builder,
        step: &StepInputs,
        ports: &mut dyn Ports,
        s: &Sizes,
        layer: u32,
        u: ValueId,
    ) -> Result<ValueId> {
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
        let planes = step.context.planes();
        let window = step.slot_state(b, layer, "conv", planes, &[s.conv_taps - 1, s.channels()]);
        let c = match step.rollback {
            None => b.conv_causal_silu(qkv, conv, window, step.sequences),
            Some(rollback) => b.conv_causal_silu_planes(qkv, conv, window, step.sequences, rollback, planes),
        };
        let part = |b: &mut Builder, offset: u32, heads: u32| {
            let part = b.slice(c, offset, heads * s.state_dim);
            b.reshape(part, &[rows, heads, s.state_dim])
        };
        let q = part(b, 0, s.key_heads);
        let k = part(b, s.key_width(), s.key_heads);
        let v = part(b, 2 * s.key_width(), s.value_heads);
        let q = b.l2_norm(q, s.epsilon);
        let k = b.l2_norm(k, s.epsilon);
        let o = ports.delta_net(b, step, layer, [q, k, v, g, beta], &s.delta_net(step))?;

        let z = b.reshape(z, &[rows, s.value_heads, s.state_dim]);
        let norm = self.norm.value(b);
        let y = b.rms_norm_gated(o, norm, z, s.epsilon);
        let y = b.reshape(y, &[rows, s.value_width()]);
        let output = self.output.value(b);
        Ok(b.linear(y, output))
    }
}

impl Family for Qwen35 {
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
            x = layer.build(b, step, ports, &self.sizes, x)?;
        }
        ports.layer_input(b, step, self.layers.len() as u32, x);
        Ok(x)
    }

    fn final_norm(&self, b: &mut Builder, x: ValueId) -> ValueId {
        self.ends.final_norm(b, self.sizes.epsilon, x)
    }

    fn head(&self, b: &mut Builder, hidden: ValueId) -> ValueId {
        self.ends.head(b, hidden)
    }

    fn nextn(&self) -> Option<&dyn NextnBlock> {
        self.nextn.as_ref().map(|nextn| nextn as &dyn NextnBlock)
    }
}

impl Nextn {
    /// The trunk's `ends` are used where the block has none of its own.
    fn open(
        t: &Tensors<'_>,
        sizes: &Sizes,
        index: u32,
        ffn: &FeedForwardShape<'_>,
        ends: &Ends,
    ) -> Result<Self> {
        let name = |part: &str| format!("blk.{index}.nextn.{part}.weight");
        let own_or = |part: &str, other: &Weight, rows: Option<u32>| {
            let own = t.optional(&name(part), |t, name| match rows {
                Some(rows) => t.matrix(name, rows, sizes.hidden),
                None => t.vector(name, sizes.hidden),
            });
            own.map(|own| own.unwrap_or_else(|| other.clone()))
        };
        Ok(Self {
            layer: Layer::open(t, sizes, index, LayerKind::Attention, ffn)?,
            sizes: sizes.clone(),
            projection: t.matrix(&name("eh_proj"), sizes.hidden, 2 * sizes.hidden)?,
            embedding_norm: t.vector(&name("enorm"), sizes.hidden)?,
            hidden_norm: t.vector(&name("hnorm"), sizes.hidden)?,
            head_norm: own_or("shared_head_norm", &ends.output_norm, None)?,
            embedding: own_or("embed_tokens", &ends.embedding, Some(ends.vocabulary))?,
            head: own_or("shared_head_head", &ends.head, Some(ends.vocabulary))?,
            draft_head: t.optional(&name("draft_head"), |t, head| {
                let (head, rows) = t.rows_of(head, sizes.hidden)?;
                let ids = t.indices(&format!("blk.{index}.nextn.draft_head_ids"), rows)?;
                Ok(DraftHead { head, ids, rows })
            })?,
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
        let built = self.layer.build(b, step, &mut Closed, &self.sizes, x);
        let x = built.expect("an attention layer has no port");
        let norm = self.head_norm.value(b);
        b.rms_norm(x, norm, self.sizes.epsilon)
    }

    fn kv_only(&self, b: &mut Builder, step: &StepInputs, embedded: ValueId, hidden: ValueId) {
        let x = self.fuse(b, embedded, hidden);
        let norm = self.layer.norm.value(b);
        let u = b.rms_norm(x, norm, self.sizes.epsilon);
        if let Mixer::Attention(attention) = &self.layer.mixer {
            attention.key_values.append(b, step, &self.sizes.attention, self.layer.index, u);
        }
    }

    fn head(&self, b: &mut Builder, hidden: ValueId) -> ValueId {
        let head = self.head.value(b);
        b.linear(hidden, head)
    }

    fn draft_head_rows(&self) -> Option<u32> {
        Some(self.draft_head.as_ref()?.rows)
    }

    fn draft_head(&self, b: &mut Builder, hidden: ValueId) -> Option<ValueId> {
        let head = self.draft_head.as_ref()?.head.value(b);
        Some(b.linear(hidden, head))
    }

    fn draft_ids(&self, b: &mut Builder, indices: ValueId) -> Option<ValueId> {
        let table = self.draft_head.as_ref()?.ids.value(b);
        Some(b.lookup(indices, table))
    }

    fn embed(&self, b: &mut Builder, ids: ValueId) -> (ValueId, ValueId) {
        let table = self.embedding.value(b);
        b.embed(ids, table)
    }
}
