//! The engine: models to graphs, a memory plan, sequences, sampling.
//!
//! - [`Model`] opens a GGUF file and finds its family ([`families`], one file each);
//! - [`Engine`] plans a context on a backend's device, checks that it fits, allocates it whole, and runs steps;
//! - [`Engine::generate`] is the loop of prompt and continuation, with a [`Sampler`].
//!
//! The engine never names a plugin: it gets a backend from its caller and speaks to it through the plugin API alone.

mod blocks;
mod context;
mod engine;
mod error;
pub mod families;
mod fragments;
mod generate;
mod loading;
mod memory;
mod model;
mod programs;
mod recovery;
mod sampling;
mod saved;
mod speculation;
mod step;
mod strategies;
mod strategy_graph;
mod weights;

pub use context::RunCounts;
pub use engine::{Engine, EngineOptions, Outputs, Rows, SequenceId};
pub use error::{EngineError, Result};
pub use generate::{GenerationOptions, GenerationReport, StopReason, Task};
pub use memory::{Bytes, MemoryPlan, MemoryRow, Shortage};
pub use model::{LayerKind, Model, ModelShape};
pub use programs::Want;
pub use recovery::Texts;
pub use sampling::{Purpose, Sampler, SamplerOptions, uniform};
pub use speculation::{DrafterReport, SpeculationReport, TimeSplit};
pub use step::{ContextShape, KV_BLOCK, StepInputs};
pub use strategies::{
    Acceptance, DrafterOptions, MOST_VERIFIED, PluginPanic, RollbackOptions, Select, StrategyOptions,
};
pub use weights::Weight;
