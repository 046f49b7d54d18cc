// Made by bindgen 0.72 from level_zero/ze_api.h of the Level Zero loader 1.8.12 (MIT License, (C) Intel Corporation); do not edit.

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_driver_handle_t {
    _unused: [u8; 0],
}
pub type ze_driver_handle_t = *mut _ze_driver_handle_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_device_handle_t {
    _unused: [u8; 0],
}
pub type ze_device_handle_t = *mut _ze_device_handle_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_context_handle_t {
    _unused: [u8; 0],
}
pub type ze_context_handle_t = *mut _ze_context_handle_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_command_queue_handle_t {
    _unused: [u8; 0],
}
pub type ze_command_queue_handle_t = *mut _ze_command_queue_handle_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_command_list_handle_t {
    _unused: [u8; 0],
}
pub type ze_command_list_handle_t = *mut _ze_command_list_handle_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_fence_handle_t {
    _unused: [u8; 0],
}
pub type ze_fence_handle_t = *mut _ze_fence_handle_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_event_pool_handle_t {
    _unused: [u8; 0],
}
pub type ze_event_pool_handle_t = *mut _ze_event_pool_handle_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_event_handle_t {
    _unused: [u8; 0],
}
pub type ze_event_handle_t = *mut _ze_event_handle_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_module_handle_t {
    _unused: [u8; 0],
}
pub type ze_module_handle_t = *mut _ze_module_handle_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_module_build_log_handle_t {
    _unused: [u8; 0],
}
pub type ze_module_build_log_handle_t = *mut _ze_module_build_log_handle_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_kernel_handle_t {
    _unused: [u8; 0],
}
pub type ze_kernel_handle_t = *mut _ze_kernel_handle_t;
pub const ZE_RESULT_SUCCESS: _ze_result_t = 0;
pub const ZE_RESULT_NOT_READY: _ze_result_t = 1;
pub const ZE_RESULT_ERROR_DEVICE_LOST: _ze_result_t = 1879048193;
pub const ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY: _ze_result_t = 1879048194;
pub const ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY: _ze_result_t = 1879048195;
pub const ZE_RESULT_ERROR_MODULE_BUILD_FAILURE: _ze_result_t = 1879048196;
pub const ZE_RESULT_ERROR_MODULE_LINK_FAILURE: _ze_result_t = 1879048197;
pub const ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET: _ze_result_t = 1879048198;
pub const ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE: _ze_result_t = 1879048199;
pub const ZE_RESULT_EXP_ERROR_DEVICE_IS_NOT_VERTEX: _ze_result_t = 2146435073;
pub const ZE_RESULT_EXP_ERROR_VERTEX_IS_NOT_DEVICE: _ze_result_t = 2146435074;
pub const ZE_RESULT_EXP_ERROR_REMOTE_DEVICE: _ze_result_t = 2146435075;
pub const ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS: _ze_result_t = 1879113728;
pub const ZE_RESULT_ERROR_NOT_AVAILABLE: _ze_result_t = 1879113729;
pub const ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE: _ze_result_t = 1879179264;
pub const ZE_RESULT_WARNING_DROPPED_DATA: _ze_result_t = 1879179265;
pub const ZE_RESULT_ERROR_UNINITIALIZED: _ze_result_t = 2013265921;
pub const ZE_RESULT_ERROR_UNSUPPORTED_VERSION: _ze_result_t = 2013265922;
pub const ZE_RESULT_ERROR_UNSUPPORTED_FEATURE: _ze_result_t = 2013265923;
pub const ZE_RESULT_ERROR_INVALID_ARGUMENT: _ze_result_t = 2013265924;
pub const ZE_RESULT_ERROR_INVALID_NULL_HANDLE: _ze_result_t = 2013265925;
pub const ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE: _ze_result_t = 2013265926;
pub const ZE_RESULT_ERROR_INVALID_NULL_POINTER: _ze_result_t = 2013265927;
pub const ZE_RESULT_ERROR_INVALID_SIZE: _ze_result_t = 2013265928;
pub const ZE_RESULT_ERROR_UNSUPPORTED_SIZE: _ze_result_t = 2013265929;
pub const ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT: _ze_result_t = 2013265930;
pub const ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT: _ze_result_t = 2013265931;
pub const ZE_RESULT_ERROR_INVALID_ENUMERATION: _ze_result_t = 2013265932;
pub const ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION: _ze_result_t = 2013265933;
pub const ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT: _ze_result_t = 2013265934;
pub const ZE_RESULT_ERROR_INVALID_NATIVE_BINARY: _ze_result_t = 2013265935;
pub const ZE_RESULT_ERROR_INVALID_GLOBAL_NAME: _ze_result_t = 2013265936;
pub const ZE_RESULT_ERROR_INVALID_KERNEL_NAME: _ze_result_t = 2013265937;
pub const ZE_RESULT_ERROR_INVALID_FUNCTION_NAME: _ze_result_t = 2013265938;
pub const ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION: _ze_result_t = 2013265939;
pub const ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION: _ze_result_t = 2013265940;
pub const ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX: _ze_result_t = 2013265941;
pub const ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE: _ze_result_t = 2013265942;
pub const ZE_RESULT_ERROR_INVALID_KERNEL_ATTRIBUTE_VALUE: _ze_result_t = 2013265943;
pub const ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED: _ze_result_t = 2013265944;
pub const ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE: _ze_result_t = 2013265945;
pub const ZE_RESULT_ERROR_OVERLAPPING_REGIONS: _ze_result_t = 2013265946;
pub const ZE_RESULT_WARNING_ACTION_REQUIRED: _ze_result_t = 2013265947;
pub const ZE_RESULT_ERROR_UNKNOWN: _ze_result_t = 2147483646;
pub const ZE_RESULT_FORCE_UINT32: _ze_result_t = 2147483647;
pub type _ze_result_t = ::std::os::raw::c_uint;
pub use self::_ze_result_t as ze_result_t;
pub const ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES: _ze_structure_type_t = 1;
pub const ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES: _ze_structure_type_t = 2;
pub const ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES: _ze_structure_type_t = 3;
pub const ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES: _ze_structure_type_t = 4;
pub const ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES: _ze_structure_type_t = 5;
pub const ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES: _ze_structure_type_t = 6;
pub const ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES: _ze_structure_type_t = 7;
pub const ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES: _ze_structure_type_t = 8;
pub const ZE_STRUCTURE_TYPE_DEVICE_CACHE_PROPERTIES: _ze_structure_type_t = 9;
pub const ZE_STRUCTURE_TYPE_DEVICE_IMAGE_PROPERTIES: _ze_structure_type_t = 10;
pub const ZE_STRUCTURE_TYPE_DEVICE_P2P_PROPERTIES: _ze_structure_type_t = 11;
pub const ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES: _ze_structure_type_t = 12;
pub const ZE_STRUCTURE_TYPE_CONTEXT_DESC: _ze_structure_type_t = 13;
pub const ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC: _ze_structure_type_t = 14;
pub const ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC: _ze_structure_type_t = 15;
pub const ZE_STRUCTURE_TYPE_EVENT_POOL_DESC: _ze_structure_type_t = 16;
pub const ZE_STRUCTURE_TYPE_EVENT_DESC: _ze_structure_type_t = 17;
pub const ZE_STRUCTURE_TYPE_FENCE_DESC: _ze_structure_type_t = 18;
pub const ZE_STRUCTURE_TYPE_IMAGE_DESC: _ze_structure_type_t = 19;
pub const ZE_STRUCTURE_TYPE_IMAGE_PROPERTIES: _ze_structure_type_t = 20;
pub const ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC: _ze_structure_type_t = 21;
pub const ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC: _ze_structure_type_t = 22;
pub const ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES: _ze_structure_type_t = 23;
pub const ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC: _ze_structure_type_t = 24;
pub const ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD: _ze_structure_type_t = 25;
pub const ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD: _ze_structure_type_t = 26;
pub const ZE_STRUCTURE_TYPE_MODULE_DESC: _ze_structure_type_t = 27;
pub const ZE_STRUCTURE_TYPE_MODULE_PROPERTIES: _ze_structure_type_t = 28;
pub const ZE_STRUCTURE_TYPE_KERNEL_DESC: _ze_structure_type_t = 29;
pub const ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES: _ze_structure_type_t = 30;
pub const ZE_STRUCTURE_TYPE_SAMPLER_DESC: _ze_structure_type_t = 31;
pub const ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC: _ze_structure_type_t = 32;
pub const ZE_STRUCTURE_TYPE_KERNEL_PREFERRED_GROUP_SIZE_PROPERTIES: _ze_structure_type_t = 33;
pub const ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_WIN32: _ze_structure_type_t = 34;
pub const ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_WIN32: _ze_structure_type_t = 35;
pub const ZE_STRUCTURE_TYPE_DEVICE_RAYTRACING_EXT_PROPERTIES: _ze_structure_type_t = 65537;
pub const ZE_STRUCTURE_TYPE_RAYTRACING_MEM_ALLOC_EXT_DESC: _ze_structure_type_t = 65538;
pub const ZE_STRUCTURE_TYPE_FLOAT_ATOMIC_EXT_PROPERTIES: _ze_structure_type_t = 65539;
pub const ZE_STRUCTURE_TYPE_CACHE_RESERVATION_EXT_DESC: _ze_structure_type_t = 65540;
pub const ZE_STRUCTURE_TYPE_EU_COUNT_EXT: _ze_structure_type_t = 65541;
pub const ZE_STRUCTURE_TYPE_SRGB_EXT_DESC: _ze_structure_type_t = 65542;
pub const ZE_STRUCTURE_TYPE_LINKAGE_INSPECTION_EXT_DESC: _ze_structure_type_t = 65543;
pub const ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES: _ze_structure_type_t = 65544;
pub const ZE_STRUCTURE_TYPE_DRIVER_MEMORY_FREE_EXT_PROPERTIES: _ze_structure_type_t = 65545;
pub const ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC: _ze_structure_type_t = 65546;
pub const ZE_STRUCTURE_TYPE_MEMORY_COMPRESSION_HINTS_EXT_DESC: _ze_structure_type_t = 65547;
pub const ZE_STRUCTURE_TYPE_IMAGE_ALLOCATION_EXT_PROPERTIES: _ze_structure_type_t = 65548;
pub const ZE_STRUCTURE_TYPE_DEVICE_LUID_EXT_PROPERTIES: _ze_structure_type_t = 65549;
pub const ZE_STRUCTURE_TYPE_DEVICE_MEMORY_EXT_PROPERTIES: _ze_structure_type_t = 65550;
pub const ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC: _ze_structure_type_t = 131073;
pub const ZE_STRUCTURE_TYPE_MODULE_PROGRAM_EXP_DESC: _ze_structure_type_t = 131074;
pub const ZE_STRUCTURE_TYPE_SCHEDULING_HINT_EXP_PROPERTIES: _ze_structure_type_t = 131075;
pub const ZE_STRUCTURE_TYPE_SCHEDULING_HINT_EXP_DESC: _ze_structure_type_t = 131076;
pub const ZE_STRUCTURE_TYPE_IMAGE_VIEW_PLANAR_EXP_DESC: _ze_structure_type_t = 131077;
pub const ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2: _ze_structure_type_t = 131078;
pub const ZE_STRUCTURE_TYPE_IMAGE_MEMORY_EXP_PROPERTIES: _ze_structure_type_t = 131079;
pub const ZE_STRUCTURE_TYPE_POWER_SAVING_HINT_EXP_DESC: _ze_structure_type_t = 131080;
pub const ZE_STRUCTURE_TYPE_COPY_BANDWIDTH_EXP_PROPERTIES: _ze_structure_type_t = 131081;
pub const ZE_STRUCTURE_TYPE_DEVICE_P2P_BANDWIDTH_EXP_PROPERTIES: _ze_structure_type_t = 131082;
pub const ZE_STRUCTURE_TYPE_FABRIC_VERTEX_EXP_PROPERTIES: _ze_structure_type_t = 131083;
pub const ZE_STRUCTURE_TYPE_FABRIC_EDGE_EXP_PROPERTIES: _ze_structure_type_t = 131084;
pub const ZE_STRUCTURE_TYPE_FORCE_UINT32: _ze_structure_type_t = 2147483647;
pub type _ze_structure_type_t = ::std::os::raw::c_uint;
pub use self::_ze_structure_type_t as ze_structure_type_t;
pub type ze_driver_extension_properties_t = _ze_driver_extension_properties_t;
pub type ze_device_uuid_t = _ze_device_uuid_t;
pub type ze_device_properties_t = _ze_device_properties_t;
pub type ze_device_compute_properties_t = _ze_device_compute_properties_t;
pub type ze_native_kernel_uuid_t = _ze_native_kernel_uuid_t;
pub type ze_device_module_properties_t = _ze_device_module_properties_t;
pub type ze_command_queue_group_properties_t = _ze_command_queue_group_properties_t;
pub type ze_device_memory_properties_t = _ze_device_memory_properties_t;
pub type ze_context_desc_t = _ze_context_desc_t;
pub type ze_command_queue_desc_t = _ze_command_queue_desc_t;
pub type ze_command_list_desc_t = _ze_command_list_desc_t;
pub type ze_event_pool_desc_t = _ze_event_pool_desc_t;
pub type ze_event_desc_t = _ze_event_desc_t;
pub type ze_device_mem_alloc_desc_t = _ze_device_mem_alloc_desc_t;
pub type ze_host_mem_alloc_desc_t = _ze_host_mem_alloc_desc_t;
pub type ze_module_constants_t = _ze_module_constants_t;
pub type ze_module_desc_t = _ze_module_desc_t;
pub type ze_kernel_desc_t = _ze_kernel_desc_t;
pub type ze_kernel_uuid_t = _ze_kernel_uuid_t;
pub type ze_kernel_properties_t = _ze_kernel_properties_t;
pub type ze_group_count_t = _ze_group_count_t;
pub type ze_relaxed_allocation_limits_exp_desc_t = _ze_relaxed_allocation_limits_exp_desc_t;
pub type ze_pci_address_ext_t = _ze_pci_address_ext_t;
pub type ze_pci_speed_ext_t = _ze_pci_speed_ext_t;
pub type ze_pci_ext_properties_t = _ze_pci_ext_properties_t;
pub type ze_init_flags_t = u32;
pub const ZE_INIT_FLAG_GPU_ONLY: _ze_init_flag_t = 1;
pub const ZE_INIT_FLAG_VPU_ONLY: _ze_init_flag_t = 2;
pub const ZE_INIT_FLAG_FORCE_UINT32: _ze_init_flag_t = 2147483647;
pub type _ze_init_flag_t = ::std::os::raw::c_uint;
pub use self::_ze_init_flag_t as ze_init_flag_t;
pub const ZE_API_VERSION_1_0: _ze_api_version_t = 65536;
pub const ZE_API_VERSION_1_1: _ze_api_version_t = 65537;
pub const ZE_API_VERSION_1_2: _ze_api_version_t = 65538;
pub const ZE_API_VERSION_1_3: _ze_api_version_t = 65539;
pub const ZE_API_VERSION_1_4: _ze_api_version_t = 65540;
pub const ZE_API_VERSION_CURRENT: _ze_api_version_t = 65540;
pub const ZE_API_VERSION_FORCE_UINT32: _ze_api_version_t = 2147483647;
pub type _ze_api_version_t = ::std::os::raw::c_uint;
pub use self::_ze_api_version_t as ze_api_version_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_driver_extension_properties_t {
    pub name: [::std::os::raw::c_char; 256usize],
    pub version: u32,
}
impl Default for _ze_driver_extension_properties_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const ZE_DEVICE_TYPE_GPU: _ze_device_type_t = 1;
pub const ZE_DEVICE_TYPE_CPU: _ze_device_type_t = 2;
pub const ZE_DEVICE_TYPE_FPGA: _ze_device_type_t = 3;
pub const ZE_DEVICE_TYPE_MCA: _ze_device_type_t = 4;
pub const ZE_DEVICE_TYPE_VPU: _ze_device_type_t = 5;
pub const ZE_DEVICE_TYPE_FORCE_UINT32: _ze_device_type_t = 2147483647;
pub type _ze_device_type_t = ::std::os::raw::c_uint;
pub use self::_ze_device_type_t as ze_device_type_t;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct _ze_device_uuid_t {
    pub id: [u8; 16usize],
}
pub type ze_device_property_flags_t = u32;
pub const ZE_DEVICE_PROPERTY_FLAG_INTEGRATED: _ze_device_property_flag_t = 1;
pub const ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE: _ze_device_property_flag_t = 2;
pub const ZE_DEVICE_PROPERTY_FLAG_ECC: _ze_device_property_flag_t = 4;
pub const ZE_DEVICE_PROPERTY_FLAG_ONDEMANDPAGING: _ze_device_property_flag_t = 8;
pub const ZE_DEVICE_PROPERTY_FLAG_FORCE_UINT32: _ze_device_property_flag_t = 2147483647;
pub type _ze_device_property_flag_t = ::std::os::raw::c_uint;
pub use self::_ze_device_property_flag_t as ze_device_property_flag_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_device_properties_t {
    pub stype: ze_structure_type_t,
    pub pNext: *mut ::std::os::raw::c_void,
    pub type_: ze_device_type_t,
    pub vendorId: u32,
    pub deviceId: u32,
    pub flags: ze_device_property_flags_t,
    pub subdeviceId: u32,
    pub coreClockRate: u32,
    pub maxMemAllocSize: u64,
    pub maxHardwareContexts: u32,
    pub maxCommandQueuePriority: u32,
    pub numThreadsPerEU: u32,
    pub physicalEUSimdWidth: u32,
    pub numEUsPerSubslice: u32,
    pub numSubslicesPerSlice: u32,
    pub numSlices: u32,
    pub timerResolution: u64,
    pub timestampValidBits: u32,
    pub kernelTimestampValidBits: u32,
    pub uuid: ze_device_uuid_t,
    pub name: [::std::os::raw::c_char; 256usize],
}
impl Default for _ze_device_properties_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_device_compute_properties_t {
    pub stype: ze_structure_type_t,
    pub pNext: *mut ::std::os::raw::c_void,
    pub maxTotalGroupSize: u32,
    pub maxGroupSizeX: u32,
    pub maxGroupSizeY: u32,
    pub maxGroupSizeZ: u32,
    pub maxGroupCountX: u32,
    pub maxGroupCountY: u32,
    pub maxGroupCountZ: u32,
    pub maxSharedLocalMemory: u32,
    pub numSubGroupSizes: u32,
    pub subGroupSizes: [u32; 8usize],
}
impl Default for _ze_device_compute_properties_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct _ze_native_kernel_uuid_t {
    pub id: [u8; 16usize],
}
pub type ze_device_module_flags_t = u32;
pub type ze_device_fp_flags_t = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_device_module_properties_t {
    pub stype: ze_structure_type_t,
    pub pNext: *mut ::std::os::raw::c_void,
    pub spirvVersionSupported: u32,
    pub flags: ze_device_module_flags_t,
    pub fp16flags: ze_device_fp_flags_t,
    pub fp32flags: ze_device_fp_flags_t,
    pub fp64flags: ze_device_fp_flags_t,
    pub maxArgumentsSize: u32,
    pub printfBufferSize: u32,
    pub nativeKernelSupported: ze_native_kernel_uuid_t,
}
impl Default for _ze_device_module_properties_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type ze_command_queue_group_property_flags_t = u32;
pub const ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE: _ze_command_queue_group_property_flag_t = 1;
pub const ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY: _ze_command_queue_group_property_flag_t = 2;
pub const ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS: _ze_command_queue_group_property_flag_t =
    4;
