//! Calls of Level Zero that say what failed, and the devices that they find.

use crate::driver::uuid_text;
use crate::selector::{Api, Kind, Selector};
use crate::widths;
use level_zero_sys as ze;
use paceline_gpu::driver::{Cause, DeviceFacts, DriverError, DriverResult};
use std::ptr;

/// Threads of the largest group.
const GROUP: u32 = 512;

/// Calls a function and names it where it fails.
macro_rules! call {
    ($api:expr, $function:ident($($argument:expr),* $(,)?)) => {
        $crate::driver::level_zero::calls::check(stringify!($function), ($api.$function)($($argument),*))
    };
}
pub(super) use call;

/// Names of results; the specification has no sentences for them.
const NAMES: [(u32, &str); 24] = [
    (ze::ZE_RESULT_NOT_READY, "NOT_READY"),
    (ze::ZE_RESULT_ERROR_DEVICE_LOST, "DEVICE_LOST"),
    (ze::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "OUT_OF_HOST_MEMORY"),
    (ze::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "OUT_OF_DEVICE_MEMORY"),
    (ze::ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, "MODULE_BUILD_FAILURE"),
    (ze::ZE_RESULT_ERROR_MODULE_LINK_FAILURE, "MODULE_LINK_FAILURE"),
    (ze::ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET, "DEVICE_REQUIRES_RESET"),
    (ze::ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE, "DEVICE_IN_LOW_POWER_STATE"),
    (ze::ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS, "INSUFFICIENT_PERMISSIONS"),
    (ze::ZE_RESULT_ERROR_NOT_AVAILABLE, "NOT_AVAILABLE"),
    (ze::ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, "DEPENDENCY_UNAVAILABLE"),
    (ze::ZE_RESULT_ERROR_UNINITIALIZED, "UNINITIALIZED"),
    (ze::ZE_RESULT_ERROR_UNSUPPORTED_VERSION, "UNSUPPORTED_VERSION"),
    (ze::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "UNSUPPORTED_FEATURE"),
    (ze::ZE_RESULT_ERROR_INVALID_ARGUMENT, "INVALID_ARGUMENT"),
    (ze::ZE_RESULT_ERROR_INVALID_NULL_HANDLE, "INVALID_NULL_HANDLE"),
    (ze::ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, "HANDLE_OBJECT_IN_USE"),
    (ze::ZE_RESULT_ERROR_INVALID_NULL_POINTER, "INVALID_NULL_POINTER"),
    (ze::ZE_RESULT_ERROR_INVALID_SIZE, "INVALID_SIZE"),
    (ze::ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "UNSUPPORTED_SIZE"),
    (ze::ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "UNSUPPORTED_ALIGNMENT"),
    (ze::ZE_RESULT_ERROR_INVALID_NATIVE_BINARY, "INVALID_NATIVE_BINARY"),
    (ze::ZE_RESULT_ERROR_INVALID_KERNEL_NAME, "INVALID_KERNEL_NAME"),
    (ze::ZE_RESULT_ERROR_UNKNOWN, "UNKNOWN"),
];

pub(super) fn check(call: &'static str, code: ze::ze_result_t) -> DriverResult<()> {
    if code == ze::ZE_RESULT_SUCCESS {
        return Ok(());
    }
    let (cause, advice) = match code {
        ze::ZE_RESULT_ERROR_DEVICE_LOST => (
            Cause::Lost,
            "the system's log (`dmesg`) says why; a kernel that runs too long is ended by the driver, for which there is \
             `enable_hangcheck`",
        ),
        ze::ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET => {
            (Cause::Lost, "the device has to be reset by an administrator")
        }
        ze::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY
        | ze::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY
        | ze::ZE_RESULT_ERROR_UNSUPPORTED_SIZE => (Cause::OutOfMemory, ""),
        ze::ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS => {
            (Cause::Other, "the user may have to be in the group `render`, which owns /dev/dri/renderD*")
        }
        _ => (Cause::Other, ""),
    };
    if cause == Cause::Lost {
        super::note_loss();
    }
    let name = NAMES.iter().find(|(known, _)| *known == code).map_or("an unknown result", |(_, name)| name);
    let name = format!("ZE_RESULT_{name}");
    Err(DriverError { call, code: code.into(), cause, name, text: String::new(), advice })
}

/// A device that is used.
pub(super) struct Found {
    pub driver: ze::ze_driver_handle_t,
    pub device: ze::ze_device_handle_t,
    pub widths: Vec<u32>,
    pub facts: DeviceFacts,
    /// Bytes of the largest plain allocation.
    pub largest: u64,
    /// The group of queues that kernels run on.
    pub queues: u32,
    /// Nanoseconds of a tick, and the bits of a time that count.
    pub tick: f64,
    pub clock: u64,
}

// SAFETY: handles of drivers and devices may be used by any thread.
unsafe impl Send for Found {}
// SAFETY: as above.
unsafe impl Sync for Found {}

/// What a function lists that is asked for the number first.
fn list<T: Copy>(none: T, mut ask: impl FnMut(*mut u32, *mut T) -> DriverResult<()>) -> DriverResult<Vec<T>> {
    let mut count = 0;
    ask(&mut count, ptr::null_mut())?;
    let mut list = vec![none; count as usize];
    if count > 0 {
        ask(&mut count, list.as_mut_ptr())?;
        list.truncate(count as usize);
    }
    Ok(list)
}

