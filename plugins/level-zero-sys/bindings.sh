#!/bin/sh
# Makes src/bindings.rs: needs bindgen 0.72 (`cargo install bindgen-cli`), libclang and level_zero/ze_api.h (`libze-dev`).
set -eu
cd "$(dirname "$0")"
functions='zeInit|zeDriverGet|zeDriverGetApiVersion|zeDriverGetExtensionProperties|zeDeviceGet|zeDeviceGetProperties|zeDeviceGetComputeProperties
zeDeviceGetMemoryProperties|zeDeviceGetModuleProperties|zeDevicePciGetPropertiesExt|zeDeviceGetCommandQueueGroupProperties|zeDeviceGetStatus
zeContextCreate|zeContextDestroy|zeMemAllocDevice|zeMemAllocHost|zeMemFree|zeModuleCreate|zeModuleDestroy|zeModuleBuildLogGetString
zeModuleBuildLogDestroy|zeKernelCreate|zeKernelDestroy|zeKernelSetGroupSize|zeKernelSetArgumentValue|zeKernelSetIndirectAccess
zeKernelGetProperties|zeCommandQueueCreate|zeCommandQueueDestroy|zeCommandQueueExecuteCommandLists|zeCommandQueueSynchronize
zeCommandListCreate|zeCommandListCreateImmediate|zeCommandListDestroy|zeCommandListClose|zeCommandListAppendMemoryCopy
zeCommandListAppendMemoryFill|zeCommandListAppendBarrier|zeCommandListAppendLaunchKernel|zeCommandListAppendSignalEvent
zeCommandListAppendWaitOnEvents|zeCommandListAppendEventReset|zeCommandListAppendWriteGlobalTimestamp|zeEventPoolCreate|zeEventPoolDestroy
zeEventCreate|zeEventDestroy|zeEventHostReset|zeEventHostSynchronize|zeEventQueryStatus'
bindgen /usr/include/level_zero/ze_api.h --dynamic-loading LevelZero --dynamic-link-require-all --default-enum-style consts \
    --no-prepend-enum-name --no-layout-tests --with-derive-default --no-doc-comments --blocklist-type '__.*' \
    --allowlist-function "$(echo "$functions" | tr '\n' '|')" \
    --allowlist-type 'ze_relaxed_allocation_limits_exp_(desc|flag)_t|ze_result_t|ze_structure_type_t|ze_init_flag_t|ze_device_property_flag_t' \
    --allowlist-type 'ze_command_queue_group_property_flag_t|ze_event_(pool|scope)_flag_t|ze_kernel_indirect_access_flag_t' -o src/bindings.rs
rustfmt --edition 2024 --config max_width=110 src/bindings.rs
# What bindgen writes is for libloading 0.8; 0.9 has a trait of its own for names of files.
sed -i 's/P: AsRef<::std::ffi::OsStr>,/P: ::libloading::AsFilename,/' src/bindings.rs
