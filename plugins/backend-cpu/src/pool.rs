//! The threads of a device and its queue of launches.
//!
//! A job is a list of phases; a phase is a number of chunks that may run in any order on any thread. Threads take
//! chunks ([`crate::shares`]) until a phase has none left, and whoever finishes the last one opens the next phase. So
//! any number of threads may take part at any time: the workers, which are woken by a launch, and whoever waits for
//! the result, who is the first worker. Nothing here allocates after the pool was made.
//!
//! `phase` holds a serial number, which only grows, over all jobs, and the count of chunks. A small phase is not opened
//! at all: whoever finished the one before runs it, since telling the others would take longer.

use crate::linear::lanes::prefetch_second_level;
use crate::shares::Shares;
use paceline_plugin_api::support::Timeline;
use paceline_plugin_api::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Launches that may be queued at a time.
const QUEUE_CAPACITY: usize = 256;
/// Semaphores on one launch.
pub(crate) const MAX_POINTS: usize = 8;
/// Tries before a thread that waits for a phase gives its time away.
const SPINS_IN_PHASE: u32 = 4_000;
/// Tries before a worker without a job goes to sleep: about 50 µs, more than a sampler takes.
const SPINS_WITHOUT_JOB: u32 = 20_000;
/// Bytes that a thread that waits fetches before it looks again whether there is something to do.
const FETCHED_AT_ONCE: usize = 512;
/// Count of chunks that says: there is no job.
const NO_JOB: u32 = u32::MAX;

/// What the pool runs.
pub(crate) trait Work: Send + Sync {
    /// Number of phases.
    fn phases(&self) -> usize;
    /// Called once before the first phase, when nothing of the job before runs any more.
    fn begin(&self, slot: u32);
    /// Number of chunks of a phase in this run of `slot`.
    fn chunks(&self, phase: usize, slot: u32) -> usize;
    /// Whether a phase takes so little time that it is not worth another thread, whatever its number of chunks.
    fn is_small(&self, _phase: usize, _slot: u32) -> bool {
        false
    }
    /// Where `thread` will read behind `phase`, and how many bytes of that are worth fetching while it waits. They need not
    /// be there: nothing is read.
    fn ahead(&self, _phase: usize, _slot: u32, _thread: usize) -> (*const u8, usize) {
        (std::ptr::null(), 0)
    }
    /// Runs some chunks on thread `thread`.
    fn run(&self, phase: usize, chunks: Range<usize>, slot: u32, thread: usize);
    /// The job is over; called once, before anything is signalled.
    fn finished(&self, outcome: &Result<()>);
}

/// A point on a timeline, kept by a queued launch.
pub(crate) type QueuedPoint = Option<(Arc<Timeline>, u64)>;

/// A launch in the queue.
pub(crate) struct Launch {
    pub work: Arc<dyn Work>,
    pub slot: u32,
    pub waits: [QueuedPoint; MAX_POINTS],
    pub signals: [QueuedPoint; MAX_POINTS],
}

impl Launch {
    fn is_ready(&self) -> bool {
        self.waits
            .iter()
            .flatten()
            .all(|(timeline, value)| timeline.is_reached(*value) || timeline.has_failed())
    }

    fn failed_wait(&self) -> Option<Error> {
        self.waits.iter().flatten().find_map(|(timeline, _)| timeline.failure())
    }
}

struct Queue {
    waiting: VecDeque<Launch>,
    current: Option<Box<Launch>>,
    /// The box of the last job, used again.
    spare: Option<Box<Launch>>,
    closed: bool,
}

/// See the module's documentation.
pub struct Pool {
    queue: Mutex<Queue>,
    wake: Condvar,
    sleepers: AtomicUsize,
    /// Serial number and count of chunks of the open phase.
    phase: AtomicU64,
    shares: Shares,
    /// Chunks of the phase that are done.
    done: AtomicU32,
    /// Serial number of the current job's first phase.
    base: AtomicU32,
    job: AtomicPtr<Launch>,
    participants: AtomicUsize,
    /// Somebody who waits takes part.
    helper: AtomicBool,
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    waits: AtomicU64,
}

