//! The root module that a plugin's library carries.

#![allow(non_local_definitions, reason = "the derive makes them")]

use crate::types::{CoreTypes, PluginTable};
use abi_stable::StableAbi;
use abi_stable::library::RootModule;
use abi_stable::prefix_type::PrefixTypeTrait;
use abi_stable::sabi_types::VersionStrings;
use core::ffi::c_void;
use paceline_plugin_api::abi::{self, EntryFn};

/// What a plugin's library carries. Frozen: nothing is ever added, since everything else is in the C tables.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = PluginModuleRef, prefix_fields = PluginModuleFields)))]
#[sabi(phantom_field(core: CoreTypes))]
#[sabi(missing_field(panic))]
pub struct PluginModule {
    /// Major version of the C ABI.
    pub abi_major: u32,
    /// The C entry, the same as the library's symbol.
    #[sabi(last_prefix_field)]
    pub entry: unsafe extern "C" fn(host: *const c_void) -> *const PluginTable,
}

impl RootModule for PluginModuleRef {
    abi_stable::declare_root_module_statics! {PluginModuleRef}
    const BASE_NAME: &'static str = "paceline_plugin";
    const NAME: &'static str = "paceline_plugin";
    const VERSION_STRINGS: VersionStrings = abi_stable::package_version_strings!();
}

/// The module of a plugin with this entry.
pub fn module(entry: EntryFn) -> PluginModuleRef {
    type Entry = unsafe extern "C" fn(host: *const c_void) -> *const PluginTable;
    // SAFETY: both types take and return one pointer each; what they point to is the same by the checks in `types`.
    let entry = unsafe { core::mem::transmute::<EntryFn, Entry>(entry) };
    PluginModule { abi_major: abi::ABI_MAJOR, entry }.leak_into_prefix()
}

/// Makes a plugin's library carry the layouts of the types that it was built with:
/// `carry_layouts!(paceline_plugin_entry_v1)`, beside `export_plugin!`, which defines that function.
#[macro_export]
macro_rules! carry_layouts {
    ($entry:path) => {
        $crate::export_module!($crate::PluginModuleRef, $crate::module($entry));
    };
}

/// Exports a root module under the name that `abi_stable` looks for. Its own attribute does the same, in a form that
/// the edition of 2024 does not take.
#[doc(hidden)]
#[macro_export]
macro_rules! export_module {
    ($module:ty, $make:expr) => {
        const _: () = {
            use $crate::private::abi_stable::library::{
                __call_root_module_loader, CheckTypeLayout, LibHeader, RootModuleResult,
            };

            fn make() -> $module {
                $make
            }

            extern "C" fn erased() -> RootModuleResult {
                __call_root_module_loader(make)
            }

            #[unsafe(export_name = "_1as_0lib_1header_0root_bmodule_bloader")]
            static HEADER: LibHeader =
                // SAFETY: `erased` returns a module of this type.
                unsafe { LibHeader::from_constructor::<$module>(erased, CheckTypeLayout::Yes) };
        };
    };
}

#[cfg(test)]
mod tests {
    /// The name stands in a macro, where it must be written out.
    #[test]
    fn the_exported_name_is_the_one_that_is_looked_for() {
        let name = abi_stable::library::ROOT_MODULE_LOADER_NAME;
        assert_eq!(name, "_1as_0lib_1header_0root_bmodule_bloader");
    }
}
