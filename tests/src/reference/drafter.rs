//! The DFlash drafter, which fills a block of masked tokens at once.

use paceline_gguf::Gguf;

use super::math::{Rotary, add_rows, attend, rms_norm_heads, rms_norm_rows};
use super::weights::{FeedForward, Matrix, Tensors};
use super::{Reference, Rows, Trunk, embed};
use crate::AnyError;

/// Keys of backbone variants that are not computed here.
const UNSUPPORTED_KEYS: [&str; 9] = [
    "attention.value_scale",
    "embedding_scale",
    "logit_scale",
    "final_logit_softcapping",
    "hidden_activation",
    "conv_kernel_size",
    "selector_rank",
    "sample_from_anchor",
    "has_confidence_head",
];

/// A `dflash` drafter.
pub struct DrafterReference {
    epsilon: f64,
    rotary: Rotary,
    attention_scale: f64,
    is_causal: bool,
    /// Positions that every layer sees at most, besides its own window.
    visible: Option<usize>,
    target_layers: Vec<usize>,
    mask_token: u32,
    block_size: usize,
    fusion: Matrix,
    fusion_norm: Vec<f64>,
    output_norm: Vec<f64>,
    /// Without it the target's.
    embedding: Option<Matrix>,
    /// Without it the own embedding, or the target's output head.
    output: Option<Matrix>,
    layers: Vec<DrafterLayer>,
}

struct DrafterLayer {
    /// Positions that a row sees, its own included.
    window: Option<usize>,
    attention_norm: Vec<f64>,
    query: Matrix,
    key: Matrix,
    value: Matrix,
    output: Matrix,
    query_norm: Vec<f64>,
    key_norm: Vec<f64>,
    feed_forward_norm: Vec<f64>,
    feed_forward: FeedForward,
}

impl DrafterLayer {
    fn take(tensors: &mut Tensors, layer: usize, window: Option<usize>) -> Result<Self, AnyError> {
        let prefix = format!("blk.{layer}.");
        let name = |suffix: &str| format!("{prefix}{suffix}.weight");
        Ok(DrafterLayer {
            window,
            attention_norm: tensors.vector(&name("attn_norm"))?,
            query: tensors.matrix(&name("attn_q"))?,
            key: tensors.matrix(&name("attn_k"))?,
            value: tensors.matrix(&name("attn_v"))?,
            output: tensors.matrix(&name("attn_output"))?,
            query_norm: tensors.vector(&name("attn_q_norm"))?,
            key_norm: tensors.vector(&name("attn_k_norm"))?,
            feed_forward_norm: tensors.vector(&name("ffn_norm"))?,
            feed_forward: FeedForward::take(tensors, &prefix)?,
        })
    }
}

impl DrafterReference {
    /// Reads a drafter.
    ///
    /// # Errors
    /// If the file is no `dflash` drafter, lacks something, or is of a variant that is not supported here.
    pub fn load(file: &Gguf) -> Result<Self, AnyError> {
        if file.architecture()? != "dflash" {
            return Err(format!("architecture '{}' is not dflash", file.architecture()?).into());
        }
        if let Some(key) = UNSUPPORTED_KEYS.iter().find(|key| file.value(&format!("dflash.{key}")).is_some())
        {
            return Err(format!("the reference does not know drafters with '{key}'").into());
        }
        let head_dim = file.require_u32("dflash.attention.key_length")? as usize;
        let width = file.get_u32("dflash.rope.dimension_count")?.map_or(head_dim, |width| width as usize);
        if let Some(mut sections) = file.array_i32("dflash.rope.dimension_sections")?
            && sections.next().is_some_and(|first| first as usize != width / 2)
        {
            return Err("only the section of the text position is supported".into());
        }
        let base = file.get_f32("dflash.rope.freq_base")?.unwrap_or(1e4);
        let scale = file.get_f32("dflash.attention.scale")?;
        let layers = file.require_u32("dflash.block_count")? as usize;
        let window = file.get_u32("dflash.attention.sliding_window")?.map(|window| window as usize);
        let slides: Option<Vec<bool>> =
            file.array_bool("dflash.attention.sliding_window_pattern")?.map(Iterator::collect);
        let window_of = |layer: usize| window.filter(|_| slides.as_ref().is_none_or(|slides| slides[layer]));
        let mut tensors = Tensors::read(file)?;
        let drafter = DrafterReference {
            epsilon: file.require_f32("dflash.attention.layer_norm_rms_epsilon")?.into(),
            rotary: Rotary::new(width, base.into()),
            attention_scale: scale.map_or_else(|| 1.0 / (head_dim as f64).sqrt(), f64::from),
            is_causal: file.get_bool("dflash.attention.causal")?.unwrap_or(false),
            visible: None,
            target_layers: file
                .require_array_u32("dflash.target_layers")?
                .map(|layer| layer as usize)
                .collect(),
            mask_token: file.require_u32("tokenizer.ggml.mask_token_id")?,
            block_size: file.get_u32("dflash.block_size")?.unwrap_or(16) as usize,
            fusion: tensors.matrix("fc.weight")?,
            fusion_norm: tensors.vector("enc.output_norm.weight")?,
            output_norm: tensors.vector("output_norm.weight")?,
            embedding: tensors.optional_matrix("token_embd.weight"),
            output: tensors.optional_matrix("output.weight"),
            layers: (0..layers)
                .map(|layer| DrafterLayer::take(&mut tensors, layer, window_of(layer)))
                .collect::<Result<_, _>>()?,
        };
        tensors.finish()?;
        Ok(drafter)
    }