fn text(buffer: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// The devices that the selector leaves and that can run the kernels.
///
/// # Errors
/// The driver does not answer.
pub(super) fn devices(
    api: &ze::LevelZero,
    selector: &Selector,
    forced: Option<u32>,
) -> DriverResult<Vec<Found>> {
    // SAFETY: `zeInit` succeeded; the function writes at most as many handles as it is told.
    let drivers = list(ptr::null_mut(), |count, list| unsafe { call!(api, zeDriverGet(count, list)) })?;
    let mut found = Vec::new();
    let mut number = 0;
    for driver in drivers {
        // SAFETY: as above, and the driver is one of these.
        let devices =
            list(ptr::null_mut(), |count, list| unsafe { call!(api, zeDeviceGet(driver, count, list)) })?;
        for device in devices {
            let mut properties = ze::ze_device_properties_t {
                stype: ze::ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2,
                ..Default::default()
            };
            // SAFETY: the structure says what it is.
            unsafe { call!(api, zeDeviceGetProperties(device, &mut properties))? };
            let kind = match properties.type_ {
                ze::ZE_DEVICE_TYPE_GPU => Kind::Gpu,
                ze::ZE_DEVICE_TYPE_CPU => Kind::Cpu,
                _ => Kind::Other,
            };
            if selector.takes(Api::LevelZero, number, kind) {
                match examine(api, driver, device, number, &properties)? {
                    Ok(device) if forced.is_some_and(|width| !device.widths.contains(&width)) => {
                        let name = &device.facts.name;
                        tracing::warn!(
                            "Level Zero's {name} is left out: it has no such sub-groups as are asked for"
                        );
                    }
                    Ok(device) => found.push(device),
                    Err(why) => tracing::info!("Level Zero's {} is left out: {why}", text(&properties.name)),
                }
            }
            number += 1;
        }
    }
    Ok(found)
}

/// A device, or why it is of no use.
fn examine(
    api: &ze::LevelZero,
    driver: ze::ze_driver_handle_t,
    device: ze::ze_device_handle_t,
    number: u32,
    properties: &ze::ze_device_properties_t,
) -> DriverResult<Result<Found, String>> {
    let mut compute = ze::ze_device_compute_properties_t {
        stype: ze::ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES,
        ..Default::default()
    };
    let mut pci =
        ze::ze_pci_ext_properties_t { stype: ze::ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES, ..Default::default() };
    let memory_of = |count: *mut u32, list: *mut ze::ze_device_memory_properties_t| {
        // SAFETY: the structures say what they are, and the function writes as many as it is told.
        unsafe { call!(api, zeDeviceGetMemoryProperties(device, count, list)) }
    };
    let queues_of = |count: *mut u32, list: *mut ze::ze_command_queue_group_properties_t| {
        // SAFETY: as above.
        unsafe { call!(api, zeDeviceGetCommandQueueGroupProperties(device, count, list)) }
    };
    // SAFETY: as above.
    let has_address = unsafe {
        call!(api, zeDeviceGetComputeProperties(device, &mut compute))?;
        // Not every device is on a bus.
        call!(api, zeDevicePciGetPropertiesExt(device, &mut pci)).is_ok()
    };
    let memory = ze::ze_device_memory_properties_t {
        stype: ze::ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES,
        ..Default::default()
    };
    let memory: u64 = list(memory, memory_of)?.iter().map(|memory| memory.totalSize).sum();
    let group = ze::ze_command_queue_group_properties_t {
        stype: ze::ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES,
        ..Default::default()
    };
    let is_compute = |group: &ze::ze_command_queue_group_properties_t| {
        group.flags & ze::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE != 0
    };
    let Some(queues) = list(group, queues_of)?.iter().position(is_compute) else {
        return Ok(Err("it has no queue for kernels".into()));
    };
    let count = (compute.numSubGroupSizes as usize).min(compute.subGroupSizes.len());
    let sizes = &compute.subGroupSizes[..count];
    let widths = widths::usable(sizes);
    if widths.is_empty() {
        return Ok(Err(format!("its sub-groups have {sizes:?} lanes; 8, 16 or 32 are needed")));
    }
    if compute.maxTotalGroupSize < GROUP {
        return Ok(Err(format!(
            "its groups have at most {} threads; {GROUP} are needed",
            compute.maxTotalGroupSize
        )));
    }
    let ze::ze_pci_address_ext_t { domain, bus, device: slot, function } = pci.address;
    let facts = DeviceFacts {
        name: text(&properties.name),
        pci: if has_address {
            format!("{domain:04x}:{bus:02x}:{slot:02x}.{function}")
        } else {
            format!("level_zero:{number}")
        },
        uuid: uuid_text(&properties.uuid.id),
        memory,
        target: "spirv".into(),
        wave: widths::usual(&widths),
        units: (properties.numSlices * properties.numSubslicesPerSlice * properties.numEUsPerSubslice).max(1),
        is_integrated: properties.flags & ze::ZE_DEVICE_PROPERTY_FLAG_INTEGRATED != 0,
        captures: true,
        overlaps: false,
    };
    let bits = properties.timestampValidBits;
    Ok(Ok(Found {
        driver,
        device,
        widths,
        facts,
        largest: properties.maxMemAllocSize,
        queues: queues as u32,
        // This kind of properties states ticks a second.
        tick: 1e9 / (properties.timerResolution.max(1) as f64),
        clock: if (1..64).contains(&bits) { (1 << bits) - 1 } else { u64::MAX },
    }))
}
