//! Models of plain layers with random weights: architectures `qwen3`, `qwen3moe` and `llama`.

use std::path::Path;

use paceline_plugin_api::graph::DType;

use super::model_file::{ModelFile, STREAM, Values};
use super::vocabulary::{ControlTokens, add_vocabulary};
use super::{
    RandomExperts, ValueSource, WeightTypes, add_experts, add_feed_forward, random_tokens, variants,
};
use crate::AnyError;

/// Which dense family a model is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenseFamily {
    /// Queries and keys are normed per head, and turn in pairs of halves.
    Qwen3,
    /// The same, with mixtures of experts.
    Qwen3Moe,
    /// No norms on heads; queries and keys turn in adjacent pairs.
    Llama,
}

impl DenseFamily {
    /// The architecture, as files name it.
    pub fn architecture(self) -> &'static str {
        match self {
            DenseFamily::Qwen3 => "qwen3",
            DenseFamily::Qwen3Moe => "qwen3moe",
            DenseFamily::Llama => "llama",
        }
    }
}

/// A dense model with random weights. The default is tiny: 0.6 M parameters, 3 layers, F32.
#[derive(Clone, Debug)]
pub struct RandomDense {
    /// Family.
    pub family: DenseFamily,
    /// Width of the residual stream (`embedding_length`).
    pub hidden: u32,
    /// Layers.
    pub layers: u32,
    /// Inner width of the feed-forward part (`feed_forward_length`).
    pub ffn: u32,
    /// Experts, without a shared one, of the family that has them.
    pub experts: RandomExperts,
    /// Query heads.
    pub heads: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// How many values of a head are rotated; even.
    pub rotary: u32,
    /// Whether the widths of heads and rotation are written; if not, they are hidden / heads.
    pub states_widths: bool,
    /// Whether each pair of the rotation has a factor (`rope_freqs.weight`).
    pub rope_factors: bool,
    /// Factor of linear scaling of positions.
    pub linear_scaling: Option<f32>,
    /// Whether the products of attention have biases.
    pub biases: bool,
    /// Number of tokens, at least [`super::MIN_VOCABULARY`].
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

impl RandomDense {
    /// The tiny model of a family.
    pub fn tiny(family: DenseFamily) -> Self {
        RandomDense {
            family,
            hidden: 128,
            layers: 3,
            ffn: 256,
            experts: RandomExperts { count: 6, used: 2, inner: 96, shared: 0, merged: false },
            heads: 4,
            kv_heads: 2,
            head_dim: 32,
            rotary: 32,
            states_widths: true,
            rope_factors: false,
            linear_scaling: None,
            biases: false,
            vocab: 384,
            tied: true,
            context: 4096,
            rope_base: 1e4,
            weights: WeightTypes::All(DType::F32),
            values: ValueSource::Normal,
            seed: 1,
        }
    }

    /// A model whose rows are whole blocks of 256, so that every type fits.
    pub fn wide(family: DenseFamily) -> Self {
        RandomDense { hidden: 256, ffn: 512, head_dim: 64, rotary: 64, ..RandomDense::tiny(family) }
    }

    /// Models that differ in one thing each, by name. All are small.
    pub fn variants() -> Vec<(&'static str, RandomDense)> {
        variants::dense_variants()
    }

    /// The variant with that name.
    pub fn variant(name: &str) -> Option<RandomDense> {
        Self::variants().into_iter().find(|variant| variant.0 == name).map(|variant| variant.1)
    }

    /// `count` tokens that are not control tokens, for prompts.
    pub fn tokens(&self, count: usize, seed: u64) -> Vec<u32> {
        random_tokens(ControlTokens::of(self.vocab), count, seed)
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
        assert!(self.rotary.is_multiple_of(2) && self.rotary <= self.head_dim, "rotary width");
        assert!(self.heads.is_multiple_of(self.kv_heads), "attention heads");
        let implied = self.hidden / self.heads;
        assert!(self.states_widths || [self.head_dim, self.rotary] == [implied; 2], "implied widths");
    }

    fn plan(&self) -> ModelFile {
        self.check();
        let architecture = self.family.architecture();
        let mut file = ModelFile::new(architecture, self.weights, self.layers, self.seed, self.values);
        self.add_metadata(&mut file);
        file.matrix_of("token_embd.weight".into(), self.hidden, self.vocab, STREAM);
        file.output_norm("output_norm.weight".into(), self.hidden);
        if !self.tied {
            file.matrix("output.weight".into(), self.hidden, self.vocab);
        }
        if self.rope_factors {
            let factors = Values::Between { low: 1.0, high: 8.0 };
            file.floats("rope_freqs.weight".into(), &[self.rotary / 2], factors);
        }
        for layer in 0..self.layers {
            let name = |suffix: &str| format!("blk.{layer}.{suffix}");
            file.norm(name("attn_norm.weight"), self.hidden);
            self.add_attention(&mut file, name);
            file.norm(name("ffn_norm.weight"), self.hidden);
            match self.family {
                DenseFamily::Qwen3Moe => add_experts(&mut file, name, self.hidden, self.experts),
                _ => add_feed_forward(&mut file, name, self.hidden, self.ffn),
            }
        }
        file
    }

    fn add_attention(&self, file: &mut ModelFile, name: impl Fn(&str) -> String) {
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        file.matrix(name("attn_q.weight"), self.hidden, queries);
        file.matrix(name("attn_k.weight"), self.hidden, keys);
        file.matrix(name("attn_v.weight"), self.hidden, keys);
        file.branch_output(name("attn_output.weight"), queries, self.hidden);
        if self.family != DenseFamily::Llama {
            file.norm(name("attn_q_norm.weight"), self.head_dim);
            file.norm(name("attn_k_norm.weight"), self.head_dim);
        }
        if self.biases {
            let rows =
                [("q", queries, 0.3), ("k", keys, 0.3), ("v", keys, 0.3), ("output", self.hidden, 0.05)];
            for (part, rows, deviation) in rows {
                file.floats(name(&format!("attn_{part}.bias")), &[rows], Values::Normal { deviation });
            }
        }
    }

    fn add_metadata(&self, file: &mut ModelFile) {
        let key = |name: &str| format!("{}.{name}", self.family.architecture());
        let header = &mut file.header;
        header
            .metadata(key("context_length"), self.context)
            .metadata(key("embedding_length"), self.hidden)
            .metadata(key("feed_forward_length"), self.ffn)
            .metadata(key("attention.head_count"), self.heads)
            .metadata(key("attention.head_count_kv"), self.kv_heads)
            .metadata(key("attention.layer_norm_rms_epsilon"), 1e-6_f32)
            .metadata(key("rope.freq_base"), self.rope_base);
        if self.family == DenseFamily::Qwen3Moe {
            header
                .metadata(key("expert_count"), self.experts.count)
                .metadata(key("expert_used_count"), self.experts.used)
                .metadata(key("expert_feed_forward_length"), self.experts.inner);
        }
        if self.states_widths {
            header
                .metadata(key("attention.key_length"), self.head_dim)
                .metadata(key("attention.value_length"), self.head_dim)
                .metadata(key("rope.dimension_count"), self.rotary);
        }
        if let Some(factor) = self.linear_scaling {
            header.metadata(key("rope.scaling.type"), "linear").metadata(key("rope.scaling.factor"), factor);
        }
        add_vocabulary(header, self.vocab);
    }
}
