//! Drafters of architecture `dflash` with random weights.

use std::path::Path;

use super::model_file::{ModelFile, STREAM};
use super::vocabulary::{ControlTokens, add_vocabulary};
use super::{RandomModel, ValueSource, WeightTypes, add_feed_forward};
use crate::AnyError;

/// A `dflash` drafter with random weights.
#[derive(Clone, Debug)]
pub struct RandomDrafter {
    /// Width of the residual stream, that of the target.
    pub hidden: u32,
    /// Layers.
    pub layers: u32,
    /// Inner width of the feed-forward part.
    pub ffn: u32,
    /// Query heads.
    pub heads: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Width of a head, all of it rotated.
    pub head_dim: u32,
    /// Target layers whose inputs are the features.
    pub target_layers: Vec<u32>,
    /// Longest block, the anchor included.
    pub block_size: u32,
    /// Number of tokens, that of the target.
    pub vocab: u32,
    /// Whether it has an embedding and a head of its own, and does not borrow those of its target.
    pub own_vocabulary: bool,
    /// Rows of the block do not see those behind them.
    pub causal: bool,
    /// Positions that the layers see for which the list says so.
    pub sliding: Option<(u32, Vec<bool>)>,
    /// `context_length`.
    pub context: u32,
    /// Base of the rotary angles.
    pub rope_base: f32,
    /// Types of the matrices.
    pub weights: WeightTypes,
    /// How values come about.
    pub values: ValueSource,
    /// Drafters that differ in nothing else have other weights.
    pub seed: u64,
}

impl RandomDrafter {
    /// A drafter for `target`: 2 layers and 2 features for small targets, 5 and 5 for those of 1024 and more.
    pub fn for_target(target: &RandomModel) -> Self {
        let is_big = target.hidden >= 1024;
        let (layers, features) = if is_big { (5, 5) } else { (2, 2) };
        let head_dim = if is_big { 128 } else { target.head_dim };
        let heads = (target.hidden / head_dim).max(1);
        // Spread evenly, from the input of layer 2 to that of the last layer.
        let last = target.layers.saturating_sub(3);
        let target_layers =
            (0..features).map(|k| (2 + k * last / (features - 1)).min(target.layers - 1)).collect();
        RandomDrafter {
            hidden: target.hidden,
            layers,
            ffn: target.ffn,
            heads,
            kv_heads: (heads / 4).max(1),
            head_dim,
            target_layers,
            block_size: 16,
            vocab: target.vocab,
            own_vocabulary: false,
            causal: false,
            sliding: None,
            context: target.context,
            rope_base: target.rope_base,
            weights: target.weights,
            values: target.values,
            seed: target.seed,
        }
    }

    /// The token that stands for a place to be filled.
    pub fn mask_token(&self) -> u32 {
        ControlTokens::of(self.vocab).mask
    }

    /// Writes the drafter to a file, replacing what is there.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), AnyError> {
        self.plan().write_file(path.as_ref())
    }

    /// The file as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.plan().write_to(&mut bytes).expect("writing to memory cannot fail");
        bytes
    }

    fn plan(&self) -> ModelFile {
        let mut file = ModelFile::new("dflash", self.weights, self.layers, self.seed, self.values);
        self.add_metadata(&mut file);
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        file.matrix("fc.weight".into(), self.hidden * self.target_layers.len() as u32, self.hidden);
        file.norm("enc.output_norm.weight".into(), self.hidden);
        file.output_norm("output_norm.weight".into(), self.hidden);
        if self.own_vocabulary {
            file.matrix_of("token_embd.weight".into(), self.hidden, self.vocab, STREAM);
            file.matrix("output.weight".into(), self.hidden, self.vocab);
        }
        for layer in 0..self.layers {
            let name = |suffix: &str| format!("blk.{layer}.{suffix}");
            file.norm(name("attn_norm.weight"), self.hidden);
            file.matrix(name("attn_q.weight"), self.hidden, queries);
            file.matrix(name("attn_k.weight"), self.hidden, keys);
            file.matrix(name("attn_v.weight"), self.hidden, keys);
            file.branch_output(name("attn_output.weight"), queries, self.hidden);
            file.norm(name("attn_q_norm.weight"), self.head_dim);
            file.norm(name("attn_k_norm.weight"), self.head_dim);
            file.norm(name("ffn_norm.weight"), self.hidden);
            add_feed_forward(&mut file, name, self.hidden, self.ffn);
        }
        file
    }

    fn add_metadata(&self, file: &mut ModelFile) {
        let layers: Vec<i32> = self.target_layers.iter().map(|layer| *layer as i32).collect();
        let header = &mut file.header;
        header
            .metadata("dflash.context_length", self.context)
            .metadata("dflash.embedding_length", self.hidden)
            .metadata("dflash.feed_forward_length", self.ffn)
            .metadata("dflash.attention.head_count", self.heads)
            .metadata("dflash.attention.head_count_kv", self.kv_heads)
            .metadata("dflash.attention.key_length", self.head_dim)
            .metadata("dflash.attention.value_length", self.head_dim)
            .metadata("dflash.attention.layer_norm_rms_epsilon", 1e-6_f32)
            .metadata("dflash.attention.causal", self.causal)
            .metadata("dflash.rope.freq_base", self.rope_base)
            .metadata("dflash.rope.dimension_count", self.head_dim)
            .metadata("dflash.rope.dimension_sections", vec![(self.head_dim / 2) as i32, 0, 0, 0])
            .metadata("dflash.block_size", self.block_size)
            .metadata("dflash.target_layers", layers);
        if let Some((window, layers)) = &self.sliding {
            header
                .metadata("dflash.attention.sliding_window", *window)
                .metadata("dflash.attention.sliding_window_pattern", layers.clone());
        }
        add_vocabulary(header, self.vocab);
        header.metadata("tokenizer.ggml.mask_token_id", self.mask_token());
    }
}
