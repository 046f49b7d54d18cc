//! The drafter's own model: its sizes and weights, checked against the target.

use crate::checks;
use paceline_plugin_api::graph::{Builder, ValueId};
use paceline_plugin_api::strategy::{DRAFT_WEIGHT, Facts, Session, Source, TensorFacts};
use paceline_plugin_api::{Error, Result};
use std::collections::BTreeMap;

/// Most layers of a drafter, and most target layers that it reads.
const MOST_LAYERS: u32 = 256;
/// Most heads, and most elements of a head.
const MOST_WIDTH: u32 = 1 << 16;
/// Block length of a file that does not say it.
const DEFAULT_BLOCK: u32 = 16;
/// Base of the rotary angles of a file that does not say it.
const DEFAULT_BASE: f64 = 10_000.0;

/// A drafter.
#[derive(Clone, Debug)]
pub(crate) struct DraftModel {
    pub layers: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_width: u32,
    pub eps: f32,
    pub rotary: u32,
    pub rope_base: f64,
    /// Factor of the attention scores.
    pub scale: f64,
    /// Rows of the block see only those before them.
    pub causal: bool,
    /// Factor of the embedded tokens.
    pub embedding_scale: f32,
    /// Target layers whose inputs are read, in the order of the fusion's columns.
    pub target_layers: Vec<u32>,
    /// Longest block, the anchor included.
    pub block: u32,
    /// Positions that it was trained for; 0 if the file does not say.
    pub trained: u32,
    /// Token of a place to be filled.
    pub mask: u32,
    /// Window of each layer; 0 for none.
    pub windows: Vec<u32>,
    weights: BTreeMap<String, TensorFacts>,
}

/// Metadata of the drafter's file.
struct Keys<'a>(&'a dyn Session);

impl Keys<'_> {
    fn required(&self, key: &str, most: u32) -> Result<u32> {
        self.0.require(Source::Draft, &format!("dflash.{key}"), 1..=most)
    }

    fn optional(&self, key: &str, default: u32, most: u32) -> Result<u32> {
        let key = format!("dflash.{key}");
        match self.0.integer(Source::Draft, &key) {
            None => Ok(default),
            Some(_) => self.0.require(Source::Draft, &key, 1..=most),
        }
    }

    /// A number above 0.
    fn positive(&self, key: &str, default: Option<f64>) -> Result<f64> {
        let key = format!("dflash.{key}");
        let value = self.0.number(Source::Draft, &key).or(default);
        let value =
            value.ok_or_else(|| Error::unsupported(format!("the drafter's file has no key `{key}`")))?;
        // Graphs carry f32 factors, so what becomes 0 or infinite as one is out of range.
        if (value as f32).is_finite() && value as f32 > 0.0 {
            return Ok(value);
        }
        Err(Error::unsupported(format!(
            "the drafter's file has the value {value} for `{key}`; it must be positive"
        )))
    }
}

impl DraftModel {
    /// Reads and checks the drafter's file.
    ///
    /// # Errors
    /// What is missing, does not fit the target, or is of a kind that is not supported, by key or tensor.
    pub fn read(facts: &Facts, session: &dyn Session) -> Result<Self> {
        checks::architecture(session)?;
        checks::variants(session)?;
        let keys = Keys(session);
        let layers = keys.required("block_count", MOST_LAYERS)?;
        checks::hidden(facts, keys.required("embedding_length", u32::MAX)?)?;
        checks::vocabulary(facts, session)?;
        let heads = keys.required("attention.head_count", MOST_WIDTH)?;
        let kv_heads = keys.optional("attention.head_count_kv", heads, heads)?;
        let head_width = keys.optional("attention.key_length", (facts.hidden / heads).max(1), MOST_WIDTH)?;
        let value_width = keys.optional("attention.value_length", head_width, MOST_WIDTH)?;
        checks::heads(heads, kv_heads, head_width, value_width)?;
        checks::cache_types(facts, head_width)?;
        let rotary = keys.optional("rope.dimension_count", head_width, MOST_WIDTH)?;
        checks::rotary(session, rotary, head_width)?;
        let mask =
            session.require(Source::Draft, "tokenizer.ggml.mask_token_id", 0..=facts.vocabulary - 1)?;
        let mut model = Self {
            layers,
            heads,
            kv_heads,
            head_width,
            eps: keys.positive("attention.layer_norm_rms_epsilon", None)? as f32,
            rotary,
            rope_base: keys.positive("rope.freq_base", Some(DEFAULT_BASE))?,
            scale: keys.positive("attention.scale", Some(1.0 / f64::from(head_width).sqrt()))?,
            causal: session.integer(Source::Draft, "dflash.attention.causal").is_some_and(|on| on != 0),
            embedding_scale: keys.positive("embedding_scale", Some(1.0))? as f32,
            target_layers: checks::target_layers(facts, session, MOST_LAYERS)?,
            block: keys.optional("block_size", DEFAULT_BLOCK, MOST_WIDTH)?,
            trained: keys.optional("context_length", 0, u32::MAX)?,
            mask,
            windows: checks::windows(session, layers)?,
            weights: BTreeMap::new(),
        };
        if model.block < 2 {
            return Err(Error::unsupported(
                "the drafter's file has the value 1 for `dflash.block_size`: such a block has no token to draft",
            ));
        }
        model.take_weights(facts, session, keys.required("feed_forward_length", u32::MAX)?)?;
        Ok(model)
    }

