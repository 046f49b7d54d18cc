//! The calls of the two drivers. Both work with modules of one kernel, with addresses of device memory, and with the same streams
//! and events; they differ in what can be recorded.

pub(crate) mod level_zero;
pub(crate) mod opencl;
mod opened;

use crate::widths::Form;
use paceline_gpu::driver::{Cause, DriverError, DriverResult, KernelHandle, ModuleHandle};
use paceline_kernels::spirv;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A lock that a panic elsewhere does not take away: what it guards is valid after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that stands for an object until [`taken`] has it back.
fn handle<T>(object: T) -> usize {
    Box::into_raw(Box::new(object)) as usize
}

/// The object of a handle.
///
/// # Safety
/// The handle was made by [`handle`] for this type and is not taken back while the object is used.
unsafe fn object<'a, T>(handle: usize) -> &'a T {
    // SAFETY: the caller's promise.
    unsafe { &*(handle as *const T) }
}

/// The object of a handle, which is of no use from here on.
///
/// # Safety
/// The handle was made by [`handle`] for this type, and nothing uses its object any more.
unsafe fn taken<T>(handle: usize) -> Box<T> {
    // SAFETY: the caller's promise.
    unsafe { Box::from_raw(handle as *mut T) }
}

/// The device of this number.
fn device<T>(devices: &[T], ordinal: u32) -> DriverResult<&T> {
    let device = devices.get(ordinal as usize);
    device.ok_or_else(|| own_error("finding a device", format!("there is no device {ordinal}")))
}

/// A module, from which kernels are taken and built one by one.
struct Module {
    bytes: Vec<u8>,
    /// What tells it from others.
    fingerprint: u64,
}

impl Module {
    fn load(image: &[u8]) -> ModuleHandle {
        let mut hasher = DefaultHasher::new();
        image.hash(&mut hasher);
        ModuleHandle(handle(Self { bytes: image.to_vec(), fingerprint: hasher.finish() }))
    }

    /// # Safety
    /// The handle was made by [`Module::load`], and nothing uses it any more.
    unsafe fn unload(module: ModuleHandle) {
        // SAFETY: the caller's promise.
        drop(unsafe { taken::<Self>(module.0) });
    }
}

/// Bytes of memory beyond which compilers have to be told that buffers may be large.
const LARGE: u64 = 4 << 30;

/// The options of a build: those of all, and of the others those that are wanted.
fn options(always: &str, others: [(bool, &str); 2]) -> CString {
    let wanted = others.into_iter().filter_map(|(is_wanted, option)| is_wanted.then_some(option));
    let list: Vec<&str> = [always].into_iter().chain(wanted).collect();
    CString::new(list.join(" ")).unwrap_or_default()
}

/// Kernels that were built for a device, by module and name. A driver takes seconds for some, so they stay when the device is
/// closed, for the next who opens it. One is built at a time: not every compiler can do more.
struct Built<K>(Mutex<HashMap<(u64, String), Box<K>>>);

impl<K> Default for Built<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K> Built<K> {
    /// The handle of a kernel, which is built if it was not yet.
    fn kernel(
        &self,
        module: &Module,
        name: &str,
        build: impl FnOnce(&[u8]) -> DriverResult<K>,
    ) -> DriverResult<KernelHandle> {
        let mut kernels = lock(&self.0);
        let key = (module.fingerprint, name.to_owned());
        let kernel = match kernels.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let start = Instant::now();
                let kernel = build(&module.bytes)?;
                tracing::debug!("kernel `{name}` was built in {} ms", start.elapsed().as_millis());
                place.insert(Box::new(kernel))
            }
        };
        Ok(KernelHandle(&raw const **kernel as usize))
    }
}

/// An error that no call of a driver made.
fn own_error(call: &'static str, text: String) -> DriverError {
    DriverError { call, code: 0, cause: Cause::Other, name: "an error".into(), text, advice: "" }
}

/// The module of one kernel, in its form.
fn one_kernel(module: &[u8], entry: &str, form: Form) -> Result<Vec<u8>, DriverError> {
    let made = spirv::kernel(module, entry).and_then(|module| spirv::with_width(&module, form.width));
    made.map_err(|error| own_error("taking a kernel out of its module", error.to_string()))
}

/// A UUID in the form of the vendor's tools.
fn uuid_text(id: &[u8; 16]) -> String {
    let hex = |range: std::ops::Range<usize>| -> String {
        id[range].iter().map(|byte| format!("{byte:02x}")).collect()
    };
    match id.iter().all(|&byte| byte == 0) {
        true => String::new(),
        false => format!("{}-{}-{}-{}-{}", hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)),
    }
}
