//! Whether a drafter's file fits the target, and has nothing that is not computed here.

use paceline_plugin_api::graph::DType;
use paceline_plugin_api::strategy::{Facts, Session, Source, TensorFacts};
use paceline_plugin_api::{Error, Result};

const ARCHITECTURE: &str = "dflash";
/// What the architecture was called in files that were made before it was settled.
const OLDER_ARCHITECTURE: &str = "dflash-draft";

/// Tensors of drafters that are not computed here, and what they belong to.
const OTHER_TENSORS: [(&str, &str); 23] = [
    ("selector_hidden.weight", "DFlash2"),
    ("selector_predecessor.weight", "DFlash2"),
    ("selector_successor.weight", "DFlash2"),
    ("blk.0.attn_conv_base", "DFlash2"),
    ("blk.0.attn_conv_proj.weight", "DFlash2"),
    ("blk.0.ffn_conv_base", "DFlash2"),
    ("blk.0.ffn_conv_proj.weight", "DFlash2"),
    ("markov_w1.weight", "DSpark"),
    ("markov_w2.weight", "DSpark"),
    ("conf_proj.weight", "DSpark"),
    ("d2t", "a head over a part of the vocabulary"),
    ("fc.scale", "a scaled fusion"),
    ("fc.bias", "a fusion with bias"),
    ("rope_freqs.weight", "rotary factors"),
    ("blk.0.attn_sinks.weight", "attention sinks"),
    ("blk.0.attn_q.bias", "biases"),
    ("blk.0.attn_k.bias", "biases"),
    ("blk.0.attn_v.bias", "biases"),
    ("blk.0.attn_output.bias", "biases"),
    ("blk.0.post_attention_norm.weight", "norms behind layers"),
    ("blk.0.post_ffw_norm.weight", "norms behind layers"),
    ("blk.0.layer_output_scale.weight", "scaled layers"),
    ("blk.0.ffn_gate_inp.weight", "experts"),
];

/// Numbers that only drafters of other kinds have, unless they are 0.
const OTHER_KEYS: [(&str, &str); 7] = [
    ("conv_kernel_size", "DFlash2"),
    ("conv_group_size", "DFlash2"),
    ("selector_rank", "DFlash2"),
    ("selector_top_k", "DFlash2"),
    ("sample_from_anchor", "DSpark"),
    ("has_confidence_head", "DSpark"),
    ("attention.value_scale", "scaled values"),
];

fn unsupported<T>(message: String) -> Result<T> {
    Err(Error::unsupported(message))
}

/// A file was given, and it is a drafter of this architecture.
pub(crate) fn architecture(session: &dyn Session) -> Result<()> {
    match session.text(Source::Draft, "general.architecture").as_deref() {
        Some(ARCHITECTURE) => Ok(()),
        None => unsupported(
            "it needs a drafter that was trained for the model: give the drafter's file with --draft".into(),
        ),
        Some(OLDER_ARCHITECTURE) => unsupported(format!(
            "the drafter's file is of the older architecture `{OLDER_ARCHITECTURE}`, which is not supported: convert \
             the drafter anew, to architecture `{ARCHITECTURE}`"
        )),
        Some(other) => unsupported(format!(
            "the drafter's file has `general.architecture` `{other}`: give one of architecture `{ARCHITECTURE}` with \
             --draft"
        )),
    }
}

/// Nothing in the file belongs to another kind of drafter.
pub(crate) fn variants(session: &dyn Session) -> Result<()> {
    for (name, kind) in OTHER_TENSORS {
        if session.tensor(Source::Draft, name).is_some() {
            return unsupported(format!(
                "the drafter's file has tensor `{name}`: {kind} is not supported yet"
            ));
        }
    }
    for (key, kind) in OTHER_KEYS {
        let key = format!("dflash.{key}");
        if session.number(Source::Draft, &key).is_some_and(|value| value != 0.0) {
            return unsupported(format!("the drafter's file has key `{key}`: {kind} is not supported yet"));
        }
    }
    let word = |key: &str| session.text(Source::Draft, key);
    if let Some(kind) = word("dflash.hidden_activation").filter(|kind| kind != "silu") {
        return unsupported(format!(
            "the drafter's file has `dflash.hidden_activation` {kind}: only silu is supported yet"
        ));
    }
    if let Some(kind) = word("dflash.rope.scaling.type").filter(|kind| kind != "none") {
        return unsupported(format!(
            "the drafter's file has `dflash.rope.scaling.type` {kind}: scaled positions are not supported yet"
        ));
    }
    // A positive factor, or a cap, changes no order of logits, and only the largest one is asked for.
    if session.number(Source::Draft, "dflash.logit_scale").is_some_and(|scale| scale.is_nan() || scale <= 0.0)
    {
        return unsupported("the drafter's file has a `dflash.logit_scale` that is not positive".into());
    }
    Ok(())
}

/// The drafter's rows are as wide as the target's.
pub(crate) fn hidden(facts: &Facts, hidden: u32) -> Result<()> {
    if hidden == facts.hidden {
        return Ok(());
    }
    unsupported(format!(
        "the drafter's `dflash.embedding_length` is {hidden}, the model's hidden size is {}: give the drafter that was \
         trained for this model",
        facts.hidden
    ))
}

