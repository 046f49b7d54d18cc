//! What the end-to-end tests stand on.
//!
//! - [`engines`] puts a model on the CPU backend, built in or from its shared library;
//! - [`strategies`] makes such engines with drafters and rollback strategies;
//! - [`texts`] generates, and compares texts down to the bits of their logits;
//! - [`mod@chi_square`] compares counts with probabilities;
//! - [`prompts`] reads the benchmark's prompts;
//! - [`random_model`] writes models with random weights, of any shape and weight type;
//! - [`mod@reference`] computes a model in float64, without any of the code that the host runs;
//! - [`recorder`] writes down what a drafter proposes;
//! - [`test_models`] finds the models and recorded outputs that tests may use.
//!
//! Values of several tokens are [`Rows`]: one vector per token.

#![deny(unsafe_code)]

pub mod chi_square;
pub mod engines;
pub mod prompts;
pub mod random_model;
pub mod recorder;
pub mod reference;
pub mod strategies;
pub mod test_models;
pub mod texts;
pub mod trimmed;

pub use random_model::{
    DenseFamily, RandomDense, RandomDrafter, RandomExperts, RandomModel, ValueSource, WeightTypes,
};
pub use reference::{DrafterReference, MtpRows, Reference, Rows, Trunk};
pub use test_models::{demo_drafter_q8_path, demo_q8_path, reference_logits, test_models_dir};

/// An error of any kind: tests only show it.
pub type AnyError = Box<dyn std::error::Error + Send + Sync>;
