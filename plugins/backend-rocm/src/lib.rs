//! The backend for AMD GPUs, a plugin like any other. It needs the HIP runtime alone, opened at run time: kernels are
//! compiled beforehand.
//!
//! - `hip`: the functions of the HIP library and its compiler; nothing else knows their names;
//! - `driver`: the calls of the runtime as `paceline-gpu` wants them;
//! - `peers`: access of one device to the memory of another;
//! - `platform`: devices, kernels and words.
//!
//! Everything else is the same for all GPUs: `paceline-gpu`. No AMD GPU was ever used to make this; `README.md` says what
//! was run instead.

mod driver;
mod hip;
mod peers;
mod platform;
#[cfg(test)]
mod tests;

use paceline_gpu::GpuBackend;
use paceline_plugin_api::{PluginInfo, abi, backend_plugin};
use std::path::PathBuf;

/// The descriptor, TOML.
pub const DESCRIPTOR: &str = include_str!("../descriptor.toml");

const INFO: PluginInfo = PluginInfo {
    id: "rocm",
    version: env!("CARGO_PKG_VERSION"),
    kind: abi::kind::BACKEND,
    descriptor: DESCRIPTOR,
};

backend_plugin!(INFO, GpuBackend, GpuBackend::new(&platform::INSTALLED));

/// The backend on the HIP library in a file, and not on the one that is installed. It stays open until the process ends.
pub fn backend_on(library: impl Into<PathBuf>) -> GpuBackend {
    GpuBackend::new(Box::leak(Box::new(platform::Rocm::on(library.into()))))
}
