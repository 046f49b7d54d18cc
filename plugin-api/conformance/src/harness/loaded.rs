//! A loaded graph: write parameters, launch, wait, read results.

use super::placement::Memory;
use super::{HarnessError, failed};
use crate::io::Blocks;
use paceline_plugin_api::backend::PlanSummary;
use paceline_plugin_api::client::{ExecutableClient, SemaphoreClient};
use paceline_plugin_api::graph::Graph;
use paceline_plugin_api::{Error, ErrorKind};
use std::sync::Arc;

/// How long a launch may take before it counts as lost.
const PATIENCE_NS: u64 = 120_000_000_000;

/// What a loaded graph uses on the device, in the order in which it is freed.
pub(super) struct Parts {
    pub executable: ExecutableClient,
    pub semaphore: SemaphoreClient,
    pub parameters: Blocks,
    pub results: Blocks,
    /// Keeps the memory alive that the executable is bound to.
    pub _memory: Arc<Memory>,
}

/// A loaded graph.
pub struct Loaded {
    /// Taken by the drop only.
    parts: Option<Parts>,
    graph: Graph,
    summary: PlanSummary,
    /// Value of the last launch.
    reached: u64,
    /// A launch did not end in time.
    is_lost: bool,
}

impl Loaded {
    pub(super) fn new(parts: Parts, graph: Graph, summary: PlanSummary) -> Self {
        Self { parts: Some(parts), graph, summary, reached: 0, is_lost: false }
    }

    fn parts(&self) -> &Parts {
        self.parts.as_ref().expect("present until the drop")
    }

    /// The program on the device.
    pub fn executable(&mut self) -> &mut ExecutableClient {
        &mut self.parts.as_mut().expect("present until the drop").executable
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What the plan says.
    pub fn summary(&self) -> &PlanSummary {
        &self.summary
    }

    /// Runs the graph in slot 0 and returns the result block.
    ///
    /// # Errors
    /// What the backend reports at the launch or after it.
    pub fn run(&mut self, parameters: &[u8]) -> Result<Vec<u8>, HarnessError> {
        self.run_in_slot(0, parameters)
    }

    /// Runs the graph in a slot and returns the result block.
    ///
    /// # Errors
    /// What the backend reports at the launch or after it.
    pub fn run_in_slot(&mut self, slot: u32, parameters: &[u8]) -> Result<Vec<u8>, HarnessError> {
        self.write_parameters(slot, parameters);
        let value = self.launch(slot, &[])?;
        self.wait(value)?;
        Ok(self.read_results(slot))
    }

    /// Writes the parameter block of a slot, of which no launch is pending.
    pub fn write_parameters(&self, slot: u32, parameters: &[u8]) {
        self.parts().parameters.write(slot, parameters);
    }

    /// Reads the result block of a slot, of which no launch is pending.
    pub fn read_results(&self, slot: u32) -> Vec<u8> {
        self.parts().results.read(slot, self.graph.result_bytes() as usize)
    }

    /// Queues a launch after some points and returns the value that it signals, for [`Loaded::wait`].
    ///
    /// # Errors
    /// What the backend reports.
    pub fn launch(&mut self, slot: u32, waits: &[(&SemaphoreClient, u64)]) -> Result<u64, HarnessError> {
        let value = self.reached + 1;
        let parts = self.parts.as_mut().expect("present until the drop");
        let signals = [(&parts.semaphore, value)];
        parts.executable.launch_after(slot, waits, &signals).map_err(failed("launch"))?;
        self.reached = value;
        Ok(value)
    }

    /// Queues a launch that signals some points and not the harness's own semaphore; the caller waits for one of them.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn launch_signalling(
        &mut self,
        slot: u32,
        signals: &[(&SemaphoreClient, u64)],
    ) -> Result<(), HarnessError> {
        let parts = self.parts.as_mut().expect("present until the drop");
        parts.executable.launch_after(slot, &[], signals).map_err(failed("launch"))
    }

    /// Waits until the launch that signals `value` is done.
    ///
    /// # Errors
    /// The failure of the launch, or that it does not end.
    pub fn wait(&mut self, value: u64) -> Result<(), HarnessError> {
        let ended = self.semaphore().wait(value, PATIENCE_NS);
        self.is_lost |= matches!(&ended, Err(error) if error.kind == ErrorKind::Timeout);
        ended.map_err(failed("wait"))
    }

    /// The semaphore that launches signal.
    pub fn semaphore(&self) -> &SemaphoreClient {
        &self.parts().semaphore
    }

    /// Canonical bytes of a state by its index; `None` if the backend does not export states.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn export_state(&self, index: usize) -> Result<Option<Vec<u8>>, HarnessError> {
        let (count, bytes) = self.state_size(index);
        let mut out = vec![0; bytes];
        optional(self.parts().executable.export_state(index as u32, 0, count, &mut out))
            .map(|done| done.map(|()| out))
            .map_err(failed("export_state"))
    }

    /// Replaces a state by canonical bytes; `None` if the backend does not import states.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn import_state(&mut self, index: usize, bytes: &[u8]) -> Result<Option<()>, HarnessError> {
        let (count, _) = self.state_size(index);
        let parts = self.parts.as_mut().expect("present until the drop");
        optional(parts.executable.import_state(index as u32, 0, count, bytes)).map_err(failed("import_state"))
    }

    /// Canonical bytes of slots or blocks `first..first + count` of a state.
    ///
    /// # Errors
    /// What the backend reports; also that it does not export states, or that `bytes` is not their length.
    pub fn export_slots(
        &self,
        state: u32,
        first: u32,
        count: u32,
        bytes: usize,
    ) -> Result<Vec<u8>, HarnessError> {
        let mut out = vec![0; bytes];
        let exported = self.parts().executable.export_state(state, first, count, &mut out);
        exported.map(|()| out).map_err(failed("export_state"))
    }

    /// Replaces slots or blocks `first..first + count` of a state.
    ///
    /// # Errors
    /// What the backend reports; also that it does not import states, or that the bytes have another length.
    pub fn import_slots(
        &mut self,
        state: u32,
        first: u32,
        count: u32,
        bytes: &[u8],
    ) -> Result<(), HarnessError> {
        let parts = self.parts.as_mut().expect("present until the drop");
        parts.executable.import_state(state, first, count, bytes).map_err(failed("import_state"))
    }

    /// Slots or blocks of a state, and its canonical length.
    fn state_size(&self, index: usize) -> (u32, usize) {
        let id = self.graph.states().nth(index).expect("an index of a state");
        let value = self.graph.value(id);
        (value.shape.first(), value.bytes().unwrap_or(0) as usize)
    }
}

fn optional<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind == ErrorKind::Unsupported => Ok(None),
        Err(error) => Err(error),
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // An executable is freed without launches pending; after an error there may be some that nobody waited for.
        if !self.is_lost && self.reached > 0 {
            let _ = self.wait(self.reached);
        }
        if self.is_lost {
            // A launch still runs: what it uses must not go away.
            std::mem::forget(self.parts.take());
        }
    }
}
