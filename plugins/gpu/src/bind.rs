//! A program gets its addresses.

use crate::device::Shared;
use crate::driver::{Address, KernelHandle, LaunchShape};
use crate::executable::{Bound, BoundStep, GpuExecutable, SlotBlocks};
use crate::memory::{GpuArena, Region, host_region, region};
use crate::program::{ALIGNMENT, Chosen, GpuPlan, Place, Program};
use paceline_plugin_api::backend::{Load, Span};
use paceline_plugin_api::{Error, Result};
use std::sync::Arc;

/// Dynamic shared memory that every kernel may use; for more it has to be allowed.
const PLAIN_SHARED: u32 = 48 << 10;

/// Where everything is that a program reads and writes.
struct Addresses {
    weights: Vec<Address>,
    states: Vec<Region>,
    constants: Vec<Address>,
    workspace: Address,
}

impl Addresses {
    fn of(&self, program: &Program, place: Place) -> Address {
        match place {
            Place::Workspace(offset) | Place::Parameter(offset) => self.workspace + offset,
            Place::Result(offset) => self.workspace + program.results_at + offset,
            Place::Weight(index) => self.weights[index],
            Place::State(index) => self.states[index].address,
            Place::Constant(index) => self.constants[index],
        }
    }
}

/// A span in memory of this device, of at least so many bytes, aligned.
fn device_span(shared: &Arc<Shared>, span: &Span<'_, GpuArena>, bytes: u64, what: &str) -> Result<Region> {
    if !Arc::ptr_eq(span.arena.device(), shared) {
        return Err(Error::invalid(format!("{what} is memory of another device")));
    }
    let region = region(span)
        .ok_or_else(|| Error::invalid(format!("{what} is host memory, not memory of the device")))?;
    if region.bytes < bytes || !region.address.is_multiple_of(ALIGNMENT) {
        return Err(Error::invalid(format!(
            "{what} has {} bytes, {bytes} are needed, aligned to {ALIGNMENT}",
            region.bytes
        )));
    }
    Ok(region)
}

/// Blocks in host memory, aligned for integers.
fn host_span(span: &Span<'_, GpuArena>, stride: u64, what: &str) -> Result<*mut u8> {
    let start = host_region(span)
        .ok_or_else(|| Error::invalid(format!("the {what} blocks are not in an arena of class Io")))?;
    if !(start as usize).is_multiple_of(4) || !stride.is_multiple_of(4) {
        return Err(Error::invalid(format!("the {what} blocks are not aligned to 4")));
    }
    Ok(start)
}

/// Binds a plan to arenas and captures it.
///
/// # Errors
/// Spans that are too small, not aligned, or in memory of another kind or device; a driver that fails.
pub(crate) fn bind(shared: &Arc<Shared>, plan: &GpuPlan, load: &Load<'_, GpuArena>) -> Result<GpuExecutable> {
    let program = plan.program_with(|entry| shared.uses(entry));
    let workspace = device_span(shared, &load.workspace, program.workspace_bytes, "the workspace")?.address;
    let mut weights = Vec::with_capacity(load.weights.len());
    for (index, (span, &bytes)) in load.weights.iter().zip(&program.weight_bytes).enumerate() {
        weights.push(device_span(shared, span, bytes, &format!("weight {index}"))?.address);
    }
    let mut states = Vec::with_capacity(load.states.len());
    for (index, (span, layout)) in load.states.iter().zip(&program.states).enumerate() {
        let name = plan.state_names.get(index).map_or("", String::as_str);
        states.push(device_span(shared, span, layout.bytes(), &format!("state `{name}`"))?);
    }
    let blocks = SlotBlocks {
        parameters: host_span(&load.parameters, load.parameter_stride, "parameter")?,
        parameter_stride: load.parameter_stride as usize,
        results: host_span(&load.results, load.result_stride, "result")?,
        result_stride: load.result_stride as usize,
        slots: load.slots,
    };
    let constants = program.constants.iter().map(|bytes| shared.constant(bytes)).collect::<Result<_>>()?;
    let addresses = Addresses { weights, states, constants, workspace };
    let chosen = program.steps.iter().flat_map(|step| step.chosen(shared.settings.fusion));
    let steps = chosen.map(|step| bind_step(shared, program, &addresses, step));
    let bound = Bound {
        steps: steps.collect::<Result<_>>()?,
        device: Arc::clone(shared),
        program: Arc::clone(program),
        workspace,
        blocks,
        graphs: Vec::new(),
        replays: Default::default(),
    };
    GpuExecutable::new(bound, addresses.states, Arc::clone(&plan.state_names))
}

fn bind_step(
    shared: &Shared,
    program: &Program,
    addresses: &Addresses,
    step: Chosen<'_>,
) -> Result<BoundStep> {
    let step = match step {
        Chosen::Clear(id, bytes) => {
            let at = addresses.of(program, program.places[id]);
            return Ok(BoundStep::Clear { at, bytes: bytes as usize });
        }
        Chosen::Kernel(step) => step,
    };
    let mut parameters = step.parameters.clone();
    for (place, at) in &step.addresses {
        let address = addresses.of(program, program.places[at.id]) + at.offset;
        parameters[*place..*place + 8].copy_from_slice(&address.to_ne_bytes());
    }
    let kernel: KernelHandle = shared.kernel(step.launch.entry)?;
    let most = shared.driver().most_threads(kernel);
    let most = most.map_err(|error| shared.error(&error, "asking for a kernel's threads"))?;
    let threads = step.launch.threads.min(most);
    let shared_bytes = step.launch.shared_bytes.max(shared.shared_bytes(step.launch.entry, threads));
    if shared_bytes > PLAIN_SHARED {
        shared
            .driver()
            .allow_shared(kernel, shared_bytes)
            .map_err(|error| shared.error(&error, "allowing a kernel its shared memory"))?;
    }
    let shape = LaunchShape {
        grid: step.launch.groups,
        block: [threads, 1, 1],
        shared: shared_bytes,
        overlaps: shared.settings.overlap && !step.waits,
    };
    Ok(BoundStep::Kernel { entry: step.launch.entry, kernel, shape, parameters })
}
