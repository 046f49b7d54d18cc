//! Runs the template engine where it can do little harm.
//!
//! The engine recurses with the nesting of what it reads, and not all it does can be counted, so
//! it has a thread with a large stack, and a caller that stops waiting.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use super::error::TemplateError;

/// Only what is used of it becomes memory.
const STACK_BYTES: usize = if cfg!(target_pointer_width = "64") { 256 << 20 } else { 16 << 20 };

/// Runs one job after another. Jobs of several callers may run side by side, but none is started
/// while one that was given up is still running.
#[derive(Debug, Default)]
pub(super) struct Worker {
    given_up: Arc<AtomicUsize>,
}

impl Worker {
    /// Runs a job to its end, or until the time is over.
    pub(super) fn run<T: Send + 'static>(
        &self,
        time: Duration,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TemplateError> {
        if self.given_up.load(Ordering::Acquire) > 0 {
            return Err(TemplateError::StillRunning);
        }
        // Without a buffer: a result is either received, or sending it fails.
        let (sender, receiver) = sync_channel(0);
        let given_up = Arc::clone(&self.given_up);
        let body = move || {
            // The job and all that it used are gone before the caller hears of it.
            let result = catch_unwind(AssertUnwindSafe(job));
            if sender.send(result).is_err() {
                given_up.fetch_sub(1, Ordering::Release);
            }
        };
        thread::Builder::new()
            .name("chat-template".into())
            .stack_size(STACK_BYTES)
            .spawn(body)
            .map_err(|error| TemplateError::NoThread { reason: error.to_string() })?;
        match receiver.recv_timeout(time) {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => {
                Err(TemplateError::Render { line: None, reason: "the template engine has a defect".into() })
            }
            Err(RecvTimeoutError::Timeout) => {
                // Counted before the receiver goes, which is what the thread notices.
                self.given_up.fetch_add(1, Ordering::Release);
                drop(receiver);
                Err(TemplateError::TooMuchTime { limit: time })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_takes_too_long_blocks_the_next_until_it_ends() {
        let worker = Worker::default();
        let (release, wait) = sync_channel::<()>(1);
        let late = worker.run(Duration::from_millis(20), move || wait.recv());
        assert_eq!(late, Err(TemplateError::TooMuchTime { limit: Duration::from_millis(20) }));
        assert_eq!(worker.run(Duration::from_secs(9), || 1), Err(TemplateError::StillRunning));
        release.send(()).unwrap();
        while worker.given_up.load(Ordering::Acquire) > 0 {
            thread::yield_now();
        }
        assert_eq!(worker.run(Duration::from_secs(9), || 1), Ok(1));
    }

    #[test]
    fn a_panic_is_an_error() {
        let result: Result<(), TemplateError> =
            Worker::default().run(Duration::from_secs(9), || panic!("this panic is a part of a test"));
        assert!(matches!(result, Err(TemplateError::Render { .. })));
    }
}
