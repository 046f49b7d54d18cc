//! What the host offers to a plugin.

use super::Str;
use core::ffi::c_void;

/// Levels of log events, as numbers.
pub mod level {
    /// Something failed.
    pub const ERROR: u32 = 1;
    /// Something is not as asked for.
    pub const WARN: u32 = 2;
    /// What a user wants to know.
    pub const INFO: u32 = 3;
    /// What an author wants to know.
    pub const DEBUG: u32 = 4;
    /// Everything.
    pub const TRACE: u32 = 5;
}

/// One field of a log event or span, as text.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LogField {
    /// Name of the field.
    pub key: Str,
    /// Its value, formatted.
    pub value: Str,
}

/// Passed to the entry symbol; valid for the life of the process. All functions may be called from any thread.
#[repr(C)]
pub struct HostTable {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Oldest ABI version that the host can talk to.
    pub abi_oldest: u32,
    /// ABI version that the host was built with.
    pub abi_current: u32,
    /// First argument of the functions below.
    pub context: *mut c_void,
    /// 1 if an event of this level and target would be recorded, else 0.
    pub log_enabled: Option<unsafe extern "C" fn(context: *mut c_void, level: u32, target: Str) -> u32>,
    /// Records an event.
    pub log_event: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            level: u32,
            target: Str,
            message: Str,
            fields: *const LogField,
            field_count: usize,
        ),
    >,
    /// Opens a span under the current one and returns its id, 0 for none.
    pub span_new: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            level: u32,
            target: Str,
            name: Str,
            fields: *const LogField,
            field_count: usize,
        ) -> u64,
    >,
    /// Enters a span on this thread.
    pub span_enter: Option<unsafe extern "C" fn(context: *mut c_void, span: u64)>,
    /// Leaves a span on this thread.
    pub span_exit: Option<unsafe extern "C" fn(context: *mut c_void, span: u64)>,
    /// Ends a span.
    pub span_close: Option<unsafe extern "C" fn(context: *mut c_void, span: u64)>,
    /// Returns an interface of the host, or null if it lacks it.
    pub get_interface:
        Option<unsafe extern "C" fn(context: *mut c_void, id: Str, min_minor: u32) -> *const c_void>,
}

impl HostTable {
    /// A host of this version that offers nothing: for tests of a plugin without a host.
    pub const fn empty() -> Self {
        Self {
            size: size_of::<Self>(),
            abi_oldest: super::version(super::ABI_MAJOR, super::ABI_OLDEST_MINOR),
            abi_current: super::version(super::ABI_MAJOR, super::ABI_MINOR),
            context: core::ptr::null_mut(),
            log_enabled: None,
            log_event: None,
            span_new: None,
            span_enter: None,
            span_exit: None,
            span_close: None,
            get_interface: None,
        }
    }
}

// SAFETY: the table is never changed after it was made and its functions may be called from any thread.
unsafe impl Send for HostTable {}
// SAFETY: as above.
unsafe impl Sync for HostTable {}
