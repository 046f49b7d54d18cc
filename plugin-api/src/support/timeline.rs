//! The state of a timeline semaphore.

use crate::error::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The state of a timeline semaphore: a value that only rises, and perhaps a failure. A backend shares it, in an
/// `Arc`, between its [`Semaphore`](crate::backend::Semaphore) and the launches that wait for it or signal it.
///
/// There are two ways to read it, and a backend uses one of them:
///
/// - *polling*, for backends whose waiters do something useful meanwhile: [`is_reached`](Self::is_reached) first, then
///   [`failure`](Self::failure), then [`sleep`](Self::sleep). What is reached stays reached, whatever fails later.
/// - *blocking*, for backends with a thread that works: [`wait`](Self::wait), [`wait_for`](Self::wait_for) and
///   [`outcome`](Self::outcome). A value that
///   failed stays failed, even if a later launch signals a higher one.
#[derive(Debug, Default)]
pub struct Timeline {
    value: AtomicU64,
    has_failed: AtomicBool,
    /// The first failure, and the first value that it concerns.
    failure: Mutex<Option<(Error, u64)>>,
    changed: Condvar,
}

impl Timeline {
    /// A timeline that begins at a value.
    pub fn new(initial: u64) -> Self {
        Self { value: AtomicU64::new(initial), ..Self::default() }
    }

    /// The value reached so far.
    pub fn value(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }

    /// True when the value is reached. Takes no lock.
    pub fn is_reached(&self, value: u64) -> bool {
        self.value() >= value
    }

    /// Moves the value forward; a lower one changes nothing. Everything that was written before is seen by whoever
    /// finds the value reached.
    pub fn signal(&self, value: u64) {
        self.value.fetch_max(value, Ordering::AcqRel);
        // Taken so that a waiter between its check and its sleep is not missed.
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Records why the values from `from` on are not reached, unless there is a failure already. The value stays as
    /// it is. Where nothing that is still open can succeed, `from` is 0.
    pub fn fail(&self, from: u64, error: &Error) {
        let mut failure = self.lock();
        failure.get_or_insert_with(|| (error.clone(), from));
        self.has_failed.store(true, Ordering::Release);
        drop(failure);
        self.changed.notify_all();
    }

    /// True when there is a failure. Takes no lock.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// The failure, whichever values it concerns. Takes no lock while there is none.
    pub fn failure(&self) -> Option<Error> {
        if !self.has_failed() {
            return None;
        }
        self.lock().as_ref().map(|(error, _)| error.clone())
    }

    /// How a blocking wait for the value ends now; `None` if it would go on.
    pub fn outcome(&self, value: u64) -> Option<Result<()>> {
        self.outcome_of(&self.lock(), value)
    }

    /// Blocks until the value is reached: what [`Semaphore::wait`](crate::backend::Semaphore::wait) does where a thread
    /// works. `u64::MAX` nanoseconds are no limit.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] after `timeout_ns`, or the failure of the value.
    pub fn wait(&self, value: u64, timeout_ns: u64) -> Result<()> {
        let limit = if timeout_ns == u64::MAX { Duration::MAX } else { Duration::from_nanos(timeout_ns) };
        self.wait_for(value, limit)
            .unwrap_or_else(|| Err(Error::new(ErrorKind::Timeout, "the wait timed out")))
    }

    /// Blocks until the value is reached or has failed; `None` if `limit` passes before. A limit that the clock cannot
    /// hold, such as [`Duration::MAX`], is none.
    pub fn wait_for(&self, value: u64, limit: Duration) -> Option<Result<()>> {
        let end = Instant::now().checked_add(limit);
        let mut failure = self.lock();
        loop {
            if let Some(outcome) = self.outcome_of(&failure, value) {
                return Some(outcome);
            }
            failure = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(failure).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return None,
                Some(left) => {
                    self.changed.wait_timeout(failure, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Sleeps until something is signalled or fails, or `longest` has passed; not at all if the value is reached or
    /// there is a failure. It may return early, so a poller looks again.
    pub fn sleep(&self, value: u64, longest: Duration) {
        let failure = self.lock();
        if failure.is_none() && !self.is_reached(value) {
            drop(self.changed.wait_timeout(failure, longest));
        }
    }

    fn outcome_of(&self, failure: &Option<(Error, u64)>, value: u64) -> Option<Result<()>> {
        match failure {
            Some((error, from)) if value >= *from => Some(Err(error.clone())),
            _ => self.is_reached(value).then_some(Ok(())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Error, u64)>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(what: &str) -> Error {
        Error::new(ErrorKind::DeviceLost, what)
    }

    #[test]
    fn values_only_rise() {
        let timeline = Timeline::new(7);
        timeline.signal(3);
        assert_eq!(timeline.value(), 7);
        timeline.signal(9);
        assert!(timeline.is_reached(9) && !timeline.is_reached(10));
        assert_eq!(timeline.outcome(9), Some(Ok(())));
        assert_eq!(timeline.outcome(10), None);
        assert_eq!(timeline.wait_for(10, Duration::ZERO), None);
        assert_eq!(timeline.wait(10, 1).unwrap_err().kind, ErrorKind::Timeout);
    }

    #[test]
    fn the_first_failure_stays_and_concerns_what_comes_after_it() {
        let timeline = Timeline::new(1);
        assert_eq!(timeline.failure(), None);
        timeline.fail(3, &lost("first"));
        timeline.fail(2, &lost("second"));
        assert_eq!(timeline.failure(), Some(lost("first")));
        assert_eq!(
            [1, 2, 3].map(|value| timeline.outcome(value)),
            [Some(Ok(())), None, Some(Err(lost("first")))]
        );
        timeline.signal(5);
        assert_eq!(timeline.wait(2, u64::MAX), Ok(()));
        assert_eq!(timeline.wait(4, u64::MAX), Err(lost("first")));
        assert!(timeline.is_reached(4), "a poller asks for the value first");
    }

    #[test]
    fn waiters_of_both_kinds_wake() {
        for fails in [false, true] {
            let timeline = Timeline::default();
            let change = || if fails { timeline.fail(0, &lost("gone")) } else { timeline.signal(2) };
            let expected = if fails { Err(lost("gone")) } else { Ok(()) };
            std::thread::scope(|scope| {
                let blocked = scope.spawn(|| timeline.wait(2, u64::MAX));
                let polling = scope.spawn(|| {
                    while !timeline.is_reached(2) && !timeline.has_failed() {
                        // Would not end if the change did not wake it.
                        timeline.sleep(2, Duration::from_secs(1 << 40));
                    }
                });
                std::thread::yield_now();
                change();
                assert_eq!(blocked.join().unwrap(), expected);
                polling.join().unwrap();
            });
        }
    }
}
