//! Waits for a child's answer, its end, or the end of its time.

use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::frame;

/// Bytes of standard error that are kept.
const TAIL_BYTES: usize = 4096;
/// The end of a child usually shows as the end of its pipes; where something of it holds them open, it is asked for
/// this often.
const TICK: Duration = Duration::from_millis(20);

/// How a child ended.
pub(super) enum End {
    /// With an answer.
    Answered(Vec<u8>),
    /// By a signal, without an answer.
    Signal(i32),
    /// By itself, without an answer.
    Exit(i32),
    /// It did not.
    TimeOver,
}

/// A child that is waited for. Nothing of its group outlives this.
pub(super) struct Watch {
    child: Child,
    answers: Option<PipeReader>,
    errors: Option<PipeReader>,
    answer: Vec<u8>,
    tail: Vec<u8>,
    reaped: bool,
}

impl Watch {
    /// Watches a child that leads a process group, and the other ends of its pipes.
    pub fn new(child: Child, answers: PipeReader, errors: PipeReader) -> Self {
        Self {
            child,
            answers: Some(answers),
            errors: Some(errors),
            answer: Vec::new(),
            tail: Vec::new(),
            reaped: false,
        }
    }

    /// Waits, kills what is left, and returns how it ended and the end of its standard error.
    pub fn until(mut self, time_limit: Duration) -> io::Result<(End, String)> {
        let end = self.wait(Instant::now() + time_limit)?;
        Ok((end, String::from_utf8_lossy(&self.tail).into_owned()))
    }

    fn wait(&mut self, deadline: Instant) -> io::Result<End> {
        loop {
            if let Some(answer) = frame::decode(&self.answer) {
                return Ok(End::Answered(answer.to_vec()));
            }
            // Asked before the last look into the pipes, so that nothing which was written before is missed.
            let ended = self.has_ended()?;
            if ended {
                self.kill_group();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let pipes_open = self.answers.is_some() || self.errors.is_some();
            let patience = if ended { Duration::ZERO } else { left.min(TICK) };
            let came = if pipes_open {
                self.read_what_came(patience)?
            } else {
                std::thread::sleep(patience.min(Duration::from_millis(1)));
                false
            };
            if ended && (!came || left.is_zero()) {
                self.reaped = true;
                let status = self.child.wait()?;
                return Ok(match (status.signal(), status.code()) {
                    (Some(signal), _) => End::Signal(signal),
                    (None, code) => End::Exit(code.unwrap_or(0)),
                });
            }
            if left.is_zero() {
                return Ok(End::TimeOver);
            }
        }
    }

    /// Ends the child and what it started. To be called only before the child was waited for: afterwards another
    /// process may have its number.
    fn kill_group(&self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }

    /// Whether the child has ended; it is left to be waited for, so that its group keeps its number.
    fn has_ended(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(Pid::from_child(&self.child)), options)?.is_some())
    }

    /// Reads once from each pipe that has something, and returns whether any had.
    fn read_what_came(&mut self, patience: Duration) -> io::Result<bool> {
        let pipes = [self.answers.as_ref(), self.errors.as_ref()];
        let mut polled: Vec<PollFd<'_>> = pipes
            .iter()
            .flatten()
            .map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN))
            .collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: patience.min(TICK).subsec_nanos().into() };
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let mut ready = polled.iter().map(|pipe| !pipe.revents().is_empty());
        let answers_ready = self.answers.is_some() && ready.next() == Some(true);
        let errors_ready = self.errors.is_some() && ready.next() == Some(true);
        let mut came = false;
        if answers_ready {
            came |= take(&mut self.answers, &mut self.answer)?;
            if !frame::may_become_one(&self.answer) {
                // Whatever wrote this, it is no answer. The child's end decides.
                self.answers = None;
                self.answer.clear();
            }
        }
        if errors_ready {
            came |= take(&mut self.errors, &mut self.tail)?;
            let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
            self.tail.drain(..surplus);
        }
        Ok(came)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill_group();
            let _ = self.child.wait();
        }
    }
}

/// Reads once from a pipe that has something, which may be its end. Returns whether bytes came.
fn take(pipe: &mut Option<PipeReader>, into: &mut Vec<u8>) -> io::Result<bool> {
    let Some(open) = pipe else { return Ok(false) };
    let mut block = [0; 4096];
    match open.read(&mut block) {
        Ok(0) => {
            *pipe = None;
            Ok(false)
        }
        Ok(count) => {
            into.extend_from_slice(&block[..count]);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(error),
    }
}
