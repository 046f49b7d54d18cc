//! Timeline semaphores. They carry the failures of launches, those of a lost device too.

use crate::device::Shared;
use crate::live::{Alive, Object};
use paceline_plugin_api::backend::Semaphore;
use paceline_plugin_api::support::Timeline;
use paceline_plugin_api::{Error, Result};
use std::sync::Arc;

/// A timeline semaphore.
pub struct SimSemaphore {
    pub(crate) timeline: Arc<Timeline>,
    shared: Arc<Shared>,
    _alive: Alive,
}

impl SimSemaphore {
    pub(crate) fn new(shared: Arc<Shared>, initial: u64) -> Self {
        Self { timeline: Arc::new(Timeline::new(initial)), shared, _alive: Alive::new(Object::Semaphore) }
    }
}

impl Semaphore for SimSemaphore {
    fn wait(&self, value: u64, timeout_ns: u64) -> Result<()> {
        if let Some(outcome) = self.timeline.outcome(value) {
            return outcome;
        }
        // A lost device reaches no value any more. Who waited learns why from what the semaphore carries.
        self.shared.check().inspect_err(|loss| self.timeline.fail(value, loss))?;
        self.shared.count_wait();
        self.timeline.wait(value, timeout_ns)
    }

    fn value(&self) -> u64 {
        self.timeline.value()
    }

    fn signal(&self, value: u64) {
        self.timeline.signal(value);
    }

    fn failure(&self) -> Option<Error> {
        self.timeline.failure()
    }
}
