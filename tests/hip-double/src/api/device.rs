//! Devices, what is known of them, and access from one to another.

use super::{enter, enter_always, give};
use crate::code::{self, Code, texts};
use crate::world::current;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Where the structure of properties has the chip's name, and how long the structure is: of HIP 6 and newer.
const NEW_PROPERTIES: (usize, usize) = (1160, 1472);
/// The same before HIP 6.
const OLD_PROPERTIES: (usize, usize) = (396, 792);

/// Starts the library.
#[unsafe(no_mangle)]
pub extern "C" fn hipInit(_flags: c_uint) -> Code {
    enter_always("hipInit", |world| if world.devices.is_empty() { Err(code::NoDevice) } else { Ok(()) })
}

/// The version of HIP.
///
/// # Safety
/// The pointer is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipRuntimeGetVersion(version: *mut c_int) -> Code {
    // SAFETY: promised by the caller.
    enter_always("hipRuntimeGetVersion", |world| unsafe { give(version, world.config.version) })
}

/// Number of devices.
///
/// # Safety
/// The pointer is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDeviceCount(count: *mut c_int) -> Code {
    enter_always("hipGetDeviceCount", |world| {
        // SAFETY: promised by the caller.
        unsafe { give(count, world.devices.len() as c_int)? };
        if world.devices.is_empty() { Err(code::NoDevice) } else { Ok(()) }
    })
}

/// Makes a device that of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn hipSetDevice(device: c_int) -> Code {
    enter_always("hipSetDevice", |world| world.set_current(device))
}

/// The device with a number.
///
/// # Safety
/// The pointer is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGet(device: *mut c_int, number: c_int) -> Code {
    enter_always("hipDeviceGet", |world| {
        world.device(number)?;
        // SAFETY: promised by the caller.
        unsafe { give(device, number) }
    })
}

/// # Safety
/// The buffer is null or has so many bytes.
unsafe fn give_text(buffer: *mut c_char, length: c_int, text: &str) -> Result<(), Code> {
    let room = usize::try_from(length).unwrap_or(0);
    if buffer.is_null() || room == 0 {
        return Err(code::InvalidValue);
    }
    let count = text.len().min(room - 1);
    // SAFETY: promised by the caller.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, count);
        buffer.add(count).write(0);
    }
    Ok(())
}

/// A device's name.
///
/// # Safety
/// The buffer is null or has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> Code {
    enter_always("hipDeviceGetName", |world| {
        let text = format!("Double {}", world.device(device)?.config.target);
        // SAFETY: promised by the caller.
        unsafe { give_text(name, length, &text) }
    })
}

/// A device's PCI address.
///
/// # Safety
/// The buffer is null or has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetPCIBusId(address: *mut c_char, length: c_int, device: c_int) -> Code {
    enter_always("hipDeviceGetPCIBusId", |world| {
        world.device(device)?;
        // SAFETY: promised by the caller.
        unsafe { give_text(address, length, &format!("0000:{:02X}:00.0", device + 3)) }
    })
}

/// A device's unique id: 16 characters, without a zero at the end.
///
/// # Safety
/// The pointer is null or 16 bytes may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetUuid(id: *mut [u8; 16], device: c_int) -> Code {
    enter_always("hipDeviceGetUuid", |world| {
        world.device(device)?;
        let mut text = *b"0000000000000000";
        text[15] = b'a' + device as u8 % 26;
        // SAFETY: promised by the caller.
        unsafe { give(id, text) }
    })
}

/// Bytes of a device's memory.
///
/// # Safety
/// The pointer is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceTotalMem(bytes: *mut usize, device: c_int) -> Code {
    enter_always("hipDeviceTotalMem", |world| {
        let total = world.device(device)?.config.memory;
        // SAFETY: promised by the caller.
        unsafe { give(bytes, usize::try_from(total).unwrap_or(usize::MAX)) }
    })
}

/// One number about a device.
///
/// # Safety
/// The pointer is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetAttribute(value: *mut c_int, which: c_int, device: c_int) -> Code {
    enter_always("hipDeviceGetAttribute", |world| {
        let config = &world.device(device)?.config;
        let is_wide = config.target.starts_with("gfx9");
        let number = match which {
            // Integrated, multiprocessors, wave width, fine-grained memory.
            16 => config.is_integrated.into(),
            63 => 60,
            87 if is_wide => 64,
            87 => 32,
            10016 => is_wide.into(),
            _ => return Err(code::InvalidValue),
        };
        // SAFETY: promised by the caller.
        unsafe { give(value, number) }
    })
}

/// # Safety
/// The pointer is null or may be written as far as the structure is long.
unsafe fn properties(structure: *mut c_void, form: (usize, usize), target: &str) -> Result<(), Code> {
    if structure.is_null() {
        return Err(code::InvalidValue);
    }
    // As real devices name themselves.
    let target =
        if target.starts_with("gfx9") { format!("{target}:sramecc+:xnack-") } else { target.to_owned() };
    // SAFETY: promised by the caller.
    unsafe {
        structure.cast::<u8>().write_bytes(0, form.1);
        give_text(structure.cast::<c_char>().add(form.0), 256, &target)
    }
}

/// The properties of a device since HIP 6; only the chip is filled in.
///
/// # Safety
/// The pointer is null or 1472 bytes may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDevicePropertiesR0600(structure: *mut c_void, device: c_int) -> Code {
    enter_always("hipGetDevicePropertiesR0600", |world| {
        let target = &world.device(device)?.config.target;
        // SAFETY: promised by the caller.
        unsafe { properties(structure, NEW_PROPERTIES, target) }
    })
}

/// The properties of a device before HIP 6.
///
/// # Safety
/// The pointer is null or 792 bytes may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDeviceProperties(structure: *mut c_void, device: c_int) -> Code {
    enter_always("hipGetDeviceProperties", |world| {
        let target = &world.device(device)?.config.target;
        // SAFETY: promised by the caller.
        unsafe { properties(structure, OLD_PROPERTIES, target) }
    })
}

/// Whether a device may touch another's memory.
///
/// # Safety
/// The pointer is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> Code {
    enter_always("hipDeviceCanAccessPeer", |world| {
        world.device(device)?;
        world.device(peer)?;
        let (a, b) = (device as usize, peer as usize);
        let is_apart = world.config.no_peer.iter().any(|&pair| pair == (a, b) || pair == (b, a));
        // SAFETY: promised by the caller.
        unsafe { give(can, (a != b && !is_apart).into()) }
    })
}

/// Lets the calling thread's device touch another's memory.
#[unsafe(no_mangle)]
pub extern "C" fn hipDeviceEnablePeerAccess(peer: c_int, _flags: c_uint) -> Code {
    enter("hipDeviceEnablePeerAccess", |world| {
        let mut can = 0;
        // SAFETY: the place is a variable.
        let code = unsafe { hipDeviceCanAccessPeer(&mut can, current() as c_int, peer) };
        match (code, can) {
            (0, 0) => Err(code::PeerAccessUnsupported),
            (0, _) => match crate::stream::lock(&world.current()?.peers).insert(peer as usize) {
                true => Ok(()),
                false => Err(code::PeerAccessAlreadyEnabled),
            },
            (code, _) => Err(code),
        }
    })
}

/// The name of an answer.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorName(code: Code) -> *const c_char {
    texts(code).0.as_ptr()
}

/// The sentence of an answer.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorString(code: Code) -> *const c_char {
    texts(code).1.as_ptr()
}
