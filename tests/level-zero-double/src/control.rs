//! Functions for tests, which a copy of the library exports beside Level Zero's.

use crate::objects::Object;
use crate::world::{Fault, LOST, with};
use level_zero_sys as ze;
use std::ffi::{CStr, c_char};
use std::sync::atomic::Ordering;

/// A name of a call.
///
/// # Safety
/// The text ends with a zero.
unsafe fn text<'a>(name: *const c_char) -> &'a str {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or_default()
}

/// Lets the call of this name answer `code` once, after `after` that do not. A device that is lost so stays lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn double_fail(call: *const c_char, after: u32, code: ze::ze_result_t) {
    // SAFETY: the caller's promise.
    let call = unsafe { text(call) }.to_owned();
    with(|world| world.faults.push(Fault { call, after, code }));
}

/// How often a call was made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn double_calls(call: *const c_char) -> u64 {
    // SAFETY: the caller's promise.
    let call = unsafe { text(call) };
    with(|world| world.calls.get(call).copied().unwrap_or(0))
}

/// Objects that exist, but for contexts, modules and kernels, which a program may keep.
#[unsafe(no_mangle)]
pub extern "C" fn double_alive() -> u64 {
    let is_kept = |object: &Object| {
        matches!(object, Object::Context | Object::Module(_) | Object::Kernel(_) | Object::Pool { .. })
    };
    with(|world| world.objects.values().filter(|object| !is_kept(object)).count() as u64)
}

/// Lets the device have sub-groups of this width alone.
#[unsafe(no_mangle)]
pub extern "C" fn double_width(width: u32) {
    with(|world| world.widths = vec![width]);
}

/// Loses the device.
#[unsafe(no_mangle)]
pub extern "C" fn double_lose() {
    LOST.store(true, Ordering::SeqCst);
}
