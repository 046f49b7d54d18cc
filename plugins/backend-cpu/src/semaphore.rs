//! Timeline semaphores, which can carry a failure.

use crate::pool::Pool;
use paceline_plugin_api::backend::Semaphore;
use paceline_plugin_api::support::Timeline;
use paceline_plugin_api::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest sleep before a waiter looks for work again: launches may wait for semaphores of other devices.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// A timeline semaphore of the CPU device. Waiting makes the caller a worker.
pub struct CpuSemaphore {
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) pool: Arc<Pool>,
}

impl CpuSemaphore {
    pub(crate) fn new(pool: Arc<Pool>, initial: u64) -> Self {
        Self { timeline: Arc::new(Timeline::new(initial)), pool }
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
            if let Some(failure) = self.timeline.failure() {
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
        self.timeline.value()
    }

    fn signal(&self, value: u64) {
        self.timeline.signal(value);
        self.pool.start_ready();
    }

    fn failure(&self) -> Option<Error> {
        self.timeline.failure()
    }
}