fn pack(high: u32, low: u32) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}

fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

impl Pool {
    /// A pool of `threads`, of which one is whoever waits.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(threads: usize) -> Result<Arc<Self>> {
        let pool = Arc::new(Self {
            queue: Mutex::new(Queue {
                waiting: VecDeque::with_capacity(QUEUE_CAPACITY),
                current: None,
                spare: None,
                closed: false,
            }),
            wake: Condvar::new(),
            sleepers: AtomicUsize::new(0),
            phase: AtomicU64::new(pack(0, NO_JOB)),
            shares: Shares::new(threads),
            done: AtomicU32::new(0),
            base: AtomicU32::new(0),
            job: AtomicPtr::new(std::ptr::null_mut()),
            participants: AtomicUsize::new(0),
            helper: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            workers: Mutex::new(Vec::new()),
            waits: AtomicU64::new(0),
        });
        let mut workers = Vec::with_capacity(threads);
        for thread in 1..threads.max(1) {
            let pool = Arc::clone(&pool);
            let worker = std::thread::Builder::new()
                .name(format!("paceline-cpu-{thread}"))
                .spawn(move || pool.work(thread))
                .map_err(|e| Error::new(ErrorKind::OutOfMemory, format!("cannot start a thread: {e}")))?;
            workers.push(worker);
        }
        *pool.workers.lock().unwrap_or_else(PoisonError::into_inner) = workers;
        Ok(pool)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits that found their value not yet reached.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    pub fn count_wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// Queues a launch.
    ///
    /// # Errors
    /// When too many launches are queued.
    pub fn submit(&self, launch: Launch) -> Result<()> {
        let mut queue = self.lock();
        if queue.waiting.len() == QUEUE_CAPACITY {
            return Err(Error::invalid(format!("{QUEUE_CAPACITY} launches are queued already")));
        }
        queue.waiting.push_back(launch);
        self.start_next(&mut queue);
        Ok(())
    }

    /// Starts the next launch if nothing runs and what it waits for is reached.
    pub fn start_ready(&self) {
        self.start_next(&mut self.lock());
    }

    fn start_next(&self, queue: &mut Queue) {
        while queue.current.is_none() && queue.waiting.front().is_some_and(Launch::is_ready) {
            let Some(launch) = queue.waiting.pop_front() else { return };
            if let Some(error) = launch.failed_wait() {
                conclude(&launch, &Err(error));
                continue;
            }
            let current = match queue.spare.take() {
                Some(mut spare) => {
                    *spare = launch;
                    spare
                }
                None => Box::new(launch),
            };
            self.failed.store(false, Ordering::Relaxed);
            self.job.store(&raw mut **queue.current.insert(current), Ordering::Relaxed);
            if let Some(launch) = &queue.current {
                launch.work.begin(launch.slot);
            }
            let (serial, _) = unpack(self.phase.load(Ordering::Relaxed));
            self.base.store(serial.wrapping_add(1), Ordering::Relaxed);
            if !self.open_phase(serial.wrapping_add(1), None) {
                // There was nothing to do, so nobody took part.
                self.conclude(queue);
                continue;
            }
            if self.sleepers.load(Ordering::SeqCst) > 0 {
                self.wake.notify_all();
            }
            return;
        }
    }

