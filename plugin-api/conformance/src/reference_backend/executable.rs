//! Loaded graphs and their launches.

use super::device::Shared;
use super::memory::{Place, ReferenceArena};
use super::semaphore::ReferenceSemaphore;
use super::{ALIGNMENT, Fault};
use crate::reference::Program;
use paceline_plugin_api::backend::{Executable, Load, PlanSummary, Point, Span};
use paceline_plugin_api::error::catch;
use paceline_plugin_api::support::Timeline;
use paceline_plugin_api::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;

/// A program with the places of everything that it reads and writes.
struct Bound {
    program: Program,
    weights: Vec<Place>,
    states: Vec<Place>,
    parameters: Place,
    parameter_stride: usize,
    results: Place,
    result_stride: usize,
    slots: u32,
    launches: AtomicU64,
    shared: Arc<Shared>,
}

/// A semaphore and a value on its timeline, held by a launch.
type HeldPoint = (Arc<Timeline>, u64);

/// One queued launch.
pub(super) struct Job {
    bound: Arc<Bound>,
    slot: usize,
    parameters: Vec<u8>,
    waits: Vec<HeldPoint>,
    signals: Vec<HeldPoint>,
}

impl Job {
    /// Waits, computes, and signals the end or the failure.
    pub fn run(self) {
        let waited = if self.bound.shared.has(Fault::IgnoresWaits) {
            Ok(())
        } else {
            self.waits.iter().try_for_each(|(timeline, value)| timeline.wait(*value, u64::MAX))
        };
        let done = waited.and_then(|()| catch(|| self.bound.run(self.slot, &self.parameters)));
        for (timeline, value) in &self.signals {
            match &done {
                Ok(()) => timeline.signal(*value),
                Err(error) => timeline.fail(*value, error),
            }
        }
    }
}

impl Bound {
    fn run(&self, slot: usize, parameters: &[u8]) -> Result<()> {
        let weights: Vec<Vec<u8>> = self.weights.iter().map(|place| place.read(0, place.bytes)).collect();
        let weights: Vec<&[u8]> = weights.iter().map(Vec::as_slice).collect();
        let mut states: Vec<Vec<u8>> = self.states.iter().map(|place| place.read(0, place.bytes)).collect();
        let mut results = self
            .program
            .run(&weights, &mut states, parameters)
            .map_err(|error| Error::invalid(error.to_string()))?;
        for (place, state) in self.states.iter().zip(&states) {
            place.write(0, state);
        }
        let launch = self.launches.fetch_add(1, Ordering::Relaxed);
        if let Some(fault) = self.shared.fault() {
            fault.change_results(self.program.graph(), parameters, launch, &mut results);
        }
        self.results.write(slot * self.result_stride, &results);
        self.shared.count_download(results.len());
        Ok(())
    }

    /// Place of slots or blocks `first..first + count` of a state.
    fn state(&self, state: u32, first: u32, count: u32, bytes: usize) -> Result<(&Place, usize)> {
        let graph = self.program.graph();
        let id = graph
            .states()
            .nth(state as usize)
            .ok_or_else(|| Error::invalid(format!("there is no state {state}")))?;
        let value = graph.value(id);
        let (entries, place) = (value.shape.first(), &self.states[state as usize]);
        let entry = place.bytes / entries as usize;
        if first.checked_add(count).is_none_or(|end| end > entries) || bytes != entry * count as usize {
            let name = &value.name;
            return Err(Error::invalid(format!(
                "{count} entries from {first} on in {bytes} bytes: state `{name}` has {entries} of {entry} bytes"
            )));
        }
        Ok((place, entry * first as usize))
    }
}

/// A loaded graph.
pub struct ReferenceExecutable {
    bound: Arc<Bound>,
    queue: Sender<Job>,
}

