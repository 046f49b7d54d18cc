//! Typed access to metadata: `get_*` for optional keys, `require_*` for needed ones.

use crate::{Array, ByteStrings, Error, Fault, Gguf, Numbers, Result, Strings, ValueRef, ValueType};

pub(crate) mod private {
    use crate::ValueRef;

    /// How a metadata value becomes a Rust value. Private, so that only this crate implements it.
    pub trait Convert<'a>: Sized {
        /// The type in words, for messages.
        const EXPECTED: &'static str;

        /// Converts without loss, except that an f64 may be rounded to f32.
        fn convert(value: &ValueRef<'a>) -> Result<Self, Mismatch>;
    }

    /// Why a value does not convert.
    pub enum Mismatch {
        /// Of another type.
        Type,
        /// Of a fitting type, but too large or too small.
        Range { index: Option<usize>, value: String },
        /// A string that is not text.
        NotUtf8 { index: Option<usize> },
    }

    /// Numbers and truth values, which can be the elements of [`crate::Numbers`].
    pub trait Scalar<'a>: Convert<'a> + Default {
        const EXPECTED_ARRAY: &'static str;
    }
}

use private::{Convert, Mismatch, Scalar};

/// The types [`Gguf::get`] can return: integers, floats, `bool`, `&str`, `&[u8]` and arrays.
pub trait FromValue<'a>: Convert<'a> {}

impl<'a, T: Convert<'a>> FromValue<'a> for T {}

macro_rules! integers {
    ($($type:ident)*) => {$(
        impl<'a> Convert<'a> for $type {
            const EXPECTED: &'static str = stringify!($type);

            fn convert(value: &ValueRef<'a>) -> Result<Self, Mismatch> {
                let integer = value.as_integer().ok_or(Mismatch::Type)?;
                $type::try_from(integer)
                    .map_err(|_| Mismatch::Range { index: None, value: integer.to_string() })
            }
        }
    )*};
}

integers! { u8 i8 u16 i16 u32 i32 u64 i64 }

impl<'a> Convert<'a> for f64 {
    const EXPECTED: &'static str = "f64";

    fn convert(value: &ValueRef<'a>) -> Result<Self, Mismatch> {
        match *value {
            ValueRef::F32(value) => Ok(value.into()),
            ValueRef::F64(value) => Ok(value),
            _ => Err(Mismatch::Type),
        }
    }
}

impl<'a> Convert<'a> for f32 {
    const EXPECTED: &'static str = "f32";

    fn convert(value: &ValueRef<'a>) -> Result<Self, Mismatch> {
        match *value {
            ValueRef::F32(value) => Ok(value),
            ValueRef::F64(value) if value.is_finite() && !(value as f32).is_finite() => {
                Err(Mismatch::Range { index: None, value: value.to_string() })
            }
            ValueRef::F64(value) => Ok(value as f32),
            _ => Err(Mismatch::Type),
        }
    }
}

impl<'a> Convert<'a> for bool {
    const EXPECTED: &'static str = "bool";

    fn convert(value: &ValueRef<'a>) -> Result<Self, Mismatch> {
        match *value {
            ValueRef::Bool(value) => Ok(value),
            _ => Err(Mismatch::Type),
        }
    }
}

impl<'a> Convert<'a> for &'a [u8] {
    const EXPECTED: &'static str = "string";

    fn convert(value: &ValueRef<'a>) -> Result<Self, Mismatch> {
        match *value {
            ValueRef::Str(bytes) => Ok(bytes),
            _ => Err(Mismatch::Type),
        }
    }
}

impl<'a> Convert<'a> for &'a str {
    const EXPECTED: &'static str = "string";

    fn convert(value: &ValueRef<'a>) -> Result<Self, Mismatch> {
        std::str::from_utf8(<&[u8]>::convert(value)?).map_err(|_| Mismatch::NotUtf8 { index: None })
    }
}

impl<'a> Convert<'a> for Array<'a> {
    const EXPECTED: &'static str = "array";

    fn convert(value: &ValueRef<'a>) -> Result<Self, Mismatch> {
        match *value {
            ValueRef::Array(array) => Ok(array),
            _ => Err(Mismatch::Type),
        }
    }
}

impl<'a> Convert<'a> for ByteStrings<'a> {
    const EXPECTED: &'static str = "array of string";

    fn convert(value: &ValueRef<'a>) -> Result<Self, Mismatch> {
        Array::convert(value)?.byte_strings().ok_or(Mismatch::Type)
    }
}

impl<'a> Convert<'a> for Strings<'a> {
    const EXPECTED: &'static str = "array of string";

    fn convert(value: &ValueRef<'a>) -> Result<Self, Mismatch> {
        let strings = ByteStrings::convert(value)?;
        match strings.clone().position(|bytes| std::str::from_utf8(bytes).is_err()) {
            Some(index) => Err(Mismatch::NotUtf8 { index: Some(index) }),
            None => Ok(Strings(strings)),
        }
    }
}

