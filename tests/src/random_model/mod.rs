//! Models with random weights: architectures `qwen35`, `qwen35moe`, `qwen3` and `llama`, and drafters of architecture
//! `dflash`.
//!
//! A model is described by its sizes; its weights follow from the seed and the tensors' names. Files have every key
//! and tensor that a converted model has, and a tokenizer that knows every byte.

mod dense;
mod drafter;
mod generator;
mod model_file;
mod random_blocks;
mod variants;
mod vocabulary;
mod weight_types;

use std::path::Path;

use paceline_plugin_api::graph::DType;

use crate::AnyError;
use model_file::{BRANCH, ModelFile, STREAM, Values};

pub use dense::{DenseFamily, RandomDense};
pub use drafter::RandomDrafter;
pub use generator::Generator;
pub use model_file::ValueSource;
pub use vocabulary::{ControlTokens, MIN_VOCABULARY};
pub use weight_types::WeightTypes;

/// Experts of every layer.
#[derive(Clone, Copy, Debug)]
pub struct RandomExperts {
    /// Experts of a layer.
    pub count: u32,
    /// Those that a token goes through.
    pub used: u32,
    /// Inner width of one.
    pub inner: u32,
    /// Inner width of the shared one; 0 if there is none.
    pub shared: u32,
    /// Whether gate and up of all experts are one tensor.
    pub merged: bool,
}

/// A `qwen35` or `qwen35moe` model with random weights. The default is tiny: 0.9 M parameters, 4 layers, F32.
#[derive(Clone, Debug)]
pub struct RandomModel {
    /// Width of the residual stream (`embedding_length`).
    pub hidden: u32,
    /// Layers of the trunk; the MTP block comes on top in `block_count`.
    pub layers: u32,
    /// Inner width of the feed-forward part (`feed_forward_length`).
    pub ffn: u32,
    /// Query heads of attention layers.
    pub heads: u32,
    /// KV heads of attention layers.
    pub kv_heads: u32,
    /// Width of an attention head.
    pub head_dim: u32,
    /// How many values of a head are rotated; even.
    pub rotary: u32,
    /// M-RoPE sections in pairs of values; their sum is `rotary` / 2.
    pub sections: [i32; 4],
    /// Key (and query) heads of Gated DeltaNet layers (`ssm.group_count`).
    pub key_heads: u32,
    /// Value heads of Gated DeltaNet layers (`ssm.time_step_rank`), a multiple of `key_heads`.
    pub value_heads: u32,
    /// Width of a Gated DeltaNet head (`ssm.state_size`).
    pub gdn_dim: u32,
    /// Taps of the causal convolution.
    pub conv: u32,
    /// Layer i is attention if i + 1 is a multiple of it.
    pub interval: u32,
    /// Per trunk layer, true for Gated DeltaNet: written as `attention.recurrent_layers`, which goes before
    /// `interval`.
    pub recurrent_layers: Option<Vec<bool>>,
    /// `attention.scale` instead of 1/sqrt(`head_dim`).
    pub attention_scale: Option<f32>,
    /// Mixtures of experts instead of the feed-forward parts, which makes it a `qwen35moe` model.
    pub experts: Option<RandomExperts>,
    /// MTP blocks: 0 or 1.
    pub nextn: u32,
    /// Whether the MTP block has a final norm of its own (`nextn.shared_head_norm`).
    pub nextn_norm: bool,
    /// Whether the MTP block has an embedding and an output head of its own.
    pub nextn_vocabulary: bool,
    /// Number of tokens, at least [`MIN_VOCABULARY`].
    pub vocab: u32,
    /// Whether the embedding is the output head too.
    pub tied: bool,
    /// `context_length`.
    pub context: u32,
    /// Base of the rotary angles.
    pub rope_base: f32,
    /// Types of the matrices.
    pub weights: WeightTypes,
    /// How values come about.
    pub values: ValueSource,
    /// Models that differ in nothing else have other weights.
    pub seed: u64,
}

