//! Requests and models that cannot be honoured: every one is an error that says what is wrong, and the engine goes on.

use paceline_engine::{Engine, EngineError, EngineOptions, Model, Rows, Want};
use paceline_gguf::{Gguf, TensorType, Value, Writer};
use paceline_plugin_api::graph::DType;
use paceline_tests::engines::{builtin_cpu, engine_of, last_logits, options};
use paceline_tests::random_model::RandomModel;
use std::sync::Arc;

fn tiny(options: EngineOptions) -> Engine {
    engine_of(RandomModel::default().to_bytes(), &builtin_cpu(), options)
}

fn new_engine(options: EngineOptions) -> Result<Engine, EngineError> {
    let gguf = Gguf::from_bytes(RandomModel::default().to_bytes()).unwrap();
    Engine::new(Model::new(Arc::new(gguf)).unwrap(), &builtin_cpu(), options, &mut |_, _| {})
}

/// An error with all its causes.
fn text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[test]
fn runs_that_do_not_fit_are_refused_and_change_nothing() {
    let mut engine = tiny(EngineOptions { context: Some(40), microbatch: 32, outputs: 4, ..options(&[]) });
    let sequence = engine.new_sequence().unwrap();
    let expected = last_logits(&mut engine, sequence, &[5, 6, 7, 8], 4);
    engine.clear_sequence(sequence);
    engine.run(&[Rows { sequence, tokens: &[5, 6], outputs: 0 }], Want::Logits).unwrap();

    let mut refused = |rows: &[Rows<'_>]| engine.run(rows, Want::Logits).map(|_| ()).unwrap_err().to_string();
    let of = |tokens: &'static [u32], outputs| Rows { sequence, tokens, outputs };
    insta::assert_snapshot!(refused(&[]), @"a run of 0 rows and 0 outputs; from 1 to 32 rows and at most 4 outputs fit");
    insta::assert_snapshot!(refused(&[of(&[1; 33], 0)]), @"a run of 33 rows and 0 outputs; from 1 to 32 rows and at most 4 outputs fit");
    insta::assert_snapshot!(refused(&[of(&[1; 5], 5)]), @"a run of 5 rows and 5 outputs; from 1 to 32 rows and at most 4 outputs fit");
    insta::assert_snapshot!(refused(&[of(&[1], 2)]), @"a run needs tokens, and outputs of no more than these");
    insta::assert_snapshot!(refused(&[of(&[384], 1)]), @"token 384 is outside of the vocabulary of 384");
    insta::assert_snapshot!(refused(&[of(&[1], 1), of(&[2], 1)]), @"a sequence appears twice in one run");

    let rows = [Rows { sequence, tokens: &[7, 8], outputs: 1 }];
    assert_eq!(engine.run(&rows, Want::Logits).unwrap().logits(0).unwrap(), expected);
}

#[test]
fn a_context_can_be_filled_to_its_end_and_not_beyond() {
    let mut engine = tiny(EngineOptions { context: Some(40), ..options(&[]) });
    let sequence = engine.new_sequence().unwrap();
    assert!(matches!(
        engine.prompt(sequence, &[3; 41], Want::Ids, &mut |_| {}),
        Err(EngineError::PromptTooLong { tokens: 41, context: 40 })
    ));
    engine.prompt(sequence, &[3; 40], Want::Ids, &mut |_| {}).unwrap();
    let full = engine.run(&[Rows { sequence, tokens: &[3], outputs: 1 }], Want::Ids).map(|_| ());
    assert!(matches!(full, Err(EngineError::ContextFull { context: 40 })));
}

#[test]
fn sequences_are_limited_and_can_be_used_again() {
    let mut engine = tiny(EngineOptions { sequences: 2, ..options(&[]) });
    let first = engine.new_sequence().unwrap();
    engine.new_sequence().unwrap();
    insta::assert_snapshot!(engine.new_sequence().unwrap_err(), @"all 2 sequences of the context are in use");
    engine.end_sequence(first);
    let ended = engine.run(&[Rows { sequence: first, tokens: &[1], outputs: 1 }], Want::Ids).map(|_| ());
    insta::assert_snapshot!(ended.unwrap_err(), @"a sequence was ended or is not this engine's");
    engine.new_sequence().unwrap();
}

#[test]
fn options_that_cannot_be_honoured_are_named() {
    let refused = |options: EngineOptions| text(&new_engine(options).err().unwrap());
    insta::assert_snapshot!(
        refused(options(&[("thread", "2")])),
        @"backend `cpu`: opening device 0: setting `thread` is not known; did you mean `threads`?"
    );
    insta::assert_snapshot!(
        refused(options(&[("level", "sse2")])),
        @"backend `cpu`: opening device 0: setting `level` cannot be `sse2`; it takes one of auto, scalar, avx2, avx512-vnni, neon"
    );
    insta::assert_snapshot!(
        refused(EngineOptions { device: 3, ..options(&[]) }),
        @"backend `cpu` has no device 3"
    );
    insta::assert_snapshot!(
        refused(EngineOptions { context: Some(0), ..options(&[]) }),
        @"context cannot be 0; it takes 1 to 1073741824"
    );
    insta::assert_snapshot!(
        refused(EngineOptions { kv_types: [DType::BF16; 2], ..options(&[]) }),
        @"model in memory: backend `cpu` cannot run it: kv_append: a KV cache of bf16 has no kernel; f32, f16, q8_0, q5_1, q5_0, q4_1 and q4_0 have"
    );
}

#[test]
fn a_cache_type_must_fit_the_heads() {
    let model = RandomModel { head_dim: 48, ..RandomModel::default() };
    let model = Model::new(Arc::new(Gguf::from_bytes(model.to_bytes()).unwrap())).unwrap();
    let options = EngineOptions { kv_types: [DType::F16, DType::Q8_0], ..options(&[]) };
    let error = Engine::new(model, &builtin_cpu(), options, &mut |_, _| {}).err().unwrap();
    insta::assert_snapshot!(error, @"KV type q8_0 does not fit this model, whose cached heads have 48 elements");
}

#[test]
fn memory_that_is_short_is_said_before_anything_is_allocated() {
    let error = new_engine(EngineOptions { context: Some(1 << 30), ..options(&[]) }).err().unwrap();
    assert!(error.is_out_of_memory());
    let message = error.to_string();
    for part in [
        "cpu:0 has ",
        " free, a context of 1073741824 needs ",
        " short (weights ",
        "; a context of ",
        " would fit",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

/// The tiny model with its metadata and tensors changed.
fn changed(
    metadata: impl Fn(&str, Value) -> Option<Value>,
    tensor: impl Fn(&str, Vec<u64>) -> Option<Vec<u64>>,
) -> String {
    let original = Gguf::from_bytes(RandomModel::default().to_bytes()).unwrap();
    let mut writer = Writer::new("qwen35");
    for (key, value) in original.entries().filter(|(key, _)| *key != "general.architecture") {
        if let Some(value) = metadata(key, value.try_into().unwrap()) {
            writer.metadata(key, value);
        }
    }
    for info in original.tensors() {
        let bytes = original.tensor_bytes(&info).unwrap();
        if let Some(dims) = tensor(info.name, info.dims.to_vec()) {
            let length = dims.iter().product::<u64>() as usize * 4;
            let bytes: Vec<u8> = bytes.iter().copied().cycle().take(length).collect();
            writer.tensor(info.name, &dims, TensorType::F32, bytes);
        }
    }
    let mut bytes = Vec::new();
    writer.write_to(&mut bytes).unwrap();
    match Gguf::from_bytes(bytes) {
        Ok(gguf) => Model::new(Arc::new(gguf)).err().map_or_else(|| "it opens".to_owned(), |e| text(&e)),
        Err(error) => text(&error),
    }
}

#[test]
fn models_with_wrong_metadata_are_refused_by_key() {
    let with = |name: &'static str, value: Option<Value>| {
        let key = format!("qwen35.{name}");
        changed(move |k, old| if k == key { value.clone() } else { Some(old) }, |_, dims| Some(dims))
    };
    assert_eq!(with("nothing", None), "it opens");
    insta::assert_snapshot!(with("block_count", None));
    insta::assert_snapshot!(with("block_count", Some(Value::U32(0))));
    insta::assert_snapshot!(with("block_count", Some(Value::U32(513))));
    insta::assert_snapshot!(with("block_count", Some(Value::U32(9))));
    insta::assert_snapshot!(with("embedding_length", Some(Value::Str("wide".into()))));
    insta::assert_snapshot!(with("embedding_length", Some(Value::U32(u32::MAX))));
    insta::assert_snapshot!(with("attention.head_count", Some(Value::U32(0))));
    insta::assert_snapshot!(with("attention.head_count", Some(Value::U32(3))));
    insta::assert_snapshot!(with("ssm.inner_size", Some(Value::U32(100))));
    insta::assert_snapshot!(with("ssm.group_count", Some(Value::U32(3))));
    insta::assert_snapshot!(with("ssm.conv_kernel", Some(Value::U32(1))));
    insta::assert_snapshot!(with("rope.dimension_count", Some(Value::U32(7))));
    insta::assert_snapshot!(with("rope.dimension_sections", None));
    insta::assert_snapshot!(with("attention.layer_norm_rms_epsilon", Some(Value::F32(f32::NAN))));
    insta::assert_snapshot!(with("nextn_predict_layers", Some(Value::U32(5))));
}

#[test]
fn models_with_wrong_tensors_are_refused_by_name() {
    let without = |name: &'static str| changed(|_, v| Some(v), move |n, dims| (n != name).then_some(dims));
    insta::assert_snapshot!(without("blk.2.ffn_down.weight"));
    insta::assert_snapshot!(without("token_embd.weight"));
    let reshaped = changed(
        |_, v| Some(v),
        |name, dims| Some(if name == "blk.0.ssm_a" { vec![dims[0] + 1] } else { dims }),
    );
    insta::assert_snapshot!(reshaped);
    let mut other = Vec::new();
    Writer::new("mamba").write_to(&mut other).unwrap();
    let other = Model::new(Arc::new(Gguf::from_bytes(other).unwrap())).err().unwrap();
    insta::assert_snapshot!(other);
}
