//! The tensor table: names, shapes, types and places of all tensors of a model.

use crate::cursor::Cursor;
use crate::fault::quoted;
use crate::header::Header;
use crate::{Fault, Limits, MAX_DIMS, TensorType, TypeLayout};

/// The fewest bytes a tensor can take in the table: name length, rank, one dimension, type, offset.
const MIN_ENTRY_BYTES: u64 = 8 + 4 + 8 + 4 + 8;

/// One tensor of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo<'a> {
    /// Its name, unique in the model.
    pub name: &'a str,
    /// Elements along each dimension, 1 to 4 of them, the contiguous one first; none is 0.
    pub dims: &'a [u64],
    /// Its element type.
    pub tensor_type: TensorType,
    /// Index of the file that holds it, 0 for a model that is not split.
    pub shard: usize,
    /// Where its bytes start in that file.
    pub offset: u64,
    /// How many bytes it takes. For unknown types: up to the next tensor, padding included.
    pub byte_len: u64,
}

impl TensorInfo<'_> {
    /// The product of all dimensions.
    pub fn element_count(&self) -> u64 {
        // Checked when the table was read.
        self.dims.iter().product()
    }
}

/// A tensor as kept in memory; small, as a file can have a million of them.
pub(crate) struct Record {
    name_start: usize,
    name_len: u16,
    shard: u16,
    rank: u8,
    dims: [u64; MAX_DIMS],
    pub(crate) tensor_type: TensorType,
    /// From the start of the data section while reading, of the file once laid out.
    pub(crate) offset: u64,
    /// 0 while unknown: no tensor is empty.
    pub(crate) byte_len: u64,
}

/// All tensors of a model, over all its files.
#[derive(Default)]
pub(crate) struct TensorTable {
    /// All names in one string, as a million small allocations would weigh more than they hold.
    names: String,
    pub(crate) records: Vec<Record>,
    /// Indices into `records`, ordered by name.
    by_name: Vec<u32>,
}

impl TensorTable {
    /// Appends the `count` entries of one file. Faults in a single tensor go to `on_fault`.
    pub(crate) fn read(
        &mut self,
        cursor: &mut Cursor<'_>,
        count: u64,
        shard: u16,
        limits: &Limits,
        on_fault: &mut dyn FnMut(Fault) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        // Indices are kept as u32, whatever limit the caller sets.
        let limit = limits.tensors.min(u64::from(u32::MAX));
        if count > limit.saturating_sub(self.records.len() as u64) {
            let offset = Header::TENSOR_COUNT_OFFSET;
            return Err(Fault::TooMany { what: "the number of tensors", offset, count, limit });
        }
        let needed = u128::from(count) * u128::from(MIN_ENTRY_BYTES);
        cursor.expect(needed, format_args!("a table of {count} tensors"))?;
        self.records.reserve_exact(count as usize);
        for index in 0..count {
            self.read_entry(cursor, index, shard, limits, on_fault)?;
        }
        Ok(())
    }

    fn read_entry(
        &mut self,
        cursor: &mut Cursor<'_>,
        index: u64,
        shard: u16,
        limits: &Limits,
        on_fault: &mut dyn FnMut(Fault) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let what = format!("the name of tensor {index}");
        let name_offset = cursor.offset() + 8;
        let name = cursor.string(limits.tensor_name_bytes.min(u16::MAX.into()), format_args!("{what}"))?;
        let name = std::str::from_utf8(name).map_err(|_| Fault::NotUtf8 { what, offset: name_offset })?;
        let shown = quoted(name);

        let rank_offset = cursor.offset();
        let rank = cursor.u32(format_args!("the number of dimensions of tensor {shown}"))?;
        if rank == 0 || rank as usize > MAX_DIMS {
            return Err(Fault::TensorRank { name: name.to_owned(), rank, offset: rank_offset });
        }
        let mut dims = [1; MAX_DIMS];
        for dim in &mut dims[..rank as usize] {
            *dim = cursor.u64(format_args!("the dimensions of tensor {shown}"))?;
        }
        let tensor_type = TensorType::from_id(cursor.u32(format_args!("the type of tensor {shown}"))?);
        let offset = cursor.u64(format_args!("the data offset of tensor {shown}"))?;

        let shape = &dims[..rank as usize];
        let byte_len = match tensor_bytes(shape, tensor_type) {
            Ok(byte_len) => byte_len,
            Err(problem) => {
                let (name, dims) = (name.to_owned(), shape.to_vec());
                on_fault(Fault::TensorShape { name, dims, tensor_type, problem })?;
                0
            }
        };
        self.records.push(Record {
            name_start: self.names.len(),
            name_len: name.len() as u16,
            shard,
            rank: rank as u8,
            dims,
            tensor_type,
            offset,
            byte_len,
        });
        self.names.push_str(name);
        Ok(())
    }