impl Default for RandomModel {
    fn default() -> Self {
        RandomModel {
            hidden: 128,
            layers: 4,
            ffn: 256,
            heads: 4,
            kv_heads: 2,
            head_dim: 32,
            rotary: 8,
            sections: [2, 1, 1, 0],
            key_heads: 2,
            value_heads: 4,
            gdn_dim: 32,
            conv: 4,
            interval: 4,
            recurrent_layers: None,
            attention_scale: None,
            experts: None,
            nextn: 1,
            nextn_norm: true,
            nextn_vocabulary: false,
            vocab: 384,
            tied: true,
            context: 4096,
            rope_base: 1e7,
            weights: WeightTypes::All(DType::F32),
            values: ValueSource::Normal,
            seed: 1,
        }
    }
}

impl RandomModel {
    /// A model whose rows are whole blocks of 256, so that every type fits: 3.5 M parameters.
    pub fn wide() -> Self {
        RandomModel {
            hidden: 256,
            ffn: 512,
            heads: 4,
            head_dim: 64,
            rotary: 16,
            sections: [3, 3, 2, 0],
            gdn_dim: 64,
            ..RandomModel::default()
        }
    }

    /// The shape of the family's 0.8B model, Q8_0 from random blocks: to be timed, not to be compared.
    pub fn shaped_0_8b() -> Self {
        RandomModel {
            hidden: 1024,
            layers: 24,
            ffn: 3584,
            heads: 8,
            kv_heads: 2,
            head_dim: 256,
            rotary: 64,
            sections: [11, 11, 10, 0],
            key_heads: 16,
            value_heads: 16,
            gdn_dim: 128,
            vocab: 248_320,
            context: 262_144,
            weights: WeightTypes::All(DType::Q8_0),
            values: ValueSource::RandomBlocks,
            ..RandomModel::default()
        }
    }

    /// The shape of the family's 27B model, in Q4_K: to be planned with [`Self::write_empty`], not to be run.
    pub fn shaped_27b() -> Self {
        RandomModel {
            hidden: 5120,
            layers: 64,
            ffn: 17_408,
            heads: 24,
            kv_heads: 4,
            value_heads: 48,
            tied: false,
            weights: WeightTypes::All(DType::Q4_K),
            ..RandomModel::shaped_0_8b()
        }
    }

    /// Models that differ in one thing each, by name; what a test of all shapes walks over. All are small.
    pub fn variants() -> Vec<(&'static str, RandomModel)> {
        variants::variants()
    }

    /// The variant with that name.
    pub fn variant(name: &str) -> Option<RandomModel> {
        Self::variants().into_iter().find(|variant| variant.0 == name).map(|variant| variant.1)
    }

