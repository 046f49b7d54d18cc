//! Code objects and their kernels.

use super::memory::queue;
use super::{Handle, enter, enter_always, give};
use crate::code::{self, Code};
use crate::stream::{Work, lock};
use crate::world::{Function, Module, current, find};
use paceline_kernels::code_object::CodeObject;
use paceline_kernels::params::Launch;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::sync::Arc;

/// Most groups along y and z.
const MOST_GROUPS: u32 = 65_535;
const HEADER: usize = 64;

/// The bytes of an ELF file, whose length only it knows: to the end of its table of sections, which is last.
///
/// # Safety
/// The pointer is to an ELF file, or to at least 64 bytes of something else.
unsafe fn elf<'a>(image: *const u8) -> Result<&'a [u8], Code> {
    // SAFETY: promised by the caller.
    let header = unsafe { std::slice::from_raw_parts(image, HEADER) };
    let number = |at: usize, bytes: usize| {
        header[at..at + bytes].iter().rev().fold(0usize, |number, byte| number << 8 | usize::from(*byte))
    };
    if !header.starts_with(b"\x7fELF") {
        return Err(code::InvalidImage);
    }
    let length = number(58, 2).checked_mul(number(60, 2)).and_then(|table| table.checked_add(number(40, 8)));
    // SAFETY: the file is that long.
    Ok(unsafe { std::slice::from_raw_parts(image, length.ok_or(code::InvalidImage)?) })
}

/// Loads a code object on the calling thread's device.
///
/// # Safety
/// The image is an ELF file, or at least 64 bytes of something else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleLoadData(module: *mut Handle, image: *const c_void) -> Code {
    enter("hipModuleLoadData", |world| {
        world.captures.forbid_unsafe_call()?;
        if image.is_null() {
            return Err(code::InvalidValue);
        }
        // SAFETY: promised by the caller.
        let object = CodeObject::read(unsafe { elf(image.cast())? }).map_err(|_| code::InvalidImage)?;
        if object.target != world.current()?.config.target {
            return Err(code::NoBinaryForGpu);
        }
        let handle = world.handle();
        lock(&world.objects).modules.insert(handle, Arc::new(Module { device: current(), object }));
        // SAFETY: promised by the caller.
        unsafe { give(module, handle as Handle) }
    })
}

/// Unloads it.
#[unsafe(no_mangle)]
pub extern "C" fn hipModuleUnload(module: Handle) -> Code {
    enter_always("hipModuleUnload", |world| {
        lock(&world.objects).modules.remove(&(module as usize)).map(drop).ok_or(code::InvalidHandle)
    })
}

/// A kernel of a module.
///
/// # Safety
/// The pointer is null or may be written; the name is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleGetFunction(
    function: *mut Handle,
    module: Handle,
    name: *const c_char,
) -> Code {
    enter("hipModuleGetFunction", |world| {
        if name.is_null() {
            return Err(code::InvalidValue);
        }
        // SAFETY: promised by the caller.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let handle = world.handle();
        let mut objects = lock(&world.objects);
        let module = find(&objects.modules, module)?;
        let kernel = module.object.kernel(&name).cloned().ok_or(code::NotFound)?;
        let name = objects.name(&name);
        objects.functions.insert(handle, Arc::new(Function { device: module.device, kernel, name }));
        // SAFETY: promised by the caller.
        unsafe { give(function, handle as Handle) }
    })
}

/// Queues a kernel that takes one structure.
///
/// # Safety
/// The list has a pointer to the structure that the kernel takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleLaunchKernel(
    function: Handle,
    groups_x: c_uint,
    groups_y: c_uint,
    groups_z: c_uint,
    threads_x: c_uint,
    threads_y: c_uint,
    threads_z: c_uint,
    shared_bytes: c_uint,
    stream: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Code {
    enter("hipModuleLaunchKernel", |world| {
        let function = find(&lock(&world.objects).functions, function)?;
        let groups = [groups_x, groups_y, groups_z];
        let is_shaped = groups.iter().all(|&count| count > 0)
            && groups[1].max(groups[2]) <= MOST_GROUPS
            && u64::from(groups_x) * u64::from(threads_x) < 1 << 32
            && (threads_y, threads_z) == (1, 1)
            && (1..=function.kernel.threads).contains(&threads_x);
        let [bytes] = function.kernel.arguments[..] else { return Err(code::InvalidValue) };
        if !is_shaped || parameters.is_null() || !extra.is_null() {
            return Err(code::InvalidValue);
        }
        if function.device != current() {
            return Err(code::InvalidHandle);
        }
        // SAFETY: promised by the caller; the structure is read before the call returns.
        let parameters: Arc<[u8]> = unsafe {
            let structure = parameters.read();
            if structure.is_null() {
                return Err(code::InvalidValue);
            }
            std::slice::from_raw_parts(structure.cast::<u8>(), bytes).into()
        };
        let launch = Launch { entry: function.name, groups, threads: threads_x, shared_bytes };
        queue(world, stream, Work::Kernel { launch, wave: function.kernel.wave, parameters })
    })
}
