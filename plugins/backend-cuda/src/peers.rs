//! Copies from one device to another, and the access of one to the memory of the other that they want: asked for once for
//! each pair and direction, by the first copy.

use crate::driver::{call, check, device, failure};
use cudarc::driver::sys;
use paceline_gpu::driver::{DriverResult, PeerPlace, StreamHandle};
use paceline_plugin_api::backend::PeerRoute;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Pairs whose access was asked for: the one that touches, and the one that is touched.
static ASKED: Mutex<BTreeSet<(u32, u32)>> = Mutex::new(BTreeSet::new());

/// How copies come to a device from another, by the driver's numbers.
pub(crate) fn route(to: u32, from: u32) -> DriverResult<PeerRoute> {
    if to == from {
        return Ok(PeerRoute::Direct);
    }
    let (mut can, to, from) = (0, device(to)?, device(from)?);
    // SAFETY: the driver writes the number.
    unsafe { call!(cuDeviceCanAccessPeer(&mut can, to, from))? };
    Ok(if can == 0 { PeerRoute::Staged } else { PeerRoute::Direct })
}

/// Queues a copy; the context of the device that is copied to is bound.
///
/// # Safety
/// Both ranges are allocated, and stay so until the stream has passed the copy; what is copied is there by then.
pub(crate) unsafe fn copy(
    to: PeerPlace,
    from: PeerPlace,
    bytes: usize,
    stream: StreamHandle,
) -> DriverResult<()> {
    allow(to, from)?;
    let [target, source] = [to, from].map(|place| place.context.0 as sys::CUcontext);
    let stream = stream.0 as sys::CUstream;
    // SAFETY: by the contract of this function. Without access the driver goes through the host by itself.
    unsafe { call!(cuMemcpyPeerAsync(to.address, target, from.address, source, bytes, stream)) }
}

/// Lets the device that is bound touch the memory of the other, where it can.
fn allow(to: PeerPlace, from: PeerPlace) -> DriverResult<()> {
    let pair = (to.ordinal, from.ordinal);
    // Held while the driver is asked, so that nobody else asks for the same.
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    if pair.0 == pair.1 || asked.contains(&pair) {
        return Ok(());
    }
    if route(pair.0, pair.1)? == PeerRoute::Direct {
        // SAFETY: the other device's context is held by whoever has the memory.
        let enabled = unsafe { call!(cuCtxEnablePeerAccess(from.context.0 as sys::CUcontext, 0)) };
        match enabled {
            // Somebody else in this process may have asked before.
            Err(error) if error.code != i64::from(failure::PEER_ACCESS_ALREADY_ENABLED) => return Err(error),
            _ => {}
        }
    }
    asked.insert(pair);
    Ok(())
}

/// What a context was allowed ends with it.
pub(crate) fn forget(ordinal: u32) {
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    asked.retain(|&(to, from)| to != ordinal && from != ordinal);
}