    fn architecture(&self) -> &'static str {
        if self.experts.is_some() { "qwen35moe" } else { "qwen35" }
    }

    /// The control tokens of its vocabulary; token b below 256 is the byte b.
    pub fn control_tokens(&self) -> ControlTokens {
        ControlTokens::of(self.vocab)
    }

    /// Whether trunk layer `layer` is Gated DeltaNet.
    pub fn is_recurrent(&self, layer: u32) -> bool {
        match &self.recurrent_layers {
            Some(layers) => layers[layer as usize],
            None => !(layer + 1).is_multiple_of(self.interval),
        }
    }

    /// `count` tokens that are not control tokens, for prompts.
    pub fn tokens(&self, count: usize, seed: u64) -> Vec<u32> {
        random_tokens(self.control_tokens(), count, seed)
    }

    /// Writes the model to a file, replacing what is there; needs memory for one row only.
    ///
    /// # Errors
    /// If the file cannot be written.
    ///
    /// # Panics
    /// If the sizes do not fit each other.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), AnyError> {
        self.plan().write_file(path.as_ref())
    }

    /// Writes a file whose weights are all zero and take no room on the disk.
    ///
    /// # Errors
    /// If the file cannot be written.
    ///
    /// # Panics
    /// If the sizes do not fit each other.
    pub fn write_empty(&self, path: impl AsRef<Path>) -> Result<(), AnyError> {
        self.plan().write_empty(path.as_ref())
    }

    /// The file as bytes.
    ///
    /// # Panics
    /// If the sizes do not fit each other.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.plan().write_to(&mut bytes).expect("writing to memory cannot fail");
        bytes
    }

    fn check(&self) {
        let pairs: i32 = self.sections.iter().sum();
        assert!(self.rotary.is_multiple_of(2) && self.rotary <= self.head_dim, "rotary width");
        assert_eq!(pairs as u32, self.rotary / 2, "sections");
        assert!(self.heads.is_multiple_of(self.kv_heads), "attention heads");
        assert!(self.value_heads.is_multiple_of(self.key_heads), "Gated DeltaNet heads");
        assert!(self.nextn <= 1, "at most one MTP block");
        assert!(self.layers > 0 && self.interval > 0 && self.conv > 0, "sizes above 0");
        assert!(self.recurrent_layers.as_ref().is_none_or(|list| list.len() == self.layers as usize));
    }

    fn plan(&self) -> ModelFile {
        self.check();
        let blocks = self.layers + self.nextn;
        let mut file = ModelFile::new(self.architecture(), self.weights, blocks, self.seed, self.values);
        self.add_metadata(&mut file);
        file.matrix_of("token_embd.weight".into(), self.hidden, self.vocab, STREAM);
        file.output_norm("output_norm.weight".into(), self.hidden);
        if !self.tied {
            file.matrix("output.weight".into(), self.hidden, self.vocab);
        }
        for block in 0..blocks {
            let name = |suffix: &str| format!("blk.{block}.{suffix}");
            let is_nextn = block >= self.layers;
            file.norm(name("attn_norm.weight"), self.hidden);
            file.norm(name("post_attention_norm.weight"), self.hidden);
            if is_nextn || !self.is_recurrent(block) {
                self.add_attention(&mut file, name);
            } else {
                self.add_recurrent(&mut file, name);
            }
            match self.experts {
                Some(experts) => add_experts(&mut file, name, self.hidden, experts),
                None => add_feed_forward(&mut file, name, self.hidden, self.ffn),
            }
            if is_nextn {
                self.add_nextn(&mut file, name);
            }
        }
        file
    }

    fn add_metadata(&self, file: &mut ModelFile) {
        let key = |name: &str| format!("{}.{name}", self.architecture());
        let header = &mut file.header;
        header
            .metadata(key("context_length"), self.context)
            .metadata(key("embedding_length"), self.hidden)
            .metadata(key("feed_forward_length"), self.ffn)
            .metadata(key("attention.head_count"), self.heads)
            .metadata(key("attention.head_count_kv"), self.kv_heads)
            .metadata(key("attention.key_length"), self.head_dim)
            .metadata(key("attention.value_length"), self.head_dim)
            .metadata(key("attention.layer_norm_rms_epsilon"), 1e-6_f32)
            .metadata(key("rope.freq_base"), self.rope_base)
            .metadata(key("rope.dimension_count"), self.rotary)
            .metadata(key("rope.dimension_sections"), self.sections.to_vec())
            .metadata(key("ssm.conv_kernel"), self.conv)
            .metadata(key("ssm.state_size"), self.gdn_dim)
            .metadata(key("ssm.group_count"), self.key_heads)
            .metadata(key("ssm.time_step_rank"), self.value_heads)
            .metadata(key("ssm.inner_size"), self.gdn_dim * self.value_heads)
            .metadata(key("full_attention_interval"), self.interval);
        if let Some(experts) = self.experts {
            header
                .metadata(key("expert_count"), experts.count)
                .metadata(key("expert_used_count"), experts.used)
                .metadata(key("expert_feed_forward_length"), experts.inner)
                .metadata(key("expert_shared_feed_forward_length"), experts.shared);
        }
        if let Some(scale) = self.attention_scale {
            header.metadata(key("attention.scale"), scale);
        }
        if let Some(layers) = &self.recurrent_layers {
            let mut layers = layers.clone();
            // One entry per block; the MTP block is attention.
            layers.resize((self.layers + self.nextn) as usize, false);
            header.metadata(key("attention.recurrent_layers"), layers);
        }
        if self.nextn > 0 {
            header.metadata(key("nextn_predict_layers"), self.nextn);
        }
        vocabulary::add_vocabulary(header, self.vocab);
    }

    fn add_attention(&self, file: &mut ModelFile, name: impl Fn(&str) -> String) {
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        // Each query head is followed by its gate.
        file.matrix(name("attn_q.weight"), self.hidden, 2 * queries);
        file.matrix(name("attn_k.weight"), self.hidden, keys);
        file.matrix(name("attn_v.weight"), self.hidden, keys);
        file.branch_output(name("attn_output.weight"), queries, self.hidden);
        file.norm(name("attn_q_norm.weight"), self.head_dim);
        file.norm(name("attn_k_norm.weight"), self.head_dim);
    }

    fn add_recurrent(&self, file: &mut ModelFile, name: impl Fn(&str) -> String) {
        let values = self.value_heads * self.gdn_dim;
        let channels = 2 * self.key_heads * self.gdn_dim + values;
        file.matrix(name("attn_qkv.weight"), self.hidden, channels);
        file.matrix(name("attn_gate.weight"), self.hidden, values);
        file.floats(name("ssm_conv1d.weight"), &[self.conv, channels], Values::Normal { deviation: 0.4 });
        file.floats(name("ssm_dt.bias"), &[self.value_heads], Values::Between { low: -4.0, high: -1.0 });
        file.floats(name("ssm_a"), &[self.value_heads], Values::Between { low: -8.0, high: -0.5 });
        file.matrix(name("ssm_beta.weight"), self.hidden, self.value_heads);
        file.matrix(name("ssm_alpha.weight"), self.hidden, self.value_heads);
        file.norm(name("ssm_norm.weight"), self.gdn_dim);
        file.branch_output(name("ssm_out.weight"), values, self.hidden);
    }

    fn add_nextn(&self, file: &mut ModelFile, name: impl Fn(&str) -> String) {
        let inputs = 2 * self.hidden;
        file.matrix_of(name("nextn.eh_proj.weight"), inputs, self.hidden, STREAM / (inputs as f32).sqrt());
        file.norm(name("nextn.enorm.weight"), self.hidden);
        file.norm(name("nextn.hnorm.weight"), self.hidden);
        if self.nextn_norm {
            file.norm(name("nextn.shared_head_norm.weight"), self.hidden);
        }
        if self.nextn_vocabulary {
            file.matrix_of(name("nextn.embed_tokens.weight"), self.hidden, self.vocab, STREAM);
            file.matrix(name("nextn.shared_head_head.weight"), self.hidden, self.vocab);
        }
    }
}

