//! Checks of a parameter block before a launch: everything that kernels use as an index.

use super::Live;
use paceline_plugin_api::{Error, Result};

/// A parameter that a launch checks before it runs. Offsets are bytes in the parameter block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// An i32 count is within 0..=max.
    Count { offset: u64, max: u32 },
    /// Sequences: rows inside the live rows, slots and lengths inside the states.
    Sequences { offset: u64, live: Live, rows: Live, slots: u32, positions: u64 },
    /// Rollbacks, live with the sequences: planes below the limit.
    Planes { offset: u64, live: Live, planes: u32 },
    /// Rollbacks: banks 0 or 1, at most so many kept records.
    Records { offset: u64, live: Live, count: u32 },
    /// Rollbacks keep nothing for the sequences at `sequences` whose length is 0.
    NothingKept { offset: u64, live: Live, sequences: u64 },
    /// Cells are below the limit; negative ones drop their rows.
    Cells { offset: u64, live: Live, limit: u64 },
    /// Selected rows are live rows.
    Selected { offset: u64, live: Live, rows: Live },
    /// Updates of a table stay inside of it and name no negative blocks.
    Updates { offset: u64, live: Live, shape: [u32; 2] },
}

/// A parameter block, as i32.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a>(pub &'a [i32]);

impl<'a> Block<'a> {
    fn list(self, offset: u64, count: u64) -> Result<&'a [i32]> {
        let first = (offset / 4) as usize;
        let end = usize::try_from(count).ok().and_then(|count| first.checked_add(count));
        end.and_then(|end| self.0.get(first..end))
            .ok_or_else(|| Error::invalid("the parameter block is shorter than the graph's parameters"))
    }

    /// The live count, which the checks of counts found to be in range.
    pub fn live(self, live: Live) -> Result<u64> {
        match live.offset {
            Some(offset) => Ok(u64::try_from(self.list(offset, 1)?[0]).unwrap_or(0)),
            None => Ok(u64::from(live.max)),
        }
    }

    fn entries<const N: usize>(self, offset: u64, live: Live) -> Result<&'a [[i32; N]]> {
        let list = self.list(offset, self.live(live)? * N as u64)?;
        Ok(list.as_chunks::<N>().0)
    }
}

fn is_below(value: i32, limit: u64) -> bool {
    u64::try_from(value).is_ok_and(|value| value < limit)
}

impl Check {
    /// # Errors
    /// What is out of range.
    pub fn apply(&self, block: Block<'_>) -> Result<()> {
        match *self {
            Self::Count { offset, max } => {
                let count = block.list(offset, 1)?[0];
                match is_below(count, u64::from(max) + 1) {
                    true => Ok(()),
                    false => Err(Error::invalid(format!("a live count of {count} is not within 0..={max}"))),
                }
            }
            Self::Sequences { offset, live, rows, slots, positions } => {
                sequences(block.entries::<4>(offset, live)?, block.live(rows)?, slots, positions)
            }
            Self::Planes { offset, live, planes } => {
                rollbacks(block.entries(offset, live)?, |[plane, _, _]| is_below(plane, planes.into()))
            }
            Self::Records { offset, live, count } => {
                rollbacks(block.entries(offset, live)?, |[_, bank, keep]| {
                    is_below(bank, 2) && is_below(keep, u64::from(count) + 1)
                })
            }
            Self::NothingKept { offset, live, sequences } => {
                let lengths = block.entries::<4>(sequences, live)?.iter().map(|s| s[2]);
                let keeps = block.entries::<3>(offset, live)?.iter().map(|r| r[2]);
                match lengths.zip(keeps).find(|&(length, keep)| length == 0 && keep != 0) {
                    Some((_, keep)) => {
                        Err(Error::invalid(format!("a sequence that only begins cannot keep {keep} records")))
                    }
                    None => Ok(()),
                }
            }
            Self::Cells { offset, live, limit } => {
                let cells = block.entries::<1>(offset, live)?;
                match cells.iter().find(|[cell]| i64::from(*cell) >= limit as i64) {
                    Some([cell]) => {
                        Err(Error::invalid(format!("cell {cell} is outside of the {limit} that there are")))
                    }
                    None => Ok(()),
                }
            }
            Self::Selected { offset, live, rows } => {
                let (selected, rows) = (block.entries::<1>(offset, live)?, block.live(rows)?);
                match selected.iter().find(|[row]| !is_below(*row, rows)) {
                    Some([row]) => {
                        Err(Error::invalid(format!("selected row {row} is not one of {rows} live rows")))
                    }
                    None => Ok(()),
                }
            }
            Self::Updates { offset, live, shape } => {
                let is_outside = |u: &&[i32; 3]| {
                    !is_below(u[0], shape[0].into()) || !is_below(u[1], shape[1].into()) || u[2] < 0
                };
                match block.entries::<3>(offset, live)?.iter().find(is_outside) {
                    Some(u) => {
                        Err(Error::invalid(format!("a table of {shape:?} cannot be updated with {u:?}")))
                    }
                    None => Ok(()),
                }
            }
        }
    }
}

