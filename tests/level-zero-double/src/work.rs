//! What lists hold, and the threads that run it.

use crate::objects::Event;
use crate::world::{LOST, lock};
use paceline_kernels::host;
use paceline_kernels::params::Launch;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a list waits for more before it runs what has no barrier behind it.
const PATIENCE: Duration = Duration::from_micros(200);

/// A command with addresses.
#[derive(Clone)]
pub(crate) enum Command {
    /// From, to, bytes.
    Copy(usize, usize, usize),
    /// Where, the byte, how many.
    Fill(usize, u8, usize),
    Kernel {
        entry: &'static str,
        width: u32,
        groups: [u32; 3],
        threads: u32,
        argument: Vec<u8>,
    },
    Signal(Arc<Event>),
    Wait(Arc<Event>),
    Reset(Arc<Event>),
    Time(usize),
    Barrier,
}

/// The time of the device, in nanoseconds.
pub(crate) fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

impl Event {
    pub fn set(&self, signalled: bool) {
        *lock(&self.signalled) = signalled;
        self.changed.notify_all();
    }

    /// Waits until it is signalled or the device is lost. False if neither comes in time.
    pub fn wait(&self, longest: Duration) -> bool {
        let start = Instant::now();
        let mut signalled = lock(&self.signalled);
        while !*signalled && !LOST.load(Ordering::SeqCst) {
            let Some(rest) = longest.checked_sub(start.elapsed()) else { return false };
            let step = rest.min(Duration::from_millis(5));
            let (next, _) =
                self.changed.wait_timeout(signalled, step).unwrap_or_else(std::sync::PoisonError::into_inner);
            signalled = next;
        }
        true
    }
}

fn run(command: &Command) {
    if LOST.load(Ordering::SeqCst) {
        return;
    }
    match command {
        // SAFETY: the contract of the calls that appended them.
        Command::Copy(from, to, bytes) => unsafe {
            std::ptr::copy_nonoverlapping(*from as *const u8, *to as *mut u8, *bytes);
        },
        // SAFETY: as above.
        Command::Fill(at, byte, bytes) => unsafe { (*at as *mut u8).write_bytes(*byte, *bytes) },
        Command::Kernel { entry, width, groups, threads, argument } => {
            let launch = Launch { entry, groups: *groups, threads: *threads, shared_bytes: 0 };
            // SAFETY: as above; the addresses are of host memory here.
            if let Err(error) = unsafe { host::launch(&launch, argument, *width) } {
                eprintln!("level-zero-double: {error}; the device is lost");
                LOST.store(true, Ordering::SeqCst);
            }
        }
        Command::Signal(event) => event.set(true),
        Command::Reset(event) => event.set(false),
        // SAFETY: as above.
        Command::Time(at) => unsafe { (*at as *mut u64).write_volatile(now()) },
        Command::Wait(event) => {
            event.wait(Duration::MAX);
        }
        Command::Barrier => {}
    }
}

/// Runs what came since the last barrier, the last first.
fn run_batch(batch: &mut Vec<Command>) {
    batch.drain(..).rev().for_each(|command| run(&command));
}

/// Commands as a device runs them: a barrier and a wait for an event hold back what comes after them, and nothing else does.
fn take(batch: &mut Vec<Command>, command: Command) {
    match command {
        Command::Barrier => run_batch(batch),
        Command::Wait(_) => {
            run_batch(batch);
            run(&command);
        }
        command => batch.push(command),
    }
}

/// What a thread is given.
pub(crate) enum Job {
    One(Command),
    /// The commands of lists, one list after another.
    Lists(Vec<Vec<Command>>),
}

/// A thread that runs what it is given, in the order of a device.
pub(crate) struct Worker {
    jobs: Sender<Job>,
}

impl Worker {
    pub fn new() -> Self {
        let (jobs, given) = channel();
        std::thread::spawn(move || work(&given));
        Self { jobs }
    }

    pub fn give(&self, job: Job) {
        // A thread that ended on a failed kernel takes nothing any more: its events never come.
        let _ = self.jobs.send(job);
    }
}

fn work(jobs: &Receiver<Job>) {
    let mut batch = Vec::new();
    loop {
        let job = match batch.is_empty() {
            true => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => jobs.recv_timeout(PATIENCE),
        };
        match job {
            Ok(Job::One(command)) => take(&mut batch, command),
            Ok(Job::Lists(lists)) => {
                for list in lists {
                    list.into_iter().for_each(|command| take(&mut batch, command));
                }
                run_batch(&mut batch);
            }
            Err(RecvTimeoutError::Timeout) => run_batch(&mut batch),
            Err(RecvTimeoutError::Disconnected) => {
                run_batch(&mut batch);
                return;
            }
        }
    }
}
