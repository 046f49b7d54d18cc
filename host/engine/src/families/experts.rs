//! Feed-forward parts that are mixtures of experts.
//!
//! With f = rms(x), each row takes the experts with its largest router logits:
//! x += Σ w_e · down_e(silu(gate_e f) · up_e f), plus sigmoid(g·f) times the same of a shared expert where there is one.
//! The weights are the softmax of the logits, normalised over the chosen.

use super::metadata::Metadata;
use super::parts::FeedForward;
use crate::error::Result;
use crate::weights::{Tensors, Weight};
use paceline_plugin_api::graph::{Builder, Routing, ValueId};

/// More experts than any published model has in a layer.
const MOST_EXPERTS: u32 = 4096;

/// `expert_gating_func` in files.
const GATING_SOFTMAX: u32 = 1;
const GATING_SIGMOID: u32 = 2;

/// Sizes of the experts, the same in all layers.
#[derive(Clone, Debug)]
pub(super) struct ExpertShape {
    count: u32,
    used: u32,
    inner: u32,
    /// Inner width of the shared expert, if there is one.
    shared: Option<u32>,
    routing: Routing,
}

impl ExpertShape {
    /// Reads the keys; `has_shared`: the family has a shared expert.
    pub fn read(meta: &Metadata<'_>, has_shared: bool) -> Result<Self> {
        let (count, used) = (meta.dimension("expert_count")?, meta.dimension("expert_used_count")?);
        if count > MOST_EXPERTS || used > count {
            return Err(meta.fault(format!(
                "`{}` is {count} with {used} used for each token: at most {MOST_EXPERTS}, and no more used than \
                 there are",
                meta.key("expert_count")
            )));
        }
        let gating = meta.key("expert_gating_func");
        let sigmoid = match meta.gguf.get_u32(&gating)? {
            None | Some(0 | GATING_SOFTMAX) => false,
            Some(GATING_SIGMOID) => true,
            Some(other) => {
                return Err(meta.unsupported(format!(
                    "`{gating}` is {other}; softmax (1) and sigmoid (2) are supported"
                )));
            }
        };
        let normalize = meta.gguf.get_bool(&meta.key("expert_weights_norm"))?.unwrap_or(true);
        let factor = meta.positive_float_or("expert_weights_scale", 1.0)?;
        let inner = meta.dimension("expert_feed_forward_length")?;
        let shared = if has_shared {
            Some(meta.dimension_or("expert_shared_feed_forward_length", inner)?)
        } else {
            None
        };
        Ok(Self { count, used, inner, shared, routing: Routing { sigmoid, normalize, factor } })
    }
}

/// The matrices of experts, or of one.
struct Matrices {
    gate: Weight,
    up: Weight,
    down: Weight,
}

impl Matrices {
    fn values(&self, b: &mut Builder) -> [ValueId; 3] {
        [&self.gate, &self.up, &self.down].map(|weight| weight.value(b))
    }
}

/// A mixture of experts, opened.
pub(super) struct Experts {
    norm: Weight,
    router: Weight,
    matrices: Matrices,
    /// The shared expert, and the row that gates it.
    shared: Option<(Matrices, Weight)>,
    used: u32,
    routing: Routing,
}

impl Experts {
    pub fn open(t: &Tensors<'_>, layer: u32, norm: &str, hidden: u32, shape: &ExpertShape) -> Result<Self> {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let &ExpertShape { count, used, inner, shared, routing } = shape;
        let merged =
            t.optional(&name("ffn_gate_up_exps"), |t, name| t.merged_experts(name, [count, inner, hidden]));
        let [gate, up] = match merged? {
            Some(both) => both,
            None => [
                t.experts(&name("ffn_gate_exps"), [count, inner, hidden])?,
                t.experts(&name("ffn_up_exps"), [count, inner, hidden])?,
            ],
        };
        let shared = shared.map(|inner| -> Result<_> {
            let matrices = Matrices {
                gate: t.single_expert(&name("ffn_gate_shexp"), inner, hidden)?,
                up: t.single_expert(&name("ffn_up_shexp"), inner, hidden)?,
                down: t.single_expert(&name("ffn_down_shexp"), hidden, inner)?,
            };
            Ok((matrices, t.row(&name("ffn_gate_inp_shexp"), hidden)?))
        });
        Ok(Self {
            norm: t.vector(&name(norm), hidden)?,
            router: t.matrix(&name("ffn_gate_inp"), count, hidden)?,
            matrices: Matrices { gate, up, down: t.experts(&name("ffn_down_exps"), [count, hidden, inner])? },
            shared: shared.transpose()?,
            used,
            routing,
        })
    }

    fn build(&self, b: &mut Builder, epsilon: f32, x: ValueId) -> ValueId {
        let norm = self.norm.value(b);
        let f = b.rms_norm(x, norm, epsilon);
        let router = self.router.value(b);
        let logits = b.linear(f, router);
        let choice = b.route(logits, self.used, self.routing);
        let matrices = self.matrices.values(b);
        let mut out = b.experts(f, matrices, choice, "silu");
        if let Some((matrices, gate)) = &self.shared {
            let (matrices, gate) = (matrices.values(b), gate.value(b));
            let logit = b.linear(f, gate);
            // An expert that every row chooses.
            let choice = b.route(logit, 1, Routing { sigmoid: true, normalize: false, factor: 1.0 });
            let shared = b.experts(f, matrices, choice, "silu");
            out = b.add(out, shared);
        }
        b.add(x, out)
    }
}

/// The feed-forward part of a layer.
pub(super) enum FeedForwardPart {
    Dense(Box<FeedForward>),
    Experts(Box<Experts>),
}

/// Sizes of a layer's feed-forward part.
pub(super) enum FeedForwardShape<'a> {
    /// Inner width.
    Dense(u32),
    Experts(&'a ExpertShape),
}

impl FeedForwardPart {
    /// Opens the part of a layer; families give the norm different names.
    pub fn open(
        t: &Tensors<'_>,
        layer: u32,
        norm: &str,
        hidden: u32,
        shape: &FeedForwardShape<'_>,
    ) -> Result<Self> {
        Ok(match shape {
            FeedForwardShape::Dense(inner) => {
                Self::Dense(Box::new(FeedForward::open(t, layer, norm, hidden, *inner)?))
            }
            FeedForwardShape::Experts(shape) => {
                Self::Experts(Box::new(Experts::open(t, layer, norm, hidden, shape)?))
            }
        })
    }

    /// x plus what the part makes of it.
    pub fn build(&self, b: &mut Builder, epsilon: f32, x: ValueId) -> ValueId {
        match self {
            Self::Dense(part) => part.build(b, epsilon, x),
            Self::Experts(part) => part.build(b, epsilon, x),
        }
    }
}
