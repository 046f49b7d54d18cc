//! What the library does not have: setting up a copy of this one, and looking into it.

use crate::code::Code;
use crate::config::{self, Fault};
use crate::world::World;
use std::ffi::{CStr, c_char};

/// # Safety
/// The pointer is null or a text that ends with a zero.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: promised by the caller.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Sets what a variable of the environment sets otherwise. It counts before the first call of the library.
///
/// # Safety
/// Both are null or texts that end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hip_double_set(name: *const c_char, value: *const c_char) {
    // SAFETY: promised by the caller.
    unsafe { config::set(&text(name), &text(value)) };
}

/// Lets a call fail once with this code, after it succeeded so often.
///
/// # Safety
/// The name is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hip_double_fail(call: *const c_char, after: u64, code: Code) {
    // SAFETY: promised by the caller.
    let call = unsafe { text(call) };
    World::get().fail(Fault { call, after, code });
}

/// How often a call was made.
///
/// # Safety
/// The name is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hip_double_calls(call: *const c_char) -> u64 {
    // SAFETY: promised by the caller.
    World::get().calls(&unsafe { text(call) })
}

/// Allocations, streams, events, modules and graphs that exist.
#[unsafe(no_mangle)]
pub extern "C" fn hip_double_alive() -> u64 {
    World::get().alive() as u64
}
