//! What a plugin states about itself, and how it is exported or linked in.

use crate::abi::{self, EntryFn, HostTable, PluginTable, Str};
use std::ffi::c_void;

/// What a plugin states about itself.
#[derive(Clone, Copy, Debug)]
pub struct PluginInfo {
    /// Id, lower case with dashes.
    pub id: &'static str,
    /// Version, semver.
    pub version: &'static str,
    /// One of [`abi::kind`].
    pub kind: u32,
    /// The whole descriptor, TOML.
    pub descriptor: &'static str,
}

impl PluginInfo {
    /// The C table of a plugin with this description.
    pub const fn table(
        &self,
        get_interface: unsafe extern "C" fn(id: Str, min_minor: u32) -> *const c_void,
    ) -> PluginTable {
        PluginTable {
            size: size_of::<PluginTable>(),
            abi_oldest: abi::version(abi::ABI_MAJOR, abi::ABI_OLDEST_MINOR),
            abi_built: abi::version(abi::ABI_MAJOR, abi::ABI_MINOR),
            id: Str::new(self.id),
            plugin_version: Str::new(self.version),
            kind: self.kind,
            reserved: 0,
            descriptor: Str::new(self.descriptor),
            get_interface: Some(get_interface),
            shutdown: None,
        }
    }
}

// SAFETY: a plugin's table is constant for the life of the process.
unsafe impl Sync for PluginTable {}

/// A plugin that is linked into the host. It enters through the same entry function and the same tables as one from
/// a shared library.
pub struct Builtin {
    /// The entry function.
    pub entry: EntryFn,
}

inventory::collect!(Builtin);

/// Every plugin that is linked in.
pub fn builtins() -> impl Iterator<Item = &'static Builtin> {
    inventory::iter::<Builtin>.into_iter()
}

/// Called by entry functions: true if the host is to be given the plugin's table. A host whose versions the plugin does
/// not speak gets it too: it compares both ranges, and can so name both.
///
/// # Safety
/// `host` must be null or a host table that is valid for the life of the process.
#[doc(hidden)]
pub unsafe fn accept_host(host: *const HostTable) -> bool {
    !host.is_null()
}

/// Called by the entry symbol: true if functions of the host may be called.
///
/// # Safety
/// `host` must be null or a host table that is valid for the life of the process.
#[doc(hidden)]
pub unsafe fn can_talk_to(host: *const HostTable) -> bool {
    if host.is_null() {
        return false;
    }
    // SAFETY: by the contract of this function; the first three fields are in every version of the table.
    let (current, oldest) = unsafe { ((*host).abi_current, (*host).abi_oldest) };
    let mine = abi::version(abi::ABI_MAJOR, abi::ABI_MINOR);
    oldest <= mine && current >= abi::version(abi::ABI_MAJOR, abi::ABI_OLDEST_MINOR)
}

/// Defines the entry function of a plugin with this description, whose interfaces `plugin_interface` gives, and registers
/// it as a built-in.
#[doc(hidden)]
#[macro_export]
macro_rules! plugin_entry {
    ($info:expr) => {
        /// The plugin's entry: checks the host and returns the plugin's table.
        ///
        /// # Safety
        /// `host` must be null or a host table that is valid for the life of the process.
        pub unsafe extern "C" fn plugin_entry(
            host: *const $crate::abi::HostTable,
        ) -> *const $crate::abi::PluginTable {
            static TABLE: $crate::abi::PluginTable = $info.table(plugin_interface);
            // SAFETY: by the contract of this function.
            if unsafe { $crate::shim_instance::accept_host(host) } {
                &raw const TABLE
            } else {
                ::core::ptr::null()
            }
        }

        $crate::inventory::submit! { $crate::Builtin { entry: plugin_entry } }
    };
}

