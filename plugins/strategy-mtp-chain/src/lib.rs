//! Drafts with the model's prediction block (NextN): from a token and the hidden state of the position before it, the
//! block predicts the next token, and its own hidden state feeds the step after that.
//!
//! The row at position p pairs the token at p with the hidden state of p - 1. Rows whose true hidden state is known
//! fill the block's KV cache: for a prompt at once, in a pass that computes keys and values only; after a verification
//! at the head of the next draft, which overwrites what the last draft guessed. A draft of n tokens is one launch:
//! every step's token is the next step's input on the device, and n ids come back. It is the one with the largest logit, or where
//! the target draws its tokens one that is drawn with the noise that the target will use there, so that the two agree more often.

mod chain;
mod programs;

pub use chain::MtpChain;

use paceline_plugin_api::settings::{Setting, SettingType, Stage};
use paceline_plugin_api::{PluginInfo, abi, drafter_plugin};

/// The descriptor, TOML.
pub const DESCRIPTOR: &str = include_str!("../descriptor.toml");

const INFO: PluginInfo = PluginInfo {
    id: "mtp-chain",
    version: env!("CARGO_PKG_VERSION"),
    kind: abi::kind::STRATEGY,
    descriptor: DESCRIPTOR,
};

const fn setting(key: &'static str, kind: SettingType, unit: &'static str, doc: &'static str) -> Setting {
    Setting { key, kind, stage: Stage::Context, unit, doc }
}

/// What a user may set; the descriptor says the same.
pub const SETTINGS: &[Setting] = &[
    setting(
        "depth",
        SettingType::Integer { default: 0, min: 0, max: 15 },
        "tokens",
        "Length of drafts; 0 lets the host adapt it, up to 8.",
    ),
    setting(
        "form",
        SettingType::Choice { options: &["chain", "loop"] },
        "",
        "All steps in one launch, or a launch a step, which can stop early.",
    ),
    setting(
        "least_probability",
        SettingType::Float { default: 0.0, min: 0.0, max: 1.0 },
        "",
        "In the looped form, a token that the block is less sure of ends the draft.",
    ),
    setting(
        "head",
        SettingType::Choice { options: &["auto", "full", "trimmed"] },
        "",
        "The head over all tokens, or the trimmed one that the file may carry; auto takes the trimmed one if there is one.",
    ),
    setting(
        "draw",
        SettingType::Bool { default: true },
        "",
        "Where the target draws its tokens, guesses are drawn with the same noise; off takes the most likely ones.",
    ),
    setting(
        "kv_only",
        SettingType::Bool { default: true },
        "",
        "Prompts fill only the block's KV cache; off runs the whole block, for comparison.",
    ),
];

drafter_plugin!(INFO, MtpChain, MtpChain);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_of_the_descriptor() {
        for setting in SETTINGS {
            assert!(DESCRIPTOR.contains(&format!("key = \"{}\"", setting.key)), "{}", setting.key);
            assert!(DESCRIPTOR.contains(setting.doc), "{}", setting.doc);
        }
    }
}
