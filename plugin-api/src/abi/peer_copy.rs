//! Copies from one device of a backend to another, without the host in between where devices reach each other.

use super::{ArenaSpan, DeviceHandle, SemaphorePoint, Status};

/// Interface id of [`PeerCopyTable`], which a backend may offer. Without it the host copies through its own memory.
pub const PEER_COPY_INTERFACE: &str = "paceline.peer_copy/1";

/// How bytes come from one device to another.
pub mod peer_route {
    /// Not by this backend: the host has to copy.
    pub const NONE: u32 = 0;
    /// One device reads or writes the memory of the other.
    pub const DIRECT: u32 = 1;
    /// The backend or its driver takes them through memory of the host.
    pub const STAGED: u32 = 2;
}

/// One copy between arenas of one backend.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeerCopyArgs {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Where the bytes go, in an arena of the device that the copy is queued on. Neither range is in an IO arena.
    pub to: ArenaSpan,
    /// Where they are, as many of them: in an arena of any device of this backend.
    pub from: ArenaSpan,
    /// Points that must be reached before the copy begins, of any devices of this backend.
    pub waits: *const SemaphorePoint,
    /// Number of waits.
    pub wait_count: usize,
    /// Points that are reached when the copy is done.
    pub signals: *const SemaphorePoint,
    /// Number of signals.
    pub signal_count: usize,
}

/// Functions of `paceline.peer_copy/1`.
#[repr(C)]
pub struct PeerCopyTable {
    /// Size of this struct in bytes.
    pub size: usize,
    /// How copies from device `from` to device `to` would go, by their indices: one of [`peer_route`]. They
    /// need not be open. May touch a driver. Any thread.
    pub route: Option<unsafe extern "C" fn(to: u32, from: u32, out: *mut u32) -> *mut Status>,
    /// Queues a copy among the launches of `device` and returns; `route` becomes the way that it takes, one of
    /// [`peer_route`] but not `NONE`. Nothing was queued if it fails.
    pub copy: Option<
        unsafe extern "C" fn(device: DeviceHandle, args: *const PeerCopyArgs, route: *mut u32) -> *mut Status,
    >,
}

// SAFETY: a table is constant for the life of the process and holds function pointers only.
unsafe impl Sync for PeerCopyTable {}