/// Declares the backend of a plugin crate: `backend_plugin!(INFO, MyBackend, MyBackend::new())`.
///
/// Defines `plugin_entry`, the entry function, and registers it as a built-in, so that a host that links the crate
/// finds it. A shared library is a crate of its own with `export_plugin!(my_crate::plugin_entry, ...)`.
///
/// With `weight_types: MyFormat` behind it, a [`crate::weight_types::ReferenceFormat`], the plugin also says what the
/// weight types of its descriptor mean.
#[macro_export]
macro_rules! backend_plugin {
    ($info:expr, $backend:ty, $make:expr $(, weight_types: $format:ty)? $(,)?) => {
        struct PluginInstance;

        impl $crate::shim_instance::Instance for PluginInstance {
            type Backend = $backend;
            fn get() -> &'static $backend {
                static INSTANCE: ::std::sync::OnceLock<$backend> = ::std::sync::OnceLock::new();
                INSTANCE.get_or_init(|| $make)
            }
        }

        unsafe extern "C" fn plugin_interface(
            id: $crate::abi::Str,
            min_minor: u32,
        ) -> *const ::core::ffi::c_void {
            // SAFETY: the host passes readable text.
            let id = unsafe { id.bytes() };
            $(
                if id == $crate::abi::WEIGHT_TYPES_INTERFACE.as_bytes() && min_minor <= $crate::abi::ABI_MINOR {
                    let table: *const $crate::abi::WeightTypesTable =
                        $crate::shim_instance::weight_types_table::<$format>();
                    return table.cast();
                }
            )?
            if id == $crate::abi::PEER_COPY_INTERFACE.as_bytes() && min_minor <= $crate::abi::ABI_MINOR {
                let table: *const $crate::abi::PeerCopyTable =
                    $crate::shim_instance::peer_copy_table::<PluginInstance>();
                return table.cast();
            }
            if id == $crate::abi::GRAPH_CAPTURE_INTERFACE.as_bytes() && min_minor <= $crate::abi::ABI_MINOR {
                let table: *const $crate::abi::GraphCaptureTable =
                    $crate::shim_instance::graph_capture_table::<PluginInstance>();
                return table.cast();
            }
            if id == $crate::abi::BACKEND_INTERFACE.as_bytes() && min_minor <= $crate::abi::ABI_MINOR {
                let table: *const $crate::abi::BackendTable = $crate::backend_table::<PluginInstance>();
                table.cast()
            } else {
                ::core::ptr::null()
            }
        }

        $crate::plugin_entry!($info);
    };
}

/// Exports a plugin from a shared library: `export_plugin!(my_crate::plugin_entry, my_crate::DESCRIPTOR)`.
///
/// Defines the entry symbol and puts the descriptor, a TOML text, in a section of the file, where it can be read
/// without running the file. A build with `panic = "abort"` is refused: a panic must become an error.
#[macro_export]
macro_rules! export_plugin {
    ($entry:path, $descriptor:expr) => {
        #[cfg(panic = "abort")]
        compile_error!(
            "a Paceline plugin must be built with panic = \"unwind\": a panic must become an error"
        );

        /// The entry symbol.
        ///
        /// # Safety
        /// Called by a Paceline host with its table.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn paceline_plugin_entry_v1(
            host: *const $crate::abi::HostTable,
        ) -> *const $crate::abi::PluginTable {
            // A plugin that is linked in shares the host's log; a library has to be connected.
            // SAFETY: the same contract.
            unsafe {
                if $crate::shim_instance::can_talk_to(host) {
                    $crate::log::connect(host);
                }
                $entry(host)
            }
        }

        #[used]
        #[cfg_attr(target_os = "linux", unsafe(link_section = ".paceline.plugin"))]
        static DESCRIPTOR_SECTION: [u8; $crate::descriptor::section_length($descriptor)] =
            $crate::descriptor::section($descriptor);
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_host_is_refused() {
        // SAFETY: null is allowed.
        assert!(!unsafe { accept_host(std::ptr::null()) });
        // SAFETY: as above.
        assert!(!unsafe { can_talk_to(std::ptr::null()) });
    }

    #[test]
    fn a_host_of_other_versions_gets_the_table_and_is_not_called() {
        let host =
            |oldest, current| HostTable { abi_oldest: oldest, abi_current: current, ..HostTable::empty() };
        let mine = abi::version(abi::ABI_MAJOR, abi::ABI_MINOR);
        let later = host(abi::version(abi::ABI_MAJOR + 1, 0), abi::version(abi::ABI_MAJOR + 1, 3));
        let earlier = host(abi::version(abi::ABI_MAJOR - 1, 0), abi::version(abi::ABI_MAJOR - 1, 9));
        for (host, talks) in [(later, false), (earlier, false), (host(mine, mine + 5), true)] {
            // SAFETY: the table is live.
            let found = unsafe { (accept_host(&raw const host), can_talk_to(&raw const host)) };
            assert_eq!(found, (true, talks));
        }
    }
}
