//! Streams, each a thread, and the events in them.

use crate::code::{self, Code};
use crate::memory::Owner;
use crate::world::World;
use paceline_kernels::params::Launch;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A lock that a panic elsewhere does not take away.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToDevice,
    ToHost,
    /// Between two devices, or within one.
    Devices,
}

/// Something that is queued.
#[derive(Clone)]
pub enum Work {
    Copy { direction: Direction, to: usize, from: usize, bytes: usize },
    Fill { at: usize, value: u8, bytes: usize },
    Kernel { launch: Launch, wave: u32, parameters: Arc<[u8]> },
    Record(Arc<Event>, u64),
    Wait(Arc<Event>, u64),
    Graph(Arc<[Work]>),
}

/// A mark in a stream. It counts how often it was recorded, so that waiting for the last time is not fooled by one before.
pub struct Event {
    state: Mutex<EventState>,
    changed: Condvar,
    pub is_timed: bool,
}

#[derive(Default)]
struct EventState {
    recorded: u64,
    passed: u64,
    at: Option<Instant>,
    /// The answer of the device that it was recorded on, once that one is lost.
    failure: Option<Code>,
}

impl Event {
    pub fn new(is_timed: bool) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), is_timed }
    }

    /// The number of the next record.
    pub fn record(&self) -> u64 {
        let mut state = lock(&self.state);
        state.recorded += 1;
        state.recorded
    }

    /// The number of the last record.
    pub fn recorded(&self) -> u64 {
        lock(&self.state).recorded
    }

    fn pass(&self, number: u64, failure: Option<Code>) {
        let mut state = lock(&self.state);
        state.passed = state.passed.max(number);
        state.at = Some(Instant::now());
        state.failure = failure;
        drop(state);
        self.changed.notify_all();
    }

    /// Whether the last record has passed.
    pub fn query(&self) -> Result<(), Code> {
        let state = lock(&self.state);
        match (state.passed >= state.recorded, state.failure) {
            (true, None) => Ok(()),
            (true, Some(failure)) => Err(failure),
            (false, _) => Err(code::NotReady),
        }
    }

    /// Waits until the record with this number has passed.
    pub fn wait(&self, number: u64) -> Result<(), Code> {
        let mut state = lock(&self.state);
        while state.passed < number {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failure.map_or(Ok(()), Err)
    }

    /// Milliseconds from this event to a later one.
    pub fn milliseconds_to(&self, later: &Self) -> Result<f32, Code> {
        self.query()?;
        later.query()?;
        if !self.is_timed || !later.is_timed {
            return Err(code::InvalidHandle);
        }
        match (lock(&self.state).at, lock(&later.state).at) {
            (Some(from), Some(to)) => Ok(to.saturating_duration_since(from).as_secs_f32() * 1e3),
            _ => Err(code::InvalidHandle),
        }
    }
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    is_busy: bool,
    is_closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Work came, or the stream is closed.
    came: Condvar,
    /// Nothing is left.
    done: Condvar,
}

