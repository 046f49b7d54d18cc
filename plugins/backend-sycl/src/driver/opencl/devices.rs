//! Devices of OpenCL: what they state, and which can run the kernels.

use super::super::uuid_text;
use super::failed;
use crate::selector::Kind;
use crate::widths;
use cl3::device;
use opencl_sys as cl;
use paceline_gpu::driver::{DeviceFacts, DriverError, DriverResult};
use std::ffi::{CStr, c_void};

/// What a device must have, beside SPIR-V.
const NEEDED: [&str; 3] =
    ["cl_intel_unified_shared_memory", "cl_intel_subgroups", "cl_intel_required_subgroup_size"];
/// Threads of the largest group.
const GROUP: usize = 512;
/// `CL_DEVICE_PCI_BUS_INFO_KHR`.
const PCI_BUS_INFO: u32 = 0x410F;
/// `CL_DEVICE_UUID_KHR`.
const UUID: u32 = 0x106A;

/// Functions of unified shared memory, which loaders do not export.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub host: cl::clHostMemAllocINTEL_t,
    pub device: cl::clDeviceMemAllocINTEL_t,
    pub free: cl::clMemFreeINTEL_t,
    pub fill: cl::clEnqueueMemFillINTEL_t,
    pub copy: cl::clEnqueueMemcpyINTEL_t,
}

/// A device that is used.
pub(super) struct Found {
    pub id: cl::cl_device_id,
    pub memory: Memory,
    pub widths: Vec<u32>,
    pub facts: DeviceFacts,
    pub largest: u64,
    pub is_cpu: bool,
}

// SAFETY: ids of devices are pointers that any thread may use.
unsafe impl Send for Found {}
// SAFETY: as above.
unsafe impl Sync for Found {}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(8)
        .map(|b| u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
        .collect()
}

/// A number that a device states, of four or eight bytes.
fn number_of(id: cl::cl_device_id, what: u32) -> DriverResult<u64> {
    let mut bytes = device::get_device_data(id, what).map_err(failed("clGetDeviceInfo"))?;
    bytes.resize(8, 0);
    Ok(numbers(&bytes)[0])
}

/// A text that a device states.
pub(super) fn text(id: cl::cl_device_id, what: u32) -> DriverResult<String> {
    let bytes = device::get_device_data(id, what).map_err(failed("clGetDeviceInfo"))?;
    Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').trim().to_owned())
}

/// A function that an extension of a platform has.
///
/// # Safety
/// `F` is the type that the extension gives it, an optional pointer to a function.
unsafe fn function<F: Copy>(of: cl::cl_platform_id, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let library = cl3::load_library().as_ref().ok()?;
    let address = library.clGetExtensionFunctionAddressForPlatform(of, name.as_ptr())?;
    // SAFETY: of the same size, and what the caller says; null is none.
    (!address.is_null()).then(|| unsafe { std::mem::transmute_copy(&address) })
}

impl Memory {
    fn of(of: cl::cl_platform_id) -> Option<Self> {
        // SAFETY: the types of `cl_intel_unified_shared_memory`.
        unsafe {
            Some(Self {
                host: function(of, c"clHostMemAllocINTEL")?,
                device: function(of, c"clDeviceMemAllocINTEL")?,
                free: function(of, c"clMemFreeINTEL")?,
                fill: function(of, c"clEnqueueMemFillINTEL")?,
                copy: function(of, c"clEnqueueMemcpyINTEL")?,
            })
        }
    }
}

/// Of which kind a device is.
pub(super) fn kind_of(id: cl::cl_device_id) -> DriverResult<Kind> {
    let kind = number_of(id, cl::CL_DEVICE_TYPE)?;
    Ok(match kind {
        _ if kind & cl::CL_DEVICE_TYPE_GPU != 0 => Kind::Gpu,
        _ if kind & cl::CL_DEVICE_TYPE_CPU != 0 => Kind::Cpu,
        _ => Kind::Other,
    })
}

/// A device, or why it is of no use.
pub(super) fn examine(
    of: cl::cl_platform_id,
    id: cl::cl_device_id,
    number: u32,
    kind: Kind,
) -> Result<Found, String> {
    let said = |error: DriverError| error.to_string();
    let extensions = text(id, cl::CL_DEVICE_EXTENSIONS).map_err(said)?;
    let missing = NEEDED.into_iter().find(|name| !extensions.split_whitespace().any(|it| it == *name));
    if let Some(name) = missing {
        return Err(format!("its driver has no {name}"));
    }
    if !text(id, cl::CL_DEVICE_IL_VERSION).is_ok_and(|versions| versions.contains("SPIR-V")) {
        return Err("its driver takes no SPIR-V".into());
    }
    let memory = Memory::of(of).ok_or("its driver lacks functions of cl_intel_unified_shared_memory")?;
    let widths = device::get_device_data(id, cl::CL_DEVICE_SUB_GROUP_SIZES_INTEL);
    let widths: Vec<u32> = numbers(&widths.map_err(failed("clGetDeviceInfo")).map_err(said)?)
        .iter()
        .map(|&w| w as u32)
        .collect();
    let usable = widths::usable(&widths);
    if usable.is_empty() {
        return Err(format!("its sub-groups have {widths:?} lanes; 8, 16 or 32 are needed"));
    }
    let group = number_of(id, cl::CL_DEVICE_MAX_WORK_GROUP_SIZE).map_err(said)?;
    if group < GROUP as u64 {
        return Err(format!("its groups have at most {group} threads; {GROUP} are needed"));
    }
    let pci = device::get_device_data(id, PCI_BUS_INFO).ok().filter(|bytes| bytes.len() >= 16);
    // Processors have none; devices without one are told apart by their number.
    let pci = pci.map_or(format!("opencl:{number}"), |b| {
        let word = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        format!("{:04x}:{:02x}:{:02x}.{}", word(0), word(4), word(8), word(12))
    });
    let uuid = device::get_device_data(id, UUID).ok();
    let uuid =
        uuid.and_then(|bytes| bytes.try_into().ok()).map_or(String::new(), |id: [u8; 16]| uuid_text(&id));
    let stated = |what: u32| number_of(id, what).map_err(said);
    let facts = DeviceFacts {
        name: text(id, cl::CL_DEVICE_NAME).map_err(said)?,
        pci,
        uuid,
        memory: stated(cl::CL_DEVICE_GLOBAL_MEM_SIZE)?,
        target: "spirv".into(),
        wave: widths::usual(&usable),
        units: (stated(cl::CL_DEVICE_MAX_COMPUTE_UNITS)? as u32).max(1),
        is_integrated: stated(cl::CL_DEVICE_HOST_UNIFIED_MEMORY)? != 0,
        captures: false,
        overlaps: false,
    };
    let largest = stated(cl::CL_DEVICE_MAX_MEM_ALLOC_SIZE)?;
    Ok(Found { id, memory, widths: usable, facts, largest, is_cpu: kind == Kind::Cpu })
}
