//! The optional interfaces of a backend: copies between devices, and captured steps.

use super::arguments::{slice, write};
use super::{Dev, Exe, Handle, Instance, Table};
use crate::abi::{self, CaptureInfo, GraphCaptureTable, PeerCopyArgs, PeerCopyTable, Status, Str};
use crate::backend::{Backend, Captures, Device, Executable, PeerRoute};
use crate::error::{Error, ErrorKind, guard, read_argument, write_sized};
use std::marker::PhantomData;

/// The C table of a backend's copies between devices.
pub fn peer_copy_table<I: Instance>() -> &'static PeerCopyTable {
    const { &Peers::<I>::TABLE }
}

/// The C table of a backend's captured steps.
pub fn graph_capture_table<I: Instance>() -> &'static GraphCaptureTable {
    const { &Captured::<I>::TABLE }
}

struct Peers<I>(PhantomData<I>);

impl<I: Instance> Peers<I> {
    const TABLE: PeerCopyTable =
        PeerCopyTable { size: size_of::<PeerCopyTable>(), route: Some(Self::route), copy: Some(Self::copy) };

    unsafe extern "C" fn route(to: u32, from: u32, out: *mut u32) -> *mut Status {
        guard(|| {
            let route = I::get().peer_route(to, from)?;
            // SAFETY: the caller passes a place for the number.
            unsafe { write(out, route.code()) }
        })
    }

    unsafe extern "C" fn copy(
        device: abi::DeviceHandle,
        args: *const PeerCopyArgs,
        route: *mut u32,
    ) -> *mut Status {
        guard(|| {
            if route.is_null() {
                return Err(Error::invalid("a place for a result is null"));
            }
            // SAFETY: the caller passes a live device, and arguments whose arenas and semaphores are live.
            let taken = unsafe {
                let device = Handle::<Dev<I>>::get(device)?;
                let args = read_argument(args)?;
                let (to, from) = (Table::<I>::span(&args.to)?, Table::<I>::span(&args.from)?);
                if to.bytes != from.bytes {
                    return Err(Error::invalid(format!("{} bytes for {}", from.bytes, to.bytes)));
                }
                let waits = slice(args.waits, args.wait_count)?;
                let signals = slice(args.signals, args.signal_count)?;
                Table::<I>::with_points(waits, |waits| {
                    Table::<I>::with_points(signals, |signals| {
                        device.call(|device| device.peer_copy(to, from, waits, signals))
                    })
                })?
            };
            if taken == PeerRoute::None {
                return Err(Error::new(ErrorKind::Internal, "a copy was queued that goes no way"));
            }
            // SAFETY: the caller passes a place for the number.
            unsafe { write(route, taken.code()) }
        })
    }
}

struct Captured<I>(PhantomData<I>);

/// The C form.
fn info(captures: &Captures) -> CaptureInfo {
    CaptureInfo {
        size: 0,
        is_captured: captures.is_captured.into(),
        reserved: 0,
        captures: captures.captures,
        replays: captures.replays,
        rebuilds: captures.rebuilds,
        reason: Str::new(captures.reason),
    }
}

impl<I: Instance> Captured<I> {
    const TABLE: GraphCaptureTable = GraphCaptureTable {
        size: size_of::<GraphCaptureTable>(),
        device: Some(Self::device),
        executable: Some(Self::executable),
        warm_up: Some(Self::warm_up),
    };

    unsafe extern "C" fn device(device: abi::DeviceHandle, out: *mut CaptureInfo) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live device.
            let captures = unsafe { Handle::<Dev<I>>::get(device)? }.call(|it| Ok(Device::captures(it)))?;
            // SAFETY: the caller passes a struct that states its size.
            unsafe { write_sized(out, info(&captures)) }
        })
    }

    unsafe extern "C" fn executable(executable: abi::ExecutableHandle, out: *mut CaptureInfo) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live executable.
            let handle = unsafe { Handle::<Exe<I>>::get(executable)? };
            let captures = handle.call(|it| Ok(Executable::captures(it)))?;
            // SAFETY: the caller passes a struct that states its size.
            unsafe { write_sized(out, info(&captures)) }
        })
    }

    unsafe extern "C" fn warm_up(executable: abi::ExecutableHandle) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live executable.
            unsafe { Handle::<Exe<I>>::get(executable)? }.call(Executable::warm_up)
        })
    }
}