/// A stream of a device.
pub struct Stream {
    pub device: usize,
    shared: Arc<Shared>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl Stream {
    /// A stream; `lost` holds the answer of its device once that one is lost.
    pub fn start(world: &'static World, device: usize, lost: &'static AtomicI32) -> Self {
        let shared = Arc::new(Shared { queue: Mutex::default(), came: Condvar::new(), done: Condvar::new() });
        let own = Arc::clone(&shared);
        let worker = std::thread::spawn(move || work(world, lost, &own));
        Self { device, shared, worker: Mutex::new(Some(worker)) }
    }

    pub fn push(&self, work: Work) {
        lock(&self.shared.queue).work.push_back(work);
        self.shared.came.notify_one();
    }

    pub fn is_idle(&self) -> bool {
        let queue = lock(&self.shared.queue);
        queue.work.is_empty() && !queue.is_busy
    }

    pub fn wait(&self) {
        let mut queue = lock(&self.shared.queue);
        while !queue.work.is_empty() || queue.is_busy {
            queue = self.shared.done.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the thread after what is queued.
    pub fn close(&self) {
        lock(&self.shared.queue).is_closed = true;
        self.shared.came.notify_one();
        if let Some(worker) = lock(&self.worker).take() {
            let _ = worker.join();
        }
    }
}

fn work(world: &'static World, lost: &'static AtomicI32, shared: &Shared) {
    loop {
        let mut queue = lock(&shared.queue);
        if queue.work.is_empty() {
            queue.is_busy = false;
            shared.done.notify_all();
            while queue.work.is_empty() {
                if queue.is_closed {
                    return;
                }
                queue = shared.came.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            queue.is_busy = true;
            drop(queue);
            std::thread::sleep(Duration::from_micros(world.config.delay_us));
            queue = lock(&shared.queue);
        }
        queue.is_busy = true;
        let next = queue.work.pop_front();
        drop(queue);
        if let Some(next) = next {
            run(world, lost, &next);
        }
    }
}

/// Runs work, unless the device is lost. Events pass all the same, so that nobody waits forever.
fn run(world: &'static World, lost: &'static AtomicI32, next: &Work) {
    let is_lost = || match lost.load(Ordering::Acquire) {
        0 => None,
        code => Some(code),
    };
    let result = match next {
        Work::Record(event, number) => return event.pass(*number, is_lost()),
        Work::Graph(all) => return all.iter().for_each(|next| run(world, lost, next)),
        _ if is_lost().is_some() => return,
        Work::Copy { direction, to, from, bytes } => copy(world, *direction, *to, *from, *bytes),
        Work::Fill { at, value, bytes } => fill(world, *at, *value, *bytes),
        Work::Wait(event, number) => event.wait(*number),
        Work::Kernel { launch, wave, parameters } => kernel(world, launch, *wave, parameters),
    };
    if let Err(code) = result {
        let _ = lost.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// What was allocated when it was queued may be gone when it runs.
fn found_late<T>(result: Result<T, Code>, what: &str) -> Result<T, Code> {
    result.map_err(|_| {
        eprintln!("hip double: {what} memory that is not allocated any more");
        code::IllegalAddress
    })
}

fn copy(world: &World, direction: Direction, to: usize, from: usize, bytes: usize) -> Result<(), Code> {
    found_late(check_copy(world, direction, to, from, bytes), "a copy touches")?;
    // SAFETY: both ranges are allocated: those of devices by the check, those of the host by the contract of the call.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
    Ok(())
}

/// Whether a copy goes where it says.
pub fn check_copy(
    world: &World,
    direction: Direction,
    to: usize,
    from: usize,
    bytes: usize,
) -> Result<(), Code> {
    let memory = lock(&world.memory);
    match direction {
        Direction::ToDevice => memory.device(to, bytes).and_then(|_| memory.host(from, bytes)),
        Direction::ToHost => memory.device(from, bytes).and_then(|_| memory.host(to, bytes)),
        Direction::Devices => memory.device(to, bytes).and_then(|_| memory.device(from, bytes)).map(drop),
    }
}

fn fill(world: &World, at: usize, value: u8, bytes: usize) -> Result<(), Code> {
    found_late(check_fill(world, at, bytes), "a fill touches")?;
    // SAFETY: the range is allocated.
    unsafe { (at as *mut u8).write_bytes(value, bytes) };
    Ok(())
}

/// Whether a fill is of memory that may be filled.
pub fn check_fill(world: &World, at: usize, bytes: usize) -> Result<(), Code> {
    match lock(&world.memory).owner(at, bytes)? {
        Some(Owner::Device(_) | Owner::Pinned) => Ok(()),
        None => Err(code::InvalidValue),
    }
}

fn kernel(world: &World, launch: &Launch, wave: u32, parameters: &[u8]) -> Result<(), Code> {
    world.fails("kernel")?;
    // SAFETY: the structure is the kernel's by the contract of the launch, and what it points to is allocated.
    unsafe { paceline_kernels::host::launch(launch, parameters, wave) }.map_err(|error| {
        eprintln!("hip double: {error}");
        code::LaunchFailure
    })
}
