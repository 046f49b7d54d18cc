//! A backend's pure side: devices, layouts, plans.

use super::device::DeviceClient;
use super::interfaces::Interfaces;
use super::missing;
use crate::abi::{self, BackendTable, Bytes, PlanHandle, SettingText, Str};
use crate::abi_function;
use crate::backend::{DeviceInfo, DeviceKind, NodePlan, PlanSummary, StatePlan, WeightLayout, WeightUse};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Graph;
use std::sync::Arc;

/// A backend behind its table.
#[derive(Clone)]
pub struct BackendClient {
    pub(super) plugin: Arc<str>,
    pub(super) table: &'static BackendTable,
    pub(super) interfaces: Interfaces,
}

/// Calls a function of the table and takes its status.
macro_rules! call {
    ($table:expr, $name:ident ( $($argument:expr),* $(,)? )) => {
        match abi_function!($table, BackendTable, $name) {
            // SAFETY: arguments are live and of the sizes that the function is documented to take.
            Some(function) => unsafe { Error::take(function($($argument),*)) },
            None => Err(missing(stringify!($name))),
        }
    };
}
pub(super) use call;

impl BackendClient {
    pub(super) fn new(plugin: String, table: *const BackendTable, interfaces: Interfaces) -> Result<Self> {
        // SAFETY: a table begins with its size.
        let size = unsafe { *table.cast::<usize>() };
        if size < size_of::<usize>() * 2 || !table.is_aligned() {
            return Err(Error::invalid(format!("the backend's table states a size of {size} bytes")));
        }
        // SAFETY: tables live as long as the process; fields are only read through `abi_function!`.
        Ok(Self { plugin: plugin.into(), table: unsafe { &*table }, interfaces })
    }

    /// Id of the plugin.
    pub fn plugin(&self) -> &str {
        &self.plugin
    }

    /// The devices now. May touch a driver.
    ///
    /// # Errors
    /// When a driver is there and fails.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let mut count = 0u32;
        call!(self.table, device_count(&raw mut count))?;
        (0..count).map(|index| self.device(index)).collect()
    }

    fn device(&self, index: u32) -> Result<DeviceInfo> {
        let mut info = abi::DeviceInfo {
            size: size_of::<abi::DeviceInfo>(),
            kind: 0,
            units: 0,
            name: Str::EMPTY,
            physical_id: Str::EMPTY,
            arch: Str::EMPTY,
            capabilities: Str::EMPTY,
            memory_total: 0,
        };
        call!(self.table, device_info(index, &raw mut info))?;
        let kind = DeviceKind::from_code(info.kind)
            .ok_or_else(|| Error::invalid(format!("device {index} is of the unknown kind {}", info.kind)))?;
        // SAFETY: texts of a description live as long as the process.
        unsafe {
            Ok(DeviceInfo {
                kind,
                units: info.units,
                name: info.name.to_text(),
                physical_id: info.physical_id.to_text(),
                arch: info.arch.to_text(),
                capabilities: info.capabilities.to_text(),
                memory_total: info.memory_total,
            })
        }
    }

    /// Chooses a layout for every weight. Pure.
    ///
    /// # Errors
    /// A weight that the backend cannot take, by name.
    pub fn layout_weights(&self, capabilities: &str, weights: &[WeightUse]) -> Result<Vec<WeightLayout>> {
        let list: Vec<abi::WeightUse> = weights.iter().map(weight_to_c).collect();
        let mut layouts = vec![WeightLayout { layout: 0, bytes: 0, alignment: 0 }; weights.len()];
        call!(
            self.table,
            layout_weights(Str::new(capabilities), list.as_ptr(), list.len(), layouts.as_mut_ptr())
        )?;
        for (weight, layout) in weights.iter().zip(&layouts) {
            if layout.layout == 0 || !layout.alignment.is_power_of_two() {
                return Err(Error::new(
                    ErrorKind::Internal,
                    format!("the backend gave no valid layout for `{}`", weight.name),
                ));
            }
        }
        Ok(layouts)
    }

    /// Plans a graph. Pure. `layouts` has one entry per weight of the graph, in the order of the values.
    ///
    /// # Errors
    /// Capabilities or layouts that are not the backend's. Nodes that cannot run are refused in the plan.
    pub fn plan(&self, graph: &Graph, capabilities: &str, layouts: &[WeightLayout]) -> Result<PlanClient> {
        let bytes = graph.to_bytes();
        let mut handle: PlanHandle = std::ptr::null_mut();
        call!(
            self.table,
            plan(
                Bytes::new(&bytes),
                Str::new(capabilities),
                layouts.as_ptr(),
                layouts.len(),
                &raw mut handle
            )
        )?;
        let mut plan = PlanClient {
            backend: self.clone(),
            handle,
            summary: PlanSummary {
                workspace_bytes: 0,
                workspace_alignment: 1,
                parameter_bytes: 0,
                result_bytes: 0,
                nodes: Vec::new(),
                states: Vec::new(),
            },
        };
        plan.summary = plan.read(graph)?;
        Ok(plan)
    }

    /// Opens a device. Keys are without the plugin's name.
    ///
    /// # Errors
    /// A setting that is unknown or wrong, by name; a device that cannot be used.
    pub fn open(&self, index: u32, settings: &[(String, String)]) -> Result<DeviceClient> {
        let list: Vec<SettingText> = settings
            .iter()
            .map(|(key, value)| SettingText { key: Str::new(key), value: Str::new(value) })
            .collect();
        let mut handle = std::ptr::null_mut();
        call!(self.table, device_open(index, list.as_ptr(), list.len(), &raw mut handle))?;
        Ok(DeviceClient::new(self.clone(), handle))
    }
}

