//! The pure side: devices, layouts, plans.

use crate::device::SimDevice;
use crate::inventory::{self, Profile};
use crate::live::{Alive, Object};
use crate::memory::Pool;
use crate::settings::Faults;
use paceline_conformance::reference_backend::{ReferenceBackend, ReferencePlan};
use paceline_plugin_api::backend::{
    Backend, DeviceInfo, DeviceKind, NodePlan, Plan, PlanSummary, WeightLayout, WeightUse,
};
use paceline_plugin_api::graph::Graph;
use paceline_plugin_api::{Error, Result};
use std::sync::Arc;

/// Memory of the reference devices below, MiB: simulated devices account for theirs themselves.
const REFERENCE_MEMORY_MIB: &str = "1048576";

/// The backend.
pub struct SimBackend {
    reference: ReferenceBackend,
    /// The devices, each with the memory that all who open it share.
    devices: Result<Vec<(Profile, Arc<Pool>)>>,
}

impl SimBackend {
    /// The devices of the environment variable [`inventory::VARIABLE`].
    pub fn from_environment() -> Self {
        Self::of(inventory::of_environment())
    }

    /// Of the devices of the environment variable those of one kind, for a plugin that stands in for that backend.
    pub fn from_environment_of(kind: &str) -> Self {
        let of_kind = |devices: Vec<Profile>| devices.into_iter().filter(|it| it.kind == kind).collect();
        Self::of(inventory::of_environment().map(of_kind))
    }

    fn of(devices: Result<Vec<Profile>>) -> Self {
        let with_pool = |profile: Profile| {
            let pool = Arc::new(Pool::new(profile.memory));
            (profile, pool)
        };
        let devices = devices.map(|devices| devices.into_iter().map(with_pool).collect());
        Self { reference: ReferenceBackend::new(), devices }
    }

    fn devices(&self) -> Result<&[(Profile, Arc<Pool>)]> {
        self.devices.as_deref().map_err(Clone::clone)
    }

    /// What the reference backend wants to hear.
    fn reference_capabilities(&self) -> Result<String> {
        let device = self.reference.devices()?.into_iter().next();
        device
            .map(|d| d.capabilities)
            .ok_or_else(|| Error::unsupported("the reference executor has no device"))
    }
}

/// A planned graph.
pub struct SimPlan {
    pub(crate) reference: ReferencePlan,
    pub(crate) graph: Arc<Graph>,
    summary: PlanSummary,
    _alive: Alive,
}

impl Plan for SimPlan {
    fn summary(&self) -> &PlanSummary {
        &self.summary
    }
}

impl Backend for SimBackend {
    type Plan = SimPlan;
    type Device = SimDevice;

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let describe = |(index, (profile, _)): (usize, &(Profile, Arc<Pool>))| DeviceInfo {
            kind: DeviceKind::Software,
            units: 1,
            name: format!("simulated {} {}", profile.kind, profile.arch),
            physical_id: format!("sim:{index}"),
            arch: profile.arch.clone(),
            capabilities: profile.capabilities(),
            memory_total: profile.memory,
        };
        Ok(self.devices()?.iter().enumerate().map(describe).collect())
    }

    fn layout_weights(&self, capabilities: &str, weights: &[WeightUse]) -> Result<Vec<WeightLayout>> {
        inventory::lacking(capabilities)?;
        self.reference.layout_weights(&self.reference_capabilities()?, weights)
    }

    fn plan(&self, graph: Graph, capabilities: &str, layouts: &[WeightLayout]) -> Result<SimPlan> {
        let lacking = inventory::lacking(capabilities)?;
        let reference = self.reference.plan(graph.clone(), &self.reference_capabilities()?, layouts)?;
        let mut summary = reference.summary().clone();
        for (node, plan) in graph.nodes().iter().zip(&mut summary.nodes) {
            if Some(node.operation.as_str()) == lacking {
                let reason = format!("the simulated device has no `{}`", node.operation);
                *plan = NodePlan::Refused { reason };
            }
        }
        Ok(SimPlan { reference, graph: Arc::new(graph), summary, _alive: Alive::new(Object::Plan) })
    }

    fn open(&self, index: u32, settings: &[(String, String)]) -> Result<SimDevice> {
        let devices = self.devices()?;
        let (profile, pool) = devices.get(index as usize).ok_or_else(|| {
            Error::invalid(format!("there is no device {index}; {} are simulated", devices.len()))
        })?;
        let faults = Faults::read(settings)?;
        let reference = self.reference.open(0, &[("memory".into(), REFERENCE_MEMORY_MIB.into())])?;
        Ok(SimDevice::new(reference, profile.label(index as usize), Arc::clone(pool), faults))
    }
}
