//! Memory, and copies of it.

use super::{Handle, enter, enter_always, give};
use crate::code::{self, Code};
use crate::memory::Owner;
use crate::stream::{Direction, Work, check_copy, check_fill, lock};
use crate::world::{World, current, find};
use std::ffi::{c_int, c_uint, c_void};

/// Free and total bytes of the calling thread's device.
///
/// # Safety
/// Both are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> Code {
    enter("hipMemGetInfo", |world| {
        let all = world.current()?.config.memory;
        let left = all - lock(&world.memory).used(current());
        // SAFETY: promised by the caller.
        unsafe {
            give(free, left as usize)?;
            give(total, all as usize)
        }
    })
}

/// Memory of the calling thread's device.
///
/// # Safety
/// The pointer is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMalloc(address: *mut *mut c_void, bytes: usize) -> Code {
    enter("hipMalloc", |world| {
        world.captures.forbid_unsafe_call()?;
        let all = world.current()?.config.memory;
        let mut memory = lock(&world.memory);
        let left = all - memory.used(current());
        let made = memory.allocate(Owner::Device(current()), bytes, left)?;
        // SAFETY: promised by the caller.
        unsafe { give(address, made as *mut c_void) }
    })
}

/// Gives memory of a device back, after everything that is queued on the device.
#[unsafe(no_mangle)]
pub extern "C" fn hipFree(address: *mut c_void) -> Code {
    enter_always("hipFree", |world| {
        if address.is_null() {
            return Ok(());
        }
        world.captures.forbid_unsafe_call()?;
        let owner = lock(&world.memory).device(address as usize, 1)?;
        world.settle(owner);
        lock(&world.memory).free(address as usize, true)
    })
}

/// Pinned memory of the host.
///
/// # Safety
/// The pointer is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipHostMalloc(address: *mut *mut c_void, bytes: usize, _flags: c_uint) -> Code {
    enter("hipHostMalloc", |world| {
        world.captures.forbid_unsafe_call()?;
        // As much as the machine has is more than a test may take.
        let made = lock(&world.memory).allocate(Owner::Pinned, bytes, 1 << 40)?;
        // SAFETY: promised by the caller.
        unsafe { give(address, made as *mut c_void) }
    })
}

/// Gives it back, after everything that is queued.
#[unsafe(no_mangle)]
pub extern "C" fn hipHostFree(address: *mut c_void) -> Code {
    enter_always("hipHostFree", |world| {
        if address.is_null() {
            return Ok(());
        }
        (0..world.devices.len()).for_each(|device| world.settle(device));
        lock(&world.memory).free(address as usize, false)
    })
}

/// Puts work on a stream, or into the capture that it is in.
pub(super) fn queue(world: &'static World, handle: Handle, work: Work) -> Result<(), Code> {
    // The stream of everybody waits for all others; nothing here is meant to use it.
    let stream = find(&lock(&world.objects).streams, handle)?;
    if stream.device != current() {
        return Err(code::InvalidHandle);
    }
    if let Some(work) = world.captures.record(handle as usize, work)? {
        stream.push(work);
    }
    Ok(())
}

fn copy(
    world: &'static World,
    direction: Direction,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    stream: Handle,
) -> Result<(), Code> {
    let (to, from) = (to as usize, from as usize);
    check_copy(world, direction, to, from, bytes)?;
    if bytes == 0 {
        return Ok(());
    }
    queue(world, stream, Work::Copy { direction, to, from, bytes })
}

/// Queues a copy to a device.
///
/// # Safety
/// The host's memory is there until the stream has passed the copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpyHtoDAsync(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    stream: Handle,
) -> Code {
    enter("hipMemcpyHtoDAsync", |world| copy(world, Direction::ToDevice, to, from, bytes, stream))
}

/// Queues a copy to the host.
///
/// # Safety
/// The host's memory is there until the stream has passed the copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpyDtoHAsync(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    stream: Handle,
) -> Code {
    enter("hipMemcpyDtoHAsync", |world| copy(world, Direction::ToHost, to, from, bytes, stream))
}

/// Queues a copy within a device, or to another one whose memory the stream's device may touch.
///
/// # Safety
/// None beyond what is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpyDtoDAsync(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    stream: Handle,
) -> Code {
    enter("hipMemcpyDtoDAsync", |world| {
        let owners = {
            let memory = lock(&world.memory);
            [memory.device(to as usize, bytes)?, memory.device(from as usize, bytes)?]
        };
        let peers = lock(&world.current()?.peers).clone();
        if owners.iter().any(|owner| *owner != current() && !peers.contains(owner)) {
            return Err(code::PeerAccessNotEnabled);
        }
        copy(world, Direction::Devices, to, from, bytes, stream)
    })
}

/// Queues a copy from one device to another, through the host where they cannot touch each other's memory.
///
/// # Safety
/// None beyond what is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpyPeerAsync(
    to: *mut c_void,
    to_device: c_int,
    from: *const c_void,
    from_device: c_int,
    bytes: usize,
    stream: Handle,
) -> Code {
    enter("hipMemcpyPeerAsync", |world| {
        let is_right = {
            let memory = lock(&world.memory);
            memory.device(to as usize, bytes)? == to_device as usize
                && memory.device(from as usize, bytes)? == from_device as usize
        };
        if !is_right {
            return Err(code::InvalidValue);
        }
        copy(world, Direction::Devices, to, from, bytes, stream)
    })
}

/// Queues a fill.
///
/// # Safety
/// None beyond what is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemsetAsync(at: *mut c_void, value: c_int, bytes: usize, stream: Handle) -> Code {
    enter("hipMemsetAsync", |world| {
        check_fill(world, at as usize, bytes)?;
        queue(world, stream, Work::Fill { at: at as usize, value: value as u8, bytes })
    })
}
