//! Metadata values: their types and the view of one value in a file's bytes.

use std::fmt;

use crate::Array;

macro_rules! value_types {
    ($($variant:ident $name:literal $id:literal $width:literal)*) => {
        /// The type of a metadata value, by GGUF's numbering.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ValueType {
            $(#[doc = concat!("`", $name, "`, number ", $id, ".")] $variant,)*
        }

        impl ValueType {
            /// The type for a number in a file.
            pub fn from_id(id: u32) -> Option<Self> {
                match id { $($id => Some(ValueType::$variant),)* _ => None }
            }

            /// The number that stands in files.
            pub fn id(self) -> u32 {
                match self { $(ValueType::$variant => $id,)* }
            }

            /// A short name, such as `u32`.
            pub fn name(self) -> &'static str {
                match self { $(ValueType::$variant => $name,)* }
            }

            /// Bytes of one value; 0 for strings and arrays, whose length varies.
            pub fn width(self) -> usize {
                match self { $(ValueType::$variant => $width,)* }
            }
        }
    };
}

value_types! {
    U8    "u8"     0  1
    I8    "i8"     1  1
    U16   "u16"    2  2
    I16   "i16"    3  2
    U32   "u32"    4  4
    I32   "i32"    5  4
    F32   "f32"    6  4
    Bool  "bool"   7  1
    Str   "string" 8  0
    Array "array"  9  0
    U64   "u64"    10 8
    I64   "i64"    11 8
    F64   "f64"    12 8
}

impl fmt::Display for ValueType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// One metadata value, borrowed from the file's bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the variants are the value types")]
pub enum ValueRef<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    /// A string's bytes, which need not be UTF-8.
    Str(&'a [u8]),
    Array(Array<'a>),
}

impl<'a> ValueRef<'a> {
    /// The value's type.
    pub fn value_type(&self) -> ValueType {
        match self {
            ValueRef::U8(_) => ValueType::U8,
            ValueRef::I8(_) => ValueType::I8,
            ValueRef::U16(_) => ValueType::U16,
            ValueRef::I16(_) => ValueType::I16,
            ValueRef::U32(_) => ValueType::U32,
            ValueRef::I32(_) => ValueType::I32,
            ValueRef::U64(_) => ValueType::U64,
            ValueRef::I64(_) => ValueType::I64,
            ValueRef::F32(_) => ValueType::F32,
            ValueRef::F64(_) => ValueType::F64,
            ValueRef::Bool(_) => ValueType::Bool,
            ValueRef::Str(_) => ValueType::Str,
            ValueRef::Array(_) => ValueType::Array,
        }
    }

    /// The value of any integer type; `None` for other types.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            ValueRef::U8(value) => value.into(),
            ValueRef::I8(value) => value.into(),
            ValueRef::U16(value) => value.into(),
            ValueRef::I16(value) => value.into(),
            ValueRef::U32(value) => value.into(),
            ValueRef::I32(value) => value.into(),
            ValueRef::U64(value) => value.into(),
            ValueRef::I64(value) => value.into(),
            _ => return None,
        })
    }

    /// The type in words, for messages: `u32`, or `an array of 3 f32`.
    pub(crate) fn describe_type(&self) -> String {
        match self {
            ValueRef::Array(array) => format!("an array of {} {}", array.len(), array.element_type()),
            other => other.value_type().name().to_owned(),
        }
    }

    /// Decodes a number or truth value from exactly its bytes; `None` for the varying types or a
    /// wrong number of bytes.
    pub(crate) fn decode_scalar(value_type: ValueType, bytes: &[u8]) -> Option<ValueRef<'static>> {
        Some(match value_type {
            ValueType::U8 => ValueRef::U8(*bytes.first()?),
            ValueType::I8 => ValueRef::I8(i8::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::U16 => ValueRef::U16(u16::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I16 => ValueRef::I16(i16::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::U32 => ValueRef::U32(u32::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I32 => ValueRef::I32(i32::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::U64 => ValueRef::U64(u64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I64 => ValueRef::I64(i64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::F32 => ValueRef::F32(f32::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::F64 => ValueRef::F64(f64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::Bool => ValueRef::Bool(*bytes.first()? != 0),
            ValueType::Str | ValueType::Array => return None,
        })
    }
}

/// Values are shown as a person would write them; long arrays are cut after eight elements.
impl fmt::Display for ValueRef<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueRef::U8(value) => value.fmt(formatter),
            ValueRef::I8(value) => value.fmt(formatter),
            ValueRef::U16(value) => value.fmt(formatter),
            ValueRef::I16(value) => value.fmt(formatter),
            ValueRef::U32(value) => value.fmt(formatter),
            ValueRef::I32(value) => value.fmt(formatter),
            ValueRef::U64(value) => value.fmt(formatter),
            ValueRef::I64(value) => value.fmt(formatter),
            ValueRef::F32(value) => value.fmt(formatter),
            ValueRef::F64(value) => value.fmt(formatter),
            ValueRef::Bool(value) => value.fmt(formatter),
            // Debug form, so that control characters cannot reach a terminal.
            ValueRef::Str(bytes) => write!(formatter, "{:?}", String::from_utf8_lossy(bytes)),
            ValueRef::Array(array) => array.fmt(formatter),
        }
    }
}
