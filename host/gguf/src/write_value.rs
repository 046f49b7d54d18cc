//! Metadata values for the writer.

use crate::{ValueRef, ValueType};

macro_rules! values {
    ($($variant:ident $type:ty;)*) => {
        /// A metadata value to write. Rust numbers, `bool`, strings and vectors convert into it.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs, reason = "the variants are the value types")]
        pub enum Value {
            $($variant($type),)*
            Array(ArrayValue),
        }

        /// An array to write. Arrays of arrays are not supported.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs, reason = "the variants are the value types")]
        pub enum ArrayValue {
            $($variant(Vec<$type>),)*
        }

        $(
            impl From<$type> for Value {
                fn from(value: $type) -> Self {
                    Value::$variant(value)
                }
            }

            impl From<Vec<$type>> for Value {
                fn from(values: Vec<$type>) -> Self {
                    Value::Array(ArrayValue::$variant(values))
                }
            }
        )*

        impl Value {
            /// The value's type.
            pub fn value_type(&self) -> ValueType {
                match self {
                    $(Value::$variant(_) => ValueType::$variant,)*
                    Value::Array(_) => ValueType::Array,
                }
            }

            /// Appends the value as it stands in a file, after its type number.
            pub(crate) fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Value::$variant(value) => value.encode(out),)*
                    Value::Array(array) => array.encode(out),
                }
            }
        }

        impl ArrayValue {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(ArrayValue::$variant(values) => {
                        out.extend(ValueType::$variant.id().to_le_bytes());
                        out.extend((values.len() as u64).to_le_bytes());
                        values.iter().for_each(|value| value.encode(out));
                    })*
                }
            }
        }
    };
}

values! {
    U8 u8;
    I8 i8;
    U16 u16;
    I16 i16;
    U32 u32;
    I32 i32;
    U64 u64;
    I64 i64;
    F32 f32;
    F64 f64;
    Bool bool;
    Str String;
}

impl TryFrom<ValueRef<'_>> for Value {
    type Error = NotText;

    /// Copies a value of a file, so that it can be written into another one.
    fn try_from(value: ValueRef<'_>) -> Result<Self, NotText> {
        macro_rules! array {
            ($array:expr, $($variant:ident)*) => {
                match $array.element_type() {
                    $(ValueType::$variant => Value::Array(ArrayValue::$variant(
                        $array.iter().filter_map(|v| match v { ValueRef::$variant(v) => Some(v), _ => None }).collect(),
                    )),)*
                    _ => Value::Array(ArrayValue::Str(
                        $array
                            .iter()
                            .filter_map(|v| match v { ValueRef::Str(bytes) => Some(text(bytes)), _ => None })
                            .collect::<Result<_, _>>()?,
                    )),
                }
            };
        }
        Ok(match value {
            ValueRef::U8(v) => v.into(),
            ValueRef::I8(v) => v.into(),
            ValueRef::U16(v) => v.into(),
            ValueRef::I16(v) => v.into(),
            ValueRef::U32(v) => v.into(),
            ValueRef::I32(v) => v.into(),
            ValueRef::U64(v) => v.into(),
            ValueRef::I64(v) => v.into(),
            ValueRef::F32(v) => v.into(),
            ValueRef::F64(v) => v.into(),
            ValueRef::Bool(v) => v.into(),
            ValueRef::Str(bytes) => text(bytes)?.into(),
            ValueRef::Array(array) => array!(array, U8 I8 U16 I16 U32 I32 U64 I64 F32 F64 Bool),
        })
    }
}

/// A string of a file that is not UTF-8 cannot be copied as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a string is not UTF-8")]
pub struct NotText;

fn text(bytes: &[u8]) -> Result<String, NotText> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| NotText)
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Str(value.to_owned())
    }
}

impl From<Vec<&str>> for Value {
    fn from(values: Vec<&str>) -> Self {
        values.into_iter().map(str::to_owned).collect::<Vec<_>>().into()
    }
}

/// One element as it stands in a file.
trait Encode {
    fn encode(&self, out: &mut Vec<u8>);
}

macro_rules! encode_numbers {
    ($($type:ident)*) => {$(
        impl Encode for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
        }
    )*};
}

encode_numbers! { u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 }

impl Encode for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }
}

impl Encode for String {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_str(self, out);
    }
}

pub(crate) fn encode_str(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