    /// Opens phase `serial` of the current job, or the first after it that has chunks; false if there is none, which
    /// ends the job. Only called by the one thread that may: who starts the job, or who finished the phase before. A
    /// thread that takes part says its number, and runs small phases itself, or all where it is the only one.
    fn open_phase(&self, mut serial: u32, thread: Option<usize>) -> bool {
        // SAFETY: the job is alive until it is concluded, which happens after its last phase.
        let job = unsafe { &*self.job.load(Ordering::Relaxed) };
        let base = self.base.load(Ordering::Relaxed);
        loop {
            let index = serial.wrapping_sub(base) as usize;
            let chunks = if index >= job.work.phases() {
                NO_JOB
            } else if self.failed.load(Ordering::Relaxed) {
                0
            } else {
                let counted = catch_unwind(AssertUnwindSafe(|| job.work.chunks(index, job.slot)));
                counted.map_or_else(
                    |panic| {
                        self.fail(panic);
                        0
                    },
                    |chunks| chunks as u32,
                )
            };
            if chunks == 0 {
                serial = serial.wrapping_add(1);
                continue;
            }
            if let Some(thread) = thread
                && chunks != NO_JOB
                && (chunks == 1 || self.shares.threads() == 1 || job.work.is_small(index, job.slot))
            {
                self.run_chunks(job, index, 0..chunks as usize, thread);
                serial = serial.wrapping_add(1);
                continue;
            }
            self.done.store(0, Ordering::Relaxed);
            self.shares.open(serial);
            // Sequentially consistent with the participants' count: see `conclude_alone`.
            self.phase.store(pack(serial, chunks), Ordering::SeqCst);
            return chunks != NO_JOB;
        }
    }

    fn fail(&self, panic: Box<dyn std::any::Any + Send>) {
        let error = paceline_plugin_api::error::catch::<()>(|| std::panic::resume_unwind(panic)).err();
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_none() {
            *failure = error;
        }
        self.failed.store(true, Ordering::Release);
    }

