//! Models and recorded outputs that tests may use: the demo model, which is part of the repository, and a directory
//! of others, which need not be there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::AnyError;

/// Names the directory of models that are too big for the repository.
pub const MODELS_VARIABLE: &str = "PACELINE_TEST_MODELS";

/// The directory that `PACELINE_TEST_MODELS` names, if it is set. It holds `demo-qwen35-F16.gguf`,
/// `demo-qwen35-Q4_K_M.gguf`, `demo-dflash-F16.gguf` and `tiny/`.
///
/// # Panics
/// If the variable is set to something else than a directory: tests should not pass because of a typing error.
pub fn test_models_dir() -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var_os(MODELS_VARIABLE).filter(|value| !value.is_empty())?);
    assert!(directory.is_dir(), "{MODELS_VARIABLE} is {directory:?}, which is not a directory");
    Some(directory)
}

/// The directory of test models, or, without one, the end of the test with a line that says so.
#[macro_export]
macro_rules! test_models_or_skip {
    () => {
        match $crate::test_models_dir() {
            Some(directory) => directory,
            None => {
                let variable = $crate::test_models::MODELS_VARIABLE;
                eprintln!("skipped, line {} of {}: {variable} is not set", line!(), file!());
                return;
            }
        }
    };
}

fn models_of_repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models")
}

/// The demo model (`qwen35` with an MTP block, Q8_0), which is always there.
pub fn demo_q8_path() -> PathBuf {
    models_of_repository().join("demo-qwen35-Q8_0.gguf")
}

/// The demo model's drafter (`dflash`, Q8_0), which is always there.
pub fn demo_drafter_q8_path() -> PathBuf {
    models_of_repository().join("demo-dflash-Q8_0.gguf")
}

/// Reads the outputs of the demo model that were recorded when it was made.
///
/// # Errors
/// If the file is not as described here.
pub fn reference_logits() -> Result<ReferenceLogits, AnyError> {
    let text = std::fs::read_to_string(models_of_repository().join("reference_logits.json"))?;
    Ok(serde_json::from_str(&text)?)
}

/// Raw little-endian f32, `columns` per row.
///
/// # Errors
/// If the file cannot be read.
///
/// # Panics
/// If the file is not whole rows.
pub fn read_f32_rows(path: impl AsRef<Path>, columns: usize) -> Result<Vec<Vec<f32>>, AnyError> {
    let bytes = std::fs::read(path)?;
    assert!(bytes.len().is_multiple_of(4 * columns), "rows of {columns}");
    let row = |row: &[u8]| {
        row.chunks_exact(4)
            .map(|float| f32::from_le_bytes([float[0], float[1], float[2], float[3]]))
            .collect()
    };
    Ok(bytes.chunks_exact(4 * columns).map(row).collect())
}

/// Recorded outputs of the demo model for three prompts, computed in f32 on a CPU with the weights of the F16 files.
#[derive(Clone, Debug, Deserialize)]
pub struct ReferenceLogits {
    /// How the trunk's outputs are meant.
    pub about: String,
    /// How the MTP block's are.
    pub mtp_about: String,
    /// How the drafter's are.
    pub dflash_about: String,
    /// The prompts.
    pub prompts: Vec<ReferencePrompt>,
}

/// Outputs for one prompt of n tokens. Logits are rounded to five decimals.
#[derive(Clone, Debug, Deserialize)]
pub struct ReferencePrompt {
    /// A short name.
    pub name: String,
    /// The prompt.
    pub text: String,
    /// Its tokens.
    pub ids: Vec<u32>,
    /// Largest difference to another implementation of the model, relative to the largest logit.
    pub own_vs_hf_rel: f64,
    /// `[n]`: entry i predicts the token after token i.
    pub logits_top20: Vec<TopLogits>,
    /// 64 tokens that follow, always the most likely.
    pub greedy_64: Vec<u32>,
    /// The same as text.
    pub greedy_text: String,
    /// `[hidden]`: the last token's state after the final norm.
    pub hidden_after_norm_last: Vec<f64>,
    /// By layer, `[hidden]`: the residual stream before it, at the last token.
    pub layer_inputs_last: BTreeMap<usize, Vec<f64>>,
    /// `[n]`: the MTP block's entry i reads token i and the state of token i - 1.
    pub mtp_top20: Vec<TopLogits>,
    /// Drafts of the MTP block after the first generated token.
    pub mtp_chain: ReferenceChain,
    /// A block of the drafter after the first generated token.
    pub dflash: ReferenceBlock,
    /// Drafts with the last token of the prompt as the last known one.
    pub from_last_prompt_token: ReferenceDrafts,
}

/// The 20 largest logits.
#[derive(Clone, Debug, Deserialize)]
pub struct TopLogits {
    /// Their tokens, the most likely first.
    pub ids: Vec<u32>,
    /// Their values.
    pub logits: Vec<f64>,
}

/// A chain of greedy MTP drafts.
#[derive(Clone, Debug, Deserialize)]
pub struct ReferenceChain {
    /// The token after the prompt, which the first step reads.
    pub id_last: u32,
    /// The drafts.
    pub drafts: Vec<u32>,
    /// The logits that each draft was chosen from.
    pub top20: Vec<TopLogits>,
}

/// A block of 7 drafts of the DFlash drafter.
#[derive(Clone, Debug, Deserialize)]
pub struct ReferenceBlock {
    /// The token after the prompt, the anchor of the block.
    pub id_last: u32,
    /// The drafts.
    pub drafts: Vec<u32>,
    /// The logits of rows 1 to 7.
    pub top20_rows_1_to_7: Vec<TopLogits>,
    /// Whether each draft is the token that the target would choose.
    pub agrees_with_greedy: Vec<bool>,
}

/// Drafts that begin at the prompt's last token; the trunk has seen what is before it.
#[derive(Clone, Debug, Deserialize)]
pub struct ReferenceDrafts {
    /// How they are meant.
    pub about: String,
    /// 4 drafts of the MTP block.
    pub mtp_drafts: Vec<u32>,
    /// Their logits.
    pub mtp_top20: Vec<TopLogits>,
    /// 7 drafts of the drafter.
    pub dflash_drafts: Vec<u32>,
    /// Their logits.
    pub dflash_top20: Vec<TopLogits>,
}
