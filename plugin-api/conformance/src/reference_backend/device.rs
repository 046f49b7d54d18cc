//! The device: memory, counters, and the thread that runs launches in order.

use super::executable::{Job, ReferenceExecutable};
use super::memory::{Place, ReferenceArena};
use super::semaphore::ReferenceSemaphore;
use super::{ALIGNMENT, CANONICAL, Fault, ReferencePlan};
use paceline_plugin_api::backend::{
    ArenaClass, Counters, Device, Load, MemoryInfo, Plan, Point, Semaphore, WeightImport,
};
use paceline_plugin_api::settings::Settings;
use paceline_plugin_api::support::DeviceCounters;
use paceline_plugin_api::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

/// Bytes of memory that the device pretends to have.
pub(super) fn memory_total(settings: &Settings) -> u64 {
    settings.integer("memory").unsigned_abs() << 20
}

/// What everything made from a device shares.
pub(super) struct Shared {
    total: u64,
    fault: Option<Fault>,
    arena_bytes: AtomicU64,
    pub counters: DeviceCounters,
}

impl Shared {
    /// True if the backend is meant to be wrong in this way.
    pub fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    pub fn waits_do_not_wait(&self) -> bool {
        self.has(Fault::WaitsDoNotWait)
    }

    pub fn reserve(&self, bytes: u64) -> Result<()> {
        let reserved = self.arena_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|&used| used <= self.total)
        });
        reserved.map(drop).map_err(|used| {
            let free = self.total - used;
            Error::out_of_memory(format!("{bytes} bytes were asked for, {free} of {} are free", self.total))
        })
    }

    pub fn release(&self, bytes: u64) {
        if !self.has(Fault::ForgetsFreedArenas) {
            self.arena_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    pub fn count_launch(&self) {
        if !self.has(Fault::CountsNoLaunches) {
            self.counters.launch();
        }
    }
}

/// An opened device.
pub struct ReferenceDevice {
    shared: Arc<Shared>,
    queue: Sender<Job>,
}

impl ReferenceDevice {
    pub(super) fn new(settings: &Settings, fault: Option<Fault>) -> Self {
        let (queue, jobs) = channel::<Job>();
        // The thread ends when the device and its executables, which hold the other end, are gone.
        std::thread::spawn(move || jobs.into_iter().for_each(Job::run));
        let shared = Shared {
            total: memory_total(settings),
            fault,
            arena_bytes: AtomicU64::new(0),
            counters: DeviceCounters::default(),
        };
        Self { shared: Arc::new(shared), queue }
    }
}

impl Device for ReferenceDevice {
    type Arena = ReferenceArena;
    type Plan = ReferencePlan;
    type Executable = ReferenceExecutable;
    type Semaphore = ReferenceSemaphore;

    fn memory(&self) -> Result<MemoryInfo> {
        let total = self.shared.total;
        let used = self.shared.arena_bytes.load(Ordering::Relaxed);
        Ok(MemoryInfo { total, free: total - used, granularity: 1 })
    }

    fn counters(&self) -> Counters {
        // Arenas are counted where they are reserved, since there the limit is kept.
        let arena_bytes = self.shared.arena_bytes.load(Ordering::Relaxed);
        Counters { arena_bytes, ..self.shared.counters.read() }
    }

    fn create_arena(&self, class: ArenaClass, bytes: u64) -> Result<ReferenceArena> {
        ReferenceArena::new(Arc::clone(&self.shared), class, bytes)
    }

    fn import_weights(
        &self,
        imports: &[WeightImport<'_, ReferenceArena>],
        signal: Point<'_, ReferenceSemaphore>,
    ) -> Result<()> {
        for import in imports {
            let what = format!("weight `{}`", import.weight.name);
            let needed = import.weight.dtype.bytes(&import.weight.shape);
            if import.layout.layout != CANONICAL || needed != Some(import.source.len() as u64) {
                let given = import.source.len();
                return Err(Error::invalid(format!(
                    "{what} has another layout, or {given} bytes do not fit it"
                )));
            }
            let place = Place::new(&import.target, &what, import.source.len() as u64, ALIGNMENT, false)?;
            place.write(0, import.source);
            self.shared.counters.upload(import.source.len() as u64);
        }
        signal.semaphore.signal(signal.value);
        Ok(())
    }

    fn load(&self, plan: &ReferencePlan, load: &Load<'_, ReferenceArena>) -> Result<ReferenceExecutable> {
        let program = plan.program.clone().ok_or_else(|| Error::unsupported("a node was refused"))?;
        ReferenceExecutable::new(program, plan.summary(), load, &self.shared, &self.queue)
    }

    fn create_semaphore(&self, initial: u64) -> Result<ReferenceSemaphore> {
        Ok(ReferenceSemaphore::new(Arc::clone(&self.shared), initial))
    }
}
