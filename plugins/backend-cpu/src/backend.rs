//! The entry of the plugin: devices, layouts, plans.

use crate::capabilities::{Capabilities, DeviceSettings, processors};
use crate::device::{CpuDevice, system_memory};
use crate::layout::Layout;
use crate::level::Level;
use crate::program::{CpuPlan, lower};
use paceline_plugin_api::backend::{Backend, DeviceInfo, DeviceKind, WeightLayout, WeightUse};
use paceline_plugin_api::graph::Graph;
use paceline_plugin_api::{Error, Result};

/// The CPU backend: one device, the processor.
pub struct CpuBackend;

impl Backend for CpuBackend {
    type Plan = CpuPlan;
    type Device = CpuDevice;

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(vec![DeviceInfo {
            kind: DeviceKind::Cpu,
            units: processors() as u32,
            name: processor_name(),
            physical_id: "cpu".into(),
            arch: format!("{} {}", std::env::consts::ARCH, Level::detect()),
            capabilities: Capabilities::of_this_machine().to_text(),
            memory_total: system_memory().0,
        }])
    }

    fn layout_weights(&self, capabilities: &str, weights: &[WeightUse]) -> Result<Vec<WeightLayout>> {
        Capabilities::parse(capabilities)?;
        weights.iter().map(Layout::choose).collect()
    }

    fn plan(&self, graph: Graph, capabilities: &str, layouts: &[WeightLayout]) -> Result<CpuPlan> {
        lower(graph, Capabilities::parse(capabilities)?, layouts)
    }

    fn open(&self, index: u32, settings: &[(String, String)]) -> Result<CpuDevice> {
        if index != 0 {
            return Err(Error::invalid(format!("there is no device cpu:{index}, only cpu:0")));
        }
        CpuDevice::open(DeviceSettings::read(settings)?)
    }
}

/// The processor's name, as the system states it.
fn processor_name() -> String {
    std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH))
}
