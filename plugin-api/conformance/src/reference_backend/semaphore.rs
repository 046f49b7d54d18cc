//! Timeline semaphores.

use super::device::Shared;
use paceline_plugin_api::backend::Semaphore;
use paceline_plugin_api::support::Timeline;
use paceline_plugin_api::{Error, Result};
use std::sync::Arc;

const SECOND_NS: u64 = 1_000_000_000;

/// A timeline semaphore.
pub struct ReferenceSemaphore {
    pub(super) timeline: Arc<Timeline>,
    device: Arc<Shared>,
}

impl ReferenceSemaphore {
    pub(super) fn new(device: Arc<Shared>, initial: u64) -> Self {
        Self { timeline: Arc::new(Timeline::new(initial)), device }
    }
}

impl Semaphore for ReferenceSemaphore {
    fn wait(&self, value: u64, timeout_ns: u64) -> Result<()> {
        if self.device.waits_do_not_wait() && timeout_ns < SECOND_NS {
            return Ok(());
        }
        if let Some(Ok(())) = self.timeline.outcome(value) {
            return Ok(());
        }
        self.device.count_wait();
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
