//! Timeline semaphores, which can carry a failure.

use crate::pool::Pool;
use paceline_plugin_api::backend::Semaphore;
use paceline_plugin_api::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest sleep before a waiter looks for work again: launches may wait for semaphores of other devices.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// The state of a semaphore, shared with the launches that refer to it.
#[derive(Default)]
pub(crate) struct Timeline {
    value: AtomicU64,
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
    changed: Condvar,
}

impl Timeline {
    /// True when the value is reached.
    pub fn is_reached(&self, value: u64) -> bool {
        self.value.load(Ordering::Acquire) >= value
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Moves the value forward; a timeline never goes back.
    pub fn signal(&self, value: u64) {
        self.value.fetch_max(value, Ordering::AcqRel);
        self.wake();
    }

    /// Makes every wait from now on fail.
    pub fn fail(&self, error: Error) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
        self.failed.store(true, Ordering::Release);
        drop(failure);
        self.wake();
    }

    fn wake(&self) {
        // Taken so that a waiter between its check and its sleep is not missed.
        drop(self.failure.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    pub fn failure(&self) -> Option<Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn sleep(&self, value: u64, longest: Duration) {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_none() && !self.is_reached(value) {
            drop(self.changed.wait_timeout(failure, longest));
        }
    }
}

/// A timeline semaphore of the CPU device. Waiting makes the caller a worker.
pub struct CpuSemaphore {
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) pool: Arc<Pool>,
}

impl CpuSemaphore {
    pub(crate) fn new(pool: Arc<Pool>, initial: u64) -> Self {
        let timeline = Arc::new(Timeline::default());
        timeline.signal(initial);
        Self { timeline, pool }
    }
}

impl Semaphore for CpuSemaphore {
    fn wait(&self, value: u64, timeout_ns: u64) -> Result<()> {
        if self.timeline.is_reached(value) {
            return Ok(());
        }
        self.pool.count_wait();
        let start = Instant::now();
        let limit = Duration::from_nanos(timeout_ns);
        loop {
            if self.timeline.is_reached(value) {
                return Ok(());
            }
            if self.timeline.has_failed()
                && let Some(failure) = self.timeline.failure()
            {
                return Err(failure);
            }
            let elapsed = start.elapsed();
            if elapsed >= limit {
                return Err(Error::new(ErrorKind::Timeout, "the wait timed out"));
            }
            if !self.pool.help() {
                self.timeline.sleep(value, (limit - elapsed).min(LONGEST_SLEEP));
            }
        }
    }

    fn value(&self) -> u64 {
        self.timeline.value.load(Ordering::Acquire)
    }

    fn signal(&self, value: u64) {
        self.timeline.signal(value);
        self.pool.start_ready();
    }

    fn failure(&self) -> Option<Error> {
        self.timeline.failure()
    }
}
