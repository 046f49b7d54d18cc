//! The CUDA backend as a plugin, on a stand-in for the driver with one device, whose kernels run on the processor: for tests of
//! machines with cards of several vendors.

use paceline_gpu::GpuBackend;
use paceline_plugin_api::{PluginInfo, abi, backend_plugin, export_plugin};

/// The descriptor, TOML: that of the CUDA backend, but no driver is needed.
pub const DESCRIPTOR: &str = include_str!("../descriptor.toml");

const INFO: PluginInfo = PluginInfo {
    id: "cuda",
    version: env!("CARGO_PKG_VERSION"),
    kind: abi::kind::BACKEND,
    descriptor: DESCRIPTOR,
};

backend_plugin!(INFO, GpuBackend, paceline_backend_cuda::double::backend());

export_plugin!(crate::plugin_entry, crate::DESCRIPTOR);
