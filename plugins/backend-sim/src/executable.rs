//! Loaded graphs and their launches.
//!
//! A launch is queued on the reference device at once, behind a gate, so that its parameters are read and checked.
//! The worker of the simulated device waits for what the launch waits for, brings the faults about, opens the gate,
//! and signals the end or the failure when the computation is done.

use crate::device::Shared;
use crate::live::{Alive, Object};
use crate::memory::SimArena;
use crate::semaphore::SimSemaphore;
use paceline_conformance::reference_backend::{ReferenceExecutable, ReferenceSemaphore};
use paceline_plugin_api::backend::{Arena, Device, Executable, Load, Point, Semaphore};
use paceline_plugin_api::error::catch;
use paceline_plugin_api::graph::{DType, Graph, Node};
use paceline_plugin_api::support::Timeline;
use paceline_plugin_api::{Error, ErrorKind, Result};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How often a launch that waits looks whether the device is lost.
const LOSS_CHECK: Duration = Duration::from_millis(2);

/// The first result block in the host's memory.
struct ResultBlocks {
    address: *mut u8,
    stride: usize,
}

// SAFETY: the blocks are memory of an IO arena, which the reference executable beside keeps alive. Only the worker
// writes them, one launch at a time, and the host leaves the blocks of a pending launch alone.
unsafe impl Send for ResultBlocks {}
// SAFETY: as above.
unsafe impl Sync for ResultBlocks {}

/// Results that are replaced when they are to be no numbers: offset in the block, bytes, and what is repeated there.
type Spoiled = (usize, usize, [u8; 4]);

struct Bound {
    reference: ReferenceExecutable,
    results: ResultBlocks,
    spoiled: Vec<Spoiled>,
}

/// Values that are no numbers and, of an argmax or draw, which have none, the id of such a row and the count of such rows.
fn spoiled_results(graph: &Graph) -> Vec<Spoiled> {
    let is_of_choice = |value, output: usize| {
        let chooses = |n: &&Node| matches!(n.operation.as_str(), "argmax" | "draw");
        graph.nodes().iter().filter(chooses).any(|n| n.outputs[output] == value)
    };
    let spoil = |dtype: DType, value| match dtype {
        DType::F32 => Some(f32::NAN.to_ne_bytes()),
        _ if is_of_choice(value, 0) => Some((-1i32).to_ne_bytes()),
        _ => is_of_choice(value, 1).then(|| 1i32.to_ne_bytes()),
    };
    let results = graph.results().iter();
    results
        .filter_map(|result| {
            let value = graph.value(result.value);
            let pattern = spoil(value.dtype, result.value)?;
            Some((result.offset as usize, value.bytes()? as usize, pattern))
        })
        .collect()
}

impl Bound {
    fn spoil(&self, slot: usize) {
        for &(offset, bytes, pattern) in &self.spoiled {
            for at in (0..bytes).step_by(4) {
                // SAFETY: the reference executable checked that the blocks of all slots lie in the arena, whose
                // memory it keeps alive; the launch of this slot is pending, so the host does not touch them.
                unsafe {
                    let target = self.results.address.add(slot * self.results.stride + offset + at);
                    std::ptr::copy_nonoverlapping(pattern.as_ptr(), target, pattern.len());
                }
            }
        }
    }
}

type HeldPoint = (Arc<Timeline>, u64);

/// One queued launch.
pub(crate) struct Job {
    bound: Arc<Bound>,
    worker: Worker,
    number: u64,
    slot: usize,
    gate: ReferenceSemaphore,
    done: ReferenceSemaphore,
    waits: Vec<HeldPoint>,
    signals: Vec<HeldPoint>,
}

/// What a queued launch knows of its device: a weak link, since the device holds the queue.
type Worker = std::sync::Weak<Shared>;