    /// Takes part in the current job until it is over; false if there is none.
    fn participate(&self, thread: usize) -> bool {
        self.participants.fetch_add(1, Ordering::SeqCst);
        let mut word = self.phase.load(Ordering::SeqCst);
        if unpack(word).1 == NO_JOB {
            self.participants.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        let float_state = FloatState::default_for_kernels();
        // SAFETY: a phase is open, so the job is alive, and it stays so while there are participants.
        let job = unsafe { &*self.job.load(Ordering::Acquire) };
        let mut finisher = false;
        while unpack(word).1 != NO_JOB {
            if self.run_phase(job, word, thread) {
                finisher = !self.open_phase(unpack(word).0.wrapping_add(1), Some(thread));
            }
            word = self.await_phase_after(job, word, thread);
        }
        drop(float_state);
        if finisher {
            self.conclude_alone();
        } else {
            self.participants.fetch_sub(1, Ordering::SeqCst);
        }
        true
    }

    /// Takes chunks of a phase until there are none; true for the thread that finished the last one.
    fn run_phase(&self, job: &Launch, word: u64, thread: usize) -> bool {
        let (serial, chunks) = unpack(word);
        let index = serial.wrapping_sub(self.base.load(Ordering::Relaxed)) as usize;
        let mut ran = 0;
        while let Some(taken) = self.shares.take(serial, chunks as usize, thread) {
            ran += taken.len() as u32;
            self.run_chunks(job, index, taken, thread);
        }
        // Until these are counted the phase cannot end, so nobody opens another.
        ran > 0 && self.done.fetch_add(ran, Ordering::AcqRel) + ran == chunks
    }

    fn run_chunks(&self, job: &Launch, phase: usize, chunks: Range<usize>, thread: usize) {
        if self.failed.load(Ordering::Relaxed) {
            return;
        }
        let ran = catch_unwind(AssertUnwindSafe(|| job.work.run(phase, chunks, job.slot, thread)));
        if let Err(panic) = ran {
            self.fail(panic);
        }
    }

    /// The word of the phase behind that of `word`. Meanwhile the thread fetches what it is going to read.
    fn await_phase_after(&self, job: &Launch, word: u64, thread: usize) -> u64 {
        let mut tries = 0;
        let mut ahead = None;
        loop {
            let now = self.phase.load(Ordering::Acquire);
            if now != word {
                return now;
            }
            let (place, bytes) = ahead.get_or_insert_with(|| {
                let index = unpack(word).0.wrapping_sub(self.base.load(Ordering::Relaxed)) as usize;
                job.work.ahead(index, job.slot, thread)
            });
            if *bytes > 0 {
                let fetched = FETCHED_AT_ONCE.min(*bytes);
                for line in (0..fetched).step_by(64) {
                    prefetch_second_level(place.wrapping_add(line));
                }
                (*place, *bytes) = (place.wrapping_add(fetched), *bytes - fetched);
                continue;
            }
            tries += 1;
            if tries < SPINS_IN_PHASE {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Called by the thread that finished the last phase: waits until nobody else looks at the job, then concludes
    /// it and starts the next one.
    ///
    /// A thread first counts itself as a participant and then looks at the phase; this thread first closed the
    /// phase and then looks at the count. With sequential consistency one of the two sees the other.
    fn conclude_alone(&self) {
        let mut tries = 0;
        while self.participants.load(Ordering::SeqCst) != 1 {
            tries += 1;
            if tries < SPINS_IN_PHASE {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        let mut queue = self.lock();
        self.participants.fetch_sub(1, Ordering::SeqCst);
        self.conclude(&mut queue);
        self.start_next(&mut queue);
    }

    /// Ends the current job: reports, signals, and keeps its box.
    fn conclude(&self, queue: &mut Queue) {
        self.job.store(std::ptr::null_mut(), Ordering::Relaxed);
        let outcome = match self.failed.load(Ordering::Acquire) {
            false => Ok(()),
            true => {
                let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
                Err(failure.unwrap_or_else(|| Error::new(ErrorKind::Panic, "a worker failed")))
            }
        };
        if let Some(launch) = queue.current.take() {
            conclude(&launch, &outcome);
            queue.spare = Some(launch);
        }
    }

    /// Takes part in the current job as the waiting thread; false if there is nothing to do for it.
    pub fn help(&self) -> bool {
        // One helper at a time: it has thread number 0 and its scratch.
        if self.helper.swap(true, Ordering::Acquire) {
            return false;
        }
        self.start_ready();
        let took_part = self.participate(0);
        self.helper.store(false, Ordering::Release);
        took_part
    }

    fn work(&self, thread: usize) {
        loop {
            let mut tries = 0;
            while tries < SPINS_WITHOUT_JOB {
                if self.participate_if_open(thread) {
                    tries = 0;
                } else {
                    tries += 1;
                    std::hint::spin_loop();
                }
            }
            let mut queue = self.lock();
            if queue.closed {
                return;
            }
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            if queue.current.is_none() && !queue.closed {
                queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            if queue.closed {
                return;
            }
        }
    }

    fn participate_if_open(&self, thread: usize) -> bool {
        unpack(self.phase.load(Ordering::Acquire)).1 != NO_JOB && self.participate(thread)
    }

    /// Ends the workers. Called when the device is closed.
    pub fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_all();
        let workers = std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        for worker in workers {
            // A worker's panics were caught; one that is lost has nothing to tell.
            let _ = worker.join();
        }
    }
}

fn conclude(launch: &Launch, outcome: &Result<()>) {
    launch.work.finished(outcome);
    for (timeline, value) in launch.signals.iter().flatten() {
        match outcome {
            Ok(()) => timeline.signal(*value),
            // The value stays as it was: whoever waits for it, now or later, gets the failure.
            Err(error) => timeline.fail(0, error),
        }
    }
}

/// Keeps the floating-point state at its default, which Rust code assumes, while kernels run on this thread; the
/// caller's own state comes back afterwards. So all threads treat subnormals and rounding alike.
struct FloatState {
    #[cfg(target_arch = "x86_64")]
    before: u32,
}

#[cfg(target_arch = "x86_64")]
const DEFAULT_MXCSR: u32 = 0x1F80;
/// The flags that record exceptions do not matter.
#[cfg(target_arch = "x86_64")]
const MXCSR_CONTROL: u32 = 0xFFC0;

impl FloatState {
    #[cfg(target_arch = "x86_64")]
    fn default_for_kernels() -> Self {
        let mut before = 0u32;
        // SAFETY: stores the control register of this thread's vector unit.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut before, options(nostack)) };
        if before & MXCSR_CONTROL != DEFAULT_MXCSR {
            set_mxcsr(DEFAULT_MXCSR);
        }
        Self { before }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn default_for_kernels() -> Self {
        Self {}
    }
}

#[cfg(target_arch = "x86_64")]
fn set_mxcsr(value: u32) {
    // SAFETY: loads a value that this thread had before, or the default that Rust assumes.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack, readonly)) };
}

impl Drop for FloatState {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.before & MXCSR_CONTROL != DEFAULT_MXCSR {
            set_mxcsr(self.before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semaphore::CpuSemaphore;
    use paceline_plugin_api::backend::Semaphore;

    /// Two phases of some chunks; one chunk may panic.
    struct Sum {
        chunks: [usize; 2],
        panics_at: Option<(usize, usize)>,
        counts: [AtomicUsize; 2],
    }

    impl Work for Sum {
        fn phases(&self) -> usize {
            2
        }

        fn begin(&self, _: u32) {}

        fn chunks(&self, phase: usize, _: u32) -> usize {
            self.chunks[phase]
        }

        fn run(&self, phase: usize, chunks: Range<usize>, _: u32, _: usize) {
            assert!(phase == 0 || self.counts[0].load(Ordering::SeqCst) == self.chunks[0], "phases overlap");
            for chunk in chunks {
                assert!(self.panics_at != Some((phase, chunk)), "on purpose");
                self.counts[phase].fetch_add(1, Ordering::SeqCst);
            }
        }

        fn finished(&self, _: &Result<()>) {}
    }

    fn launch(work: &Arc<Sum>, semaphore: &CpuSemaphore, value: u64) -> Launch {
        let mut signals: [QueuedPoint; MAX_POINTS] = Default::default();
        signals[0] = Some((Arc::clone(&semaphore.timeline), value));
        Launch { work: Arc::<Sum>::clone(work), slot: 0, waits: Default::default(), signals }
    }

    fn work(chunks: [usize; 2], panics_at: Option<(usize, usize)>) -> Arc<Sum> {
        Arc::new(Sum { chunks, panics_at, counts: Default::default() })
    }

    #[test]
    fn every_chunk_runs_once_and_phases_do_not_overlap() {
        for threads in 1..=4 {
            let pool = Pool::new(threads).unwrap();
            let semaphore = CpuSemaphore::new(Arc::clone(&pool), 0);
            for round in 1..=200u64 {
                let chunks = [round as usize % 7, round as usize % 5];
                let work = work(chunks, None);
                pool.submit(launch(&work, &semaphore, round)).unwrap();
                semaphore.wait(round, u64::MAX).unwrap();
                let counts = [0, 1].map(|phase| work.counts[phase].load(Ordering::SeqCst));
                assert_eq!(counts, chunks, "{threads} threads");
            }
            pool.close();
        }
    }

    #[test]
    fn a_panic_reaches_whoever_waits_also_after_the_launch_ended() {
        for threads in [1, 3] {
            for panics_at in [(0, 0), (0, 4), (1, 2)] {
                let pool = Pool::new(threads).unwrap();
                let semaphore = CpuSemaphore::new(Arc::clone(&pool), 0);
                pool.submit(launch(&work([5, 5], None), &semaphore, 1)).unwrap();
                semaphore.wait(1, u64::MAX).unwrap();
                pool.submit(launch(&work([5, 5], Some(panics_at)), &semaphore, 2)).unwrap();
                for _ in 0..2 {
                    let error = semaphore.wait(2, u64::MAX).unwrap_err();
                    assert_eq!(error.kind, ErrorKind::Panic);
                    assert!(error.message.contains("on purpose"), "{error}");
                }
                assert_eq!(semaphore.wait(1, u64::MAX), Ok(()), "what was reached before stays reached");
                // The pool goes on.
                let next = CpuSemaphore::new(Arc::clone(&pool), 0);
                pool.submit(launch(&work([5, 5], None), &next, 1)).unwrap();
                next.wait(1, u64::MAX).unwrap();
                pool.close();
            }
        }
    }
}
