//! The entry of a plugin: devices, layouts, plans.

use crate::capabilities::{Capabilities, DeviceSettings};
use crate::device::GpuDevice;
use crate::driver::{DeviceFacts, Driver, DriverError};
use crate::layout::Layout;
use crate::platform::{NoDriver, Platform};
use crate::program::{GpuPlan, Target, lower};
use paceline_plugin_api::backend::{Backend, DeviceInfo, DeviceKind, PeerRoute, WeightLayout, WeightUse};
use paceline_plugin_api::graph::Graph;
use paceline_plugin_api::{Error, ErrorKind, Result};

/// The backend of a platform: the devices of its driver, which is opened when devices are asked for.
pub struct GpuBackend {
    platform: &'static dyn Platform,
}

impl GpuBackend {
    /// The backend of a platform.
    pub fn new(platform: &'static dyn Platform) -> Self {
        Self { platform }
    }

    /// Ordinals and facts of the devices, in the order in which they are shown.
    fn list(&self, driver: &dyn Driver) -> Result<Vec<(u32, DeviceFacts)>> {
        let failed = |error: DriverError| {
            let id = self.platform.id();
            Error::new(ErrorKind::Internal, format!("listing the devices of `{id}` failed: {error}"))
        };
        let count = driver.device_count().map_err(failed)?;
        let mut devices = (0..count)
            .map(|ordinal| Ok((ordinal, driver.facts(ordinal).map_err(failed)?)))
            .collect::<Result<Vec<_>>>()?;
        self.platform.order(&mut devices);
        Ok(devices)
    }

    /// The driver, without which there is nothing to be opened.
    fn started(&self) -> Result<&'static dyn Driver> {
        self.platform.driver().map_err(|why| match why {
            NoDriver::Missing(why) => Error::unsupported(why),
            NoDriver::Failed(error) => error,
        })
    }

    fn missing(&self, index: u32, count: usize) -> Error {
        let id = self.platform.id();
        let there = match (count, self.platform.hidden_by()) {
            (0, Some(variable)) => format!("there is none ({variable} is set and may hide some)"),
            (0, None) => "there is none".to_owned(),
            (count, _) => format!("there are {count}, the last is {id}:{}", count - 1),
        };
        Error::invalid(format!("there is no device {id}:{index}: {there}"))
    }

    fn parse(&self, capabilities: &str) -> Result<Capabilities> {
        let capabilities = Capabilities::parse(capabilities, self.platform.id())?;
        match self.platform.refuses(&capabilities.target) {
            Some(why) => Err(Error::unsupported(why)),
            None => Ok(capabilities),
        }
    }
}

impl Backend for GpuBackend {
    type Plan = GpuPlan;
    type Device = GpuDevice;

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let driver = match self.platform.driver() {
            Ok(driver) => driver,
            // A machine without the driver has no such device, which is no fault.
            Err(NoDriver::Missing(why)) => {
                tracing::info!("{why}");
                return Ok(Vec::new());
            }
            Err(NoDriver::Failed(error)) => return Err(error),
        };
        let devices = self.list(driver)?;
        if let (true, Some(variable)) = (devices.is_empty(), self.platform.hidden_by()) {
            tracing::info!("no device of `{}` is left by {variable}", self.platform.id());
        }
        Ok(devices.iter().map(|(_, facts)| describe(facts)).collect())
    }

    fn layout_weights(&self, capabilities: &str, weights: &[WeightUse]) -> Result<Vec<WeightLayout>> {
        self.parse(capabilities)?;
        weights.iter().map(Layout::choose).collect()
    }

    fn plan(&self, graph: Graph, capabilities: &str, layouts: &[WeightLayout]) -> Result<GpuPlan> {
        let target = self.parse(capabilities)?.target;
        let has_kernel = |entry: &str| self.platform.module_of(entry).is_some();
        let has_bf16 = self.platform.has_bf16(&target);
        lower(graph, layouts, Target { name: &target, has_kernel: &has_kernel, has_bf16 })
    }

    fn peer_route(&self, to: u32, from: u32) -> Result<PeerRoute> {
        let driver = self.started()?;
        let devices = self.list(driver)?;
        let ordinal = |index: u32| {
            devices
                .get(index as usize)
                .map(|(ordinal, _)| *ordinal)
                .ok_or_else(|| self.missing(index, devices.len()))
        };
        let (to, from) = (ordinal(to)?, ordinal(from)?);
        driver.peer_route(to, from).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("asking how devices reach each other failed: {error}"))
        })
    }

    fn open(&self, index: u32, settings: &[(String, String)]) -> Result<GpuDevice> {
        let platform = self.platform;
        let id = platform.id();
        // A setting that is wrong is named, whether there is a device or not.
        DeviceSettings::read(platform.settings(), settings, None)?;
        let driver = self.started()?;
        let devices = self.list(driver)?;
        let Some((ordinal, facts)) = devices.get(index as usize) else {
            return Err(self.missing(index, devices.len()));
        };
        if let Some(why) = platform.refuses(&facts.target) {
            return Err(Error::unsupported(format!("{id}:{index} ({}): {why}", facts.name)));
        }
        let settings = DeviceSettings::read(platform.settings(), settings, Some(facts))?;
        GpuDevice::open(platform, driver, index, *ordinal, facts, settings)
    }
}

fn describe(facts: &DeviceFacts) -> DeviceInfo {
    let name = match facts.uuid.as_str() {
        "" => facts.name.clone(),
        uuid => format!("{} ({uuid})", facts.name),
    };
    DeviceInfo {
        kind: if facts.is_integrated { DeviceKind::Integrated } else { DeviceKind::Discrete },
        units: facts.units,
        name,
        physical_id: facts.pci.clone(),
        arch: facts.target.clone(),
        capabilities: Capabilities::of(facts).to_text(),
        memory_total: facts.memory,
    }
}
