//! Launches of one device, in the order in which they were queued.
//!
//! A launch whose waits are met goes to the stream at once. One whose waits are not met holds back those behind it, on
//! the host. An event behind each launch tells when it is done; its semaphores are signalled by whoever looks next.

use crate::device::Shared;
use crate::driver::{Driver, DriverResult, EventHandle, PeerPlace, StreamHandle};
use crate::executable::Bound;
use crate::semaphore::QueueTimeline;
use paceline_plugin_api::{Error, ErrorKind};
use std::collections::VecDeque;
use std::sync::Arc;

/// Most semaphores on one launch.
pub(crate) const MAX_POINTS: usize = 8;
/// Launches for which there is room without allocating.
const ROOM: usize = 64;

/// A semaphore's timeline, the value on it, and whether it is of the device of the launch.
#[derive(Clone)]
pub(crate) struct QueuedPoint {
    pub timeline: Arc<QueueTimeline>,
    pub value: u64,
    pub is_own: bool,
}

pub(crate) type Points = [Option<QueuedPoint>; MAX_POINTS];

/// What a launch does. It keeps what it works on alive.
pub(crate) enum Work {
    Run {
        bound: Arc<Bound>,
        slot: u32,
    },
    /// Bytes that come from another device, which stays open meanwhile.
    Copy {
        to: PeerPlace,
        from: PeerPlace,
        bytes: usize,
        _source: Arc<Shared>,
    },
}

impl Work {
    fn queue(&self, driver: &dyn Driver, stream: StreamHandle) -> DriverResult<()> {
        match self {
            Self::Run { bound, slot } => bound.run(driver, stream, *slot),
            // SAFETY: both ranges are of arenas that outlive the copy by the contract of the ABI, and what the copy waits for
            // has been reached.
            Self::Copy { to, from, bytes, .. } => unsafe {
                driver.copy_from_peer(*to, *from, *bytes, stream)
            },
        }
    }
}

/// A launch that is not on the stream yet.
pub(crate) struct Launch {
    pub work: Work,
    pub waits: Points,
    pub signals: Points,
}

/// A launch that is on the stream. It keeps what it runs on alive.
struct Running {
    _work: Work,
    event: EventHandle,
    signals: Points,
}

enum Wait {
    Met,
    Open,
    Failed(Error),
}

/// The launches of a device that are not done.
pub(crate) struct Queue {
    waiting: VecDeque<Launch>,
    running: VecDeque<Running>,
    /// Events that mark nothing.
    events: Vec<EventHandle>,
    all_events: Vec<EventHandle>,
}

fn points(list: &Points) -> impl Iterator<Item = &QueuedPoint> {
    list.iter().flatten()
}

fn fail(signals: &Points, error: &Error) {
    points(signals).for_each(|point| point.timeline.done.fail(0, error));
}

impl Launch {
    fn is_ready(&self) -> Wait {
        for QueuedPoint { timeline, value, is_own } in points(&self.waits) {
            let is_met = timeline.done.is_reached(*value) || (*is_own && timeline.is_promised(*value));
            match timeline.done.failure() {
                Some(error) if !timeline.done.is_reached(*value) => {
                    let text = format!("what the launch waits for failed: {}", error.message);
                    return Wait::Failed(Error::new(error.kind, text));
                }
                _ if !is_met => return Wait::Open,
                _ => {}
            }
        }
        Wait::Met
    }
}

impl Queue {
    /// An empty queue with its events.
    pub fn new(driver: &dyn Driver) -> DriverResult<Self> {
        let mut queue = Self {
            waiting: VecDeque::with_capacity(ROOM),
            running: VecDeque::with_capacity(ROOM),
            events: Vec::with_capacity(ROOM),
            all_events: Vec::with_capacity(ROOM),
        };
        for _ in 0..ROOM {
            let event = driver.create_event(false)?;
            queue.events.push(event);
            queue.all_events.push(event);
        }
        Ok(queue)
    }

    /// Queues a launch behind the others.
    pub fn push(&mut self, driver: &dyn Driver, stream: StreamHandle, launch: Launch) -> DriverResult<()> {
        if self.waiting.is_empty() && matches!(launch.is_ready(), Wait::Met) {
            return self.submit(driver, stream, launch);
        }
        self.waiting.push_back(launch);
        Ok(())
    }

    fn submit(&mut self, driver: &dyn Driver, stream: StreamHandle, launch: Launch) -> DriverResult<()> {
        let event = match self.events.pop() {
            Some(event) => event,
            None => {
                let event = driver.create_event(false)?;
                self.all_events.push(event);
                event
            }
        };
        let queued = launch.work.queue(driver, stream).and_then(|()| driver.record(event, stream));
        if let Err(error) = queued {
            // A part of the run may be on its way, and works on blocks that the caller will use again.
            let _ = driver.synchronize(stream);
            self.events.push(event);
            return Err(error);
        }
        points(&launch.signals).filter(|p| p.is_own).for_each(|p| p.timeline.promise(p.value));
        self.running.push_back(Running { _work: launch.work, event, signals: launch.signals });
        Ok(())
    }

    /// Signals what is done and submits what has become ready. True if the device still works.
    ///
    /// # Errors
    /// The first failure of the driver; `error_of` makes of it what the semaphores will carry.
    pub fn progress(
        &mut self,
        driver: &dyn Driver,
        stream: StreamHandle,
        error_of: impl Fn(&crate::driver::DriverError) -> Error,
    ) -> Result<bool, Error> {
        let failed = |queue: &mut Self, error: &crate::driver::DriverError| {
            let error = error_of(error);
            if error.kind == ErrorKind::DeviceLost {
                queue.fail_all(&error);
            }
            error
        };
        while let Some(first) = self.running.front() {
            match driver.has_passed(first.event) {
                Ok(false) => break,
                Ok(true) => {
                    if let Some(done) = self.running.pop_front() {
                        self.events.push(done.event);
                        points(&done.signals).for_each(|point| point.timeline.done.signal(point.value));
                    }
                }
                Err(error) => {
                    let error = failed(self, &error);
                    if let Some(lost) = self.running.pop_front() {
                        self.events.push(lost.event);
                        fail(&lost.signals, &error);
                    }
                    return Err(error);
                }
            }
        }
        while let Some(first) = self.waiting.front() {
            match first.is_ready() {
                Wait::Open => break,
                Wait::Failed(error) => {
                    if let Some(launch) = self.waiting.pop_front() {
                        fail(&launch.signals, &error);
                    }
                }
                Wait::Met => {
                    let Some(launch) = self.waiting.pop_front() else { break };
                    let signals = launch.signals.clone();
                    if let Err(error) = self.submit(driver, stream, launch) {
                        let error = failed(self, &error);
                        fail(&signals, &error);
                        return Err(error);
                    }
                }
            }
        }
        Ok(!self.running.is_empty())
    }

    /// Lets everything that is queued fail.
    pub fn fail_all(&mut self, error: &Error) {
        while let Some(running) = self.running.pop_front() {
            self.events.push(running.event);
            fail(&running.signals, error);
        }
        while let Some(launch) = self.waiting.pop_front() {
            fail(&launch.signals, error);
        }
    }

    /// Destroys the events; the queue is of no use after it.
    pub fn destroy(&mut self, driver: &dyn Driver) {
        self.events.clear();
        self.all_events.drain(..).for_each(|event| driver.destroy_event(event));
    }
}
