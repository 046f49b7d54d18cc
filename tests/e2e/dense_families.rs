//! The dense families on the CPU backend: what is refused and by which words, and that a run may be cut anywhere.

use paceline_engine::{EngineOptions, LayerKind, Model};
use paceline_gguf::{Gguf, TensorType, Value, Writer};
use paceline_plugin_api::graph::DType;
use paceline_tests::engines::{bits, builtin_cpu, engine_of, last_logits, options};
use paceline_tests::{DenseFamily, RandomDense};
use std::sync::Arc;

/// A file to be changed.
struct Parts {
    architecture: &'static str,
    keys: Vec<(String, Value)>,
    tensors: Vec<(String, Vec<u64>, TensorType)>,
}

impl Parts {
    fn of(model: &RandomDense) -> Self {
        let file = Gguf::from_bytes(model.to_bytes()).unwrap();
        let keys = file.entries().filter(|(key, _)| *key != "general.architecture");
        let tensors = file.tensors().map(|t| (t.name.to_owned(), t.dims.to_vec(), t.tensor_type));
        Parts {
            architecture: model.family.architecture(),
            keys: keys.map(|(key, value)| (key.to_owned(), value.try_into().unwrap())).collect(),
            tensors: tensors.collect(),
        }
    }

    fn tiny(family: DenseFamily) -> Self {
        Self::of(&RandomDense::tiny(family))
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self = self.without(name);
        self.keys.push((format!("{}.{name}", self.architecture), value.into()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        let key = format!("{}.{name}", self.architecture);
        self.keys.retain(|(other, _)| *other != key);
        self
    }

    fn with_tensor(mut self, name: &str, dims: &[u64], tensor_type: TensorType) -> Self {
        self = self.without_tensor(name);
        self.tensors.push((name.to_owned(), dims.to_vec(), tensor_type));
        self
    }

    fn without_tensor(mut self, name: &str) -> Self {
        self.tensors.retain(|(other, ..)| other != name);
        self
    }

    /// What the engine says to the file, or that it opens. Only shapes matter, so all values are 0.
    fn opened(self) -> String {
        let mut writer = Writer::new(self.architecture);
        for (key, value) in self.keys {
            writer.metadata(key, value);
        }
        for (name, dims, tensor_type) in self.tensors {
            let (elements, bytes) = DType(tensor_type.id()).block().unwrap();
            let count = dims.iter().product::<u64>() / u64::from(elements);
            writer.tensor(name, &dims, tensor_type, vec![0; count as usize * bytes as usize]);
        }
        let mut bytes = Vec::new();
        writer.write_to(&mut bytes).unwrap();
        let model = Model::new(Arc::new(Gguf::from_bytes(bytes).unwrap()));
        model.err().map_or_else(|| "it opens".to_owned(), |error| error.to_string())
    }
}

fn qwen3() -> Parts {
    Parts::tiny(DenseFamily::Qwen3)
}

fn llama() -> Parts {
    Parts::tiny(DenseFamily::Llama)
}

fn llama_with_factors() -> Parts {
    Parts::of(&RandomDense { rope_factors: true, ..RandomDense::tiny(DenseFamily::Llama) })
}

#[test]
fn a_dense_model_caches_keys_and_values_in_all_layers() {
    for family in [DenseFamily::Qwen3, DenseFamily::Llama] {
        let random = RandomDense { tied: false, ..RandomDense::tiny(family) };
        let model = Model::new(Arc::new(Gguf::from_bytes(random.to_bytes()).unwrap())).unwrap();
        let shape = model.shape();
        assert_eq!(shape.architecture, family.architecture());
        assert_eq!((shape.vocabulary, shape.hidden, shape.context), (384, 128, 4096));
        assert_eq!(shape.layers, [LayerKind::Attention; 3]);
        assert!(!shape.has_nextn && model.family().nextn().is_none());
    }
}

#[test]
fn mixtures_of_experts_say_what_is_wrong_with_them() {
    let experts = || Parts::tiny(DenseFamily::Qwen3Moe);
    assert_eq!(experts().opened(), "it opens");
    assert_eq!(
        experts().without("feed_forward_length").with("expert_gating_func", 2_u32).opened(),
        "it opens"
    );
    insta::assert_snapshot!(experts().without("expert_count").opened(), @"model in memory: metadata key 'qwen3moe.expert_count' is missing (u32 expected); the file lacks what this model needs");
    insta::assert_snapshot!(experts().with("expert_used_count", 7_u32).opened(), @"model in memory: `qwen3moe.expert_count` is 6 with 7 used for each token: at most 4096, and no more used than there are");
    insta::assert_snapshot!(experts().with("expert_gating_func", 3_u32).opened(), @"model in memory: `qwen3moe.expert_gating_func` is 3; softmax (1) and sigmoid (2) are supported");
    insta::assert_snapshot!(experts().without_tensor("blk.1.ffn_up_exps.weight").opened(), @"model in memory: tensor 'blk.1.ffn_up_exps.weight' is missing; the file lacks what this model needs");
    let gate = experts().with_tensor("blk.0.ffn_gate_exps.weight", &[128, 96, 5], TensorType::F32);
    insta::assert_snapshot!(gate.opened(), @"model in memory: tensor `blk.0.ffn_gate_exps.weight` has the shape [128, 96, 5], the metadata says [128, 96, 6]");
    let apart = |parts: Parts| {
        parts.without_tensor("blk.0.ffn_gate_exps.weight").without_tensor("blk.0.ffn_up_exps.weight")
    };
    let merged = "blk.0.ffn_gate_up_exps.weight";
    let f32 = TensorType::F32;
    assert_eq!(apart(experts()).with_tensor(merged, &[128, 192, 6], f32).opened(), "it opens");
    insta::assert_snapshot!(apart(experts()).with_tensor(merged, &[128, 96, 6], f32).opened(), @"model in memory: tensor `blk.0.ffn_gate_up_exps.weight` has the shape [128, 96, 6], the metadata says [128, 192, 6]");
    insta::assert_snapshot!(experts().with_tensor(merged, &[128, 192, 6], f32).opened(), @"model in memory: tensor `blk.0.ffn_gate_exps.weight` (and 1 more) belongs to a kind of `qwen3moe` that is not supported");
}

#[test]
fn keys_that_are_missing_or_wrong_are_named() {
    insta::assert_snapshot!(qwen3().without("block_count").opened(), @"model in memory: metadata key 'qwen3.block_count' is missing (u32 expected); the file lacks what this model needs");
    insta::assert_snapshot!(qwen3().with("block_count", 600_u32).opened(), @"model in memory: `qwen3.block_count` is 600; at most 512 are possible");
    insta::assert_snapshot!(qwen3().without("embedding_length").opened(), @"model in memory: metadata key 'qwen3.embedding_length' is missing (u32 expected); the file lacks what this model needs");
    insta::assert_snapshot!(llama().without("feed_forward_length").opened(), @"model in memory: metadata key 'llama.feed_forward_length' is missing (u32 expected); the file lacks what this model needs");
    insta::assert_snapshot!(llama().without("context_length").opened(), @"model in memory: metadata key 'llama.context_length' is missing (u32 expected); the file lacks what this model needs");
    insta::assert_snapshot!(llama().without("attention.layer_norm_rms_epsilon").opened(), @"model in memory: metadata key 'llama.attention.layer_norm_rms_epsilon' is missing (f32 expected); the file lacks what this model needs");
    insta::assert_snapshot!(llama().with("attention.head_count", "four").opened(), @"model in memory: metadata key 'llama.attention.head_count' is string where u32 is expected");
    insta::assert_snapshot!(llama().with("attention.head_count_kv", 3_u32).opened(), @"model in memory: heads do not fit: 4 query and 3 KV heads, keys of 32 and other values");
    insta::assert_snapshot!(llama().with("attention.head_count", vec![4_u32, 4, 8]).opened(), @"model in memory: `llama.attention.head_count` differs between layers, which is not supported");
    insta::assert_snapshot!(llama().with("feed_forward_length", vec![256_u32, 256]).opened(), @"model in memory: `llama.feed_forward_length` has 2 entries for 3 blocks");
    insta::assert_snapshot!(llama().with("attention.key_length", 1_u32 << 23).with("attention.value_length", 1_u32 << 23).opened(), @"model in memory: 4 heads of 8388608 (`llama.attention.head_count`) are more than 16777216");
    insta::assert_snapshot!(qwen3().with("rope.dimension_count", 34_u32).opened(), @"model in memory: `qwen3.rope.dimension_count` is 34: it must be even and at most the head size 32");
    insta::assert_snapshot!(qwen3().with("rope.freq_base", 0.0_f32).opened(), @"model in memory: `qwen3.rope.freq_base` is 0, which is not a positive number");
    insta::assert_snapshot!(llama().with("attention.scale", f32::NAN).opened(), @"model in memory: `llama.attention.scale` is NaN, which is not a positive number");
    insta::assert_snapshot!(llama().with("rope.scaling.factor", -2.0_f32).opened(), @"model in memory: `llama.rope.scaling.factor` is -2, which is not a positive number");
}

#[test]
fn tensors_that_are_missing_or_wrong_are_named() {
    let f32 = TensorType::F32;
    insta::assert_snapshot!(qwen3().without_tensor("blk.1.attn_q_norm.weight").opened(), @"model in memory: tensor 'blk.1.attn_q_norm.weight' is missing; the file lacks what this model needs");
    insta::assert_snapshot!(llama().without_tensor("token_embd.weight").opened(), @"model in memory: tensor 'token_embd.weight' is missing; the file lacks what this model needs");
    insta::assert_snapshot!(llama().with_tensor("blk.2.attn_k.weight", &[128, 128], f32).opened(), @"model in memory: tensor `blk.2.attn_k.weight` has the shape [128, 128], the metadata says [128, 64]");
    insta::assert_snapshot!(llama().with_tensor("rope_freqs.weight", &[32], f32).opened(), @"model in memory: tensor `rope_freqs.weight` has the shape [32], the metadata says [16]");
    insta::assert_snapshot!(llama().with_tensor("blk.0.attn_q.bias", &[64], f32).opened(), @"model in memory: tensor `blk.0.attn_q.bias` has the shape [64], the metadata says [128]");
    insta::assert_snapshot!(qwen3().with_tensor("blk.0.attn_norm.weight", &[128], TensorType::F16).opened(), @"model in memory: tensor `blk.0.attn_norm.weight` is f16; norms, biases and other small tensors must be F32");
}

#[test]
fn other_computations_are_refused_by_name() {
    let f32 = TensorType::F32;
    insta::assert_snapshot!(llama().with("expert_count", 8_u32).opened(), @"model in memory: `llama.expert_count` is 8: mixtures of experts are not supported in `llama`");
    insta::assert_snapshot!(qwen3().with("rope.scaling.type", "yarn").opened(), @"model in memory: `qwen3.rope.scaling.type` is `yarn`, which is not supported; this version computes none and linear");
    insta::assert_snapshot!(llama().with("rope.scaling.type", "llama3").opened(), @"model in memory: `llama.rope.scaling.type` is `llama3`, which is not supported; this version computes none and linear");
    insta::assert_snapshot!(llama_with_factors().with("rope.scaling.type", "longrope").opened(), @"model in memory: `llama.rope.scaling.type` is `longrope`, which is not supported; this version computes none and linear, and llama3 by `rope_freqs.weight`");
    insta::assert_snapshot!(llama().with("rope.scaling.attn_factor", 1.2_f32).opened(), @"model in memory: `llama.rope.scaling.attn_factor` is 1.2, which is not supported");
    insta::assert_snapshot!(llama().with("logit_scale", 8.0_f32).opened(), @"model in memory: `llama.logit_scale` is 8, which is not supported");
    insta::assert_snapshot!(qwen3().with("final_logit_softcapping", 30.0_f32).opened(), @"model in memory: `qwen3.final_logit_softcapping` is 30, which is not supported");
    insta::assert_snapshot!(llama().with("attention.causal", false).opened(), @"model in memory: `llama.attention.causal` is false: only causal attention is supported");
    insta::assert_snapshot!(llama().with("attention.sliding_window", 1024_u32).opened(), @"model in memory: `llama.attention.sliding_window` is 1024, less than the context of 4096; windows are not supported");
    insta::assert_snapshot!(qwen3().with_tensor("rope_freqs.weight", &[16], f32).opened(), @"model in memory: tensor `rope_freqs.weight` belongs to a kind of `qwen3` that is not supported");
    insta::assert_snapshot!(llama().with_tensor("blk.0.ffn_up.bias", &[256], f32).with_tensor("blk.1.ffn_up.bias", &[256], f32).opened(), @"model in memory: tensor `blk.0.ffn_up.bias` (and 1 more) belongs to a kind of `llama` that is not supported");
    insta::assert_snapshot!(llama().with_tensor("blk.0.attn_q.weight.scale", &[1], f32).opened(), @"model in memory: tensor `blk.0.attn_q.weight` has a scale of its own, which is not supported yet");
}

#[test]
fn keys_that_change_nothing_are_accepted() {
    let accepted = [
        llama().with("expert_count", 0_u32),
        llama().with("rope.scaling.type", "none").with("rope.scaling.factor", 4.0_f32),
        llama().with("rope.scaling.attn_factor", 1.0_f32).with("logit_scale", 0.0_f32),
        llama().with("rope.scale_linear", 2.0_f32),
        llama().with("attention.causal", true).with("attention.sliding_window", 4096_u32),
        llama_with_factors().with("rope.scaling.type", "llama3").with("rope.scaling.factor", 8.0_f32),
        qwen3().without("rope.freq_base").without("attention.value_length"),
        qwen3().with("attention.head_count_kv", vec![2_u32; 3]).with("vocab_size", 5_u32),
    ];
    for (index, parts) in accepted.into_iter().enumerate() {
        assert_eq!(parts.opened(), "it opens", "case {index}");
    }
}

#[test]
fn a_prompt_may_be_cut_anywhere() {
    for name in ["qwen3-q8-0", "llama-factors", "llama-wide-q4-k-m"] {
        let model = RandomDense::variant(name).unwrap();
        let tokens = model.tokens(270, 2);
        for kv_types in [[DType::F16; 2], [DType::Q8_0; 2]] {
            let options = EngineOptions { kv_types, ..options(&[]) };
            let mut engine = engine_of(model.to_bytes(), &builtin_cpu(), options);
            let sequence = engine.new_sequence().unwrap();
            let expected = bits(&last_logits(&mut engine, sequence, &tokens, 512));
            for part in [1, 16] {
                engine.clear_sequence(sequence);
                let found = bits(&last_logits(&mut engine, sequence, &tokens, part));
                assert!(found == expected, "{name}: parts of {part} rows give other logits");
            }
        }
    }
}
