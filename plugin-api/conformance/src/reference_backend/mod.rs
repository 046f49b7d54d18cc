//! A backend around the reference executor.
//!
//! It is slow and takes every operation and type that is known here. It keeps the contract of the backend traits to
//! the letter, and makes no use of the freedoms that a contract leaves: fresh memory holds garbage, launches run on
//! a thread of their own, what is out of range is refused. So it proves the conformance suite, and hosts can be
//! tested against it. It has no plugin entry of its own; whoever wants one writes
//! `backend_plugin!(INFO, ReferenceBackend, ReferenceBackend::new())`.

mod device;
mod executable;
mod faults;
mod memory;
mod semaphore;

pub use device::ReferenceDevice;
pub use executable::ReferenceExecutable;
pub use faults::Fault;
pub use memory::ReferenceArena;
pub use semaphore::ReferenceSemaphore;

use crate::quant;
use crate::reference::{Program, node_refusal};
use paceline_plugin_api::backend::{
    Backend, DeviceInfo, DeviceKind, NodePlan, Plan, PlanSummary, StatePlan, UNLIMITED_ROWS, WeightLayout,
    WeightUse,
};
use paceline_plugin_api::graph::{DType, Graph, Node, Shape, ValueKind};
use paceline_plugin_api::settings::{Setting, SettingType, Settings, Stage};
use paceline_plugin_api::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the device states as its capabilities.
const CAPABILITIES: &str = "reference/1";
/// The one layout of weights and states: canonical bytes.
const CANONICAL: u64 = 1;
/// Alignment that spans must have.
const ALIGNMENT: u64 = 64;

/// What a user may set.
pub const SETTINGS: &[Setting] = &[Setting {
    key: "memory",
    kind: SettingType::Integer { default: 4096, min: 1, max: 1 << 20 },
    stage: Stage::Placement,
    unit: "MiB",
    doc: "Memory that the device pretends to have.",
}];

/// The backend.
pub struct ReferenceBackend {
    fault: Option<Fault>,
    plans: AtomicU64,
}

impl ReferenceBackend {
    /// A backend that keeps its contract.
    pub fn new() -> Self {
        Self { fault: None, plans: AtomicU64::new(0) }
    }

    /// A backend that is wrong in one way, to prove that tests notice.
    pub fn wrong(fault: Fault) -> Self {
        Self { fault: Some(fault), plans: AtomicU64::new(0) }
    }
}

impl Default for ReferenceBackend {
    fn default() -> Self {
        Self::new()
    }
}

/// A planned graph.
pub struct ReferencePlan {
    summary: PlanSummary,
    /// `None` if a node was refused.
    program: Option<Program>,
}

impl Plan for ReferencePlan {
    fn summary(&self) -> &PlanSummary {
        &self.summary
    }
}

fn check_capabilities(capabilities: &str) -> Result<()> {
    if capabilities == CAPABILITIES {
        return Ok(());
    }
    Err(Error::invalid(format!("capabilities `{capabilities}` are not those of this backend")))
}

fn layout_of(weight: &str, dtype: DType, shape: &Shape) -> Result<WeightLayout> {
    // Tables of indices are read as they are.
    let is_read = quant::is_supported(dtype) || dtype == DType::I32;
    match dtype.bytes(shape) {
        Some(bytes) if is_read => Ok(WeightLayout { layout: CANONICAL, bytes, alignment: ALIGNMENT }),
        _ => Err(Error::unsupported(format!("weight `{weight}` has a type or shape without a reader"))),
    }
}

impl Backend for ReferenceBackend {
    type Plan = ReferencePlan;
    type Device = ReferenceDevice;

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(vec![DeviceInfo {
            kind: DeviceKind::Software,
            units: 1,
            name: "reference executor".into(),
            physical_id: "cpu".into(),
            arch: "reference".into(),
            capabilities: CAPABILITIES.into(),
            memory_total: device::memory_total(&Settings::read(SETTINGS, &[])?),
        }])
    }

    fn layout_weights(&self, capabilities: &str, weights: &[WeightUse]) -> Result<Vec<WeightLayout>> {
        check_capabilities(capabilities)?;
        weights.iter().map(|w| layout_of(&w.name, w.dtype, &w.shape)).collect()
    }

    fn plan(&self, graph: Graph, capabilities: &str, layouts: &[WeightLayout]) -> Result<ReferencePlan> {
        check_capabilities(capabilities)?;
        for (id, layout) in graph.weights().zip(layouts) {
            let value = graph.value(id);
            if layout_of(&value.name, value.dtype, &value.shape)? != *layout {
                return Err(Error::invalid(format!("weight `{}` has another layout", value.name)));
            }
        }
        let nodes: Vec<NodePlan> = graph.nodes().iter().map(|node| plan_node(&graph, node)).collect();
        let states = graph
            .states()
            .map(|id| StatePlan {
                bytes: graph.value(id).bytes().unwrap_or(0),
                alignment: ALIGNMENT,
                layout: CANONICAL,
            })
            .collect();
        let is_refused = nodes.iter().any(|node| matches!(node, NodePlan::Refused { .. }));
        let program = if is_refused {
            None
        } else {
            let program = Program::new(&graph).map_err(|error| Error::unsupported(error.to_string()))?;
            Some(self.fault.map_or_else(|| program.clone(), |fault| fault.change(program.clone())))
        };
        let count = self.plans.fetch_add(1, Ordering::Relaxed);
        let summary = PlanSummary {
            workspace_bytes: if self.fault == Some(Fault::PlanVaries) { 64 * (1 + count % 2) } else { 64 },
            workspace_alignment: ALIGNMENT,
            parameter_bytes: graph.parameter_bytes(),
            result_bytes: graph.result_bytes(),
            nodes,
            states,
        };
        Ok(ReferencePlan { summary, program })
    }

    fn open(&self, index: u32, settings: &[(String, String)]) -> Result<ReferenceDevice> {
        if index != 0 {
            return Err(Error::invalid(format!("there is no device {index}")));
        }
        let settings = match Settings::read(SETTINGS, settings) {
            Err(_) if self.fault == Some(Fault::AcceptsAnySetting) => Settings::read(SETTINGS, &[])?,
            read => read?,
        };
        Ok(ReferenceDevice::new(&settings, self.fault))
    }
}

fn plan_node(graph: &Graph, node: &Node) -> NodePlan {
    if let Some(what) = node_refusal(graph, node) {
        return NodePlan::Refused { reason: format!("{}/{}: {what}", node.operation, node.version) };
    }
    let read = |kind: ValueKind| matches!(kind, ValueKind::Weight | ValueKind::State(_));
    let inputs = node.inputs.iter().map(|&id| graph.value(id));
    NodePlan::Kernel {
        kernel: format!("reference {}", node.operation),
        row_invariance: UNLIMITED_ROWS,
        // Every node of an operation is computed in the same way.
        numerics: node.operation.bytes().fold(1, |hash: u64, byte| hash.wrapping_mul(257) + u64::from(byte)),
        bytes_read: inputs.filter(|value| read(value.kind)).filter_map(|value| value.bytes()).sum(),
        operations: 0,
    }
}
