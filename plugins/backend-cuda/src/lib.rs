//! The backend for NVIDIA GPUs, a plugin like any other. It needs the driver alone: kernels are compiled beforehand.
//!
//! - `driver`: what is asked of the driver, and the real one, opened at run time;
//! - `backend`, `capabilities`: the entry of the plugin, settings, and the text that plans depend on;
//! - `layout`: weights in the layouts of the kernels;
//! - `program`: a graph lowered to launches with places in the workspace, without any device;
//! - `device`, `memory`, `import`: an opened device, its arenas, weights that go up;
//! - `bind`, `executable`: a program with addresses, captured and launched; states that go out and in;
//! - `queue`, `semaphore`: launches in order, and who learns that they are done.
//!
//! A row's bits do not depend on how many rows a run has; see `README.md`.

mod backend;
mod bind;
mod capabilities;
mod device;
mod driver;
mod executable;
mod import;
mod layout;
mod memory;
mod program;
mod queue;
mod semaphore;
#[cfg(test)]
mod tests;

pub use backend::CudaBackend;
pub use device::CudaDevice;
pub use executable::CudaExecutable;
pub use memory::CudaArena;
pub use program::CudaPlan;
pub use semaphore::CudaSemaphore;

use paceline_plugin_api::{PluginInfo, abi, backend_plugin};

/// The descriptor, TOML.
pub const DESCRIPTOR: &str = include_str!("../descriptor.toml");

const INFO: PluginInfo = PluginInfo {
    id: "cuda",
    version: env!("CARGO_PKG_VERSION"),
    kind: abi::kind::BACKEND,
    descriptor: DESCRIPTOR,
};

backend_plugin!(INFO, CudaBackend, CudaBackend::installed());