impl ReferenceExecutable {
    pub(super) fn new(
        program: Program,
        summary: &PlanSummary,
        load: &Load<'_, ReferenceArena>,
        shared: &Arc<Shared>,
        queue: &Sender<Job>,
    ) -> Result<Self> {
        let graph = program.graph();
        let takes_all = shared.has(Fault::AcceptsSmallSpans);
        let place = |span: &Span<'_, ReferenceArena>, what: &str, needed: u64, is_io| {
            Place::new(span, what, if takes_all { 0 } else { needed }, ALIGNMENT, is_io).map(|mut place| {
                // A span may be longer than what it is for.
                place.bytes = place.bytes.min(needed as usize);
                place
            })
        };
        let bind =
            |spans: &[Span<'_, ReferenceArena>], ids: &mut dyn Iterator<Item = _>| -> Result<Vec<Place>> {
                spans
                    .iter()
                    .zip(ids)
                    .map(|(span, id)| {
                        let value = graph.value(id);
                        place(span, &format!("`{}`", value.name), value.bytes().unwrap_or(0), false)
                    })
                    .collect()
            };
        let (weights, states) =
            (bind(&load.weights, &mut graph.weights())?, bind(&load.states, &mut graph.states())?);
        place(&load.workspace, "the workspace", summary.workspace_bytes, false)?;
        let slots = u64::from(load.slots);
        let bound = Bound {
            weights,
            states,
            parameters: place(&load.parameters, "the parameters", load.parameter_stride * slots, true)?,
            parameter_stride: load.parameter_stride as usize,
            results: place(&load.results, "the results", load.result_stride * slots, true)?,
            result_stride: load.result_stride as usize,
            slots: load.slots,
            launches: AtomicU64::new(0),
            shared: Arc::clone(shared),
            program,
        };
        Ok(Self { bound: Arc::new(bound), queue: queue.clone() })
    }
}

fn hold(points: &[Point<'_, ReferenceSemaphore>]) -> Vec<HeldPoint> {
    points.iter().map(|point| (Arc::clone(&point.semaphore.timeline), point.value)).collect()
}

impl Executable for ReferenceExecutable {
    type Semaphore = ReferenceSemaphore;

    fn launch(
        &self,
        slot: u32,
        waits: &[Point<'_, ReferenceSemaphore>],
        signals: &[Point<'_, ReferenceSemaphore>],
    ) -> Result<()> {
        let (bound, fault) = (&self.bound, self.bound.shared.fault());
        let slot = match slot {
            slot if slot < bound.slots => slot as usize,
            _ if fault == Some(Fault::AcceptsAnySlot) => 0,
            _ => return Err(Error::invalid(format!("slot {slot} is outside of 0..{}", bound.slots))),
        };
        let graph = bound.program.graph();
        let length = graph.parameter_bytes() as usize;
        let mut parameters = bound.parameters.read(slot * bound.parameter_stride, length);
        if fault != Some(Fault::LaunchesUnchecked) {
            bound.program.check_parameters(&parameters).map_err(|error| Error::invalid(error.to_string()))?;
        }
        if let Some(fault) = fault {
            parameters = fault.change_parameters(graph, parameters);
        }
        bound.shared.count_launch();
        bound.shared.count_upload(length);
        let job =
            Job { bound: Arc::clone(bound), slot, parameters, waits: hold(waits), signals: hold(signals) };
        self.queue
            .send(job)
            .map_err(|_| Error::new(paceline_plugin_api::ErrorKind::DeviceLost, "the queue ended"))
    }

    fn export_state(&self, state: u32, first: u32, count: u32, out: &mut [u8]) -> Result<()> {
        let (place, offset) = self.bound.state(state, first, count, out.len())?;
        out.copy_from_slice(&place.read(offset, out.len()));
        Ok(())
    }

    fn import_state(&self, state: u32, first: u32, count: u32, source: &[u8]) -> Result<()> {
        let (place, offset) = self.bound.state(state, first, count, source.len())?;
        place.write(offset, source);
        Ok(())
    }
}
