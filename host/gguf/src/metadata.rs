//! The metadata table of one file: reading it, and finding keys in it.

use crate::access::convert_value;
use crate::access::private::Convert;
use crate::cursor::Cursor;
use crate::fault::quoted;
use crate::header::Header;
use crate::{Array, Fault, Limits, ValueRef, ValueType};

/// The fewest bytes a key can take: length, type and a one-byte value.
const MIN_ENTRY_BYTES: u64 = 8 + 4 + 1;

/// Keys and where their values are; the values stay in the file's bytes.
#[derive(Default)]
pub(crate) struct Metadata {
    /// In the order of the file.
    entries: Vec<Entry>,
    /// Indices into `entries`, ordered by key.
    by_key: Vec<u32>,
}

struct Entry {
    key: Box<str>,
    /// Where the entry starts in the file.
    offset: u64,
    value: Place,
}

/// A value's type and byte range. For strings the range is the text without its length, for
/// arrays the elements without type and count.
struct Place {
    value_type: ValueType,
    start: usize,
    end: usize,
    /// For arrays only.
    element_type: ValueType,
    element_count: usize,
}

impl Metadata {
    /// Reads `count` entries. Faults that leave the table readable go to `on_fault`.
    pub(crate) fn read(
        cursor: &mut Cursor<'_>,
        count: u64,
        limits: &Limits,
        on_fault: &mut dyn FnMut(Fault) -> Result<(), Fault>,
    ) -> Result<Self, Fault> {
        if count > limits.keys {
            return Err(Fault::TooMany {
                what: "the number of metadata keys",
                offset: Header::KEY_COUNT_OFFSET,
                count,
                limit: limits.keys,
            });
        }
        let needed = u128::from(count) * u128::from(MIN_ENTRY_BYTES);
        cursor.expect(needed, format_args!("a table of {count} metadata keys"))?;
        let mut entries = Vec::new();
        entries.reserve_exact(count as usize);
        for index in 0..count {
            entries.push(read_entry(cursor, index, limits)?);
        }
        let mut metadata = Metadata { by_key: (0..entries.len() as u32).collect(), entries };
        metadata.index(on_fault)?;
        Ok(metadata)
    }

    fn index(&mut self, on_fault: &mut dyn FnMut(Fault) -> Result<(), Fault>) -> Result<(), Fault> {
        let entries = &self.entries;
        self.by_key.sort_by_key(|index| &entries[*index as usize].key);
        for pair in self.by_key.windows(2) {
            let [first, second] = [pair[0], pair[1]].map(|index| &entries[index as usize]);
            if first.key == second.key {
                on_fault(Fault::DuplicateKey { key: second.key.to_string(), offset: second.offset })?;
            }
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Keys and values in the order of the file. `bytes` is the whole file.
    pub(crate) fn iter<'a>(
        &'a self,
        bytes: &'a [u8],
    ) -> impl ExactSizeIterator<Item = (&'a str, ValueRef<'a>)> {
        self.entries.iter().map(|entry| (&*entry.key, entry.value.view(bytes)))
    }

    pub(crate) fn value<'a>(&self, bytes: &'a [u8], key: &str) -> Option<ValueRef<'a>> {
        self.find(key).map(|entry| entry.value.view(bytes))
    }

    /// The value of `key` converted to `T`, with faults that name the key.
    pub(crate) fn fetch<'a, T: Convert<'a>>(&self, bytes: &'a [u8], key: &str) -> Result<Option<T>, Fault> {
        self.find(key)
            .map(|entry| convert_value(key, &entry.value.view(bytes), entry.value.start as u64))
            .transpose()
    }

    fn find(&self, key: &str) -> Option<&Entry> {
        let position =
            self.by_key.binary_search_by_key(&key, |index| &*self.entries[*index as usize].key).ok()?;
        Some(&self.entries[self.by_key[position] as usize])
    }
}

