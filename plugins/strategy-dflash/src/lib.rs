//! Drafts with a DFlash drafter: a small model of its own file that fills a block of masked tokens in one pass.
//!
//! The drafter sees the text through the target: the inputs of some of the target's layers, fused to one row a
//! position, give the keys and values of all of its layers. They are kept in a ring, so its cache does not grow with
//! the context. A draft of n tokens is one launch: the rows that the last verification kept enter the ring, the
//! anchor and n masks go through the drafter's layers, each of them seeing the ring and the whole block, and the
//! token of every mask comes back: the one with the largest logit, or where the target draws its tokens one that is drawn with
//! the noise that the target will use there, so that the two agree more often. Keys and values of the block itself are
//! scratch: the next rows that are kept overwrite them, and rows that were rejected never enter.
//!
//! Drafts are flat; trees, and the later kinds of drafters (DFlash2, DSpark), are refused by name.

mod checks;
mod drafter;
mod model;
mod programs;
mod ring;

pub use drafter::Dflash;

use paceline_plugin_api::settings::{Setting, SettingType, Stage};
use paceline_plugin_api::{PluginInfo, abi, drafter_plugin};

/// The descriptor, TOML.
pub const DESCRIPTOR: &str = include_str!("../descriptor.toml");

const INFO: PluginInfo = PluginInfo {
    id: "dflash",
    version: env!("CARGO_PKG_VERSION"),
    kind: abi::kind::STRATEGY,
    descriptor: DESCRIPTOR,
};

/// Most that `context` takes.
const MOST_CONTEXT: i64 = 1 << 20;

const fn integer(key: &'static str, max: i64, unit: &'static str, doc: &'static str) -> Setting {
    let kind = SettingType::Integer { default: 0, min: 0, max };
    Setting { key, kind, stage: Stage::Context, unit, doc }
}

/// What a user may set; the descriptor says the same.
pub const SETTINGS: &[Setting] = &[
    integer(
        "depth",
        15,
        "tokens",
        "Length of drafts, at most the drafter's block without its anchor; 0 lets the host adapt it up to there.",
    ),
    integer(
        "context",
        MOST_CONTEXT,
        "positions",
        "How far the drafter looks back; 0 takes the whole context, but no more than 2048 or what it was trained for.",
    ),
    Setting {
        key: "draw",
        kind: SettingType::Bool { default: true },
        stage: Stage::Context,
        unit: "",
        doc: "Where the target draws its tokens, guesses are drawn with the same noise; off takes the most likely ones.",
    },
];

drafter_plugin!(INFO, Dflash, Dflash);

#[cfg(test)]
mod tests;