/// Tokens before the control tokens.
fn random_tokens(controls: ControlTokens, count: usize, seed: u64) -> Vec<u32> {
    let mut generator = Generator::new(seed, "prompt");
    (0..count).map(|_| generator.below(controls.end_of_text)).collect()
}

fn add_feed_forward(file: &mut ModelFile, name: impl Fn(&str) -> String, hidden: u32, inner: u32) {
    file.matrix(name("ffn_gate.weight"), hidden, inner);
    file.matrix(name("ffn_up.weight"), hidden, inner);
    file.branch_output(name("ffn_down.weight"), inner, hidden);
}

fn add_experts(file: &mut ModelFile, name: impl Fn(&str) -> String, hidden: u32, experts: RandomExperts) {
    let RandomExperts { count, used, inner, shared, merged } = experts;
    // Logits of deviation 1 or so: the chosen differ in weight.
    file.floats(
        name("ffn_gate_inp.weight"),
        &[hidden, count],
        Values::Normal { deviation: 1.0 / (hidden as f32).sqrt() },
    );
    if merged {
        file.experts(name("ffn_gate_up_exps.weight"), [hidden, 2 * inner, count], 1.0);
    } else {
        file.experts(name("ffn_gate_exps.weight"), [hidden, inner, count], 1.0);
        file.experts(name("ffn_up_exps.weight"), [hidden, inner, count], 1.0);
    }
    // The weighted sum of several outputs is smaller than each.
    file.experts(name("ffn_down_exps.weight"), [inner, hidden, count], BRANCH * (used as f32).sqrt());
    if shared == 0 {
        return;
    }
    file.floats(
        name("ffn_gate_inp_shexp.weight"),
        &[hidden],
        Values::Normal { deviation: 1.0 / (hidden as f32).sqrt() },
    );
    file.matrix(name("ffn_gate_shexp.weight"), hidden, shared);
    file.matrix(name("ffn_up_shexp.weight"), hidden, shared);
    file.branch_output(name("ffn_down_shexp.weight"), shared, hidden);
}