/// The C form of a weight; borrows its name.
pub(super) fn weight_to_c(weight: &WeightUse) -> abi::WeightUse {
    abi::WeightUse {
        size: size_of::<abi::WeightUse>(),
        name: Str::new(&weight.name),
        dtype: weight.dtype.0,
        uses: weight.uses.0,
        rank: weight.shape.rank() as u32,
        group: weight.group,
        dims: weight.shape.raw(),
    }
}

/// A plan of a backend; freed with the last clone of its owner.
pub struct PlanClient {
    backend: BackendClient,
    pub(super) handle: PlanHandle,
    summary: PlanSummary,
}

// SAFETY: a plan is immutable and its functions may be called from any thread.
unsafe impl Send for PlanClient {}
// SAFETY: as above.
unsafe impl Sync for PlanClient {}

impl PlanClient {
    /// What the backend states about the plan.
    pub fn summary(&self) -> &PlanSummary {
        &self.summary
    }

    fn read(&self, graph: &Graph) -> Result<PlanSummary> {
        let table = self.backend.table;
        let mut info = abi::PlanInfo {
            size: size_of::<abi::PlanInfo>(),
            workspace_bytes: 0,
            workspace_alignment: 0,
            parameter_bytes: 0,
            result_bytes: 0,
            node_count: 0,
            refused_count: 0,
        };
        call!(table, plan_info(self.handle, &raw mut info))?;
        if info.node_count as usize != graph.nodes().len() || !info.workspace_alignment.is_power_of_two() {
            return Err(Error::new(ErrorKind::Internal, "the backend's plan does not describe this graph"));
        }
        let nodes = (0..info.node_count).map(|i| self.read_node(i)).collect::<Result<_>>()?;
        let states = (0..graph.states().count() as u32)
            .map(|index| {
                let mut state = StatePlan { bytes: 0, alignment: 0, layout: 0 };
                call!(table, plan_state(self.handle, index, &raw mut state))?;
                Ok(state)
            })
            .collect::<Result<_>>()?;
        Ok(PlanSummary {
            workspace_bytes: info.workspace_bytes,
            workspace_alignment: info.workspace_alignment,
            parameter_bytes: info.parameter_bytes,
            result_bytes: info.result_bytes,
            nodes,
            states,
        })
    }

    fn read_node(&self, index: u32) -> Result<NodePlan> {
        let mut node = abi::NodePlan {
            size: size_of::<abi::NodePlan>(),
            refused: 0,
            row_invariance: 0,
            numerics: 0,
            bytes_read: 0,
            operations: 0,
            text: Str::EMPTY,
        };
        call!(self.backend.table, plan_node(self.handle, index, &raw mut node))?;
        // SAFETY: the text lives as long as the plan.
        let text = unsafe { node.text.to_text() };
        Ok(if node.refused != 0 {
            NodePlan::Refused { reason: text }
        } else {
            NodePlan::Kernel {
                kernel: text,
                row_invariance: node.row_invariance,
                numerics: node.numerics,
                bytes_read: node.bytes_read,
                operations: node.operations,
            }
        })
    }
}

impl Drop for PlanClient {
    fn drop(&mut self) {
        if let Some(free) = abi_function!(self.backend.table, BackendTable, plan_free) {
            // SAFETY: the plan is not used again.
            unsafe { free(self.handle) };
        }
    }
}