    /// Lets every row see `visible` positions at most, its own included.
    pub fn looking_back(mut self, visible: usize) -> Self {
        self.visible = Some(visible);
        self
    }

    /// Longest block, the anchor included.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Target layers whose inputs are the features.
    pub fn target_layers(&self) -> &[usize] {
        &self.target_layers
    }

    /// The block to be filled: `anchor`, the last known token, and `drafts` masks.
    pub fn block_tokens(&self, anchor: u32, drafts: usize) -> Vec<u32> {
        std::iter::once(anchor).chain(std::iter::repeat_n(self.mask_token, drafts)).collect()
    }

    /// The features of the tokens that the target has seen: inputs of the target layers, one after the other.
    /// `[n][features * hidden]`.
    pub fn features(&self, trunk: &Trunk) -> Rows {
        (0..trunk.hidden.len())
            .map(|token| {
                let inputs = self.target_layers.iter().map(|layer| &trunk.layer_inputs[*layer][token]);
                inputs.flatten().copied().collect()
            })
            .collect()
    }

    /// Logits `[block][vocabulary]` of a block behind the tokens that `features` belong to. Row i fills its own place;
    /// row 0, the anchor, says nothing.
    pub fn block(&self, target: &Reference, features: &[Vec<f64>], block: &[u32]) -> Rows {
        let context = rms_norm_rows(&self.fusion.apply(features), &self.fusion_norm, self.epsilon);
        let mut rows = embed(self.embedding.as_ref().unwrap_or(&target.embedding), block);
        for layer in &self.layers {
            self.apply_layer(layer, &context, &mut rows);
        }
        let hidden = rms_norm_rows(&rows, &self.output_norm, self.epsilon);
        let head = self.output.as_ref().or(self.embedding.as_ref()).unwrap_or_else(|| target.head());
        head.apply(&hidden)
    }

    /// Attention over the context and the whole block, then the feed-forward part. Keys and values of the context
    /// come from the fused features, which are the same for all layers and are not normed again.
    fn apply_layer(&self, layer: &DrafterLayer, context: &[Vec<f64>], rows: &mut [Vec<f64>]) {
        let width = layer.query_norm.len();
        let block_start = context.len();
        let input = rms_norm_rows(rows, &layer.attention_norm, self.epsilon);
        let keys_at = |rows: &[Vec<f64>], position: usize| {
            let mut keys = rms_norm_heads(&layer.key.apply(rows), &layer.key_norm, self.epsilon);
            self.rotary.apply(&mut keys, width, position);
            keys
        };
        let mut queries = rms_norm_heads(&layer.query.apply(&input), &layer.query_norm, self.epsilon);
        self.rotary.apply(&mut queries, width, block_start);
        let keys = [keys_at(context, 0), keys_at(&input, block_start)].concat();
        let values = [layer.value.apply(context), layer.value.apply(&input)].concat();
        let window = [self.visible, layer.window].into_iter().flatten().min().unwrap_or(usize::MAX);
        let sees = |row: usize, key: usize| {
            let position = block_start + row;
            (!self.is_causal || key <= position) && position.saturating_sub(key) < window
        };
        let mixed = attend(&queries, &keys, &values, width, self.attention_scale, sees);
        add_rows(rows, &layer.output.apply(&mixed));
        let input = rms_norm_rows(rows, &layer.feed_forward_norm, self.epsilon);
        add_rows(rows, &layer.feed_forward.apply(&input));
    }
}