impl Job {
    /// Runs on the worker.
    pub fn run(self) {
        let shared = self.worker.upgrade();
        let prepared = match &shared {
            Some(shared) => self.prepare(shared),
            None => Err(Error::new(ErrorKind::DeviceLost, "the device was closed before the launch ran")),
        };
        // The reference device runs it in any case: those behind it in its queue wait for that.
        self.gate.signal(1);
        let computed = self.done.wait(1, u64::MAX);
        let ended = prepared.and(computed).and_then(|()| shared.as_ref().map_or(Ok(()), |s| s.check()));
        if ended.is_ok() && shared.is_some_and(|shared| shared.faults.spoils(self.number)) {
            self.bound.spoil(self.slot);
        }
        for (timeline, value) in &self.signals {
            match &ended {
                Ok(()) => timeline.signal(*value),
                Err(error) => timeline.fail(*value, error),
            }
        }
    }

    fn prepare(&self, shared: &Shared) -> Result<()> {
        for (timeline, value) in &self.waits {
            loop {
                shared.check()?;
                if let Some(outcome) = timeline.wait_for(*value, LOSS_CHECK) {
                    outcome?;
                    break;
                }
            }
        }
        std::thread::sleep(shared.faults.slow_launch);
        catch(|| {
            shared.faults.panic_at("worker", &shared.label);
            Ok(())
        })
    }
}

/// A loaded graph.
pub struct SimExecutable {
    bound: Arc<Bound>,
    shared: Arc<Shared>,
    _alive: Alive,
}

impl SimExecutable {
    pub(crate) fn new(
        reference: ReferenceExecutable,
        graph: &Graph,
        load: &Load<'_, SimArena>,
        shared: &Arc<Shared>,
    ) -> Result<Self> {
        let host = load.results.arena.host_address();
        let host = host.ok_or_else(|| Error::invalid("the results are not in an arena of class Io"))?;
        let results = ResultBlocks {
            address: host.wrapping_add(load.results.offset as usize),
            stride: load.result_stride as usize,
        };
        let bound = Bound { reference, results, spoiled: spoiled_results(graph) };
        Ok(Self {
            bound: Arc::new(bound),
            shared: Arc::clone(shared),
            _alive: Alive::new(Object::Executable),
        })
    }
}

fn hold(points: &[Point<'_, SimSemaphore>]) -> Vec<HeldPoint> {
    points.iter().map(|point| (Arc::clone(&point.semaphore.timeline), point.value)).collect()
}

impl Executable for SimExecutable {
    type Semaphore = SimSemaphore;

    fn launch(
        &self,
        slot: u32,
        waits: &[Point<'_, SimSemaphore>],
        signals: &[Point<'_, SimSemaphore>],
    ) -> Result<()> {
        let shared = &self.shared;
        shared.check()?;
        shared.faults.panic_at("launch", &shared.label);
        let queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        shared.check_launch()?;
        let (gate, done) = (shared.reference.create_semaphore(0)?, shared.reference.create_semaphore(0)?);
        self.bound.reference.launch(
            slot,
            &[Point { semaphore: &gate, value: 1 }],
            &[Point { semaphore: &done, value: 1 }],
        )?;
        let job = Job {
            bound: Arc::clone(&self.bound),
            worker: Arc::downgrade(shared),
            number: shared.count_launch(),
            slot: slot as usize,
            gate,
            done,
            waits: hold(waits),
            signals: hold(signals),
        };
        queue.send(job).map_err(|_| {
            Error::new(ErrorKind::Internal, format!("{}: the worker thread ended", shared.label))
        })
    }

    fn export_state(&self, state: u32, first: u32, count: u32, out: &mut [u8]) -> Result<()> {
        self.shared.check()?;
        self.bound.reference.export_state(state, first, count, out)
    }

    fn import_state(&self, state: u32, first: u32, count: u32, source: &[u8]) -> Result<()> {
        self.shared.check()?;
        self.bound.reference.import_state(state, first, count, source)
    }
}
