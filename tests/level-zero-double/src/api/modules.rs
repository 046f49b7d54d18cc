//! Modules and kernels.

use super::{Answer, Code, GROUP, destroy, give, is_context, is_device, pointer, structure, widths};
use crate::objects::{Kernel, Module, Object};
use crate::world::{enter, with};
use level_zero_sys as ze;
use std::ffi::{CStr, c_char, c_void};

/// The one kernel of a module, and the width of its sub-groups.
fn read_module(bytes: &[u8]) -> Result<Module, String> {
    let words: Vec<u32> =
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    if words.first() != Some(&0x0723_0203) {
        return Err("this is not SPIR-V".into());
    }
    let (mut entry, mut width, mut at) = (None, None, 5);
    while at < words.len() {
        let length = ((words[at] >> 16) as usize).max(1);
        let own = words.get(at..at + length).ok_or("the module was cut off")?;
        match own[0] & 0xFFFF {
            15 => {
                let name =
                    own[3..].iter().flat_map(|word| word.to_le_bytes()).take_while(|&b| b != 0).collect();
                let name = String::from_utf8(name).map_err(|_| "a name that is not text")?;
                if entry.replace(name).is_some() {
                    return Err("the module has several kernels".into());
                }
            }
            16 if own[2] == 35 => width = own.get(3).copied(),
            _ => {}
        }
        at += length;
    }
    let entry = entry.ok_or("the module has no kernel")?;
    let width = width.ok_or("the kernel does not say how wide its sub-groups are")?;
    if !with(|world| widths(world)).contains(&width) {
        return Err(format!("there are no sub-groups of {width} lanes"));
    }
    Ok(Module { entry: Box::leak(entry.into_boxed_str()), width })
}

functions! {
    fn zeModuleCreate(
        context: ze::ze_context_handle_t,
        device: ze::ze_device_handle_t,
        description: *const ze::ze_module_desc_t,
        module: *mut ze::ze_module_handle_t,
        log: *mut ze::ze_module_build_log_handle_t,
    ) {
        is_context(context)?;
        is_device(device)?;
        // SAFETY: the contract of the call.
        let it = unsafe { structure(description, ze::ZE_STRUCTURE_TYPE_MODULE_DESC)? };
        if it.format != ze::ZE_MODULE_FORMAT_IL_SPIRV {
            return Err(ze::ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
        }
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(it.pInputModule, it.inputSize) };
        let made = read_module(bytes);
        if !log.is_null() {
            let text = made.as_ref().err().cloned().unwrap_or_default();
            // SAFETY: as above.
            unsafe { log.write(pointer(with(|world| world.add(Object::Log(text))))) };
        }
        let made = made.map_err(|_| ze::ZE_RESULT_ERROR_MODULE_BUILD_FAILURE)?;
        // SAFETY: as above.
        unsafe { give(module, pointer(with(|world| world.add(Object::Module(made))))) }
    }

    fn zeModuleDestroy(module: ze::ze_module_handle_t) {
        destroy(module as usize, |object| matches!(object, Object::Module(_))).map(drop)
    }

    fn zeModuleBuildLogGetString(log: ze::ze_module_build_log_handle_t, size: *mut usize, text: *mut c_char) {
        let said = with(|world| found!(world, log, Object::Log(text) => text.clone()))?;
        // SAFETY: the contract of the call: the size is that of the buffer.
        unsafe {
            if !text.is_null() {
                let bytes = said.as_bytes().iter().copied().chain([0]).take(*size);
                bytes.enumerate().for_each(|(i, byte)| text.add(i).write(byte as c_char));
            }
            give(size, said.len() + 1)
        }
    }

    fn zeModuleBuildLogDestroy(log: ze::ze_module_build_log_handle_t) {
        destroy(log as usize, |object| matches!(object, Object::Log(_))).map(drop)
    }

    fn zeKernelCreate(
        module: ze::ze_module_handle_t,
        description: *const ze::ze_kernel_desc_t,
        kernel: *mut ze::ze_kernel_handle_t,
    ) {
        // SAFETY: the contract of the call.
        let name = unsafe {
            let it = structure(description, ze::ZE_STRUCTURE_TYPE_KERNEL_DESC)?;
            CStr::from_ptr(it.pKernelName)
        };
        let module = with(|world| found!(world, module, Object::Module(module) => module.clone()))?;
        if name.to_bytes() != module.entry.as_bytes() {
            return Err(ze::ZE_RESULT_ERROR_INVALID_KERNEL_NAME);
        }
        let made = Kernel { module, threads: 0, argument: Vec::new(), has_indirect_access: false };
        // SAFETY: as above.
        unsafe { give(kernel, pointer(with(|world| world.add(Object::Kernel(made))))) }
    }

    fn zeKernelDestroy(kernel: ze::ze_kernel_handle_t) {
        destroy(kernel as usize, |object| matches!(object, Object::Kernel(_))).map(drop)
    }

    fn zeKernelSetGroupSize(kernel: ze::ze_kernel_handle_t, x: u32, y: u32, z: u32) {
        if x == 0 || x > GROUP || (y, z) != (1, 1) {
            return Err(ze::ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
        }
        with(|world| found!(world, kernel, Object::Kernel(kernel) => kernel.threads = x))
    }

    fn zeKernelSetArgumentValue(kernel: ze::ze_kernel_handle_t, index: u32, size: usize, value: *const c_void) {
        if index != 0 {
            return Err(ze::ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX);
        }
        // SAFETY: the contract of the call.
        let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size) };
        with(|world| found!(world, kernel, Object::Kernel(kernel) => kernel.argument = bytes.to_vec()))
    }

    fn zeKernelSetIndirectAccess(kernel: ze::ze_kernel_handle_t, flags: ze::ze_kernel_indirect_access_flags_t) {
        let all = ze::ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST | ze::ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE;
        with(|world| found!(world, kernel, Object::Kernel(kernel) => kernel.has_indirect_access = flags & all == all))
    }

    fn zeKernelGetProperties(kernel: ze::ze_kernel_handle_t, _properties: *mut ze::ze_kernel_properties_t) {
        with(|world| found!(world, kernel, Object::Kernel(_) => ()))
    }
}
