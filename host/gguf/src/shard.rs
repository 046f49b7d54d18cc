//! Reads one file: header, metadata, tensor table, and the layout of its data.

use crate::cursor::Cursor;
use crate::header::Header;
use crate::layout::DataSection;
use crate::metadata::Metadata;
use crate::tensor::TensorTable;
use crate::{Fault, Limits, ValueRef};

pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
pub(crate) const DEFAULT_ALIGNMENT: u32 = 32;

/// One file of a model, apart from its tensors.
pub(crate) struct Shard {
    pub(crate) version: u32,
    pub(crate) metadata: Metadata,
}

/// Reads the file `bytes` and appends its tensors to `table`.
///
/// Faults that end the walk are returned; the others go to `on_fault`, which may end it too.
pub(crate) fn read_shard(
    bytes: &[u8],
    shard: u16,
    limits: &Limits,
    table: &mut TensorTable,
    on_fault: &mut dyn FnMut(Fault) -> Result<(), Fault>,
) -> Result<Shard, Fault> {
    let first_tensor = table.records.len();
    let mut cursor = Cursor::new(bytes);
    let header = Header::read(bytes, &mut cursor)?;
    let metadata = Metadata::read(&mut cursor, header.key_count, limits, on_fault)?;
    let alignment = match metadata.value(bytes, ALIGNMENT_KEY) {
        None => DEFAULT_ALIGNMENT,
        Some(value) => match check_alignment(&value, limits) {
            Ok(alignment) => alignment,
            Err(fault) => {
                on_fault(fault)?;
                DEFAULT_ALIGNMENT
            }
        },
    };
    table.read(&mut cursor, header.tensor_count, shard, limits, on_fault)?;
    let data = DataSection { bytes, table_end: cursor.offset(), alignment: alignment.into() };
    data.place(table, first_tensor, on_fault)?;
    Ok(Shard { version: header.version, metadata })
}

/// An alignment is a u32, as the format says; other types show a broken writer.
pub(crate) fn check_alignment(value: &ValueRef<'_>, limits: &Limits) -> Result<u32, Fault> {
    match *value {
        ValueRef::U32(value)
            if value != 0 && value.is_multiple_of(8) && u64::from(value) <= limits.alignment =>
        {
            Ok(value)
        }
        _ => {
            let found = match value {
                ValueRef::U32(value) => value.to_string(),
                other => format!("{} ({other})", other.describe_type()),
            };
            let expected = format!("a u32, a multiple of 8, from 8 to {}", limits.alignment);
            Err(Fault::BadAlignment { found, expected })
        }
    }
}
