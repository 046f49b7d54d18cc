//! Copies from one device to another, and the access of one to the memory of the other that they want: asked for once for
//! each pair and direction, by whichever thread copies first.

use crate::driver::HipDriver;
use crate::hip::answer;
use paceline_gpu::driver::{DriverResult, PeerPlace, StreamHandle};
use paceline_plugin_api::backend::PeerRoute;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// What came of asking for access, by the device that touches and the one that is touched.
#[derive(Default)]
pub(crate) struct Links(Mutex<HashMap<(u32, u32), PeerRoute>>);

impl HipDriver {
    /// Whether `device` can reach the memory of `other`.
    pub fn reach(&self, device: u32, other: u32) -> DriverResult<PeerRoute> {
        if device == other {
            return Ok(PeerRoute::Direct);
        }
        let mut can = 0;
        // SAFETY: the library writes the number.
        let code =
            unsafe { (self.hip.functions.hipDeviceCanAccessPeer)(&mut can, device as c_int, other as c_int) };
        self.check("hipDeviceCanAccessPeer", code)?;
        Ok(if can == 0 { PeerRoute::Staged } else { PeerRoute::Direct })
    }

    /// Has the calling thread's device, `device`, reach the memory of `other`, if it can.
    ///
    /// # Errors
    /// The runtime's answer. It is asked again the next time.
    fn link(&self, device: u32, other: u32) -> DriverResult<PeerRoute> {
        // Held while the runtime is asked, so that nobody else asks for the same.
        let mut links = self.links.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&known) = links.get(&(device, other)) {
            return Ok(known);
        }
        let route = self.reach(device, other)?;
        if route == PeerRoute::Direct && device != other {
            // SAFETY: the only value that the flags may have.
            match unsafe { (self.hip.functions.hipDeviceEnablePeerAccess)(other as c_int, 0) } {
                // Somebody else in this process may have asked before.
                0 | answer::PEER_ACCESS_ALREADY_ENABLED => {}
                code => self.check("hipDeviceEnablePeerAccess", code)?,
            }
        }
        links.insert((device, other), route);
        Ok(route)
    }

    /// Queues a copy on a stream of the device that is copied to, which is the calling thread's.
    ///
    /// # Errors
    /// The runtime's answer.
    ///
    /// # Safety
    /// Both ranges are allocated, and stay so until the stream has passed the copy; what is copied is there by then.
    pub unsafe fn copy_between(
        &self,
        to: PeerPlace,
        from: PeerPlace,
        bytes: usize,
        on: StreamHandle,
    ) -> DriverResult<()> {
        let functions = &self.hip.functions;
        let (target, source) = (to.address as *mut c_void, from.address as *const c_void);
        let stream = on.0 as *mut c_void;
        if self.link(to.ordinal, from.ordinal)? == PeerRoute::Direct {
            // SAFETY: by the contract of this function.
            let code = unsafe { (functions.hipMemcpyDtoDAsync)(target, source, bytes, stream) };
            return self.check("hipMemcpyDtoDAsync", code);
        }
        // The runtime goes through the host.
        let (to, from) = (to.ordinal as c_int, from.ordinal as c_int);
        // SAFETY: as above.
        let code = unsafe { (functions.hipMemcpyPeerAsync)(target, to, source, from, bytes, stream) };
        self.check("hipMemcpyPeerAsync", code)
    }
}
