//! The backend for NVIDIA GPUs, a plugin like any other. It needs the driver alone: kernels are compiled beforehand.
//!
//! - `driver`: the calls of the driver, which is opened at run time;
//! - `peers`: copies between devices;
//! - `platform`: devices, kernels and words.
//!
//! Everything else is the same for all GPUs: `paceline-gpu`.

#[cfg(feature = "double")]
pub mod double;
mod driver;
mod peers;
mod platform;

use paceline_gpu::GpuBackend;
use paceline_plugin_api::{PluginInfo, abi, backend_plugin};

/// The descriptor, TOML.
pub const DESCRIPTOR: &str = include_str!("../descriptor.toml");

const INFO: PluginInfo = PluginInfo {
    id: "cuda",
    version: env!("CARGO_PKG_VERSION"),
    kind: abi::kind::BACKEND,
    descriptor: DESCRIPTOR,
};

backend_plugin!(INFO, GpuBackend, GpuBackend::new(&platform::INSTALLED));
