//! A graph lowered to launches, with a place for every value. Nothing here needs a device.
//!
//! Lowering ([`lower()`]) turns nodes into launches and adds what the graph does not say: quantised forms of
//! activations, made once for all products that read them, and what each row of an attention sees. Launches run one
//! after the other in the order of the list. Placement ([`place_intermediates`](paceline_plugin_api::support::place_intermediates)) gives each intermediate value a range of the
//! workspace that it shares with values that live at other times.
//!
//! The workspace begins with the device's copies of the parameter block and of the result block: a run is one copy up,
//! the launches, and one copy down.

mod lower;
mod step;
mod view;

pub(crate) use lower::{Target, lower};
pub(crate) use step::{Chosen, KernelStep, Leads, Ref, Step};

use paceline_plugin_api::backend::{Plan, PlanSummary};
use paceline_plugin_api::graph::Graph;
use paceline_plugin_api::support::{Live, ParameterCheck};
use std::sync::Arc;

/// Index of a value: those of the graph first, in its order, then those that lowering added.
pub(crate) type Id = usize;

/// Workspace offsets are multiples of this, which is what kernels want of an address at most.
pub(crate) const ALIGNMENT: u64 = 256;

/// Where a value is in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Offset in the workspace.
    Workspace(u64),
    /// Offset in the parameter block.
    Parameter(u64),
    /// Offset in the result block.
    Result(u64),
    /// Index among the weights.
    Weight(usize),
    /// Index among the states.
    State(usize),
    /// Index among the constants.
    Constant(usize),
}

/// What a state takes and how its entries lie: always canonical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateLayout {
    /// Entries of axis 0.
    pub entries: u32,
    /// Bytes of an entry.
    pub entry_bytes: u64,
}

impl StateLayout {
    pub fn bytes(self) -> u64 {
        u64::from(self.entries) * self.entry_bytes
    }
}

/// A lowered graph.
#[derive(Debug)]
pub(crate) struct Program {
    pub steps: Vec<Step>,
    pub places: Vec<Place>,
    pub checks: Vec<ParameterCheck>,
    /// Tables that the kernels read and no graph has.
    pub constants: Vec<Vec<u8>>,
    pub states: Vec<StateLayout>,
    /// Bytes of each weight in its layout.
    pub weight_bytes: Vec<u64>,
    /// Rows that are quantised for products: live counts, each with how often.
    pub quantized: Vec<Live>,
    pub parameter_bytes: u64,
    pub result_bytes: u64,
    /// Offset of the result block in the workspace; the parameter block is at 0.
    pub results_at: u64,
    pub workspace_bytes: u64,
}

/// What the plugin API calls a plan.
pub struct GpuPlan {
    pub(crate) program: Arc<Program>,
    /// The same with products of many rows in int8, where they are in bf16.
    int8: Option<Arc<Program>>,
    summary: PlanSummary,
    /// Names of the states, for error texts.
    pub(crate) state_names: Arc<[String]>,
}

impl GpuPlan {
    pub(crate) fn new(
        (program, int8): (Program, Option<Program>),
        graph: &Graph,
        summary: PlanSummary,
    ) -> Self {
        let names = graph.states().map(|id| graph.value(id).name.clone()).collect();
        Self { program: Arc::new(program), int8: int8.map(Arc::new), summary, state_names: names }
    }

    /// What a device runs that has these kernels.
    pub(crate) fn program_with(&self, has_kernel: impl Fn(&str) -> bool) -> &Arc<Program> {
        let is_there = |step: &Step| match step {
            Step::Kernel(step) => has_kernel(step.launch.entry),
            _ => true,
        };
        match &self.int8 {
            Some(int8) if !self.program.steps.iter().all(is_there) => int8,
            _ => &self.program,
        }
    }
}

impl Plan for GpuPlan {
    fn summary(&self) -> &PlanSummary {
        &self.summary
    }
}
