//! Timeline semaphores, which can carry a failure. Nothing runs in the background: whoever waits or asks looks what
//! the device has finished, and signals it for all.

use crate::device::Shared;
use crate::opened;
use crate::queue::{MAX_POINTS, Points, QueuedPoint};
use paceline_plugin_api::backend::{Point, Semaphore};
use paceline_plugin_api::support::Timeline;
use paceline_plugin_api::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A waiter looks without a pause for so long: a step takes less, and a sleep would cost more than it.
const SPIN: Duration = Duration::from_millis(20);
/// How long a waiter sleeps after that, while the device works.
const NAP: Duration = Duration::from_micros(50);
/// Longest sleep where only the host can signal: other devices may have something to do meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// The state of a semaphore, shared with the launches that refer to it.
pub(crate) struct QueueTimeline {
    /// What the device has finished, or the host has signalled.
    pub done: Timeline,
    /// The value that it will have when all that is queued on its device is done.
    promised: AtomicU64,
}

impl QueueTimeline {
    /// True if the value is reached before anything that is queued from now on its device runs.
    pub fn is_promised(&self, value: u64) -> bool {
        self.promised.load(Ordering::Acquire) >= value
    }

    /// Says that what is queued on the device will signal the value.
    pub fn promise(&self, value: u64) {
        self.promised.fetch_max(value, Ordering::AcqRel);
    }

    /// Moves the value forward from the host.
    pub fn signal(&self, value: u64) {
        self.done.signal(value);
        self.promise(value);
    }
}

/// The points of a launch on a device, as its queue keeps them.
pub(crate) fn points(device: &Arc<Shared>, list: &[Point<'_, GpuSemaphore>]) -> Points {
    let mut points: Points = Default::default();
    for (place, point) in points.iter_mut().zip(list) {
        let timeline = Arc::clone(&point.semaphore.timeline);
        let is_own = Arc::ptr_eq(&point.semaphore.device, device);
        *place = Some(QueuedPoint { timeline, value: point.value, is_own });
    }
    points
}

/// Refuses more points than a launch has room for.
pub(crate) fn check_points(
    waits: &[Point<'_, GpuSemaphore>],
    signals: &[Point<'_, GpuSemaphore>],
) -> Result<()> {
    match waits.len().max(signals.len()) {
        0..=MAX_POINTS => Ok(()),
        _ => Err(Error::invalid(format!("more than {MAX_POINTS} semaphores on one launch"))),
    }
}

/// A timeline semaphore of a device.
pub struct GpuSemaphore {
    pub(crate) timeline: Arc<QueueTimeline>,
    pub(crate) device: Arc<Shared>,
}

impl GpuSemaphore {
    pub(crate) fn new(device: Arc<Shared>, initial: u64) -> Self {
        let timeline = QueueTimeline { done: Timeline::new(initial), promised: AtomicU64::new(initial) };
        Self { timeline: Arc::new(timeline), device }
    }
}

impl Semaphore for GpuSemaphore {
    fn wait(&self, value: u64, timeout_ns: u64) -> Result<()> {
        if self.timeline.done.is_reached(value) {
            return Ok(());
        }
        self.device.count_wait();
        let start = Instant::now();
        let limit = Duration::from_nanos(timeout_ns);
        loop {
            let mut is_busy = self.device.progress();
            if self.timeline.done.is_reached(value) {
                return Ok(());
            }
            // What this waits for may wait for another device.
            is_busy |= opened::progress_others(&self.device);
            if let Some(failure) = self.timeline.done.failure() {
                return Err(failure);
            }
            let elapsed = start.elapsed();
            if elapsed >= limit {
                return Err(Error::new(ErrorKind::Timeout, "the wait timed out"));
            }
            match is_busy {
                true if elapsed < SPIN => std::thread::yield_now(),
                true => std::thread::sleep(NAP.min(limit - elapsed)),
                false => self.timeline.done.sleep(value, (limit - elapsed).min(LONGEST_SLEEP)),
            }
        }
    }

    fn value(&self) -> u64 {
        self.device.progress();
        opened::progress_others(&self.device);
        self.timeline.done.value()
    }

    fn signal(&self, value: u64) {
        self.timeline.signal(value);
        self.device.progress();
    }

    fn failure(&self) -> Option<Error> {
        self.device.progress();
        opened::progress_others(&self.device);
        self.timeline.done.failure()
    }
}
