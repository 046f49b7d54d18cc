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

use driver::level_zero::LevelZeroDriver;
use paceline_gpu::{Driver, GpuBackend};
use paceline_plugin_api::{PluginInfo, abi, backend_plugin};

use selector::Selector;

/// The descriptor, TOML.
pub const DESCRIPTOR: &str = include_str!("../descriptor.toml");

const INFO: PluginInfo = PluginInfo {
    id: "sycl",
    version: env!("CARGO_PKG_VERSION"),
    kind: abi::kind::BACKEND,
    descriptor: DESCRIPTOR,
};

/// The backend on a loader of Level Zero at a path, for tests with a stand-in for it. `width` is that of all sub-groups; none
/// leaves it to the device and the kernel.
///
/// # Errors
/// There is no such loader, or it does not work.
pub fn backend_on(loader: &str, width: Option<u32>) -> Result<GpuBackend, String> {
    let driver = LevelZeroDriver::start(&[loader], &Selector::default(), width);
    let driver: &'static dyn Driver = match driver {
        Ok(driver) => Box::leak(Box::new(driver)),
        Err(why) => return Err(format!("{loader}: {why:?}")),
    };
    Ok(GpuBackend::new(Box::leak(Box::new(platform::Sycl { find: Box::new(move || Ok(driver)) }))))
}

backend_plugin!(INFO, GpuBackend, GpuBackend::new(platform::platform()));
