//! Declaring strategies.

/// Declares the drafter of a plugin crate: `drafter_plugin!(INFO, MyPlugin, MyPlugin)`.
///
/// Defines `plugin_entry` and registers it as a built-in, as [`backend_plugin!`](crate::backend_plugin) does.
#[macro_export]
macro_rules! drafter_plugin {
    ($info:expr, $plugin:ty, $make:expr) => {
        $crate::strategy_plugin!(
            $info,
            $plugin,
            $make,
            $crate::abi::DRAFTER_INTERFACE,
            DrafterInstance,
            $crate::drafter_table::<PluginInstance>()
        );
    };
}

/// Declares the rollback strategy of a plugin crate: `rollback_plugin!(INFO, MyPlugin, MyPlugin)`.
///
/// Defines `plugin_entry` and registers it as a built-in, as [`backend_plugin!`](crate::backend_plugin) does.
#[macro_export]
macro_rules! rollback_plugin {
    ($info:expr, $plugin:ty, $make:expr) => {
        $crate::strategy_plugin!(
            $info,
            $plugin,
            $make,
            $crate::abi::ROLLBACK_INTERFACE,
            RollbackInstance,
            $crate::rollback_table::<PluginInstance>()
        );
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! strategy_plugin {
    ($info:expr, $plugin:ty, $make:expr, $interface:expr, $instance:ident, $table:expr) => {
        struct PluginInstance;

        impl $crate::shim_instance::$instance for PluginInstance {
            type Plugin = $plugin;
            fn get() -> &'static $plugin {
                static INSTANCE: ::std::sync::OnceLock<$plugin> = ::std::sync::OnceLock::new();
                INSTANCE.get_or_init(|| $make)
            }
        }

        unsafe extern "C" fn plugin_interface(
            id: $crate::abi::Str,
            min_minor: u32,
        ) -> *const ::core::ffi::c_void {
            // SAFETY: the host passes readable text.
            let id = unsafe { id.bytes() };
            if id == $interface.as_bytes() && min_minor <= $crate::abi::ABI_MINOR {
                ::core::ptr::from_ref($table).cast()
            } else {
                ::core::ptr::null()
            }
        }

        $crate::plugin_entry!($info);
    };
}