    fn take_weights(&mut self, facts: &Facts, session: &dyn Session, inner: u32) -> Result<()> {
        let hidden = facts.hidden;
        let size = |parts: u32, width: u32, what: &str| {
            parts
                .checked_mul(width)
                .ok_or_else(|| Error::unsupported(format!("the drafter's {what} are too wide")))
        };
        let queries = size(self.heads, self.head_width, "heads")?;
        let keys = size(self.kv_heads, self.head_width, "heads")?;
        let features = size(self.target_layers.len() as u32, hidden, "features")?;
        self.take(session, "fc.weight", &[hidden, features])?;
        self.take(session, "enc.output_norm.weight", &[hidden])?;
        self.take(session, "output_norm.weight", &[hidden])?;
        for layer in 0..self.layers {
            let layer_tensors: [(&str, &[u32]); 11] = [
                ("attn_norm", &[hidden]),
                ("attn_q", &[queries, hidden]),
                ("attn_k", &[keys, hidden]),
                ("attn_v", &[keys, hidden]),
                ("attn_output", &[hidden, queries]),
                ("attn_q_norm", &[self.head_width]),
                ("attn_k_norm", &[self.head_width]),
                ("ffn_norm", &[hidden]),
                ("ffn_gate", &[inner, hidden]),
                ("ffn_up", &[inner, hidden]),
                ("ffn_down", &[hidden, inner]),
            ];
            for (part, dims) in layer_tensors {
                self.take(session, &format!("blk.{layer}.{part}.weight"), dims)?;
            }
        }
        for name in [EMBEDDING, HEAD] {
            if session.tensor(Source::Draft, name).is_some() {
                self.take(session, name, &[facts.vocabulary, hidden])?;
            }
        }
        Ok(())
    }

    fn take(&mut self, session: &dyn Session, name: &str, dims: &[u32]) -> Result<()> {
        self.weights.insert(name.to_owned(), checks::tensor(session, name, dims)?);
        Ok(())
    }

    /// The name of the head among the drafter's own weights; `None` if it uses the target's.
    pub fn own_head(&self) -> Option<&'static str> {
        [HEAD, EMBEDDING].into_iter().find(|name| self.weights.contains_key(*name))
    }

    /// The name of the embedding among the drafter's own weights; `None` if it uses the target's.
    pub fn own_embedding(&self) -> Option<&'static str> {
        [EMBEDDING].into_iter().find(|name| self.weights.contains_key(*name))
    }

    /// A weight of the drafter's file in a graph. All of them were checked, so the name is one of them.
    pub fn weight(&self, b: &mut Builder, name: &str) -> ValueId {
        let tensor = &self.weights[name];
        b.weight(&format!("{DRAFT_WEIGHT}{name}"), tensor.dtype, &tensor.dims)
    }

    /// Positions that some layer sees if `wanted` may be seen: less if all layers slide.
    pub fn visible(&self, wanted: u32) -> u32 {
        let slides = self.windows.iter().all(|&window| window > 0);
        let widest = self.windows.iter().copied().max().filter(|_| slides);
        widest.map_or(wanted, |widest| wanted.min(widest))
    }
}

/// The drafter's own embedding.
const EMBEDDING: &str = "token_embd.weight";
/// The drafter's own head.
const HEAD: &str = "output.weight";
