//! Small models that differ in one thing each.

use paceline_plugin_api::graph::DType;

use super::{RandomModel, WeightTypes};

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
        ("no-nextn", RandomModel { nextn: 0, ..tiny() }),
        ("nextn-without-norm", RandomModel { nextn_norm: false, ..tiny() }),
        ("nextn-with-vocabulary", RandomModel { nextn_vocabulary: true, ..tiny() }),
        ("tiny-f16", RandomModel { weights: DType::F16.into(), ..tiny() }),
        ("tiny-bf16", RandomModel { weights: DType::BF16.into(), ..tiny() }),
        ("tiny-q8-0", RandomModel { weights: DType::Q8_0.into(), ..tiny() }),
        ("tiny-q4-0", RandomModel { weights: DType::Q4_0.into(), ..tiny() }),
        ("wide-q4-k", wide(DType::Q4_K.into())),
        ("wide-q5-k", wide(DType::Q5_K.into())),
        ("wide-q6-k", wide(DType::Q6_K.into())),
        ("wide-q4-k-m", wide(WeightTypes::Q4KM)),
    ]
}
