//! Copies from one device to another, and the access of one to the memory of the other that they want: asked for once for
//! each pair and direction, when it is first needed.

use crate::driver::HipDriver;
use crate::hip::answer;
use crate::platform::Rocm;
use paceline_gpu::NoDriver;
use paceline_gpu::driver::{Address, ContextHandle, Driver, DriverResult, StreamHandle};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// How bytes go from one device to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// One device touches the memory of the other.
    Direct,
    /// The runtime goes through the host.
    Staged,
}

/// A place in the memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The driver's number of the device.
    pub device: u32,
    /// The address.
    pub address: Address,
}

/// The links between the devices of a runtime. Any thread may use them.
pub struct Peers {
    driver: &'static HipDriver,
    /// What came of asking, by the device that touches and the one that is touched.
    links: Mutex<HashMap<(u32, u32), Link>>,
}

impl Peers {
    /// The links between the devices of the runtime in a file; without one, of that which is installed.
    ///
    /// # Errors
    /// There is no runtime, or it does not start.
    pub fn new(library: Option<PathBuf>) -> Result<Self, NoDriver> {
        let driver = match library {
            Some(library) => Rocm::on(library).start()?,
            None => crate::platform::INSTALLED.start()?,
        };
        Ok(Self { driver, links: Mutex::default() })
    }

    /// The runtime.
    pub fn driver(&self) -> &'static dyn Driver {
        self.driver
    }

    /// How `device` reaches the memory of `other`; it is the calling thread's device afterwards.
    ///
    /// # Errors
    /// The runtime's answer. It is asked again the next time.
    pub fn link(&self, device: u32, other: u32) -> DriverResult<Link> {
        self.driver.bind(ContextHandle(device as usize))?;
        if device == other {
            return Ok(Link::Direct);
        }
        // Held while the runtime is asked, so that nobody else asks for the same.
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&known) = links.get(&(device, other)) {
            return Ok(known);
        }
        let link = self.ask(device as c_int, other as c_int)?;
        links.insert((device, other), link);
        Ok(link)
    }

    fn ask(&self, device: c_int, other: c_int) -> DriverResult<Link> {
        let functions = &self.driver.hip.functions;
        let mut can = 0;
        // SAFETY: the library writes the number.
        let code = unsafe { (functions.hipDeviceCanAccessPeer)(&mut can, device, other) };
        self.driver.check("hipDeviceCanAccessPeer", code)?;
        if can == 0 {
            return Ok(Link::Staged);
        }
        // SAFETY: the only value that the flags may have.
        match unsafe { (functions.hipDeviceEnablePeerAccess)(other, 0) } {
            // Somebody else in this process may have asked before.
            0 | answer::PEER_ACCESS_ALREADY_ENABLED => Ok(Link::Direct),
            code => self.driver.check("hipDeviceEnablePeerAccess", code).map(|()| Link::Staged),
        }
    }

    /// Queues a copy on a stream of the device that is copied to.
    ///
    /// # Errors
    /// The runtime's answer.
    ///
    /// # Safety
    /// Both ranges are allocated, and stay so until the stream has passed the copy; what is copied is there by then.
    pub unsafe fn copy(&self, to: Place, from: Place, bytes: usize, on: StreamHandle) -> DriverResult<()> {
        let functions = &self.driver.hip.functions;
        let (target, source) = (to.address as *mut c_void, from.address as *const c_void);
        let stream = on.0 as *mut c_void;
        match self.link(to.device, from.device)? {
            Link::Direct => {
                // SAFETY: by the contract of this function.
                let code = unsafe { (functions.hipMemcpyDtoDAsync)(target, source, bytes, stream) };
                self.driver.check("hipMemcpyDtoDAsync", code)
            }
            Link::Staged => {
                let (to, from) = (to.device as c_int, from.device as c_int);
                // SAFETY: as above.
                let code = unsafe { (functions.hipMemcpyPeerAsync)(target, to, source, from, bytes, stream) };
                self.driver.check("hipMemcpyPeerAsync", code)
            }
        }
    }
}