macro_rules! scalars {
    ($($type:ident)*) => {$(
        impl Scalar<'_> for $type {
            const EXPECTED_ARRAY: &'static str = concat!("array of ", stringify!($type));
        }
    )*};
}

scalars! { u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 bool }

impl<'a, T: Scalar<'a>> Convert<'a> for Numbers<'a, T> {
    const EXPECTED: &'static str = T::EXPECTED_ARRAY;

    fn convert(value: &ValueRef<'a>) -> Result<Self, Mismatch> {
        let array = Array::convert(value)?;
        // An empty array has no element to fail on, so its type is asked first.
        if array.element_type() == ValueType::Str {
            return Err(Mismatch::Type);
        }
        if let Some(sample) =
            ValueRef::decode_scalar(array.element_type(), &[0; 8][..array.element_type().width()])
            && matches!(T::convert(&sample), Err(Mismatch::Type))
        {
            return Err(Mismatch::Type);
        }
        for (index, element) in array.iter().enumerate() {
            T::convert(&element).map_err(|mismatch| match mismatch {
                Mismatch::Range { value, .. } => Mismatch::Range { index: Some(index), value },
                other => other,
            })?;
        }
        Ok(array.numbers())
    }
}

/// Turns a failed conversion into a fault that names the key. `offset` is the value's place.
pub(crate) fn convert_value<'a, T: Convert<'a>>(
    key: &str,
    value: &ValueRef<'a>,
    offset: u64,
) -> Result<T, Fault> {
    T::convert(value).map_err(|mismatch| match mismatch {
        Mismatch::Type => {
            Fault::WrongType { key: key.to_owned(), expected: T::EXPECTED, found: value.describe_type() }
        }
        Mismatch::Range { index, value } => {
            Fault::OutOfRange { key: key.to_owned(), index, value, expected: T::EXPECTED }
        }
        Mismatch::NotUtf8 { index } => {
            let part = index.map_or_else(String::new, |index| format!("element {index} of "));
            let key = crate::fault::quoted(key);
            Fault::NotUtf8 { what: format!("{part}the value of metadata key {key}"), offset }
        }
    })
}

macro_rules! named_accessors {
    ($($get:ident $require:ident $type:ty, $what:literal;)*) => {
        /// Typed access by name. A missing key is `Ok(None)` from `get_*` and `array_*`, and an
        /// error from `require_*`; a value of another type, or one that does not fit, is always an
        /// error naming the key, what was expected and what is there.
        impl Gguf {$(
            #[doc = concat!("The value of `key` as ", $what, ", if the key is there.")]
            pub fn $get(&self, key: &str) -> Result<Option<$type>> {
                self.get(key)
            }

            #[doc = concat!("The value of `key` as ", $what, "; a missing key is an error.")]
            pub fn $require(&self, key: &str) -> Result<$type> {
                self.require(key)
            }
        )*}
    };
}

named_accessors! {
    get_u32 require_u32 u32, "u32, from any integer type";
    get_i32 require_i32 i32, "i32, from any integer type";
    get_u64 require_u64 u64, "u64, from any integer type";
    get_i64 require_i64 i64, "i64, from any integer type";
    get_f32 require_f32 f32, "f32, rounded if it is f64";
    get_f64 require_f64 f64, "f64, from either float type";
    get_bool require_bool bool, "a truth value";
    get_str require_str &str, "text";
    get_bytes require_bytes &[u8], "the bytes of a string, of any encoding";
    array_str require_array_str Strings<'_>, "an array of text";
    array_bytes require_array_bytes ByteStrings<'_>, "an array of strings of any encoding";
    array_u32 require_array_u32 Numbers<'_, u32>, "an array of u32, from any integer type";
    array_i32 require_array_i32 Numbers<'_, i32>, "an array of i32, from any integer type";
    array_f32 require_array_f32 Numbers<'_, f32>, "an array of f32, rounded if it is f64";
    array_bool require_array_bool Numbers<'_, bool>, "an array of truth values";
}

impl Gguf {
    /// The value of `key` as `T`, if the key is there; the general form of the accessors above.
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>> {
        self.metadata().fetch(self.metadata_bytes(), key).map_err(|fault| Error::new(self.origin(), fault))
    }

    /// The value of `key` as `T`; a missing key is an error.
    pub fn require<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T> {
        self.get(key)?.ok_or_else(|| {
            let fault = Fault::MissingKey { key: key.to_owned(), expected: T::EXPECTED };
            Error::new(self.origin(), fault)
        })
    }
}
