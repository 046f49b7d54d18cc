//! The table that plugins get from the host.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use paceline_plugin_api::abi::{self, HostTable, LogField, Str};
use paceline_plugin_api::graph::GRAPH_TABLE;

use crate::log_bridge;

/// What this host offers to plugins: its log, and reading and building of graphs.
pub static HOST_TABLE: HostTable = HostTable {
    size: size_of::<HostTable>(),
    abi_oldest: abi::version(abi::ABI_MAJOR, abi::ABI_OLDEST_MINOR),
    abi_current: abi::version(abi::ABI_MAJOR, abi::ABI_MINOR),
    context: null_mut(),
    log_enabled: Some(log_enabled),
    log_event: Some(log_event),
    span_new: Some(span_new),
    span_enter: Some(span_enter),
    span_exit: Some(span_exit),
    span_close: Some(span_close),
    get_interface: Some(get_interface),
};

/// Runs a call of a plugin. A panic, of a subscriber say, must not unwind into the plugin.
fn shielded<T>(fallback: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(fallback)
}

/// Copies fields out of a plugin's memory.
///
/// # Safety
/// `fields` must be null or point to `count` fields whose texts are readable.
unsafe fn read_fields(fields: *const LogField, count: usize) -> Vec<(String, String)> {
    if fields.is_null() || count == 0 {
        return Vec::new();
    }
    // SAFETY: by the contract of this function.
    let fields = unsafe { std::slice::from_raw_parts(fields, count) };
    // SAFETY: as above.
    fields.iter().map(|field| unsafe { (field.key.to_text(), field.value.to_text()) }).collect()
}

unsafe extern "C" fn log_enabled(_: *mut c_void, level: u32, target: Str) -> u32 {
    shielded(0, || {
        // SAFETY: the plugin passes readable text.
        let target = unsafe { target.to_text() };
        log_bridge::enabled(level, &target).into()
    })
}

unsafe extern "C" fn log_event(
    _: *mut c_void,
    level: u32,
    target: Str,
    message: Str,
    fields: *const LogField,
    field_count: usize,
) {
    shielded((), || {
        // SAFETY: the plugin passes readable texts and fields.
        let (target, message, fields) =
            unsafe { (target.to_text(), message.to_text(), read_fields(fields, field_count)) };
        log_bridge::event(level, &target, &message, &fields);
    });
}

unsafe extern "C" fn span_new(
    _: *mut c_void,
    level: u32,
    target: Str,
    name: Str,
    fields: *const LogField,
    field_count: usize,
) -> u64 {
    shielded(0, || {
        // SAFETY: the plugin passes readable texts and fields.
        let (target, name, fields) =
            unsafe { (target.to_text(), name.to_text(), read_fields(fields, field_count)) };
        log_bridge::new_span(level, &target, &name, &fields)
    })
}

unsafe extern "C" fn span_enter(_: *mut c_void, span: u64) {
    shielded((), || log_bridge::enter_span(span));
}

unsafe extern "C" fn span_exit(_: *mut c_void, span: u64) {
    shielded((), || log_bridge::exit_span(span));
}

unsafe extern "C" fn span_close(_: *mut c_void, span: u64) {
    shielded((), || log_bridge::close_span(span));
}

unsafe extern "C" fn get_interface(_: *mut c_void, id: Str, min_minor: u32) -> *const c_void {
    // SAFETY: the plugin passes readable text.
    let id = unsafe { id.bytes() };
    if id == abi::GRAPH_INTERFACE.as_bytes() && (0..=abi::ABI_MINOR).contains(&min_minor) {
        (&raw const GRAPH_TABLE).cast()
    } else {
        std::ptr::null()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(id: &str, min_minor: u32) -> *const c_void {
        // SAFETY: the text outlives the call.
        unsafe { get_interface(null_mut(), Str::new(id), min_minor) }
    }

    #[test]
    fn only_interfaces_of_this_host_are_given_out() {
        assert_eq!(interface("paceline.graph/1", 0), (&raw const GRAPH_TABLE).cast());
        assert!(interface("paceline.graph/1", abi::ABI_MINOR + 1).is_null());
        assert!(interface("paceline.graph/2", 0).is_null());
        assert!(interface("", 0).is_null());
    }
}
