//! The device: its memory, its counters, and its end.

use crate::backend::SimPlan;
use crate::executable::{Job, SimExecutable};
use crate::live::{Alive, Object};
use crate::memory::{Pool, SimArena, below};
use crate::semaphore::SimSemaphore;
use crate::settings::Faults;
use paceline_conformance::reference_backend::ReferenceDevice;
use paceline_plugin_api::backend::{
    Arena, ArenaClass, Counters, Device, Load, MemoryInfo, Plan, Point, Semaphore, WeightImport,
};
use paceline_plugin_api::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

/// What everything made from an opened device shares.
pub(crate) struct Shared {
    pub reference: ReferenceDevice,
    pub faults: Faults,
    /// The device in error texts.
    pub label: String,
    /// Memory of the device, for all who opened it.
    device_memory: Arc<Pool>,
    /// Memory that this one may take.
    own_memory: Pool,
    allocations: AtomicU64,
    launches: AtomicU64,
    waits: AtomicU64,
    is_lost: AtomicBool,
    /// Held while a launch is queued, so that both queues have the same order.
    pub queue: Mutex<Sender<Job>>,
}

impl Shared {
    /// What every call asks first.
    pub fn check(&self) -> Result<()> {
        if self.is_lost.load(Ordering::SeqCst) { Err(self.loss()) } else { Ok(()) }
    }

    fn loss(&self) -> Error {
        let after = self.faults.lose_after;
        let text =
            format!("{} was lost after {after} launches; open it again, or use another device", self.label);
        Error::new(ErrorKind::DeviceLost, text)
    }

    /// Loses the device if it is time.
    pub fn check_launch(&self) -> Result<()> {
        let after = self.faults.lose_after;
        if after > 0 && self.launches.load(Ordering::SeqCst) >= after {
            self.is_lost.store(true, Ordering::SeqCst);
        }
        self.check()
    }

    /// Counts a launch; its number, from 1.
    pub fn count_launch(&self) -> u64 {
        self.launches.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn count_wait(&self) {
        self.waits.fetch_add(1, Ordering::SeqCst);
    }

    fn free_memory(&self) -> u64 {
        self.own_memory.free().min(self.device_memory.free())
    }

    fn take_memory(&self, bytes: u64) -> bool {
        if !self.own_memory.take(bytes) {
            return false;
        }
        let is_taken = self.device_memory.take(bytes);
        if !is_taken {
            self.own_memory.give(bytes);
        }
        is_taken
    }

    pub fn give_memory(&self, bytes: u64) {
        self.own_memory.give(bytes);
        self.device_memory.give(bytes);
    }
}

/// An opened device.
pub struct SimDevice {
    shared: Arc<Shared>,
    _alive: Alive,
}

impl SimDevice {
    pub(crate) fn new(
        reference: ReferenceDevice,
        label: String,
        device_memory: Arc<Pool>,
        faults: Faults,
    ) -> Self {
        let (queue, jobs) = channel::<Job>();
        // The thread ends when the device and everything made from it, which share the other end, are gone.
        std::thread::spawn(move || jobs.into_iter().for_each(Job::run));
        let total = match faults.memory {
            0 => device_memory.total(),
            bytes => bytes.min(device_memory.total()),
        };
        let zero = || AtomicU64::new(0);
        let shared = Shared {
            reference,
            faults,
            label,
            device_memory,
            own_memory: Pool::new(total),
            allocations: zero(),
            launches: zero(),
            waits: zero(),
            is_lost: AtomicBool::new(false),
            queue: Mutex::new(queue),
        };
        Self { shared: Arc::new(shared), _alive: Alive::new(Object::Device) }
    }
}

impl Device for SimDevice {
    type Arena = SimArena;
    type Plan = SimPlan;
    type Executable = SimExecutable;
    type Semaphore = SimSemaphore;

    fn memory(&self) -> Result<MemoryInfo> {
        self.shared.check()?;
        let (total, free) = (self.shared.own_memory.total(), self.shared.free_memory());
        Ok(MemoryInfo { total, free, granularity: 1 })
    }

    fn counters(&self) -> Counters {
        let get = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        Counters {
            launches: get(&self.shared.launches),
            waits: get(&self.shared.waits),
            arena_bytes: self.shared.own_memory.used(),
            ..self.shared.reference.counters()
        }
    }

    fn create_arena(&self, class: ArenaClass, bytes: u64) -> Result<SimArena> {
        let shared = &self.shared;
        shared.check()?;
        let number = shared.allocations.fetch_add(1, Ordering::SeqCst) + 1;
        let label = &shared.label;
        if number == shared.faults.fail_allocation {
            return Err(Error::out_of_memory(format!(
                "{label}: allocation {number} ({class:?}, {bytes} bytes) failed, as `fail_allocation` asks"
            )));
        }
        if !shared.take_memory(bytes) {
            return Err(Error::out_of_memory(format!(
                "{label}: {bytes} bytes ({class:?}) were asked for, {} of {} are free; free some, or raise the \
                 setting `memory`",
                shared.free_memory(),
                shared.own_memory.total()
            )));
        }
        let arena = shared.reference.create_arena(class, bytes);
        let arena = arena.inspect_err(|_| shared.give_memory(bytes))?;
        debug_assert_eq!(arena.bytes(), bytes);
        Ok(SimArena::new(arena, Arc::clone(shared)))
    }

    fn import_weights(
        &self,
        imports: &[WeightImport<'_, SimArena>],
        signal: Point<'_, SimSemaphore>,
    ) -> Result<()> {
        self.shared.check()?;
        self.shared.faults.panic_at("import", &self.shared.label);
        let imports: Vec<_> = imports
            .iter()
            .map(|import| WeightImport {
                weight: import.weight.clone(),
                layout: import.layout,
                target: below(&import.target),
                source: import.source,
            })
            .collect();
        // The reference device imports before it returns.
        let done = self.shared.reference.create_semaphore(0)?;
        self.shared.reference.import_weights(&imports, Point { semaphore: &done, value: 1 })?;
        done.wait(1, u64::MAX)?;
        signal.semaphore.signal(signal.value);
        Ok(())
    }

    fn load(&self, plan: &SimPlan, load: &Load<'_, SimArena>) -> Result<SimExecutable> {
        let shared = &self.shared;
        shared.check()?;
        shared.faults.panic_at("load", &shared.label);
        if let Some((node, reason)) = plan.summary().refusal() {
            return Err(Error::unsupported(format!("{}: node {node} was refused: {reason}", shared.label)));
        }
        let reference = shared.reference.load(
            &plan.reference,
            &Load {
                weights: load.weights.iter().map(below).collect(),
                states: load.states.iter().map(below).collect(),
                workspace: below(&load.workspace),
                parameters: below(&load.parameters),
                parameter_stride: load.parameter_stride,
                results: below(&load.results),
                result_stride: load.result_stride,
                slots: load.slots,
            },
        )?;
        SimExecutable::new(reference, &plan.graph, load, shared)
    }

    fn create_semaphore(&self, initial: u64) -> Result<SimSemaphore> {
        self.shared.check()?;
        Ok(SimSemaphore::new(Arc::clone(&self.shared), initial))
    }
}