/// The drafter knows as many tokens as the target, if its file says so.
pub(crate) fn vocabulary(facts: &Facts, session: &dyn Session) -> Result<()> {
    match session.integer(Source::Draft, "dflash.vocab_size") {
        Some(tokens) if tokens != i64::from(facts.vocabulary) => unsupported(format!(
            "the drafter's `dflash.vocab_size` is {tokens}, the model has {} tokens: give the drafter that was trained \
             for this model",
            facts.vocabulary
        )),
        _ => Ok(()),
    }
}

/// Heads share KV heads, and keys are as wide as values.
pub(crate) fn heads(heads: u32, kv_heads: u32, key_width: u32, value_width: u32) -> Result<()> {
    if !heads.is_multiple_of(kv_heads) {
        return unsupported(format!(
            "the drafter's `dflash.attention.head_count` {heads} is no multiple of its `head_count_kv` {kv_heads}"
        ));
    }
    if key_width != value_width {
        return unsupported(format!(
            "the drafter's `dflash.attention.key_length` is {key_width} and its `value_length` {value_width}: heads of \
             different widths are not supported yet"
        ));
    }
    Ok(())
}

/// Cached heads are whole blocks of the context's KV types.
pub(crate) fn cache_types(facts: &Facts, width: u32) -> Result<()> {
    for dtype in facts.context.kv_types {
        if dtype.block().is_none_or(|(elements, _)| !width.is_multiple_of(elements)) {
            return unsupported(format!(
                "KV type {dtype} does not fit the drafter, whose cached heads have {width} elements: choose another one"
            ));
        }
    }
    Ok(())
}

/// The rotation is over the text's positions, and fits a head.
pub(crate) fn rotary(session: &dyn Session, rotary: u32, width: u32) -> Result<()> {
    if rotary > width || !rotary.is_multiple_of(2) {
        return unsupported(format!(
            "the drafter's `dflash.rope.dimension_count` {rotary} does not fit heads of {width}"
        ));
    }
    // Sections of time, height and width are all at the text's position.
    let sections = session.integers(Source::Draft, "dflash.rope.dimension_sections");
    if sections.len() > 4 || sections.get(3).is_some_and(|&section| section != 0) {
        return unsupported(format!(
            "the drafter's `dflash.rope.dimension_sections` {sections:?} have a part that is not over positions of text"
        ));
    }
    Ok(())
}

/// Target layers whose inputs the drafter reads.
pub(crate) fn target_layers(facts: &Facts, session: &dyn Session, most: u32) -> Result<Vec<u32>> {
    const KEY: &str = "dflash.target_layers";
    let layers = session.integers(Source::Draft, KEY);
    if layers.is_empty() || layers.len() > most as usize {
        return unsupported(format!(
            "the drafter's file has {} layers in key `{KEY}`, which must name the target's layers that it reads: \
             convert it anew",
            layers.len()
        ));
    }
    let inside = |layer: i64| u32::try_from(layer).ok().filter(|&layer| layer <= facts.layers);
    layers
        .into_iter()
        .map(|layer| {
            inside(layer).ok_or_else(|| {
                Error::unsupported(format!(
                    "the drafter's `{KEY}` names layer {layer}, the model has inputs 0 to {}: give the drafter that was \
                     trained for this model",
                    facts.layers
                ))
            })
        })
        .collect()
}

/// The window of each layer; 0 for a layer that sees everything.
pub(crate) fn windows(session: &dyn Session, layers: u32) -> Result<Vec<u32>> {
    const KEY: &str = "dflash.attention.sliding_window";
    let window = match session.integer(Source::Draft, KEY) {
        None | Some(0) => return Ok(vec![0; layers as usize]),
        Some(_) => session.require(Source::Draft, KEY, 1..=i32::MAX as u32)?,
    };
    let pattern = session.integers(Source::Draft, &format!("{KEY}_pattern"));
    if pattern.is_empty() {
        return Ok(vec![window; layers as usize]);
    }
    if pattern.len() != layers as usize {
        return unsupported(format!(
            "the drafter's `{KEY}_pattern` has {} entries for {layers} layers",
            pattern.len()
        ));
    }
    Ok(pattern.into_iter().map(|slides| if slides != 0 { window } else { 0 }).collect())
}

/// A tensor that must be there with these dimensions, outermost first. Vectors are f32.
pub(crate) fn tensor(session: &dyn Session, name: &str, dims: &[u32]) -> Result<TensorFacts> {
    let Some(tensor) = session.tensor(Source::Draft, name) else {
        return unsupported(format!(
            "the drafter's file has no tensor `{name}`: it is incomplete, convert it anew"
        ));
    };
    if tensor.dims != dims {
        // As files and their tools say it: innermost first.
        let shown = |dims: &[u32]| dims.iter().rev().copied().collect::<Vec<_>>();
        return unsupported(format!(
            "the drafter's tensor `{name}` is {:?}, expected {:?} for this model: give the drafter that was trained for it",
            shown(&tensor.dims),
            shown(dims)
        ));
    }
    if dims.len() == 1 && tensor.dtype != DType::F32 {
        return unsupported(format!("the drafter's tensor `{name}` is {}, expected f32", tensor.dtype));
    }
    Ok(tensor)
}
