//! Arrays in metadata, left in the file's bytes and decoded while iterating.

use std::fmt;
use std::marker::PhantomData;

use crate::access::private::Convert;
use crate::{ValueRef, ValueType};

/// An array value: its element type, its length, and its bytes in the file.
///
/// Nothing is copied until elements are asked for, so a vocabulary of a quarter million tokens
/// costs nothing to hold.
#[derive(Clone, Copy, PartialEq)]
pub struct Array<'a> {
    element_type: ValueType,
    len: usize,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    pub(crate) fn new(element_type: ValueType, len: usize, bytes: &'a [u8]) -> Self {
        Array { element_type, len, bytes }
    }

    /// The type of every element.
    pub fn element_type(&self) -> ValueType {
        self.element_type
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements in order, as views of whatever type they have.
    pub fn iter(&self) -> impl Iterator<Item = ValueRef<'a>> + use<'a> {
        let Array { element_type, len, bytes } = *self;
        let (scalars, strings) = match element_type {
            ValueType::Str => (None, Some(ByteStrings { rest: bytes, left: len })),
            _ => (Some(bytes.chunks_exact(element_type.width().max(1))), None),
        };
        let scalars = scalars
            .into_iter()
            .flatten()
            .map_while(move |bytes| ValueRef::decode_scalar(element_type, bytes));
        scalars.chain(strings.into_iter().flatten().map(ValueRef::Str))
    }

    /// Element `index`, found at once; `None` beyond the end, and for strings, which have to be walked.
    pub fn scalar(&self, index: usize) -> Option<ValueRef<'a>> {
        let width = self.element_type.width();
        if width == 0 || self.element_type == ValueType::Str {
            return None;
        }
        let first = index.checked_mul(width)?;
        ValueRef::decode_scalar(self.element_type, self.bytes.get(first..first.checked_add(width)?)?)
    }

    /// The elements of a string array as bytes; `None` for other element types.
    pub fn byte_strings(&self) -> Option<ByteStrings<'a>> {
        (self.element_type == ValueType::Str).then_some(ByteStrings { rest: self.bytes, left: self.len })
    }

    /// Numbers of `T`, all known to convert.
    pub(crate) fn numbers<T>(&self) -> Numbers<'a, T> {
        Numbers {
            element_type: self.element_type,
            // At least 1, as a width of 0 cannot be stepped over; such arrays never get here.
            chunks: self.bytes.chunks_exact(self.element_type.width().max(1)),
            number: PhantomData,
        }
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Array({}; {})", self.element_type, self.len)
    }
}

impl fmt::Display for Array<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        formatter.write_str("[")?;
        for (index, element) in self.iter().take(SHOWN).enumerate() {
            write!(formatter, "{}{element}", if index > 0 { ", " } else { "" })?;
        }
        if self.len > SHOWN {
            write!(formatter, ", ... {} in all", self.len)?;
        }
        formatter.write_str("]")
    }
}

/// The strings of an array as bytes, of any encoding.
#[derive(Debug, Clone)]
pub struct ByteStrings<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Iterator for ByteStrings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        // Lengths were checked when the file was opened; checking again costs little and holds
        // even if a mapped file is changed meanwhile.
        let (length, rest) = self.rest.split_first_chunk()?;
        let (string, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        self.rest = rest;
        Some(string)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for ByteStrings<'_> {}

/// The strings of an array, all valid UTF-8.
#[derive(Debug, Clone)]
pub struct Strings<'a>(pub(crate) ByteStrings<'a>);

impl<'a> Iterator for Strings<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        // Checked before this iterator was handed out; see `ByteStrings::next`.
        self.0.next().map(|bytes| std::str::from_utf8(bytes).unwrap_or_default())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Strings<'_> {}

/// The numbers (or truth values) of an array, all known to fit `T`.
#[derive(Debug, Clone)]
pub struct Numbers<'a, T> {
    element_type: ValueType,
    chunks: std::slice::ChunksExact<'a, u8>,
    number: PhantomData<T>,
}

impl<'a, T: Convert<'a> + Default> Iterator for Numbers<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let element = ValueRef::decode_scalar(self.element_type, self.chunks.next()?)?;
        // Checked before this iterator was handed out; see `ByteStrings::next`.
        Some(T::convert(&element).unwrap_or_default())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.chunks.size_hint()
    }
}

impl<'a, T: Convert<'a> + Default> ExactSizeIterator for Numbers<'a, T> {}
