//! Timeline semaphores.

use super::device::Shared;
use paceline_plugin_api::backend::Semaphore;
use paceline_plugin_api::{Error, ErrorKind, Result};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

struct Timeline {
    value: u64,
    /// The failure and the value that was not reached because of it.
    failure: Option<(Error, u64)>,
}

/// A timeline that launches hold on to.
pub(super) struct Inner {
    timeline: Mutex<Timeline>,
    changed: Condvar,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Timeline> {
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a value; `None` is for ever. True if there was something to wait for.
    pub fn wait(&self, value: u64, limit: Option<Duration>) -> Result<bool> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut timeline = self.lock();
        let mut had_to_wait = false;
        loop {
            if let Some((error, from)) = &timeline.failure
                && value >= *from
            {
                return Err(error.clone());
            }
            if timeline.value >= value {
                return Ok(had_to_wait);
            }
            had_to_wait = true;
            timeline = match end {
                None => self.changed.wait(timeline).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(Error::new(ErrorKind::Timeout, "the wait timed out"));
                    }
                    self.changed.wait_timeout(timeline, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Moves the timeline forward.
    pub fn signal(&self, value: u64) {
        let mut timeline = self.lock();
        timeline.value = timeline.value.max(value);
        self.changed.notify_all();
    }

    /// Lets waits for `value` and everything after it fail.
    pub fn fail(&self, value: u64, error: &Error) {
        let mut timeline = self.lock();
        timeline.failure.get_or_insert_with(|| (error.clone(), value));
        self.changed.notify_all();
    }
}

/// A timeline semaphore.
pub struct ReferenceSemaphore {
    pub(super) inner: Arc<Inner>,
    device: Arc<Shared>,
}

impl ReferenceSemaphore {
    pub(super) fn new(device: Arc<Shared>, initial: u64) -> Self {
        let timeline = Mutex::new(Timeline { value: initial, failure: None });
        Self { inner: Arc::new(Inner { timeline, changed: Condvar::new() }), device }
    }
}

impl Semaphore for ReferenceSemaphore {
    fn wait(&self, value: u64, timeout_ns: u64) -> Result<()> {
        let limit = (timeout_ns != u64::MAX).then(|| Duration::from_nanos(timeout_ns));
        if self.device.waits_do_not_wait() && limit.is_some_and(|limit| limit < Duration::from_secs(1)) {
            return Ok(());
        }
        let had_to_wait = self.inner.wait(value, limit);
        if !matches!(had_to_wait, Ok(false)) {
            self.device.count_wait();
        }
        had_to_wait.map(drop)
    }

    fn value(&self) -> u64 {
        self.inner.lock().value
    }

    fn signal(&self, value: u64) {
        self.inner.signal(value);
    }

    fn failure(&self) -> Option<Error> {
        self.inner.lock().failure.as_ref().map(|(error, _)| error.clone())
    }
}
