//! The optional interfaces of a backend's devices: copies between them, and captured steps. A backend without one answers as
//! if it could not.

use super::backend::BackendClient;
use super::device::{DeviceClient, ExecutableClient, MAX_POINTS, SemaphoreClient, SpanClient, points};
use super::missing;
use crate::abi::{CaptureInfo, GraphCaptureTable, PeerCopyArgs, PeerCopyTable, Str};
use crate::abi_function;
use crate::backend::{Captures, PeerRoute};
use crate::error::{Error, ErrorKind, Result};

/// The tables that a backend has.
#[derive(Clone, Copy, Default)]
pub(super) struct Interfaces {
    pub peer_copy: Option<&'static PeerCopyTable>,
    pub graph_capture: Option<&'static GraphCaptureTable>,
}

/// A table that states a size with which it has any function.
///
/// # Safety
/// The table lives as long as the process, and begins with its size.
pub(super) unsafe fn table<T>(pointer: *const T, what: &str) -> Result<&'static T> {
    if !pointer.is_aligned() {
        return Err(Error::invalid(format!("the table of {what} is not aligned")));
    }
    // SAFETY: by the contract of this function.
    let size = unsafe { *pointer.cast::<usize>() };
    if size < size_of::<usize>() * 2 {
        return Err(Error::invalid(format!("the table of {what} states a size of {size} bytes")));
    }
    // SAFETY: as above; fields are only read through `abi_function!`.
    Ok(unsafe { &*pointer })
}

fn route(code: u32) -> Result<PeerRoute> {
    PeerRoute::from_code(code)
        .ok_or_else(|| Error::invalid(format!("the backend names the unknown route {code} between devices")))
}

impl BackendClient {
    /// How copies from device `from` to device `to` would go. May touch a driver.
    ///
    /// # Errors
    /// A device that does not exist; a driver that fails.
    pub fn peer_route(&self, to: u32, from: u32) -> Result<PeerRoute> {
        let Some(table) = self.interfaces.peer_copy else { return Ok(PeerRoute::None) };
        let Some(function) = abi_function!(table, PeerCopyTable, route) else { return Ok(PeerRoute::None) };
        let mut code = 0;
        // SAFETY: the place outlives the call.
        unsafe { Error::take(function(to, from, &raw mut code)) }?;
        route(code)
    }
}

fn read(call: impl FnOnce(*mut CaptureInfo) -> Result<()>) -> Result<Captures> {
    let mut info = CaptureInfo {
        size: size_of::<CaptureInfo>(),
        is_captured: 0,
        reserved: 0,
        captures: 0,
        replays: 0,
        rebuilds: 0,
        reason: Str::EMPTY,
    };
    call(&raw mut info)?;
    // SAFETY: the text lives as long as the process.
    let reason = unsafe { info.reason.bytes() };
    Ok(Captures {
        is_captured: info.is_captured != 0,
        captures: info.captures,
        replays: info.replays,
        rebuilds: info.rebuilds,
        reason: std::str::from_utf8(reason).unwrap_or_default(),
    })
}

impl DeviceClient {
    /// Queues a copy to an arena of this device from one of any device of the same backend, of as many bytes, among its
    /// launches; says how it goes. At most 8 waits and signals each.
    ///
    /// # Errors
    /// What the backend reports; a backend that does not copy between devices. Nothing was queued then.
    pub fn peer_copy(
        &self,
        to: SpanClient<'_>,
        from: SpanClient<'_>,
        waits: &[(&SemaphoreClient, u64)],
        signals: &[(&SemaphoreClient, u64)],
    ) -> Result<PeerRoute> {
        let none = || Error::unsupported("this backend does not copy between devices");
        if from.table_of() != to.table_of() {
            return Err(Error::invalid("a copy from a device of another backend"));
        }
        if waits.len() > MAX_POINTS || signals.len() > MAX_POINTS {
            return Err(Error::invalid("more than 8 semaphores on one copy"));
        }
        let table = self.backend().interfaces.peer_copy.ok_or_else(none)?;
        let function = abi_function!(table, PeerCopyTable, copy).ok_or_else(|| missing("copy"))?;
        let (wait_points, signal_points) = (points(waits), points(signals));
        let args = PeerCopyArgs {
            size: size_of::<PeerCopyArgs>(),
            to: to.to_c(),
            from: from.to_c(),
            waits: wait_points.as_ptr(),
            wait_count: waits.len(),
            signals: signal_points.as_ptr(),
            signal_count: signals.len(),
        };
        let mut code = 0;
        // SAFETY: the device, arenas and semaphores are live, the arguments outlive the call.
        unsafe { Error::take(function(self.handle(), &raw const args, &raw mut code)) }?;
        match route(code)? {
            PeerRoute::None => Err(Error::new(ErrorKind::Internal, "the backend copied and named no route")),
            taken => Ok(taken),
        }
    }

    /// What the device captured since it was opened; `None` if the backend does not say.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn captures(&self) -> Result<Option<Captures>> {
        let Some(table) = self.backend().interfaces.graph_capture else { return Ok(None) };
        let Some(function) = abi_function!(table, GraphCaptureTable, device) else { return Ok(None) };
        // SAFETY: the device is live; the place outlives the call.
        read(|out| unsafe { Error::take(function(self.handle(), out)) }).map(Some)
    }
}

impl ExecutableClient {
    /// What of the executable was captured; `None` if the backend does not say.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn captures(&self) -> Result<Option<Captures>> {
        let Some(table) = self.device().backend().interfaces.graph_capture else { return Ok(None) };
        let Some(function) = abi_function!(table, GraphCaptureTable, executable) else { return Ok(None) };
        // SAFETY: the executable is live; the place outlives the call.
        read(|out| unsafe { Error::take(function(self.handle(), out)) }).map(Some)
    }

    /// Does ahead of use what the first launch of each slot would do besides running; nothing where the backend has no such
    /// thing.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn warm_up(&mut self) -> Result<()> {
        let table = self.device().backend().interfaces.graph_capture;
        match table.and_then(|table| abi_function!(table, GraphCaptureTable, warm_up)) {
            // SAFETY: the executable is live.
            Some(function) => unsafe { Error::take(function(self.handle())) },
            None => Ok(()),
        }
    }
}