fn rollbacks(list: &[[i32; 3]], fits: impl Fn([i32; 3]) -> bool) -> Result<()> {
    match list.iter().find(|rollback| !fits(**rollback)) {
        Some(rollback) => {
            Err(Error::invalid(format!("the states have no rollback {rollback:?} (plane, bank, keep)")))
        }
        None => Ok(()),
    }
}

fn sequences(list: &[[i32; 4]], rows: u64, slots: u32, positions: u64) -> Result<()> {
    let mut end = 0;
    for (index, sequence) in list.iter().enumerate() {
        let [first, count, length, slot] = sequence.map(|n| u64::try_from(n).unwrap_or(u64::MAX));
        let fault = |what: &str| {
            Err(Error::invalid(format!(
                "sequence {index} {sequence:?} (first row, rows, length, slot) {what}"
            )))
        };
        if first != end || count > rows.saturating_sub(end) {
            return fault("does not follow the one before, or has rows that are not live");
        }
        end += count;
        if slot >= u64::from(slots) || length.checked_add(count).is_none_or(|total| total > positions) {
            return fault(&format!("does not fit {slots} slots of {positions} positions"));
        }
        // Two sequences on one slot would share its state.
        if list[..index].iter().any(|other| other[3] == sequence[3]) {
            return fault("uses the slot of another sequence");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn fixed(max: u32) -> Live {
        Live { offset: None, max }
    }

    #[test]
    fn counts_and_cells() {
        let count = Check::Count { offset: 4, max: 3 };
        assert!(count.apply(Block(&[9, 3])).is_ok());
        for wrong in [-1, 4, i32::MIN, i32::MAX] {
            assert!(count.apply(Block(&[0, wrong])).is_err(), "{wrong}");
        }
        assert!(count.apply(Block(&[0])).is_err(), "a block that is too short");
        let cells = Check::Cells { offset: 4, live: Live { offset: Some(0), max: 2 }, limit: 512 };
        assert!(cells.apply(Block(&[2, 511, -1])).is_ok());
        assert!(cells.apply(Block(&[1, 511, 512])).is_ok(), "beyond the live ones");
        assert!(cells.apply(Block(&[2, 0, 512])).unwrap_err().message.contains("cell 512"));
    }

    #[test]
    fn sequences_follow_each_other_on_slots_of_their_own() {
        let check = Check::Sequences { offset: 0, live: fixed(2), rows: fixed(5), slots: 2, positions: 100 };
        assert!(check.apply(Block(&[0, 2, 98, 1, 2, 3, 0, 0])).is_ok());
        for wrong in [
            [0, 2, 0, 1, 1, 3, 0, 0],
            [0, 2, 0, 1, 2, 4, 0, 0],
            [0, 2, 99, 1, 2, 3, 0, 0],
            [0, 2, 0, 2, 2, 3, 0, 0],
            [0, 2, 0, 1, 2, 3, 0, 1],
            [0, -1, 0, 1, 2, 3, 0, 0],
            [0, i32::MAX, 0, 1, 2, 3, 0, 0],
        ] {
            assert!(check.apply(Block(&wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn rollbacks_and_updates() {
        let kept = Check::NothingKept { offset: 16, live: fixed(1), sequences: 0 };
        assert!(kept.apply(Block(&[0, 1, 0, 0, 0, 0, 0])).is_ok());
        assert!(kept.apply(Block(&[0, 1, 0, 0, 0, 0, 1])).is_err());
        let records = Check::Records { offset: 0, live: fixed(1), count: 4 };
        assert!(records.apply(Block(&[9, 1, 4])).is_ok());
        assert!(records.apply(Block(&[9, 2, 4])).is_err() && records.apply(Block(&[9, 1, 5])).is_err());
        let updates = Check::Updates { offset: 0, live: fixed(1), shape: [2, 3] };
        assert!(updates.apply(Block(&[1, 2, 7])).is_ok());
        for wrong in [[2, 0, 0], [0, 3, 0], [0, 0, -1], [-1, 0, 0]] {
            assert!(updates.apply(Block(&wrong)).is_err(), "{wrong:?}");
        }
    }
}
