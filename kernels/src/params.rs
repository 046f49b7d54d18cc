//! What kernels take, and how they are launched.
//!
//! A kernel has one argument: its structure, by value. Addresses are device addresses; 0 stands for "none" where the
//! field says so. Sizes and strides count elements, not bytes, unless the name says otherwise. Every structure has
//! the same layout in C (`include/params.h`, generated from here) and no padding.
//!
//! Shapes: `rows` is the largest number of rows that a launch is planned for, and `live` the address of an i32 that
//! says how many of them matter in a run (0: all of them). It is read by the kernel when it runs and taken to be
//! within `0..=rows`. A row has `items` (heads, say) of `width` elements.
//!
//! The bits of a row depend on nothing but the row: neither on `rows`, nor on the live count, nor on the target's wave
//! width. Sums go over 32 lanes with a butterfly, in an order that depends on the width alone.

/// How a kernel is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Name of the kernel.
    pub entry: &'static str,
    /// Groups along x, y and z.
    pub groups: [u32; 3],
    /// Threads of a group, along x.
    pub threads: u32,
    /// Bytes of dynamic shared memory; 0 for all kernels but overrides of a target that want more than is static.
    pub shared_bytes: u32,
}

impl Launch {
    /// A launch without dynamic shared memory.
    pub const fn new(entry: &'static str, groups: [u32; 3], threads: u32) -> Self {
        Self { entry, groups, threads, shared_bytes: 0 }
    }
}

/// A structure that a kernel takes.
pub trait Parameters: Copy {
    /// Name of the structure, also in C.
    const NAME: &'static str;
    /// Names of the fields and their types in C.
    const FIELDS: Fields;

    /// The launch for these parameters.
    fn launch(&self) -> Launch;

    /// The bytes that a kernel gets.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: the macro that makes these structures asserts that they have no padding, so every byte is a value.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

/// Fields of a structure: names, and types in C.
pub type Fields = &'static [(&'static str, &'static str)];
/// Structures of a module: names in C, and fields.
pub type Structures = &'static [(&'static str, Fields)];

/// The C type of a field.
pub trait Field {
    /// Its name in C.
    const C: &'static str;
}

impl Field for u64 {
    const C: &'static str = "kn_u64";
}
impl Field for u32 {
    const C: &'static str = "kn_u32";
}
impl Field for i32 {
    const C: &'static str = "kn_i32";
}
impl Field for f32 {
    const C: &'static str = "float";
}
impl Field for View {
    const C: &'static str = "KnView";
}

/// f32 elements `[rows][items][width]` that need not be dense: a slice of a wider value is a view of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Address of the first element.
    pub address: u64,
    /// Elements from one row to the next.
    pub row: u32,
    /// Elements from one item of a row to the next.
    pub item: u32,
}

impl View {
    /// Dense rows of `items` of `width` elements.
    pub const fn dense(address: u64, items: u32, width: u32) -> Self {
        Self { address, row: items * width, item: width }
    }
}

/// Declares structures with their layout in C.
#[macro_export]
macro_rules! parameters {
    ($($(#[$about:meta])* pub struct $name:ident { $($(#[$field_about:meta])* pub $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$about])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, PartialEq)]
            pub struct $name { $($(#[$field_about])* pub $field: $type,)* }

            impl $name {
                #[doc(hidden)]
                pub const C_NAME: &'static str = concat!("Kn", stringify!($name));
                #[doc(hidden)]
                pub const C_FIELDS: $crate::params::Fields =
                    &[$((stringify!($field), <$type as $crate::params::Field>::C)),*];
            }

            const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*, "padding");
        )*
        /// The structures of this module: names and fields in C.
        pub const STRUCTURES: $crate::params::Structures = &[$(($name::C_NAME, $name::C_FIELDS)),*];
    };
}

/// Implements [`Parameters`] with a launch.
#[macro_export]
macro_rules! launches {
    ($($name:ident($this:ident) => $launch:expr;)*) => {
        $(
            impl $crate::params::Parameters for $name {
                const NAME: &'static str = $name::C_NAME;
                const FIELDS: $crate::params::Fields = $name::C_FIELDS;
                fn launch(&self) -> $crate::params::Launch {
                    let $this = self;
                    $launch
                }
            }
        )*
    };
}

pub mod cache;
pub mod choice;
pub mod elementwise;
pub mod experts;
pub mod fused;
pub mod led;
pub mod linear;
pub mod norms;
pub mod recurrent;
pub mod rows;
