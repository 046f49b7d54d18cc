//! The CPU backend, a plugin like any other.
//!
//! - [`level`], [`quantized`], [`weights`], [`linear`]: products of activations with packed weights;
//! - [`kernels`]: everything that is not a product;
//! - [`machine`]: what the machine can do at best;
//! - `program`: a graph lowered to phases of kernels with places in the workspace;
//! - `run`: what a kernel does with one chunk of its work;
//! - `shares`: how threads share the chunks of a phase;
//! - `pool`: the threads, the queue of launches, and the waiting thread as a worker;
//! - `device`: arenas, executables and the traits of the plugin API.
//!
//! Bits depend neither on the level, nor on how many rows a run has, nor on threads.

mod backend;
mod capabilities;
mod device;
pub mod kernels;
mod layout;
pub mod level;
pub mod linear;
pub mod machine;
mod pages;
mod pool;
mod program;
pub mod quantized;
mod run;
mod semaphore;
mod shares;
pub mod weights;

pub use backend::CpuBackend;

use paceline_plugin_api::{PluginInfo, abi, backend_plugin};

/// The descriptor, TOML.
pub const DESCRIPTOR: &str = include_str!("../descriptor.toml");

const INFO: PluginInfo = PluginInfo {
    id: "cpu",
    version: env!("CARGO_PKG_VERSION"),
    kind: abi::kind::BACKEND,
    descriptor: DESCRIPTOR,
};

backend_plugin!(INFO, CpuBackend, CpuBackend);
