//! Checks of a parameter block before a launch: everything that kernels use as an index.

use super::Run;
use crate::program::{Check, Live};
use paceline_plugin_api::{Error, Result};

pub(super) fn check(run: Run<'_>) -> Result<()> {
    run.bound.program.checks.iter().try_for_each(|check| one(run, check))
}

fn one(run: Run<'_>, check: &Check) -> Result<()> {
    match *check {
        Check::Count { offset, max } => {
            let count = run.parameters(offset, 1)[0];
            if usize::try_from(count).is_ok_and(|count| count <= max) {
                Ok(())
            } else {
                Err(Error::invalid(format!("a live count of {count} is not within 0..={max}")))
            }
        }
        Check::Sequences { offset, live, rows, slots, positions } => {
            sequences(run, offset, live, run.live(rows), slots, positions)
        }
        Check::Planes { offset, live, planes } => {
            rollbacks(run, offset, live, |[plane, _, _]| is_below(plane, planes))
        }
        Check::Records { offset, live, count } => {
            rollbacks(run, offset, live, |[_, bank, keep]| is_below(bank, 2) && is_below(keep, count + 1))
        }
        Check::NothingKept { offset, live, sequences } => {
            let lengths = run.parameters(sequences, run.live(live) * 4).chunks_exact(4).map(|s| s[2]);
            let keeps = run.parameters(offset, run.live(live) * 3).chunks_exact(3).map(|r| r[2]);
            match lengths.zip(keeps).find(|&(length, keep)| length == 0 && keep != 0) {
                Some((_, keep)) => {
                    Err(Error::invalid(format!("a sequence that only begins cannot keep {keep} records")))
                }
                None => Ok(()),
            }
        }
        Check::Cells { offset, live, limit } => {
            let cells = run.parameters(offset, run.live(live));
            match cells.iter().find(|&&cell| i64::from(cell) >= limit as i64) {
                Some(cell) => {
                    Err(Error::invalid(format!("cell {cell} is outside of the {limit} that there are")))
                }
                None => Ok(()),
            }
        }
        Check::Selected { offset, live, rows } => {
            let (selected, rows) = (run.parameters(offset, run.live(live)), run.live(rows));
            match selected.iter().find(|&&row| usize::try_from(row).is_ok_and(|row| row >= rows) || row < 0) {
                Some(row) => {
                    Err(Error::invalid(format!("selected row {row} is not one of {rows} live rows")))
                }
                None => Ok(()),
            }
        }
        Check::Updates { offset, live, shape } => {
            let updates = run.parameters(offset, run.live(live) * 3);
            let outside = |u: &&[i32]| !is_below(u[0], shape[0]) || !is_below(u[1], shape[1]) || u[2] < 0;
            match updates.chunks_exact(3).find(outside) {
                Some(u) => Err(Error::invalid(format!("a table of {shape:?} cannot be updated with {u:?}"))),
                None => Ok(()),
            }
        }
    }
}

fn is_below(value: i32, limit: usize) -> bool {
    usize::try_from(value).is_ok_and(|value| value < limit)
}

fn rollbacks(run: Run<'_>, offset: usize, live: Live, fits: impl Fn([i32; 3]) -> bool) -> Result<()> {
    let (list, _) = run.parameters(offset, run.live(live) * 3).as_chunks::<3>();
    match list.iter().find(|rollback| !fits(**rollback)) {
        Some(rollback) => {
            Err(Error::invalid(format!("the states have no rollback {rollback:?} (plane, bank, keep)")))
        }
        None => Ok(()),
    }
}

fn sequences(
    run: Run<'_>,
    offset: usize,
    live: Live,
    rows: usize,
    slots: usize,
    positions: usize,
) -> Result<()> {
    let list = run.parameters(offset, run.live(live) * 4);
    let mut end = 0;
    for (index, sequence) in list.chunks_exact(4).enumerate() {
        let [first, count, length, slot] =
            [0, 1, 2, 3].map(|i| usize::try_from(sequence[i]).unwrap_or(usize::MAX));
        let fault = |what: &str| {
            Err(Error::invalid(format!(
                "sequence {index} {sequence:?} (first row, rows, length, slot) {what}"
            )))
        };
        if first != end || count > rows - end.min(rows) {
            return fault("does not follow the one before, or has rows that are not live");
        }
        end += count;
        if slot >= slots || length.checked_add(count).is_none_or(|total| total > positions) {
            return fault(&format!("does not fit {slots} slots of {positions} positions"));
        }
        // Two sequences on one slot would share its state.
        if list.chunks_exact(4).take(index).any(|other| other[3] == sequence[3]) {
            return fault("uses the slot of another sequence");
        }
    }
    Ok(())
}

impl Run<'_> {
    /// `count` i32 of the parameter block, which `load` checked to be whole.
    pub(super) fn parameters(&self, offset: usize, count: usize) -> &[i32] {
        let start = self.slot * self.bound.parameter_stride + offset;
        let region = self.bound.parameters;
        let pointer = region.start.wrapping_add(start).cast::<i32>();
        assert!(start + count * size_of::<i32>() <= region.bytes && pointer.is_aligned());
        // SAFETY: inside the region and aligned; the host does not write a slot that it launches.
        unsafe { std::slice::from_raw_parts(pointer, count) }
    }
}