pub const ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_METRICS: _ze_command_queue_group_property_flag_t = 8;
pub const ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_FORCE_UINT32: _ze_command_queue_group_property_flag_t =
    2147483647;
pub type _ze_command_queue_group_property_flag_t = ::std::os::raw::c_uint;
pub use self::_ze_command_queue_group_property_flag_t as ze_command_queue_group_property_flag_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_command_queue_group_properties_t {
    pub stype: ze_structure_type_t,
    pub pNext: *mut ::std::os::raw::c_void,
    pub flags: ze_command_queue_group_property_flags_t,
    pub maxMemoryFillPatternSize: usize,
    pub numQueues: u32,
}
impl Default for _ze_command_queue_group_properties_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type ze_device_memory_property_flags_t = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_device_memory_properties_t {
    pub stype: ze_structure_type_t,
    pub pNext: *mut ::std::os::raw::c_void,
    pub flags: ze_device_memory_property_flags_t,
    pub maxClockRate: u32,
    pub maxBusWidth: u32,
    pub totalSize: u64,
    pub name: [::std::os::raw::c_char; 256usize],
}
impl Default for _ze_device_memory_properties_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type ze_context_flags_t = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_context_desc_t {
    pub stype: ze_structure_type_t,
    pub pNext: *const ::std::os::raw::c_void,
    pub flags: ze_context_flags_t,
}
impl Default for _ze_context_desc_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type ze_command_queue_flags_t = u32;
pub const ZE_COMMAND_QUEUE_MODE_DEFAULT: _ze_command_queue_mode_t = 0;
pub const ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS: _ze_command_queue_mode_t = 1;
pub const ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS: _ze_command_queue_mode_t = 2;
pub const ZE_COMMAND_QUEUE_MODE_FORCE_UINT32: _ze_command_queue_mode_t = 2147483647;
pub type _ze_command_queue_mode_t = ::std::os::raw::c_uint;
pub use self::_ze_command_queue_mode_t as ze_command_queue_mode_t;
pub const ZE_COMMAND_QUEUE_PRIORITY_NORMAL: _ze_command_queue_priority_t = 0;
pub const ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW: _ze_command_queue_priority_t = 1;
pub const ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH: _ze_command_queue_priority_t = 2;
pub const ZE_COMMAND_QUEUE_PRIORITY_FORCE_UINT32: _ze_command_queue_priority_t = 2147483647;
pub type _ze_command_queue_priority_t = ::std::os::raw::c_uint;
pub use self::_ze_command_queue_priority_t as ze_command_queue_priority_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_command_queue_desc_t {
    pub stype: ze_structure_type_t,
    pub pNext: *const ::std::os::raw::c_void,
    pub ordinal: u32,
    pub index: u32,
    pub flags: ze_command_queue_flags_t,
    pub mode: ze_command_queue_mode_t,
    pub priority: ze_command_queue_priority_t,
}
impl Default for _ze_command_queue_desc_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type ze_command_list_flags_t = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_command_list_desc_t {
    pub stype: ze_structure_type_t,
    pub pNext: *const ::std::os::raw::c_void,
    pub commandQueueGroupOrdinal: u32,
    pub flags: ze_command_list_flags_t,
}
impl Default for _ze_command_list_desc_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type ze_event_pool_flags_t = u32;
pub const ZE_EVENT_POOL_FLAG_HOST_VISIBLE: _ze_event_pool_flag_t = 1;
pub const ZE_EVENT_POOL_FLAG_IPC: _ze_event_pool_flag_t = 2;
pub const ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP: _ze_event_pool_flag_t = 4;
pub const ZE_EVENT_POOL_FLAG_FORCE_UINT32: _ze_event_pool_flag_t = 2147483647;
pub type _ze_event_pool_flag_t = ::std::os::raw::c_uint;
pub use self::_ze_event_pool_flag_t as ze_event_pool_flag_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_event_pool_desc_t {
    pub stype: ze_structure_type_t,
    pub pNext: *const ::std::os::raw::c_void,
    pub flags: ze_event_pool_flags_t,
    pub count: u32,
}
impl Default for _ze_event_pool_desc_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type ze_event_scope_flags_t = u32;
pub const ZE_EVENT_SCOPE_FLAG_SUBDEVICE: _ze_event_scope_flag_t = 1;
pub const ZE_EVENT_SCOPE_FLAG_DEVICE: _ze_event_scope_flag_t = 2;
pub const ZE_EVENT_SCOPE_FLAG_HOST: _ze_event_scope_flag_t = 4;
pub const ZE_EVENT_SCOPE_FLAG_FORCE_UINT32: _ze_event_scope_flag_t = 2147483647;
pub type _ze_event_scope_flag_t = ::std::os::raw::c_uint;
pub use self::_ze_event_scope_flag_t as ze_event_scope_flag_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_event_desc_t {
    pub stype: ze_structure_type_t,
    pub pNext: *const ::std::os::raw::c_void,
    pub index: u32,
    pub signal: ze_event_scope_flags_t,
    pub wait: ze_event_scope_flags_t,
}
impl Default for _ze_event_desc_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type ze_device_mem_alloc_flags_t = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_device_mem_alloc_desc_t {
    pub stype: ze_structure_type_t,
    pub pNext: *const ::std::os::raw::c_void,
    pub flags: ze_device_mem_alloc_flags_t,
    pub ordinal: u32,
}
impl Default for _ze_device_mem_alloc_desc_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type ze_host_mem_alloc_flags_t = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_host_mem_alloc_desc_t {
    pub stype: ze_structure_type_t,
    pub pNext: *const ::std::os::raw::c_void,
    pub flags: ze_host_mem_alloc_flags_t,
}
impl Default for _ze_host_mem_alloc_desc_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const ZE_MODULE_FORMAT_IL_SPIRV: _ze_module_format_t = 0;
pub const ZE_MODULE_FORMAT_NATIVE: _ze_module_format_t = 1;
pub const ZE_MODULE_FORMAT_FORCE_UINT32: _ze_module_format_t = 2147483647;
pub type _ze_module_format_t = ::std::os::raw::c_uint;
pub use self::_ze_module_format_t as ze_module_format_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_module_constants_t {
    pub numConstants: u32,
    pub pConstantIds: *const u32,
    pub pConstantValues: *mut *const ::std::os::raw::c_void,
}
impl Default for _ze_module_constants_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_module_desc_t {
    pub stype: ze_structure_type_t,
    pub pNext: *const ::std::os::raw::c_void,
    pub format: ze_module_format_t,
    pub inputSize: usize,
    pub pInputModule: *const u8,
    pub pBuildFlags: *const ::std::os::raw::c_char,
    pub pConstants: *const ze_module_constants_t,
}
impl Default for _ze_module_desc_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type ze_kernel_flags_t = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_kernel_desc_t {
    pub stype: ze_structure_type_t,
    pub pNext: *const ::std::os::raw::c_void,
    pub flags: ze_kernel_flags_t,
    pub pKernelName: *const ::std::os::raw::c_char,
}
impl Default for _ze_kernel_desc_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type ze_kernel_indirect_access_flags_t = u32;
pub const ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST: _ze_kernel_indirect_access_flag_t = 1;
pub const ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE: _ze_kernel_indirect_access_flag_t = 2;
pub const ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED: _ze_kernel_indirect_access_flag_t = 4;
pub const ZE_KERNEL_INDIRECT_ACCESS_FLAG_FORCE_UINT32: _ze_kernel_indirect_access_flag_t = 2147483647;
pub type _ze_kernel_indirect_access_flag_t = ::std::os::raw::c_uint;
pub use self::_ze_kernel_indirect_access_flag_t as ze_kernel_indirect_access_flag_t;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct _ze_kernel_uuid_t {
    pub kid: [u8; 16usize],
    pub mid: [u8; 16usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_kernel_properties_t {
    pub stype: ze_structure_type_t,
    pub pNext: *mut ::std::os::raw::c_void,
    pub numKernelArgs: u32,
    pub requiredGroupSizeX: u32,
    pub requiredGroupSizeY: u32,
    pub requiredGroupSizeZ: u32,
    pub requiredNumSubGroups: u32,
    pub requiredSubgroupSize: u32,
    pub maxSubgroupSize: u32,
    pub maxNumSubgroups: u32,
    pub localMemSize: u32,
    pub privateMemSize: u32,
    pub spillMemSize: u32,
    pub uuid: ze_kernel_uuid_t,
}
impl Default for _ze_kernel_properties_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct _ze_group_count_t {
    pub groupCountX: u32,
    pub groupCountY: u32,
    pub groupCountZ: u32,
}
pub type ze_relaxed_allocation_limits_exp_flags_t = u32;
pub const ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE: _ze_relaxed_allocation_limits_exp_flag_t = 1;
pub const ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_FORCE_UINT32: _ze_relaxed_allocation_limits_exp_flag_t =
    2147483647;
pub type _ze_relaxed_allocation_limits_exp_flag_t = ::std::os::raw::c_uint;
pub use self::_ze_relaxed_allocation_limits_exp_flag_t as ze_relaxed_allocation_limits_exp_flag_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_relaxed_allocation_limits_exp_desc_t {
    pub stype: ze_structure_type_t,
    pub pNext: *const ::std::os::raw::c_void,
    pub flags: ze_relaxed_allocation_limits_exp_flags_t,
}
impl Default for _ze_relaxed_allocation_limits_exp_desc_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct _ze_pci_address_ext_t {
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub function: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct _ze_pci_speed_ext_t {
    pub genVersion: i32,
    pub width: i32,
    pub maxBandwidth: i64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _ze_pci_ext_properties_t {
    pub stype: ze_structure_type_t,
    pub pNext: *mut ::std::os::raw::c_void,
    pub address: ze_pci_address_ext_t,
    pub maxSpeed: ze_pci_speed_ext_t,
}
impl Default for _ze_pci_ext_properties_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub struct LevelZero {
    __library: ::libloading::Library,
    pub zeInit: unsafe extern "C" fn(flags: ze_init_flags_t) -> ze_result_t,
    pub zeDriverGet:
        unsafe extern "C" fn(pCount: *mut u32, phDrivers: *mut ze_driver_handle_t) -> ze_result_t,
    pub zeDriverGetApiVersion:
        unsafe extern "C" fn(hDriver: ze_driver_handle_t, version: *mut ze_api_version_t) -> ze_result_t,
    pub zeDriverGetExtensionProperties: unsafe extern "C" fn(
        hDriver: ze_driver_handle_t,
        pCount: *mut u32,
        pExtensionProperties: *mut ze_driver_extension_properties_t,
    ) -> ze_result_t,
    pub zeDeviceGet: unsafe extern "C" fn(
        hDriver: ze_driver_handle_t,
        pCount: *mut u32,
        phDevices: *mut ze_device_handle_t,
    ) -> ze_result_t,
    pub zeDeviceGetProperties: unsafe extern "C" fn(
        hDevice: ze_device_handle_t,
        pDeviceProperties: *mut ze_device_properties_t,
    ) -> ze_result_t,
    pub zeDeviceGetComputeProperties: unsafe extern "C" fn(
        hDevice: ze_device_handle_t,
        pComputeProperties: *mut ze_device_compute_properties_t,
    ) -> ze_result_t,
    pub zeDeviceGetModuleProperties: unsafe extern "C" fn(
        hDevice: ze_device_handle_t,
        pModuleProperties: *mut ze_device_module_properties_t,
    ) -> ze_result_t,
    pub zeDeviceGetCommandQueueGroupProperties: unsafe extern "C" fn(
        hDevice: ze_device_handle_t,
        pCount: *mut u32,
        pCommandQueueGroupProperties: *mut ze_command_queue_group_properties_t,
    ) -> ze_result_t,
    pub zeDeviceGetMemoryProperties: unsafe extern "C" fn(
        hDevice: ze_device_handle_t,
        pCount: *mut u32,
        pMemProperties: *mut ze_device_memory_properties_t,
    ) -> ze_result_t,
    pub zeDeviceGetStatus: unsafe extern "C" fn(hDevice: ze_device_handle_t) -> ze_result_t,
    pub zeContextCreate: unsafe extern "C" fn(
        hDriver: ze_driver_handle_t,
        desc: *const ze_context_desc_t,
        phContext: *mut ze_context_handle_t,
    ) -> ze_result_t,
    pub zeContextDestroy: unsafe extern "C" fn(hContext: ze_context_handle_t) -> ze_result_t,
    pub zeCommandQueueCreate: unsafe extern "C" fn(
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const ze_command_queue_desc_t,
        phCommandQueue: *mut ze_command_queue_handle_t,
    ) -> ze_result_t,
    pub zeCommandQueueDestroy: unsafe extern "C" fn(hCommandQueue: ze_command_queue_handle_t) -> ze_result_t,
    pub zeCommandQueueExecuteCommandLists: unsafe extern "C" fn(
        hCommandQueue: ze_command_queue_handle_t,
        numCommandLists: u32,
        phCommandLists: *mut ze_command_list_handle_t,
        hFence: ze_fence_handle_t,
    ) -> ze_result_t,
    pub zeCommandQueueSynchronize:
        unsafe extern "C" fn(hCommandQueue: ze_command_queue_handle_t, timeout: u64) -> ze_result_t,
    pub zeCommandListCreate: unsafe extern "C" fn(
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const ze_command_list_desc_t,
        phCommandList: *mut ze_command_list_handle_t,
    ) -> ze_result_t,
    pub zeCommandListCreateImmediate: unsafe extern "C" fn(
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        altdesc: *const ze_command_queue_desc_t,
        phCommandList: *mut ze_command_list_handle_t,
    ) -> ze_result_t,
    pub zeCommandListDestroy: unsafe extern "C" fn(hCommandList: ze_command_list_handle_t) -> ze_result_t,
    pub zeCommandListClose: unsafe extern "C" fn(hCommandList: ze_command_list_handle_t) -> ze_result_t,
    pub zeCommandListAppendWriteGlobalTimestamp: unsafe extern "C" fn(
        hCommandList: ze_command_list_handle_t,
        dstptr: *mut u64,
        hSignalEvent: ze_event_handle_t,
        numWaitEvents: u32,
        phWaitEvents: *mut ze_event_handle_t,
    ) -> ze_result_t,
    pub zeCommandListAppendBarrier: unsafe extern "C" fn(
        hCommandList: ze_command_list_handle_t,
        hSignalEvent: ze_event_handle_t,
        numWaitEvents: u32,
        phWaitEvents: *mut ze_event_handle_t,
    ) -> ze_result_t,
    pub zeCommandListAppendMemoryCopy: unsafe extern "C" fn(
        hCommandList: ze_command_list_handle_t,
        dstptr: *mut ::std::os::raw::c_void,
        srcptr: *const ::std::os::raw::c_void,
        size: usize,
        hSignalEvent: ze_event_handle_t,
        numWaitEvents: u32,
        phWaitEvents: *mut ze_event_handle_t,
    ) -> ze_result_t,
    pub zeCommandListAppendMemoryFill: unsafe extern "C" fn(
        hCommandList: ze_command_list_handle_t,
        ptr: *mut ::std::os::raw::c_void,
        pattern: *const ::std::os::raw::c_void,
        pattern_size: usize,
        size: usize,
        hSignalEvent: ze_event_handle_t,
        numWaitEvents: u32,
        phWaitEvents: *mut ze_event_handle_t,
    ) -> ze_result_t,
    pub zeEventPoolCreate: unsafe extern "C" fn(
        hContext: ze_context_handle_t,
        desc: *const ze_event_pool_desc_t,
        numDevices: u32,
        phDevices: *mut ze_device_handle_t,
        phEventPool: *mut ze_event_pool_handle_t,
    ) -> ze_result_t,
    pub zeEventPoolDestroy: unsafe extern "C" fn(hEventPool: ze_event_pool_handle_t) -> ze_result_t,
    pub zeEventCreate: unsafe extern "C" fn(
        hEventPool: ze_event_pool_handle_t,
        desc: *const ze_event_desc_t,
        phEvent: *mut ze_event_handle_t,
    ) -> ze_result_t,
    pub zeEventDestroy: unsafe extern "C" fn(hEvent: ze_event_handle_t) -> ze_result_t,
    pub zeCommandListAppendSignalEvent: unsafe extern "C" fn(
        hCommandList: ze_command_list_handle_t,
        hEvent: ze_event_handle_t,
    ) -> ze_result_t,
    pub zeCommandListAppendWaitOnEvents: unsafe extern "C" fn(
        hCommandList: ze_command_list_handle_t,
        numEvents: u32,
        phEvents: *mut ze_event_handle_t,
    ) -> ze_result_t,
    pub zeEventHostSynchronize: unsafe extern "C" fn(hEvent: ze_event_handle_t, timeout: u64) -> ze_result_t,
    pub zeEventQueryStatus: unsafe extern "C" fn(hEvent: ze_event_handle_t) -> ze_result_t,
    pub zeCommandListAppendEventReset: unsafe extern "C" fn(
        hCommandList: ze_command_list_handle_t,
        hEvent: ze_event_handle_t,
    ) -> ze_result_t,
    pub zeEventHostReset: unsafe extern "C" fn(hEvent: ze_event_handle_t) -> ze_result_t,
    pub zeMemAllocDevice: unsafe extern "C" fn(
        hContext: ze_context_handle_t,
        device_desc: *const ze_device_mem_alloc_desc_t,
        size: usize,
        alignment: usize,
        hDevice: ze_device_handle_t,
        pptr: *mut *mut ::std::os::raw::c_void,
    ) -> ze_result_t,
    pub zeMemAllocHost: unsafe extern "C" fn(
        hContext: ze_context_handle_t,
        host_desc: *const ze_host_mem_alloc_desc_t,
        size: usize,
        alignment: usize,
        pptr: *mut *mut ::std::os::raw::c_void,
    ) -> ze_result_t,
    pub zeMemFree:
        unsafe extern "C" fn(hContext: ze_context_handle_t, ptr: *mut ::std::os::raw::c_void) -> ze_result_t,
    pub zeModuleCreate: unsafe extern "C" fn(
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const ze_module_desc_t,
        phModule: *mut ze_module_handle_t,
        phBuildLog: *mut ze_module_build_log_handle_t,
    ) -> ze_result_t,
    pub zeModuleDestroy: unsafe extern "C" fn(hModule: ze_module_handle_t) -> ze_result_t,
    pub zeModuleBuildLogDestroy:
        unsafe extern "C" fn(hModuleBuildLog: ze_module_build_log_handle_t) -> ze_result_t,
    pub zeModuleBuildLogGetString: unsafe extern "C" fn(
        hModuleBuildLog: ze_module_build_log_handle_t,
        pSize: *mut usize,
        pBuildLog: *mut ::std::os::raw::c_char,
    ) -> ze_result_t,
    pub zeKernelCreate: unsafe extern "C" fn(
        hModule: ze_module_handle_t,
        desc: *const ze_kernel_desc_t,
        phKernel: *mut ze_kernel_handle_t,
    ) -> ze_result_t,
    pub zeKernelDestroy: unsafe extern "C" fn(hKernel: ze_kernel_handle_t) -> ze_result_t,
    pub zeKernelSetGroupSize: unsafe extern "C" fn(
        hKernel: ze_kernel_handle_t,
        groupSizeX: u32,
        groupSizeY: u32,
        groupSizeZ: u32,
    ) -> ze_result_t,
    pub zeKernelSetArgumentValue: unsafe extern "C" fn(
        hKernel: ze_kernel_handle_t,
        argIndex: u32,
        argSize: usize,
        pArgValue: *const ::std::os::raw::c_void,
    ) -> ze_result_t,
    pub zeKernelSetIndirectAccess: unsafe extern "C" fn(
        hKernel: ze_kernel_handle_t,
        flags: ze_kernel_indirect_access_flags_t,
    ) -> ze_result_t,
    pub zeKernelGetProperties: unsafe extern "C" fn(
        hKernel: ze_kernel_handle_t,
        pKernelProperties: *mut ze_kernel_properties_t,
    ) -> ze_result_t,
    pub zeCommandListAppendLaunchKernel: unsafe extern "C" fn(
        hCommandList: ze_command_list_handle_t,
        hKernel: ze_kernel_handle_t,
        pLaunchFuncArgs: *const ze_group_count_t,
        hSignalEvent: ze_event_handle_t,
        numWaitEvents: u32,
        phWaitEvents: *mut ze_event_handle_t,
    ) -> ze_result_t,
    pub zeDevicePciGetPropertiesExt: unsafe extern "C" fn(
        hDevice: ze_device_handle_t,
        pPciProperties: *mut ze_pci_ext_properties_t,
    ) -> ze_result_t,
}
impl LevelZero {
    pub unsafe fn new<P>(path: P) -> Result<Self, ::libloading::Error>
    where
        P: ::libloading::AsFilename,
    {
        let library = ::libloading::Library::new(path)?;
        Self::from_library(library)
    }
    pub unsafe fn from_library<L>(library: L) -> Result<Self, ::libloading::Error>
    where
        L: Into<::libloading::Library>,
    {
        let __library = library.into();
        let zeInit = __library.get(b"zeInit\0").map(|sym| *sym)?;
        let zeDriverGet = __library.get(b"zeDriverGet\0").map(|sym| *sym)?;
        let zeDriverGetApiVersion = __library.get(b"zeDriverGetApiVersion\0").map(|sym| *sym)?;
        let zeDriverGetExtensionProperties = __library
            .get(b"zeDriverGetExtensionProperties\0")
            .map(|sym| *sym)?;
        let zeDeviceGet = __library.get(b"zeDeviceGet\0").map(|sym| *sym)?;
        let zeDeviceGetProperties = __library.get(b"zeDeviceGetProperties\0").map(|sym| *sym)?;
        let zeDeviceGetComputeProperties =
            __library.get(b"zeDeviceGetComputeProperties\0").map(|sym| *sym)?;
        let zeDeviceGetModuleProperties = __library.get(b"zeDeviceGetModuleProperties\0").map(|sym| *sym)?;
        let zeDeviceGetCommandQueueGroupProperties = __library
            .get(b"zeDeviceGetCommandQueueGroupProperties\0")
            .map(|sym| *sym)?;
        let zeDeviceGetMemoryProperties = __library.get(b"zeDeviceGetMemoryProperties\0").map(|sym| *sym)?;
        let zeDeviceGetStatus = __library.get(b"zeDeviceGetStatus\0").map(|sym| *sym)?;
        let zeContextCreate = __library.get(b"zeContextCreate\0").map(|sym| *sym)?;
        let zeContextDestroy = __library.get(b"zeContextDestroy\0").map(|sym| *sym)?;
        let zeCommandQueueCreate = __library.get(b"zeCommandQueueCreate\0").map(|sym| *sym)?;
        let zeCommandQueueDestroy = __library.get(b"zeCommandQueueDestroy\0").map(|sym| *sym)?;
        let zeCommandQueueExecuteCommandLists = __library
            .get(b"zeCommandQueueExecuteCommandLists\0")
            .map(|sym| *sym)?;
        let zeCommandQueueSynchronize = __library.get(b"zeCommandQueueSynchronize\0").map(|sym| *sym)?;
        let zeCommandListCreate = __library.get(b"zeCommandListCreate\0").map(|sym| *sym)?;
        let zeCommandListCreateImmediate =
            __library.get(b"zeCommandListCreateImmediate\0").map(|sym| *sym)?;
        let zeCommandListDestroy = __library.get(b"zeCommandListDestroy\0").map(|sym| *sym)?;
        let zeCommandListClose = __library.get(b"zeCommandListClose\0").map(|sym| *sym)?;
        let zeCommandListAppendWriteGlobalTimestamp = __library
            .get(b"zeCommandListAppendWriteGlobalTimestamp\0")
            .map(|sym| *sym)?;
        let zeCommandListAppendBarrier = __library.get(b"zeCommandListAppendBarrier\0").map(|sym| *sym)?;
        let zeCommandListAppendMemoryCopy = __library
            .get(b"zeCommandListAppendMemoryCopy\0")
            .map(|sym| *sym)?;
        let zeCommandListAppendMemoryFill = __library
            .get(b"zeCommandListAppendMemoryFill\0")
            .map(|sym| *sym)?;
        let zeEventPoolCreate = __library.get(b"zeEventPoolCreate\0").map(|sym| *sym)?;
        let zeEventPoolDestroy = __library.get(b"zeEventPoolDestroy\0").map(|sym| *sym)?;
        let zeEventCreate = __library.get(b"zeEventCreate\0").map(|sym| *sym)?;
        let zeEventDestroy = __library.get(b"zeEventDestroy\0").map(|sym| *sym)?;
        let zeCommandListAppendSignalEvent = __library
            .get(b"zeCommandListAppendSignalEvent\0")
            .map(|sym| *sym)?;
        let zeCommandListAppendWaitOnEvents = __library
            .get(b"zeCommandListAppendWaitOnEvents\0")
            .map(|sym| *sym)?;
        let zeEventHostSynchronize = __library.get(b"zeEventHostSynchronize\0").map(|sym| *sym)?;
        let zeEventQueryStatus = __library.get(b"zeEventQueryStatus\0").map(|sym| *sym)?;
        let zeCommandListAppendEventReset = __library
            .get(b"zeCommandListAppendEventReset\0")
            .map(|sym| *sym)?;
        let zeEventHostReset = __library.get(b"zeEventHostReset\0").map(|sym| *sym)?;
        let zeMemAllocDevice = __library.get(b"zeMemAllocDevice\0").map(|sym| *sym)?;
        let zeMemAllocHost = __library.get(b"zeMemAllocHost\0").map(|sym| *sym)?;
        let zeMemFree = __library.get(b"zeMemFree\0").map(|sym| *sym)?;
        let zeModuleCreate = __library.get(b"zeModuleCreate\0").map(|sym| *sym)?;
        let zeModuleDestroy = __library.get(b"zeModuleDestroy\0").map(|sym| *sym)?;
        let zeModuleBuildLogDestroy = __library.get(b"zeModuleBuildLogDestroy\0").map(|sym| *sym)?;
        let zeModuleBuildLogGetString = __library.get(b"zeModuleBuildLogGetString\0").map(|sym| *sym)?;
        let zeKernelCreate = __library.get(b"zeKernelCreate\0").map(|sym| *sym)?;
        let zeKernelDestroy = __library.get(b"zeKernelDestroy\0").map(|sym| *sym)?;
        let zeKernelSetGroupSize = __library.get(b"zeKernelSetGroupSize\0").map(|sym| *sym)?;
        let zeKernelSetArgumentValue = __library.get(b"zeKernelSetArgumentValue\0").map(|sym| *sym)?;
        let zeKernelSetIndirectAccess = __library.get(b"zeKernelSetIndirectAccess\0").map(|sym| *sym)?;
        let zeKernelGetProperties = __library.get(b"zeKernelGetProperties\0").map(|sym| *sym)?;
        let zeCommandListAppendLaunchKernel = __library
            .get(b"zeCommandListAppendLaunchKernel\0")
            .map(|sym| *sym)?;
        let zeDevicePciGetPropertiesExt = __library.get(b"zeDevicePciGetPropertiesExt\0").map(|sym| *sym)?;
        Ok(LevelZero {
            __library,
            zeInit,
            zeDriverGet,
            zeDriverGetApiVersion,
            zeDriverGetExtensionProperties,
            zeDeviceGet,
            zeDeviceGetProperties,
            zeDeviceGetComputeProperties,
            zeDeviceGetModuleProperties,
            zeDeviceGetCommandQueueGroupProperties,
            zeDeviceGetMemoryProperties,
            zeDeviceGetStatus,
            zeContextCreate,
            zeContextDestroy,
            zeCommandQueueCreate,
            zeCommandQueueDestroy,
            zeCommandQueueExecuteCommandLists,
            zeCommandQueueSynchronize,
            zeCommandListCreate,
            zeCommandListCreateImmediate,
            zeCommandListDestroy,
            zeCommandListClose,
            zeCommandListAppendWriteGlobalTimestamp,
            zeCommandListAppendBarrier,
            zeCommandListAppendMemoryCopy,
            zeCommandListAppendMemoryFill,
            zeEventPoolCreate,
            zeEventPoolDestroy,
            zeEventCreate,
            zeEventDestroy,
            zeCommandListAppendSignalEvent,
            zeCommandListAppendWaitOnEvents,
            zeEventHostSynchronize,
            zeEventQueryStatus,
            zeCommandListAppendEventReset,
            zeEventHostReset,
            zeMemAllocDevice,
            zeMemAllocHost,
            zeMemFree,
            zeModuleCreate,
            zeModuleDestroy,
            zeModuleBuildLogDestroy,
            zeModuleBuildLogGetString,
            zeKernelCreate,
            zeKernelDestroy,
            zeKernelSetGroupSize,
            zeKernelSetArgumentValue,
            zeKernelSetIndirectAccess,
            zeKernelGetProperties,
            zeCommandListAppendLaunchKernel,
            zeDevicePciGetPropertiesExt,
        })
    }
    pub unsafe fn zeInit(&self, flags: ze_init_flags_t) -> ze_result_t {
        (self.zeInit)(flags)
    }
    pub unsafe fn zeDriverGet(&self, pCount: *mut u32, phDrivers: *mut ze_driver_handle_t) -> ze_result_t {
        (self.zeDriverGet)(pCount, phDrivers)
    }
    pub unsafe fn zeDriverGetApiVersion(
        &self,
        hDriver: ze_driver_handle_t,
        version: *mut ze_api_version_t,
    ) -> ze_result_t {
        (self.zeDriverGetApiVersion)(hDriver, version)
    }
    pub unsafe fn zeDriverGetExtensionProperties(
        &self,
        hDriver: ze_driver_handle_t,
        pCount: *mut u32,
        pExtensionProperties: *mut ze_driver_extension_properties_t,
    ) -> ze_result_t {
        (self.zeDriverGetExtensionProperties)(hDriver, pCount, pExtensionProperties)
    }
    pub unsafe fn zeDeviceGet(
        &self,
        hDriver: ze_driver_handle_t,
        pCount: *mut u32,
        phDevices: *mut ze_device_handle_t,
    ) -> ze_result_t {
        (self.zeDeviceGet)(hDriver, pCount, phDevices)
    }
    pub unsafe fn zeDeviceGetProperties(
        &self,
        hDevice: ze_device_handle_t,
        pDeviceProperties: *mut ze_device_properties_t,
    ) -> ze_result_t {
        (self.zeDeviceGetProperties)(hDevice, pDeviceProperties)
    }
    pub unsafe fn zeDeviceGetComputeProperties(
        &self,
        hDevice: ze_device_handle_t,
        pComputeProperties: *mut ze_device_compute_properties_t,
    ) -> ze_result_t {
        (self.zeDeviceGetComputeProperties)(hDevice, pComputeProperties)
    }
    pub unsafe fn zeDeviceGetModuleProperties(
        &self,
        hDevice: ze_device_handle_t,
        pModuleProperties: *mut ze_device_module_properties_t,
    ) -> ze_result_t {
        (self.zeDeviceGetModuleProperties)(hDevice, pModuleProperties)
    }
    pub unsafe fn zeDeviceGetCommandQueueGroupProperties(
        &self,
        hDevice: ze_device_handle_t,
        pCount: *mut u32,
        pCommandQueueGroupProperties: *mut ze_command_queue_group_properties_t,
    ) -> ze_result_t {
        (self.zeDeviceGetCommandQueueGroupProperties)(hDevice, pCount, pCommandQueueGroupProperties)
    }
    pub unsafe fn zeDeviceGetMemoryProperties(
        &self,
        hDevice: ze_device_handle_t,
        pCount: *mut u32,
        pMemProperties: *mut ze_device_memory_properties_t,
    ) -> ze_result_t {
        (self.zeDeviceGetMemoryProperties)(hDevice, pCount, pMemProperties)
    }
    pub unsafe fn zeDeviceGetStatus(&self, hDevice: ze_device_handle_t) -> ze_result_t {
        (self.zeDeviceGetStatus)(hDevice)
    }
    pub unsafe fn zeContextCreate(
        &self,
        hDriver: ze_driver_handle_t,
        desc: *const ze_context_desc_t,
        phContext: *mut ze_context_handle_t,
    ) -> ze_result_t {
        (self.zeContextCreate)(hDriver, desc, phContext)
    }
    pub unsafe fn zeContextDestroy(&self, hContext: ze_context_handle_t) -> ze_result_t {
        (self.zeContextDestroy)(hContext)
    }
    pub unsafe fn zeCommandQueueCreate(
        &self,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const ze_command_queue_desc_t,
        phCommandQueue: *mut ze_command_queue_handle_t,
    ) -> ze_result_t {
        (self.zeCommandQueueCreate)(hContext, hDevice, desc, phCommandQueue)
    }
    pub unsafe fn zeCommandQueueDestroy(&self, hCommandQueue: ze_command_queue_handle_t) -> ze_result_t {
        (self.zeCommandQueueDestroy)(hCommandQueue)
    }
    pub unsafe fn zeCommandQueueExecuteCommandLists(
        &self,
        hCommandQueue: ze_command_queue_handle_t,
        numCommandLists: u32,
        phCommandLists: *mut ze_command_list_handle_t,
        hFence: ze_fence_handle_t,
    ) -> ze_result_t {
        (self.zeCommandQueueExecuteCommandLists)(hCommandQueue, numCommandLists, phCommandLists, hFence)
    }
    pub unsafe fn zeCommandQueueSynchronize(
        &self,
        hCommandQueue: ze_command_queue_handle_t,
        timeout: u64,
    ) -> ze_result_t {
        (self.zeCommandQueueSynchronize)(hCommandQueue, timeout)
    }
    pub unsafe fn zeCommandListCreate(
        &self,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const ze_command_list_desc_t,
        phCommandList: *mut ze_command_list_handle_t,
    ) -> ze_result_t {
        (self.zeCommandListCreate)(hContext, hDevice, desc, phCommandList)
    }
    pub unsafe fn zeCommandListCreateImmediate(
        &self,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        altdesc: *const ze_command_queue_desc_t,
        phCommandList: *mut ze_command_list_handle_t,
    ) -> ze_result_t {
        (self.zeCommandListCreateImmediate)(hContext, hDevice, altdesc, phCommandList)
    }
    pub unsafe fn zeCommandListDestroy(&self, hCommandList: ze_command_list_handle_t) -> ze_result_t {
        (self.zeCommandListDestroy)(hCommandList)
    }
    pub unsafe fn zeCommandListClose(&self, hCommandList: ze_command_list_handle_t) -> ze_result_t {
        (self.zeCommandListClose)(hCommandList)
    }
    pub unsafe fn zeCommandListAppendWriteGlobalTimestamp(
        &self,
        hCommandList: ze_command_list_handle_t,
        dstptr: *mut u64,
        hSignalEvent: ze_event_handle_t,
        numWaitEvents: u32,
        phWaitEvents: *mut ze_event_handle_t,
    ) -> ze_result_t {
        (self.zeCommandListAppendWriteGlobalTimestamp)(
            hCommandList,
            dstptr,
            hSignalEvent,
            numWaitEvents,
            phWaitEvents,
        )
    }
    pub unsafe fn zeCommandListAppendBarrier(
        &self,
        hCommandList: ze_command_list_handle_t,
        hSignalEvent: ze_event_handle_t,
        numWaitEvents: u32,
        phWaitEvents: *mut ze_event_handle_t,
    ) -> ze_result_t {
        (self.zeCommandListAppendBarrier)(hCommandList, hSignalEvent, numWaitEvents, phWaitEvents)
    }
    pub unsafe fn zeCommandListAppendMemoryCopy(
        &self,
        hCommandList: ze_command_list_handle_t,
        dstptr: *mut ::std::os::raw::c_void,
        srcptr: *const ::std::os::raw::c_void,
        size: usize,
        hSignalEvent: ze_event_handle_t,
        numWaitEvents: u32,
        phWaitEvents: *mut ze_event_handle_t,
    ) -> ze_result_t {
        (self.zeCommandListAppendMemoryCopy)(
            hCommandList,
            dstptr,
            srcptr,
            size,
            hSignalEvent,
            numWaitEvents,
            phWaitEvents,
        )
    }
    pub unsafe fn zeCommandListAppendMemoryFill(
        &self,
        hCommandList: ze_command_list_handle_t,
        ptr: *mut ::std::os::raw::c_void,
        pattern: *const ::std::os::raw::c_void,
        pattern_size: usize,
        size: usize,
        hSignalEvent: ze_event_handle_t,
        numWaitEvents: u32,
        phWaitEvents: *mut ze_event_handle_t,
    ) -> ze_result_t {
        (self.zeCommandListAppendMemoryFill)(
            hCommandList,
            ptr,
            pattern,
            pattern_size,
            size,
            hSignalEvent,
            numWaitEvents,
            phWaitEvents,
        )
    }
    pub unsafe fn zeEventPoolCreate(
        &self,
        hContext: ze_context_handle_t,
        desc: *const ze_event_pool_desc_t,
        numDevices: u32,
        phDevices: *mut ze_device_handle_t,
        phEventPool: *mut ze_event_pool_handle_t,
    ) -> ze_result_t {
        (self.zeEventPoolCreate)(hContext, desc, numDevices, phDevices, phEventPool)
    }
    pub unsafe fn zeEventPoolDestroy(&self, hEventPool: ze_event_pool_handle_t) -> ze_result_t {
        (self.zeEventPoolDestroy)(hEventPool)
    }
    pub unsafe fn zeEventCreate(
        &self,
        hEventPool: ze_event_pool_handle_t,
        desc: *const ze_event_desc_t,
        phEvent: *mut ze_event_handle_t,
    ) -> ze_result_t {
        (self.zeEventCreate)(hEventPool, desc, phEvent)
    }
    pub unsafe fn zeEventDestroy(&self, hEvent: ze_event_handle_t) -> ze_result_t {
        (self.zeEventDestroy)(hEvent)
    }
    pub unsafe fn zeCommandListAppendSignalEvent(
        &self,
        hCommandList: ze_command_list_handle_t,
        hEvent: ze_event_handle_t,
    ) -> ze_result_t {
        (self.zeCommandListAppendSignalEvent)(hCommandList, hEvent)
    }
    pub unsafe fn zeCommandListAppendWaitOnEvents(
        &self,
        hCommandList: ze_command_list_handle_t,
        numEvents: u32,
        phEvents: *mut ze_event_handle_t,
    ) -> ze_result_t {
        (self.zeCommandListAppendWaitOnEvents)(hCommandList, numEvents, phEvents)
    }
    pub unsafe fn zeEventHostSynchronize(&self, hEvent: ze_event_handle_t, timeout: u64) -> ze_result_t {
        (self.zeEventHostSynchronize)(hEvent, timeout)
    }
    pub unsafe fn zeEventQueryStatus(&self, hEvent: ze_event_handle_t) -> ze_result_t {
        (self.zeEventQueryStatus)(hEvent)
    }
    pub unsafe fn zeCommandListAppendEventReset(
        &self,
        hCommandList: ze_command_list_handle_t,
        hEvent: ze_event_handle_t,
    ) -> ze_result_t {
        (self.zeCommandListAppendEventReset)(hCommandList, hEvent)
    }
    pub unsafe fn zeEventHostReset(&self, hEvent: ze_event_handle_t) -> ze_result_t {
        (self.zeEventHostReset)(hEvent)
    }
    pub unsafe fn zeMemAllocDevice(
        &self,
        hContext: ze_context_handle_t,
        device_desc: *const ze_device_mem_alloc_desc_t,
        size: usize,
        alignment: usize,
        hDevice: ze_device_handle_t,
        pptr: *mut *mut ::std::os::raw::c_void,
    ) -> ze_result_t {
        (self.zeMemAllocDevice)(hContext, device_desc, size, alignment, hDevice, pptr)
    }
    pub unsafe fn zeMemAllocHost(
        &self,
        hContext: ze_context_handle_t,
        host_desc: *const ze_host_mem_alloc_desc_t,
        size: usize,
        alignment: usize,
        pptr: *mut *mut ::std::os::raw::c_void,
    ) -> ze_result_t {
        (self.zeMemAllocHost)(hContext, host_desc, size, alignment, pptr)
    }
    pub unsafe fn zeMemFree(
        &self,
        hContext: ze_context_handle_t,
        ptr: *mut ::std::os::raw::c_void,
    ) -> ze_result_t {
        (self.zeMemFree)(hContext, ptr)
    }
    pub unsafe fn zeModuleCreate(
        &self,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const ze_module_desc_t,
        phModule: *mut ze_module_handle_t,
        phBuildLog: *mut ze_module_build_log_handle_t,
    ) -> ze_result_t {
        (self.zeModuleCreate)(hContext, hDevice, desc, phModule, phBuildLog)
    }
    pub unsafe fn zeModuleDestroy(&self, hModule: ze_module_handle_t) -> ze_result_t {
        (self.zeModuleDestroy)(hModule)
    }
    pub unsafe fn zeModuleBuildLogDestroy(
        &self,
        hModuleBuildLog: ze_module_build_log_handle_t,
    ) -> ze_result_t {
        (self.zeModuleBuildLogDestroy)(hModuleBuildLog)
    }
    pub unsafe fn zeModuleBuildLogGetString(
        &self,
        hModuleBuildLog: ze_module_build_log_handle_t,
        pSize: *mut usize,
        pBuildLog: *mut ::std::os::raw::c_char,
    ) -> ze_result_t {
        (self.zeModuleBuildLogGetString)(hModuleBuildLog, pSize, pBuildLog)
    }
    pub unsafe fn zeKernelCreate(
        &self,
        hModule: ze_module_handle_t,
        desc: *const ze_kernel_desc_t,
        phKernel: *mut ze_kernel_handle_t,
    ) -> ze_result_t {
        (self.zeKernelCreate)(hModule, desc, phKernel)
    }
    pub unsafe fn zeKernelDestroy(&self, hKernel: ze_kernel_handle_t) -> ze_result_t {
        (self.zeKernelDestroy)(hKernel)
    }
    pub unsafe fn zeKernelSetGroupSize(
        &self,
        hKernel: ze_kernel_handle_t,
        groupSizeX: u32,
        groupSizeY: u32,
        groupSizeZ: u32,
    ) -> ze_result_t {
        (self.zeKernelSetGroupSize)(hKernel, groupSizeX, groupSizeY, groupSizeZ)
    }
    pub unsafe fn zeKernelSetArgumentValue(
        &self,
        hKernel: ze_kernel_handle_t,
        argIndex: u32,
        argSize: usize,
        pArgValue: *const ::std::os::raw::c_void,
    ) -> ze_result_t {
        (self.zeKernelSetArgumentValue)(hKernel, argIndex, argSize, pArgValue)
    }
    pub unsafe fn zeKernelSetIndirectAccess(
        &self,
        hKernel: ze_kernel_handle_t,
        flags: ze_kernel_indirect_access_flags_t,
    ) -> ze_result_t {
        (self.zeKernelSetIndirectAccess)(hKernel, flags)
    }
    pub unsafe fn zeKernelGetProperties(
        &self,
        hKernel: ze_kernel_handle_t,
        pKernelProperties: *mut ze_kernel_properties_t,
    ) -> ze_result_t {
        (self.zeKernelGetProperties)(hKernel, pKernelProperties)
    }
    pub unsafe fn zeCommandListAppendLaunchKernel(
        &self,
        hCommandList: ze_command_list_handle_t,
        hKernel: ze_kernel_handle_t,
        pLaunchFuncArgs: *const ze_group_count_t,
        hSignalEvent: ze_event_handle_t,
        numWaitEvents: u32,
        phWaitEvents: *mut ze_event_handle_t,
    ) -> ze_result_t {
        (self.zeCommandListAppendLaunchKernel)(
            hCommandList,
            hKernel,
            pLaunchFuncArgs,
            hSignalEvent,
            numWaitEvents,
            phWaitEvents,
        )
    }
    pub unsafe fn zeDevicePciGetPropertiesExt(
        &self,
        hDevice: ze_device_handle_t,
        pPciProperties: *mut ze_pci_ext_properties_t,
    ) -> ze_result_t {
        (self.zeDevicePciGetPropertiesExt)(hDevice, pPciProperties)
    }
}
