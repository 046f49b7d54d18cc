//! The library of the CPU backend, whose idea of a weight is another: its type has 8 bytes, and moves what is behind it.

#![allow(missing_docs, dead_code, non_local_definitions, reason = "most of it is there for the derive alone")]

use paceline_abi_stable::private::abi_stable;

mod types {
    use super::abi_stable::StableAbi;
    use paceline_abi_stable::types::{
        ArenaSpan, Bytes, DeviceInfo, GraphValue, MemoryInfo, PluginTable, SemaphorePoint, SettingText,
        StatePlan, Status, Str, WeightLayout,
    };

    #[repr(C)]
    #[derive(StableAbi)]
    pub struct WeightUse {
        pub size: usize,
        pub name: Str,
        pub dtype: u64,
        pub uses: u32,
        pub rank: u32,
        pub group: u32,
        pub dims: [u32; 4],
    }

    #[repr(C)]
    #[derive(StableAbi)]
    pub struct CoreTypes {
        pub text: Str,
        pub bytes: Bytes,
        pub status: Status,
        pub plugin: PluginTable,
        pub device: DeviceInfo,
        pub memory: MemoryInfo,
        pub weight: WeightUse,
        pub weight_layout: WeightLayout,
        pub state: StatePlan,
        pub span: ArenaSpan,
        pub point: SemaphorePoint,
        pub value: GraphValue,
        pub setting: SettingText,
    }
}

mod module {
    use super::abi_stable::library::RootModule;
    use super::abi_stable::prefix_type::PrefixTypeTrait;
    use super::abi_stable::sabi_types::VersionStrings;
    use super::abi_stable::{self, StableAbi};
    use super::types::CoreTypes;
    use core::ffi::c_void;
    use paceline_abi_stable::types::PluginTable;

    #[repr(C)]
    #[derive(StableAbi)]
    #[sabi(kind(Prefix(prefix_ref = PluginModuleRef, prefix_fields = PluginModuleFields)))]
    #[sabi(phantom_field(core: CoreTypes))]
    #[sabi(missing_field(panic))]
    pub struct PluginModule {
        pub abi_major: u32,
        #[sabi(last_prefix_field)]
        pub entry: unsafe extern "C" fn(host: *const c_void) -> *const PluginTable,
    }

    impl RootModule for PluginModuleRef {
        abi_stable::declare_root_module_statics! {PluginModuleRef}
        const BASE_NAME: &'static str = "paceline_plugin";
        const NAME: &'static str = "paceline_plugin";
        const VERSION_STRINGS: VersionStrings = abi_stable::package_version_strings!();
    }

    unsafe extern "C" fn entry(_: *const c_void) -> *const PluginTable {
        core::ptr::null()
    }

    pub fn make() -> PluginModuleRef {
        PluginModule { abi_major: 1, entry }.leak_into_prefix()
    }
}

paceline_abi_stable::export_module!(module::PluginModuleRef, module::make());
paceline_plugin_api::export_plugin!(paceline_backend_cpu::plugin_entry, paceline_backend_cpu::DESCRIPTOR);
