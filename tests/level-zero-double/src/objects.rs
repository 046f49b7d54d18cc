//! What handles stand for.

use crate::work::{Command, Worker};
use std::alloc::Layout;
use std::sync::{Arc, Condvar, Mutex};

/// An event: whether it is signalled, and who waits.
#[derive(Default)]
pub(crate) struct Event {
    pub signalled: Mutex<bool>,
    pub changed: Condvar,
}

/// A module of one kernel, and the width of its sub-groups.
#[derive(Clone)]
pub(crate) struct Module {
    pub entry: &'static str,
    pub width: u32,
}

/// A kernel with what was set for its next launch.
pub(crate) struct Kernel {
    pub module: Module,
    pub threads: u32,
    pub argument: Vec<u8>,
    pub has_indirect_access: bool,
}

/// A command list: recorded, or handed to a thread at once.
pub(crate) enum List {
    Recorded { commands: Vec<Command>, is_closed: bool },
    Immediate(Worker),
}

/// An object.
pub(crate) enum Object {
    Context,
    Queue(Worker),
    List(List),
    Pool {
        count: u32,
    },
    Event(Arc<Event>),
    Module(Module),
    Kernel(Kernel),
    Log(String),
    /// Memory of the device or of the host.
    Memory {
        layout: Layout,
    },
}
