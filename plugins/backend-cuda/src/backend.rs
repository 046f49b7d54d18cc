//! The entry of the plugin: devices, layouts, plans.

use crate::capabilities::{Capabilities, DeviceSettings, OLDEST_SM, too_old};
use crate::device::CudaDevice;
use crate::driver::{CudaDriver, DeviceFacts, Driver, DriverError, NEEDED_VERSION, NoDriver, failure};
use crate::layout;
use crate::program::{CudaPlan, lower};
use paceline_plugin_api::backend::{Backend, DeviceInfo, DeviceKind, WeightLayout, WeightUse};
use paceline_plugin_api::graph::Graph;
use paceline_plugin_api::{Error, ErrorKind, Result};

/// Finds a driver, or says why there is none.
type Find = fn() -> Result<&'static dyn Driver, NoDriver>;

/// The CUDA backend: the devices of the installed driver.
pub struct CudaBackend {
    find: Find,
}

impl CudaBackend {
    /// The backend on the driver that is installed. The driver is opened when devices are asked for.
    pub fn installed() -> Self {
        Self { find: || CudaDriver::get().map(|driver| driver as &dyn Driver) }
    }

    #[cfg(test)]
    pub(crate) fn on(find: Find) -> Self {
        Self { find }
    }

    /// The driver, if it will do.
    fn driver(&self) -> Result<&'static dyn Driver> {
        let driver = (self.find)().map_err(|why| match why {
            NoDriver::Missing => Error::unsupported(
                "there is no CUDA driver: libcuda.so.1 was not found; install NVIDIA's driver 580 or newer",
            ),
            NoDriver::Failed(error) => not_started(&error),
        })?;
        let version = driver.version().map_err(|error| not_started(&error))?;
        if version < NEEDED_VERSION {
            let text = |version: i32| format!("{}.{}", version / 1000, version % 1000 / 10);
            return Err(Error::unsupported(format!(
                "the CUDA driver is too old: it has CUDA {}, {} is needed; install NVIDIA's driver 580 or newer",
                text(version),
                text(NEEDED_VERSION)
            )));
        }
        Ok(driver)
    }

    /// Ordinals and facts of the devices, in the order in which they are shown.
    fn list(driver: &dyn Driver) -> Result<Vec<(u32, DeviceFacts)>> {
        let failed = |error: DriverError| {
            Error::new(ErrorKind::Internal, format!("listing the CUDA devices failed: {error}"))
        };
        let count = driver.device_count().map_err(failed)?;
        let mut devices = (0..count)
            .map(|ordinal| Ok((ordinal, driver.facts(ordinal).map_err(failed)?)))
            .collect::<Result<Vec<_>>>()?;
        // The driver's own order is by speed, and other tools number devices by their PCI addresses. Who sets one of
        // these variables has said which order is meant.
        let is_ordered = ["CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"]
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
        if !is_ordered {
            devices.sort_by(|(_, a), (_, b)| a.pci.cmp(&b.pci));
        }
        Ok(devices)
    }
}

fn not_started(error: &DriverError) -> Error {
    let what_to_do = match error.code {
        failure::STUB_LIBRARY => {
            "the library is the toolkit's stub: take the folder `stubs` off LD_LIBRARY_PATH"
        }
        failure::SYSTEM_DRIVER_MISMATCH => {
            "the driver's library and its kernel module are of different versions: restart the machine"
        }
        failure::DEVICE_UNAVAILABLE => "another process may hold the device for itself alone",
        _ => "`nvidia-smi` shows whether the driver works",
    };
    Error::new(ErrorKind::Internal, format!("the CUDA driver does not start: {error}; {what_to_do}"))
}

impl Backend for CudaBackend {
    type Plan = CudaPlan;
    type Device = CudaDevice;

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let driver = match self.driver() {
            Ok(driver) => driver,
            // A machine without the driver has no such device, which is no fault.
            Err(error) if error.kind == ErrorKind::Unsupported && (self.find)().is_err() => {
                tracing::info!("{}", error.message);
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let devices = Self::list(driver)?;
        if devices.is_empty() && std::env::var_os("CUDA_VISIBLE_DEVICES").is_some() {
            tracing::info!("no CUDA device is left by CUDA_VISIBLE_DEVICES");
        }
        Ok(devices.iter().map(|(_, facts)| describe(facts)).collect())
    }

    fn layout_weights(&self, capabilities: &str, weights: &[WeightUse]) -> Result<Vec<WeightLayout>> {
        Capabilities::parse(capabilities)?;
        weights.iter().map(layout::choose).collect()
    }

    fn plan(&self, graph: Graph, capabilities: &str, layouts: &[WeightLayout]) -> Result<CudaPlan> {
        Capabilities::parse(capabilities)?;
        lower(graph, layouts)
    }

    fn open(&self, index: u32, settings: &[(String, String)]) -> Result<CudaDevice> {
        // A setting that is wrong is named, whether there is a device or not.
        DeviceSettings::read(settings, OLDEST_SM)?;
        let driver = self.driver()?;
        let devices = Self::list(driver)?;
        let Some((ordinal, facts)) = devices.get(index as usize) else {
            let there = match devices.len() {
                0 => "there is none (CUDA_VISIBLE_DEVICES may hide some)".to_owned(),
                count => format!("there are {count}, the last is cuda:{}", count - 1),
            };
            return Err(Error::invalid(format!("there is no device cuda:{index}: {there}")));
        };
        let sm = Capabilities::of(facts).sm;
        if sm < OLDEST_SM {
            return Err(Error::unsupported(format!("cuda:{index} ({}): {}", facts.name, too_old(sm))));
        }
        CudaDevice::open(driver, index, *ordinal, facts, DeviceSettings::read(settings, sm)?)
    }
}

fn describe(facts: &DeviceFacts) -> DeviceInfo {
    let capabilities = Capabilities::of(facts);
    DeviceInfo {
        kind: if facts.is_integrated { DeviceKind::Integrated } else { DeviceKind::Discrete },
        units: facts.multiprocessors,
        name: format!("{} ({})", facts.name, facts.uuid),
        physical_id: facts.pci.clone(),
        arch: format!("sm_{}", capabilities.sm),
        capabilities: capabilities.to_text(),
        memory_total: facts.memory,
    }
}
