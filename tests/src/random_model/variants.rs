//! Small models that differ in one thing each.

use paceline_plugin_api::graph::DType;

use super::{DenseFamily, RandomDense, RandomExperts, RandomModel, WeightTypes};

const EXPERTS: RandomExperts = RandomExperts { count: 8, used: 3, inner: 64, shared: 96, merged: false };

pub(super) fn variants() -> Vec<(&'static str, RandomModel)> {
    let tiny = RandomModel::default;
    let wide = |weights: WeightTypes| RandomModel { weights, ..RandomModel::wide() };
    vec![
        ("tiny", tiny()),
        ("untied", RandomModel { tied: false, ..tiny() }),
        ("heads-1-to-1", RandomModel { value_heads: 2, ..tiny() }),
        ("heads-1-to-3", RandomModel { value_heads: 6, tied: false, ..tiny() }),
        ("one-kv-head", RandomModel { kv_heads: 1, ..tiny() }),
        ("full-rotary", RandomModel { rotary: 32, sections: [6, 5, 5, 0], ..tiny() }),
        ("all-attention", RandomModel { interval: 1, ..tiny() }),
        ("all-recurrent", RandomModel { interval: 5, ..tiny() }),
        ("attention-first", RandomModel { recurrent_layers: Some(vec![false, true, false, true]), ..tiny() }),
        ("attention-scale", RandomModel { attention_scale: Some(0.3), ..tiny() }),
        ("long-convolution", RandomModel { conv: 6, ..tiny() }),
        ("experts", RandomModel { experts: Some(EXPERTS), ..tiny() }),
        (
            "experts-merged",
            RandomModel { experts: Some(RandomExperts { merged: true, ..EXPERTS }), ..tiny() },
        ),
        ("experts-without-nextn", RandomModel { experts: Some(EXPERTS), nextn: 0, tied: false, ..tiny() }),
        // All are used, so that rounding cannot choose others than the reference.
        (
            "experts-q8-0",
            RandomModel {
                experts: Some(RandomExperts { count: 4, used: 4, merged: true, ..EXPERTS }),
                weights: DType::Q8_0.into(),
                ..tiny()
            },
        ),
        ("no-nextn", RandomModel { nextn: 0, ..tiny() }),
        ("nextn-without-norm", RandomModel { nextn_norm: false, ..tiny() }),
        ("nextn-with-vocabulary", RandomModel { nextn_vocabulary: true, ..tiny() }),
        ("tiny-f16", RandomModel { weights: DType::F16.into(), ..tiny() }),
        ("tiny-bf16", RandomModel { weights: DType::BF16.into(), ..tiny() }),
        ("tiny-q8-0", RandomModel { weights: DType::Q8_0.into(), ..tiny() }),
        ("tiny-q4-0", RandomModel { weights: DType::Q4_0.into(), ..tiny() }),
        ("tiny-q4-1", RandomModel { weights: DType::Q4_1.into(), ..tiny() }),
        ("tiny-q5-0", RandomModel { weights: DType::Q5_0.into(), ..tiny() }),
        ("tiny-q5-1", RandomModel { weights: DType::Q5_1.into(), ..tiny() }),
        ("tiny-iq4-nl", RandomModel { weights: DType::IQ4_NL.into(), ..tiny() }),
        ("tiny-mxfp4", RandomModel { weights: DType::MXFP4.into(), ..tiny() }),
        ("wide-q4-k", wide(DType::Q4_K.into())),
        ("wide-q5-k", wide(DType::Q5_K.into())),
        ("wide-q6-k", wide(DType::Q6_K.into())),
        ("wide-q4-k-m", wide(WeightTypes::Q4KM)),
    ]
}

pub(super) fn dense_variants() -> Vec<(&'static str, RandomDense)> {
    let qwen3 = || RandomDense::tiny(DenseFamily::Qwen3);
    let llama = || RandomDense::tiny(DenseFamily::Llama);
    let wide = |family: DenseFamily| RandomDense { weights: WeightTypes::Q4KM, ..RandomDense::wide(family) };
    let experts = |inner: u32, merged: bool| {
        let model = RandomDense::tiny(DenseFamily::Qwen3Moe);
        RandomDense { experts: RandomExperts { inner, merged, ..model.experts }, ..model }
    };
    vec![
        ("qwen3", qwen3()),
        ("qwen3-untied", RandomDense { tied: false, ..qwen3() }),
        ("qwen3-heads-1-to-1", RandomDense { kv_heads: 4, ..qwen3() }),
        ("qwen3-heads-1-to-4", RandomDense { kv_heads: 1, tied: false, ..qwen3() }),
        // All heads together are wider than the residual stream, as in some published models.
        ("qwen3-partial-rotary", RandomDense { head_dim: 48, rotary: 20, ..qwen3() }),
        ("qwen3-linear-scaling", RandomDense { linear_scaling: Some(4.0), ..qwen3() }),
        ("qwen3-implied-widths", RandomDense { states_widths: false, ..qwen3() }),
        ("qwen3-bf16", RandomDense { weights: DType::BF16.into(), ..qwen3() }),
        ("qwen3-q8-0", RandomDense { weights: DType::Q8_0.into(), ..qwen3() }),
        ("qwen3-wide-q4-k-m", wide(DenseFamily::Qwen3)),
        ("qwen3-experts", experts(96, false)),
        ("qwen3-experts-merged", experts(96, true)),
        // Widths that end within the 16 rows that kernels take together.
        ("qwen3-experts-odd", experts(41, false)),
        ("qwen3-experts-odd-merged", experts(41, true)),
        ("qwen3-experts-odd-f16", RandomDense { weights: DType::F16.into(), ..experts(12, false) }),
        ("llama", llama()),
        ("llama-untied", RandomDense { tied: false, ..llama() }),
        ("llama-heads-1-to-1", RandomDense { kv_heads: 4, ..llama() }),
        ("llama-heads-1-to-4", RandomDense { kv_heads: 1, tied: false, ..llama() }),
        ("llama-partial-rotary", RandomDense { rotary: 20, ..llama() }),
        ("llama-factors", RandomDense { rope_factors: true, rope_base: 5e5, ..llama() }),
        ("llama-linear-scaling", RandomDense { linear_scaling: Some(2.5), ..llama() }),
        ("llama-biases", RandomDense { biases: true, ..llama() }),
        ("llama-implied-widths", RandomDense { states_widths: false, ..llama() }),
        ("llama-f16", RandomDense { weights: DType::F16.into(), ..llama() }),
        ("llama-q8-0", RandomDense { weights: DType::Q8_0.into(), ..llama() }),
        ("llama-wide-q4-k-m", wide(DenseFamily::Llama)),
    ]
}
