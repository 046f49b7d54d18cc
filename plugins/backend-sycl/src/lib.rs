//! The backend for Intel GPUs, a plugin like any other. It needs a driver alone: kernels are SPIR-V, compiled beforehand, of
//! which the driver makes machine code.
//!
//! - `driver`: the calls of Level Zero and of OpenCL, each opened at run time;
//! - `selector`: which devices `ONEAPI_DEVICE_SELECTOR` leaves;
//! - `widths`: lanes of sub-groups, by device and kernel;
//! - `platform`: which of the two drivers, devices, kernels and words.
//!
//! Everything else is the same for all GPUs: `paceline-gpu`.

mod driver;
mod platform;
mod selector;
#[cfg(test)]
mod tests;
mod widths;

use paceline_gpu::GpuBackend;
use paceline_plugin_api::{PluginInfo, abi, backend_plugin};

/// The descriptor, TOML.
pub const DESCRIPTOR: &str = include_str!("../descriptor.toml");

const INFO: PluginInfo = PluginInfo {
    id: "sycl",
    version: env!("CARGO_PKG_VERSION"),
    kind: abi::kind::BACKEND,
    descriptor: DESCRIPTOR,
};

backend_plugin!(INFO, GpuBackend, GpuBackend::new(platform::platform()));
