//! The machine: its objects, and what tests have asked of it.

use crate::objects::Object;
use level_zero_sys as ze;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory of the device.
pub(crate) const MEMORY: u64 = 4 << 30;

/// A call that fails, after some that do not.
pub(crate) struct Fault {
    pub call: String,
    pub after: u32,
    pub code: ze::ze_result_t,
}

#[derive(Default)]
pub(crate) struct World {
    /// Objects by their handles; memory by its address.
    pub objects: HashMap<usize, Object>,
    next: usize,
    pub faults: Vec<Fault>,
    pub calls: HashMap<&'static str, u64>,
    /// Whether `zeInit` was called, and what it said.
    pub started: Option<ze::ze_result_t>,
    pub taken: u64,
    /// Widths of sub-groups; none stands for all.
    pub widths: Vec<u32>,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);
/// The device is lost: nothing runs any more.
pub(crate) static LOST: AtomicBool = AtomicBool::new(false);

/// A lock that a panic elsewhere does not take away.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` on the machine.
pub(crate) fn with<R>(work: impl FnOnce(&mut World) -> R) -> R {
    work(lock(&WORLD).get_or_insert_default())
}

/// What every call begins with: it is counted, and may be made to fail.
///
/// # Errors
/// What the call has to answer.
pub(crate) fn enter(call: &'static str) -> Result<(), ze::ze_result_t> {
    with(|world| {
        *world.calls.entry(call).or_default() += 1;
        match world.started {
            _ if call == "zeInit" => {}
            Some(ze::ZE_RESULT_SUCCESS) => {}
            // Real loaders crash here.
            _ => {
                eprintln!("level-zero-double: {call} without a zeInit that succeeded");
                std::process::abort();
            }
        }
        if LOST.load(Ordering::SeqCst) {
            return Err(ze::ZE_RESULT_ERROR_DEVICE_LOST);
        }
        let Some(index) = world.faults.iter().position(|fault| fault.call == call) else { return Ok(()) };
        let fault = &mut world.faults[index];
        if fault.after > 0 {
            fault.after -= 1;
            return Ok(());
        }
        let code = world.faults.remove(index).code;
        if code == ze::ZE_RESULT_ERROR_DEVICE_LOST {
            LOST.store(true, Ordering::SeqCst);
        }
        Err(code)
    })
}

impl World {
    /// A handle for an object.
    pub fn add(&mut self, object: Object) -> usize {
        // Not what an address of memory could be.
        self.next += 1;
        let handle = self.next * 16 + 8;
        self.objects.insert(handle, object);
        handle
    }
}