impl Place {
    fn view<'a>(&self, bytes: &'a [u8]) -> ValueRef<'a> {
        let bytes = &bytes[self.start..self.end];
        match self.value_type {
            ValueType::Str => ValueRef::Str(bytes),
            ValueType::Array => ValueRef::Array(Array::new(self.element_type, self.element_count, bytes)),
            scalar => ValueRef::decode_scalar(scalar, bytes).unwrap_or(ValueRef::Str(bytes)),
        }
    }
}

fn read_entry(cursor: &mut Cursor<'_>, index: u64, limits: &Limits) -> Result<Entry, Fault> {
    let offset = cursor.offset();
    let key = cursor.string(limits.key_bytes, format_args!("the name of metadata key {index}"))?;
    let key = std::str::from_utf8(key).map_err(|_| Fault::NotUtf8 {
        what: format!("the name of metadata key {index}"),
        offset: offset + 8,
    })?;
    let value_type = read_type(cursor, key)?;
    let value = match value_type {
        ValueType::Array => read_array(cursor, key, limits)?,
        scalar_or_string => {
            let start = read_single(cursor, key, scalar_or_string, limits)?;
            Place {
                value_type,
                start,
                end: cursor.offset() as usize,
                element_type: value_type,
                element_count: 0,
            }
        }
    };
    Ok(Entry { key: key.into(), offset, value })
}

fn read_type(cursor: &mut Cursor<'_>, key: &str) -> Result<ValueType, Fault> {
    let offset = cursor.offset();
    let id = cursor.u32(format_args!("the value type of metadata key {}", quoted(key)))?;
    ValueType::from_id(id).ok_or_else(|| Fault::UnknownValueType { key: key.to_owned(), id, offset })
}

/// Steps over a number or string and returns where its bytes start.
fn read_single(
    cursor: &mut Cursor<'_>,
    key: &str,
    value_type: ValueType,
    limits: &Limits,
) -> Result<usize, Fault> {
    let what = quoted(key);
    let value = if value_type == ValueType::Str {
        cursor.string(limits.string_bytes, format_args!("the value of metadata key {what}"))?
    } else {
        cursor.take(value_type.width() as u64, format_args!("the value of metadata key {what}"))?
    };
    let start = cursor.offset() as usize - value.len();
    if value_type == ValueType::Bool {
        check_bools(key, value, start)?;
    }
    Ok(start)
}

fn read_array(cursor: &mut Cursor<'_>, key: &str, limits: &Limits) -> Result<Place, Fault> {
    let type_offset = cursor.offset();
    let element_type = read_type(cursor, key)?;
    if element_type == ValueType::Array {
        return Err(Fault::NestedArray { key: key.to_owned(), offset: type_offset });
    }
    let shown = quoted(key);
    let count = cursor.u64(format_args!("the array length of metadata key {shown}"))?;
    // Strings take at least their length field, so no count can outrun the file.
    let least = if element_type == ValueType::Str { 8 } else { element_type.width() as u64 };
    let needed = u128::from(count) * u128::from(least);
    cursor.expect(needed, format_args!("an array of {count} {element_type} in metadata key {shown}"))?;
    let start = cursor.offset() as usize;
    if element_type == ValueType::Str {
        for index in 0..count {
            let what = format_args!("element {index} of metadata key {shown}");
            cursor.string(limits.array_string_bytes, what)?;
        }
    } else {
        let elements = cursor.take(needed as u64, format_args!("the array in metadata key {shown}"))?;
        if element_type == ValueType::Bool {
            check_bools(key, elements, start)?;
        }
    }
    Ok(Place {
        value_type: ValueType::Array,
        start,
        end: cursor.offset() as usize,
        element_type,
        element_count: count as usize,
    })
}

fn check_bools(key: &str, bytes: &[u8], start: usize) -> Result<(), Fault> {
    match bytes.iter().position(|byte| *byte > 1) {
        Some(at) => Err(Fault::BadBool { key: key.to_owned(), byte: bytes[at], offset: (start + at) as u64 }),
        None => Ok(()),
    }
}
