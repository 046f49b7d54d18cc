//! Simulated devices: they describe themselves like devices of other backends, compute through the reference
//! executor of the conformance crate, and fail when their settings ask for it. Hosts are tested against them.
//!
//! - [`inventory`]: which devices there are, from the environment variable `PACELINE_SIM_DEVICES`;
//! - [`settings`]: what a user may set, most of it faults;
//! - [`live`]: what hosts hold of this plugin, process-wide, so that tests find leaks;
//! - `backend`, `device`, `memory`, `semaphore`, `executable`: the traits of the plugin API.
//!
//! A fault that planning shows, an operation that a device lacks, is part of the inventory: planning needs no opened
//! device and so sees no settings.

mod backend;
mod device;
mod executable;
pub mod inventory;
pub mod live;
mod memory;
mod semaphore;
pub mod settings;

pub use backend::{SimBackend, SimPlan};
pub use device::SimDevice;
pub use executable::SimExecutable;
pub use memory::SimArena;
pub use semaphore::SimSemaphore;

use paceline_plugin_api::{PluginInfo, abi, backend_plugin};

/// The descriptor, TOML.
pub const DESCRIPTOR: &str = include_str!("../descriptor.toml");

const INFO: PluginInfo = PluginInfo {
    id: "sim",
    version: env!("CARGO_PKG_VERSION"),
    kind: abi::kind::BACKEND,
    descriptor: DESCRIPTOR,
};

backend_plugin!(INFO, SimBackend, SimBackend::from_environment());
