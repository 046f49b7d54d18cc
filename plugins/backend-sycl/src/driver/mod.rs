//! The calls of the two drivers. Both work with modules of one kernel, with addresses of device memory, and with the same streams
//! and events; they differ in what can be recorded.

pub(crate) mod level_zero;
pub(crate) mod opencl;
mod opened;

use crate::widths::Form;
use paceline_gpu::driver::{Cause, DriverError};
use paceline_kernels::spirv;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
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

/// What tells modules apart.
fn fingerprint(module: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    module.hash(&mut hasher);
    hasher.finish()
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
    fn kernel<E>(&self, module: u64, name: &str, build: impl FnOnce() -> Result<K, E>) -> Result<usize, E> {
        let mut kernels = lock(&self.0);
        let key = (module, name.to_owned());
        let kernel = match kernels.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let start = Instant::now();
                let kernel = build()?;
                tracing::debug!("kernel `{name}` was built in {} ms", start.elapsed().as_millis());
                place.insert(Box::new(kernel))
            }
        };
        Ok(&raw const **kernel as usize)
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
