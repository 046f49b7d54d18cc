//! Places the tensors of one file in its data section, and checks that they fit there.

use crate::Fault;
use crate::header::MAGIC;
use crate::tensor::TensorTable;

/// The file the tensors lie in.
pub(crate) struct DataSection<'a> {
    pub(crate) bytes: &'a [u8],
    /// Where the tensor table ends.
    pub(crate) table_end: u64,
    /// A valid alignment.
    pub(crate) alignment: u64,
}

impl DataSection<'_> {
    fn start(&self) -> u128 {
        u128::from(self.table_end).next_multiple_of(u128::from(self.alignment))
    }

    /// Checks the tensors of this file, `table.records[first..]`, and turns their offsets into
    /// offsets from the start of the file. Tensors must stand in the table in the order of their
    /// data, aligned, without overlap, and inside the file; gaps are accepted.
    pub(crate) fn place(
        &self,
        table: &mut TensorTable,
        first: usize,
        on_fault: &mut dyn FnMut(Fault) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let start = self.start();
        let file_has = self.bytes.len() as u64;
        let count = table.records.len();
        // Tensors of unknown size hold at least a byte.
        let end_of = |table: &TensorTable, index: usize| {
            let record = &table.records[index];
            start + u128::from(record.offset) + u128::from(record.byte_len.max(1))
        };
        let file_needs = (first..count).map(|index| end_of(table, index)).max().unwrap_or(0);

        // The tensor that ends last so far, and where.
        let mut last: Option<(usize, u128)> = None;
        for index in first..count {
            let relative = table.records[index].offset;
            let end = end_of(table, index);
            if !relative.is_multiple_of(self.alignment) {
                let (name, alignment) = (table.name(index).to_owned(), self.alignment);
                on_fault(Fault::TensorMisaligned { name, relative, alignment })?;
            }
            if let Some((other, other_end)) = last
                && start + u128::from(relative) < other_end
            {
                on_fault(Fault::TensorOverlap {
                    name: table.name(index).to_owned(),
                    relative,
                    other: table.name(other).to_owned(),
                    other_end: other_end - start,
                })?;
            }
            if end > u128::from(file_has) {
                let name = table.name(index).to_owned();
                on_fault(Fault::TensorCutShort { name, end, file_needs, file_has })?;
            } else if last.is_none_or(|(_, last_end)| end > last_end) {
                // Tensors that do not fit are left out, or every later one would overlap them.
                last = Some((index, end));
            }
        }
        let open_ended = last.is_some_and(|(index, _)| table.records[index].byte_len == 0);
        self.make_absolute(table, first);
        if open_ended {
            return Ok(());
        }
        self.check_trailing(last.map_or(u128::from(self.table_end), |(_, end)| end), on_fault)
    }

    /// Turns offsets into file offsets and gives tensors of unknown size the room they have.
    fn make_absolute(&self, table: &mut TensorTable, first: usize) {
        let file_len = self.bytes.len() as u64;
        let mut next = file_len;
        for record in table.records[first..].iter_mut().rev() {
            // Saturating: only a table with faults, which is never handed out, gets that far.
            let start = u64::try_from(self.start()).unwrap_or(u64::MAX);
            record.offset = start.saturating_add(record.offset);
            if record.byte_len == 0 {
                record.byte_len = next.saturating_sub(record.offset);
            }
            next = record.offset.min(file_len);
        }
    }

    /// Shards joined with `cat` leave a second file right after the first one's data.
    fn check_trailing(
        &self,
        end: u128,
        on_fault: &mut dyn FnMut(Fault) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for offset in [end, end.next_multiple_of(u128::from(self.alignment))] {
            let rest = usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..));
            if rest.is_some_and(|rest| rest.starts_with(MAGIC)) {
                return on_fault(Fault::Joined { offset: offset as u64 });
            }
        }
        Ok(())
    }
}
