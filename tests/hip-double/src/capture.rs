//! Streams that record what is queued on them.

use crate::code::{self, Code};
use crate::stream::{Work, lock};
use std::collections::HashMap;
use std::sync::Mutex;
use std::thread::ThreadId;

/// Who is kept from calls that a capture does not bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Everybody,
    OwnThread,
    Nobody,
}

struct Capture {
    work: Vec<Work>,
    mode: Mode,
    thread: ThreadId,
    is_valid: bool,
}

/// The streams that record, by their handles.
#[derive(Default)]
pub struct Captures {
    all: Mutex<HashMap<usize, Capture>>,
}

impl Captures {
    pub fn begin(&self, stream: usize, mode: i32) -> Result<(), Code> {
        let mode = match mode {
            0 => Mode::Everybody,
            1 => Mode::OwnThread,
            2 => Mode::Nobody,
            _ => return Err(code::InvalidValue),
        };
        let mut all = lock(&self.all);
        if all.contains_key(&stream) {
            return Err(code::IllegalState);
        }
        let thread = std::thread::current().id();
        all.insert(stream, Capture { work: Vec::new(), mode, thread, is_valid: true });
        Ok(())
    }

    /// Records work; gives it back if the stream does not record.
    pub fn record(&self, stream: usize, work: Work) -> Result<Option<Work>, Code> {
        match lock(&self.all).get_mut(&stream) {
            None => Ok(Some(work)),
            Some(capture) if capture.is_valid => {
                capture.work.push(work);
                Ok(None)
            }
            Some(_) => Err(code::StreamCaptureInvalidated),
        }
    }

    /// What was recorded.
    pub fn end(&self, stream: usize) -> Result<Vec<Work>, Code> {
        let capture = lock(&self.all).remove(&stream).ok_or(code::IllegalState)?;
        if capture.is_valid { Ok(capture.work) } else { Err(code::StreamCaptureInvalidated) }
    }

    /// Refuses to wait for, or to ask after, a stream that records.
    pub fn forbid(&self, stream: usize) -> Result<(), Code> {
        match lock(&self.all).get_mut(&stream) {
            None => Ok(()),
            Some(capture) => {
                capture.is_valid = false;
                Err(code::StreamCaptureUnsupported)
            }
        }
    }

    /// Refuses a call that no capture of the caller bears.
    pub fn forbid_unsafe_call(&self) -> Result<(), Code> {
        let me = std::thread::current().id();
        let mut result = Ok(());
        for capture in lock(&self.all).values_mut() {
            let is_kept = match capture.mode {
                Mode::Everybody => true,
                Mode::OwnThread => capture.thread == me,
                Mode::Nobody => false,
            };
            if is_kept {
                capture.is_valid = false;
                result = Err(code::StreamCaptureUnsupported);
            }
        }
        result
    }
}