    /// Forgets all but the first `count` tensors.
    pub(crate) fn truncate(&mut self, count: usize) {
        if let Some(record) = self.records.get(count) {
            self.names.truncate(record.name_start);
            self.records.truncate(count);
        }
    }

    /// Orders the table by name; pairs of the same name go to `on_duplicate`.
    pub(crate) fn index<E>(
        &mut self,
        on_duplicate: &mut dyn FnMut(TensorInfo<'_>, TensorInfo<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut by_name: Vec<u32> = (0..self.records.len() as u32).collect();
        // By index second, so that the later of two is the one reported.
        by_name.sort_unstable_by_key(|index| (self.name(*index as usize), *index));
        for pair in by_name.windows(2) {
            let [first, second] = [pair[0], pair[1]].map(|index| index as usize);
            if self.name(first) == self.name(second) {
                on_duplicate(self.info(first), self.info(second))?;
            }
        }
        self.by_name = by_name;
        Ok(())
    }

    pub(crate) fn name(&self, index: usize) -> &str {
        let record = &self.records[index];
        &self.names[record.name_start..][..usize::from(record.name_len)]
    }

    pub(crate) fn info(&self, index: usize) -> TensorInfo<'_> {
        let record = &self.records[index];
        TensorInfo {
            name: self.name(index),
            dims: &record.dims[..usize::from(record.rank)],
            tensor_type: record.tensor_type,
            shard: record.shard.into(),
            offset: record.offset,
            byte_len: record.byte_len,
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<TensorInfo<'_>> {
        let position = self.by_name.binary_search_by_key(&name, |index| self.name(*index as usize)).ok()?;
        Some(self.info(self.by_name[position] as usize))
    }
}

/// The bytes a tensor takes, 0 if its type is unknown, or why its shape is impossible.
pub(crate) fn tensor_bytes(dims: &[u64], tensor_type: TensorType) -> Result<u64, String> {
    match tensor_type.layout() {
        Some(layout) => bytes_in_layout(dims, layout),
        None => element_count(dims).map(|_| 0),
    }
}

/// The bytes a tensor takes in a layout, or why its shape is impossible.
pub(crate) fn bytes_in_layout(dims: &[u64], layout: TypeLayout) -> Result<u64, String> {
    let elements = element_count(dims)?;
    let whole_blocks = layout.block_elements > 0 && dims[0].is_multiple_of(layout.block_elements);
    if !whole_blocks {
        return Err(format!(
            "the first dimension is not a multiple of the block of {} elements",
            layout.block_elements
        ));
    }
    (elements / layout.block_elements)
        .checked_mul(layout.block_bytes)
        .ok_or_else(|| "its size in bytes overflows 64 bits".to_owned())
}

fn element_count(dims: &[u64]) -> Result<u64, String> {
    if let Some(position) = dims.iter().position(|dim| *dim == 0) {
        return Err(format!("dimension {position} is 0"));
    }
    dims.iter()
        .try_fold(1_u128, |product, dim| product.checked_mul(u128::from(*dim)))
        .and_then(|product| u64::try_from(product).ok())
        .ok_or_else(|| "the number of elements overflows 64 bits".to_owned())
}
