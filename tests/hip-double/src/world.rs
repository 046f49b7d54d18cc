//! The devices and everything that was made on them.

use crate::capture::Captures;
use crate::code::{self, Code};
use crate::config::{Config, DeviceConfig, Fault};
use crate::memory::Memory;
use crate::stream::{Event, Stream, Work, lock};
use paceline_kernels::code_object::{CodeObject, Kernel};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// A virtual device.
pub struct Device {
    pub config: DeviceConfig,
    /// The answer to every call, once it is not 0.
    pub lost: AtomicI32,
    /// Devices whose memory it may touch.
    pub peers: Mutex<HashSet<usize>>,
}

/// A kernel of a loaded module.
pub struct Function {
    pub device: usize,
    pub kernel: Kernel,
    /// Its name, for as long as the process lives.
    pub name: &'static str,
}

/// A module that is loaded on a device.
pub struct Module {
    pub device: usize,
    pub object: CodeObject,
}

/// Work that was captured, and the device it is for.
pub struct Graph {
    pub device: usize,
    pub work: Arc<[Work]>,
}

/// Things by their handles.
#[derive(Default)]
pub struct Objects {
    pub streams: HashMap<usize, Arc<Stream>>,
    pub events: HashMap<usize, Arc<Event>>,
    pub modules: HashMap<usize, Arc<Module>>,
    pub functions: HashMap<usize, Arc<Function>>,
    pub graphs: HashMap<usize, Arc<Graph>>,
    pub executables: HashMap<usize, Arc<Graph>>,
    names: HashSet<&'static str>,
}

/// All of it.
pub struct World {
    pub config: Config,
    pub devices: Vec<Device>,
    pub memory: Mutex<Memory>,
    pub objects: Mutex<Objects>,
    pub captures: Captures,
    next: AtomicUsize,
    faults: Mutex<Vec<Fault>>,
    calls: Mutex<HashMap<String, u64>>,
}

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The device of the calling thread.
pub fn current() -> usize {
    CURRENT.get()
}

impl World {
    /// The world, which begins with the first call.
    pub fn get() -> &'static Self {
        static WORLD: OnceLock<World> = OnceLock::new();
        WORLD.get_or_init(|| {
            let config = Config::read();
            let device = |config: &DeviceConfig| Device {
                config: config.clone(),
                lost: AtomicI32::new(0),
                peers: Mutex::default(),
            };
            Self {
                devices: config.devices.iter().map(device).collect(),
                memory: Mutex::default(),
                objects: Mutex::default(),
                captures: Captures::default(),
                next: AtomicUsize::new(0x1000),
                faults: Mutex::new(config.faults.clone()),
                calls: Mutex::default(),
                config,
            }
        })
    }

    /// A device by its number.
    pub fn device(&self, number: i32) -> Result<&Device, Code> {
        usize::try_from(number).ok().and_then(|it| self.devices.get(it)).ok_or(code::InvalidDevice)
    }

    /// The device of the calling thread.
    pub fn current(&self) -> Result<&Device, Code> {
        self.devices.get(current()).ok_or(code::NoDevice)
    }

    /// Makes a device that of the calling thread.
    pub fn set_current(&self, number: i32) -> Result<(), Code> {
        self.device(number)?;
        CURRENT.set(number as usize);
        Ok(())
    }

    /// A new handle. It is no address, and nobody may look behind it.
    pub fn handle(&self) -> usize {
        self.next.fetch_add(16, Ordering::Relaxed)
    }

    /// Counts a call; fails if it is to fail now.
    pub fn fails(&self, call: &str) -> Result<(), Code> {
        *lock(&self.calls).entry(call.to_owned()).or_default() += 1;
        let mut faults = lock(&self.faults);
        let Some(index) = faults.iter().position(|fault| fault.call == call) else { return Ok(()) };
        if faults[index].after > 0 {
            faults[index].after -= 1;
            return Ok(());
        }
        Err(faults.remove(index).code)
    }

    /// Lets a call fail.
    pub fn fail(&self, fault: Fault) {
        lock(&self.faults).push(fault);
    }

    /// How often a call was made.
    pub fn calls(&self, call: &str) -> u64 {
        lock(&self.calls).get(call).copied().unwrap_or(0)
    }

    /// Loses the calling thread's device.
    pub fn lose(&self, code: Code) {
        if let Some(device) = self.devices.get(current()) {
            device.lost.store(code, Ordering::Release);
        }
    }

    /// The answer of the calling thread's device, if that one is lost.
    pub fn check_lost(&self) -> Result<(), Code> {
        let lost = self.devices.get(current()).map_or(0, |device| device.lost.load(Ordering::Acquire));
        if lost == 0 { Ok(()) } else { Err(lost) }
    }

    /// Waits for all streams of a device.
    pub fn settle(&self, device: usize) {
        let streams: Vec<_> =
            lock(&self.objects).streams.values().filter(|it| it.device == device).cloned().collect();
        streams.iter().for_each(|stream| stream.wait());
    }

    /// Allocations, streams, events, modules and graphs that exist.
    pub fn alive(&self) -> usize {
        let objects = lock(&self.objects);
        let graphs = objects.graphs.len() + objects.executables.len();
        let made = objects.streams.len() + objects.events.len() + objects.modules.len() + graphs;
        made + lock(&self.memory).count()
    }
}

impl Objects {
    /// A name that lives as long as the process, as launches of kernels want it.
    pub fn name(&mut self, name: &str) -> &'static str {
        if let Some(known) = self.names.get(name) {
            return known;
        }
        let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
        self.names.insert(name);
        name
    }
}

/// Something by its handle.
pub fn find<T>(of: &HashMap<usize, Arc<T>>, handle: *mut c_void) -> Result<Arc<T>, Code> {
    of.get(&(handle as usize)).cloned().ok_or(code::InvalidHandle)
}
