//! Whether steps are captured: recorded once, and launched with one call.

use super::{DeviceHandle, ExecutableHandle, Status, Str};

/// Interface id of [`GraphCaptureTable`], which a backend may offer. Without it nothing is known of captures.
pub const GRAPH_CAPTURE_INTERFACE: &str = "paceline.graph_capture/1";

/// What a device, or an executable, captured since it was opened or loaded.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CaptureInfo {
    /// Size of this struct in bytes, set by the caller.
    pub size: usize,
    /// 1 if launches replay captured steps, 0 if they do not.
    pub is_captured: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// Steps that were captured, one for each slot of an executable.
    pub captures: u64,
    /// Launches that replayed one.
    pub replays: u64,
    /// Captured steps that had to be made again.
    pub rebuilds: u64,
    /// Why steps are not captured, or why the last one was made again; empty if there is nothing to say. Valid for
    /// the life of the process.
    pub reason: Str,
}

/// Functions of `paceline.graph_capture/1`.
#[repr(C)]
pub struct GraphCaptureTable {
    /// Size of this struct in bytes.
    pub size: usize,
    /// All that a device captured. Any thread.
    pub device: Option<unsafe extern "C" fn(device: DeviceHandle, out: *mut CaptureInfo) -> *mut Status>,
    /// What an executable captured.
    pub executable:
        Option<unsafe extern "C" fn(executable: ExecutableHandle, out: *mut CaptureInfo) -> *mut Status>,
    /// Does ahead of use what the first launch of each slot would do besides running: captures, and brings to the
    /// device what was captured. No launch of the executable is pending.
    pub warm_up: Option<unsafe extern "C" fn(executable: ExecutableHandle) -> *mut Status>,
}

// SAFETY: a table is constant for the life of the process and holds function pointers only.
unsafe impl Sync for GraphCaptureTable {}
