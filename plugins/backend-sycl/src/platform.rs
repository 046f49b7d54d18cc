//! Intel's drivers, devices, kernels and words.

use crate::driver::level_zero::{LevelZeroDriver, NoLevelZero};
use crate::driver::opencl::{NoOpenCl, OpenClDriver};
use crate::selector::{self, Selector};
use crate::widths;
use paceline_gpu::capabilities::{GRAPHS, PROFILE};
use paceline_gpu::driver::{DeviceFacts, Driver};
use paceline_gpu::{Images, NoDriver, Platform};
use paceline_kernels::images::spirv;
use paceline_plugin_api::settings::Setting;
use paceline_plugin_api::{Error, ErrorKind};
use std::sync::OnceLock;

/// What kernels are compiled for: every device gets the same modules.
const TARGET: &str = "spirv";

/// What is asked of whoever has no driver.
const INSTALL: &str = "install Intel's driver for GPUs, with its packages for Level Zero (libze1 and libze-intel-gpu1, \
                       or intel-level-zero-gpu) or for OpenCL (intel-opencl-icd)";

/// The settings of a device.
pub(crate) const SETTINGS: &[Setting] = &[GRAPHS, PROFILE];

/// Finds a driver, or says why there is none.
pub(crate) type Find = dyn Fn() -> Result<&'static dyn Driver, NoDriver> + Send + Sync;

/// The platform; the driver is found by `find`.
pub(crate) struct Sycl {
    pub find: Box<Find>,
}

/// The platform on the driver that is installed.
pub(crate) fn platform() -> &'static Sycl {
    static PLATFORM: OnceLock<Sycl> = OnceLock::new();
    PLATFORM.get_or_init(|| Sycl { find: Box::new(installed) })
}

/// The driver that is installed, started once in a process.
fn installed() -> Result<&'static dyn Driver, NoDriver> {
    static STARTED: OnceLock<Result<&'static dyn Driver, NoDriver>> = OnceLock::new();
    STARTED
        .get_or_init(|| {
            let wrong = |text: String| NoDriver::Failed(Error::invalid(text));
            let selector = Selector::of_environment().map_err(wrong)?;
            let forced = widths::of_environment().map_err(wrong)?;
            choose(LevelZeroDriver::start(&level_zero_sys::LOADERS, &selector, forced), || {
                OpenClDriver::start(&selector, forced)
            })
        })
        .clone()
}

/// Level Zero if it has a device that is used; OpenCL if it has none and OpenCL has.
pub(crate) fn choose(
    level_zero: Result<LevelZeroDriver, NoLevelZero>,
    opencl: impl FnOnce() -> Result<OpenClDriver, NoOpenCl>,
) -> Result<&'static dyn Driver, NoDriver> {
    let has_devices = |driver: &dyn Driver| driver.device_count().is_ok_and(|count| count > 0);
    if let Ok(driver) = level_zero {
        if has_devices(&driver) {
            return Ok(Box::leak(Box::new(driver)));
        }
        return match opencl() {
            Ok(other) if has_devices(&other) => Ok(Box::leak(Box::new(other))),
            _ => Ok(Box::leak(Box::new(driver))),
        };
    }
    let why = match level_zero {
        Err(NoLevelZero::Missing) => "libze_loader.so.1 was not found".to_owned(),
        // What a loader without a driver for a device answers as well.
        Err(NoLevelZero::NoDriver(error)) => format!("Level Zero has no device: {error}"),
        Err(NoLevelZero::Failed(error)) => {
            tracing::warn!("Level Zero does not work: {error}; OpenCL is tried instead");
            format!("Level Zero does not work: {error}")
        }
        Ok(_) => String::new(),
    };
    match opencl() {
        Ok(driver) => {
            tracing::info!("{why}; OpenCL is used");
            Ok(Box::leak(Box::new(driver)))
        }
        Err(NoOpenCl::Missing) => Err(NoDriver::Missing(format!(
            "there is no driver for Intel GPUs: {why}, and neither was libOpenCL.so.1; {INSTALL}"
        ))),
        Err(NoOpenCl::Failed(error)) => Err(NoDriver::Failed(Error::new(
            ErrorKind::Internal,
            format!("the driver for Intel GPUs does not start: {why}, and OpenCL: {error}; {INSTALL}"),
        ))),
    }
}

impl Platform for Sycl {
    fn id(&self) -> &'static str {
        "sycl"
    }

    fn settings(&self) -> &'static [Setting] {
        SETTINGS
    }

    fn driver(&self) -> Result<&'static dyn Driver, NoDriver> {
        (self.find)()
    }

    /// As the variable numbers them, if it is set; else by their addresses.
    fn order(&self, devices: &mut [(u32, DeviceFacts)]) {
        if self.hidden_by().is_none() {
            devices.sort_by(|(_, a), (_, b)| a.pci.cmp(&b.pci));
        }
    }

    fn hidden_by(&self) -> Option<&'static str> {
        std::env::var_os(selector::VARIABLE).map(|_| selector::VARIABLE)
    }

    fn refuses(&self, target: &str) -> Option<String> {
        (target != TARGET).then(|| format!("`{target}` is not `{TARGET}`, which devices of this backend are"))
    }

    fn images(&self, _: &str) -> Vec<Images> {
        let what = "SPIR-V, of which the driver makes machine code when a kernel is used first";
        vec![Images::new(what, false, || Ok(spirv::images()))]
    }

    fn module_of(&self, entry: &str) -> Option<&'static str> {
        spirv::module_of(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_gpu::GpuBackend;
    use paceline_plugin_api::backend::Backend;

    #[test]
    fn no_driver_is_no_device() {
        let find = Box::new(|| choose(Err(NoLevelZero::Missing), || Err(NoOpenCl::Missing)));
        let backend = GpuBackend::new(Box::leak(Box::new(Sycl { find })));
        assert_eq!(backend.devices(), Ok(Vec::new()));
        let error = backend.open(0, &[]).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Unsupported);
        for word in ["libze_loader.so.1", "libOpenCL.so.1", "intel-opencl-icd"] {
            assert!(error.message.contains(word), "{}", error.message);
        }
    }

    /// The descriptor can be read without loading the plugin, so it says the same.
    #[test]
    fn the_descriptor_has_these_settings() {
        for setting in SETTINGS {
            let key = format!("key = \"{}\"", setting.key);
            let doc = format!("doc = \"{}\"", setting.doc);
            assert!(crate::DESCRIPTOR.contains(&key) && crate::DESCRIPTOR.contains(&doc), "{}", setting.key);
        }
        assert_eq!(crate::DESCRIPTOR.matches("[[setting]]").count(), SETTINGS.len());
    }
}
