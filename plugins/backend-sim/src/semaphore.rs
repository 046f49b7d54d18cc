//! Timeline semaphores. They carry the failures of launches, those of a lost device too.

use crate::device::Shared;
use crate::live::{Alive, Object};
use paceline_plugin_api::backend::Semaphore;
use paceline_plugin_api::{Error, ErrorKind, Result};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

struct State {
    value: u64,
    /// A failure and the first value that is not reached because of it.
    failure: Option<(Error, u64)>,
}

impl State {
    /// How a wait for `value` ends now, `None` if it goes on.
    fn outcome(&self, value: u64) -> Option<Result<()>> {
        match &self.failure {
            Some((error, from)) if value >= *from => Some(Err(error.clone())),
            _ => (self.value >= value).then_some(Ok(())),
        }
    }
}

/// What launches hold of a semaphore.
pub(crate) struct Timeline {
    state: Mutex<State>,
    changed: Condvar,
}

impl Timeline {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a value at most so long; `None` when the time is over.
    pub fn wait_for(&self, value: u64, limit: Duration) -> Option<Result<()>> {
        // A limit beyond what the clock can hold is none.
        let end = Instant::now().checked_add(limit);
        let mut state = self.lock();
        loop {
            if let Some(outcome) = state.outcome(value) {
                return Some(outcome);
            }
            state = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return None,
                Some(left) => {
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Moves the timeline forward.
    pub fn signal(&self, value: u64) {
        let mut state = self.lock();
        state.value = state.value.max(value);
        self.changed.notify_all();
    }

    /// Lets waits for `value` and all after it fail.
    pub fn fail(&self, value: u64, error: &Error) {
        self.lock().failure.get_or_insert_with(|| (error.clone(), value));
        self.changed.notify_all();
    }
}

/// A timeline semaphore.
pub struct SimSemaphore {
    pub(crate) timeline: Arc<Timeline>,
    shared: Arc<Shared>,
    _alive: Alive,
}

impl SimSemaphore {
    pub(crate) fn new(shared: Arc<Shared>, initial: u64) -> Self {
        let state = Mutex::new(State { value: initial, failure: None });
        let timeline = Arc::new(Timeline { state, changed: Condvar::new() });
        Self { timeline, shared, _alive: Alive::new(Object::Semaphore) }
    }
}

impl Semaphore for SimSemaphore {
    fn wait(&self, value: u64, timeout_ns: u64) -> Result<()> {
        if let Some(outcome) = self.timeline.wait_for(value, Duration::ZERO) {
            return outcome;
        }
        // A lost device reaches no value any more. Who waited learns why from what the semaphore carries.
        self.shared.check().inspect_err(|loss| self.timeline.fail(value, loss))?;
        self.shared.count_wait();
        let limit = if timeout_ns == u64::MAX { Duration::MAX } else { Duration::from_nanos(timeout_ns) };
        self.timeline
            .wait_for(value, limit)
            .unwrap_or_else(|| Err(Error::new(ErrorKind::Timeout, "the wait timed out")))
    }

    fn value(&self) -> u64 {
        self.timeline.lock().value
    }

    fn signal(&self, value: u64) {
        self.timeline.signal(value);
    }

    fn failure(&self) -> Option<Error> {
        self.timeline.lock().failure.as_ref().map(|(error, _)| error.clone())
    }
}
