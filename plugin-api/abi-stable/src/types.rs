//! The frozen types, as version 1.0 of the ABI has them.
//!
//! They are written down a second time because deriving needs `abi_stable`, which must not enter
//! `paceline-plugin-api`. That both are the same is checked when this is compiled.

#![allow(non_local_definitions, reason = "the derive makes them")]

use abi_stable::StableAbi;
use core::ffi::c_void;
use core::mem::{align_of, offset_of, size_of};
use paceline_plugin_api::abi;

/// Declares a type with the layout of one of [`abi`]: the same size, or a beginning of it, and every field at the same
/// place, as large as there.
macro_rules! frozen {
    ($(#[$about:meta])* $name:ident of $original:ident, $extent:ident { $($field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[repr(C)]
        #[derive(StableAbi, Clone, Copy)]
        pub struct $name {
            $(
                #[doc = concat!("As in [`abi::", stringify!($original), "`].")]
                pub $field: $type,
            )*
        }

        const _: () = {
            assert!(align_of::<$name>() == align_of::<abi::$original>());
            assert!(extent::$extent(size_of::<$name>(), size_of::<abi::$original>()));
            $(
                assert!(offset_of!($name, $field) == offset_of!(abi::$original, $field));
                assert!(size_of::<$type>() == field_size(|original: &abi::$original| &raw const original.$field));
            )*
        };
    };
}

/// The size of what a projection points to.
const fn field_size<T, F>(_: fn(&T) -> *const F) -> usize {
    size_of::<F>()
}

/// How much of the original a type has.
mod extent {
    pub const fn whole(mirror: usize, original: usize) -> bool {
        mirror == original
    }

    pub const fn beginning(mirror: usize, original: usize) -> bool {
        mirror <= original
    }
}

frozen! {
    /// UTF-8 text.
    Str of Str, whole {
        ptr: *const u8,
        len: usize,
    }
}

frozen! {
    /// A range of bytes.
    Bytes of Bytes, whole {
        ptr: *const u8,
        len: usize,
    }
}

frozen! {
    /// An error that crosses the ABI.
    Status of Status, beginning {
        size: usize,
        code: i32,
        flags: u32,
        message: Str,
        // A pointer to a function that takes this very type; its own layout says no more.
        release: *const c_void,
    }
}

frozen! {
    /// What a plugin is, up to its functions.
    PluginTable of PluginTable, beginning {
        size: usize,
        abi_oldest: u32,
        abi_built: u32,
        id: Str,
        plugin_version: Str,
        kind: u32,
        reserved: u32,
        descriptor: Str,
    }
}

frozen! {
    /// One device.
    DeviceInfo of DeviceInfo, beginning {
        size: usize,
        kind: u32,
        units: u32,
        name: Str,
        physical_id: Str,
        arch: Str,
        capabilities: Str,
        memory_total: u64,
    }
}

frozen! {
    /// Memory of a device.
    MemoryInfo of MemoryInfo, beginning {
        size: usize,
        total: u64,
        free: u64,
        granularity: u64,
    }
}

frozen! {
    /// A weight and its uses. Whole, since [`abi::WeightImport`] has one inside.
    WeightUse of WeightUse, whole {
        size: usize,
        name: Str,
        dtype: u32,
        uses: u32,
        rank: u32,
        group: u32,
        dims: [u32; 4],
    }
}

frozen! {
    /// Where a weight lives.
    WeightLayout of WeightLayout, whole {
        layout: u64,
        bytes: u64,
        alignment: u64,
    }
}

frozen! {
    /// What a plan says about a state.
    StatePlan of StatePlan, whole {
        bytes: u64,
        alignment: u64,
        layout: u64,
    }
}

frozen! {
    /// A range in an arena.
    ArenaSpan of ArenaSpan, whole {
        arena: *mut c_void,
        offset: u64,
        bytes: u64,
    }
}

frozen! {
    /// A semaphore and a value.
    SemaphorePoint of SemaphorePoint, whole {
        semaphore: *mut c_void,
        value: u64,
    }
}

frozen! {
    /// One value of a graph.
    GraphValue of GraphValue, beginning {
        size: usize,
        kind: u32,
        dtype: u32,
        rank: u32,
        dims: [u32; 4],
        live: u32,
        offset: u32,
        state_kind: u32,
        name: Str,
    }
}

frozen! {
    /// A setting of a device.
    SettingText of SettingText, whole {
        key: Str,
        value: Str,
    }
}

/// All of them, in one type that is never made.
#[repr(C)]
#[derive(StableAbi)]
#[allow(missing_docs, reason = "each field is its type")]
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
