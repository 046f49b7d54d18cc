//! Checks of a parameter block before a launch: everything that kernels use as an index.

use crate::error::{Error, Result};
use crate::graph::{Graph, Value, ValueKind};
use std::collections::BTreeMap;

/// How many entries of axis 0 of a value are live in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Live {
    /// Byte offset of the count in the parameter block, if it is not fixed.
    pub offset: Option<u64>,
    /// The largest count.
    pub max: u32,
}

impl Live {
    /// The live entries of a value of a graph.
    pub fn of(graph: &Graph, value: &Value) -> Self {
        let offset = value.live.and_then(|id| match graph.value(id).kind {
            ValueKind::Parameter { offset } => Some(u64::from(offset)),
            _ => None,
        });
        Self { offset, max: value.shape.first() }
    }
}

/// A parameter that a launch checks before it runs. Offsets are bytes in the parameter block. Counts are checked before
/// what they count: checks of [`ParameterCheck::counts`] come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterCheck {
    /// A count, i32, is within 0..=max.
    Count {
        /// Where it is.
        offset: u64,
        /// The largest that is allowed.
        max: u32,
    },
    /// Sequences, i32\[S,4\] (first row, rows, length, slot), follow each other within the live rows, on slots of their
    /// own, and end within the positions.
    Sequences {
        /// Where they are.
        offset: u64,
        /// How many there are.
        live: Live,
        /// Rows of the run.
        rows: Live,
        /// Slots that states have.
        slots: u32,
        /// Positions that a slot has.
        positions: u64,
    },
    /// Rollbacks, i32\[S,3\] (plane, bank, kept records), name planes that there are.
    Planes {
        /// Where they are.
        offset: u64,
        /// How many there are: as many as sequences.
        live: Live,
        /// Planes of the state.
        planes: u32,
    },
    /// Rollbacks, i32\[S,3\], name bank 0 or 1 and keep no more records than there are.
    Records {
        /// Where they are.
        offset: u64,
        /// How many there are: as many as sequences.
        live: Live,
        /// Records of a bank.
        count: u32,
    },
    /// Rollbacks, i32\[S,3\], keep nothing for sequences whose length is 0.
    NothingKept {
        /// Where they are.
        offset: u64,
        /// How many there are: as many as sequences.
        live: Live,
        /// Where the sequences are, i32\[S,4\].
        sequences: u64,
    },
    /// Cells, i32\[R\], are below the limit; negative ones drop their rows.
    Cells {
        /// Where they are.
        offset: u64,
        /// How many there are.
        live: Live,
        /// Cells that there are.
        limit: u64,
    },
    /// Selected rows, i32\[R\], are live rows.
    Selected {
        /// Where they are.
        offset: u64,
        /// How many there are.
        live: Live,
        /// Rows that are selected from.
        rows: Live,
    },
    /// Updates of a table, i32\[U,3\] (row, column, value), stay inside of it and hold no negative values.
    Updates {
        /// Where they are.
        offset: u64,
        /// How many there are.
        live: Live,
        /// Rows and columns of the table.
        shape: [u32; 2],
    },
}

/// A parameter block, as i32.
#[derive(Clone, Copy, Debug)]
pub struct ParameterBlock<'a>(pub &'a [i32]);

impl<'a> ParameterBlock<'a> {
    fn list(self, offset: u64, count: u64) -> Result<&'a [i32]> {
        let first = (offset / 4) as usize;
        let end = usize::try_from(count).ok().and_then(|count| first.checked_add(count));
        end.and_then(|end| self.0.get(first..end))
            .ok_or_else(|| Error::invalid("the parameter block is shorter than the graph's parameters"))
    }

    /// The live count. It is what the block says: only after its [`ParameterCheck::Count`] it is known to be in range. A
    /// negative one is 0 here.
    ///
    /// # Errors
    /// A block that is too short for it.
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

impl ParameterCheck {
    /// The checks of all live counts of a graph, each once, against the shortest of the values that it counts, in the
    /// order of their offsets.
    pub fn counts(graph: &Graph) -> Vec<Self> {
        let mut largest: BTreeMap<u64, u32> = BTreeMap::new();
        for live in graph.values().iter().map(|value| Live::of(graph, value)) {
            if let Some(offset) = live.offset {
                let known = largest.entry(offset).or_insert(live.max);
                *known = live.max.min(*known);
            }
        }
        largest.into_iter().map(|(offset, max)| Self::Count { offset, max }).collect()
    }

    /// Checks a block.
    ///
    /// # Errors
    /// What is out of range, or a block that is too short.
    pub fn apply(&self, block: ParameterBlock<'_>) -> Result<()> {
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
                match cells.iter().find(|[cell]| *cell >= 0 && !is_below(*cell, limit)) {
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
    use super::ParameterBlock as Block;
    use super::ParameterCheck as Check;
    use super::*;
    use crate::graph::{Builder, DType};
    use proptest::prelude::*;

    const fn fixed(max: u32) -> Live {
        Live { offset: None, max }
    }

    #[test]
    fn a_count_is_checked_once_against_the_shortest_of_what_it_counts() {
        let mut b = Builder::new();
        b.parameter("first", DType::I32, &[3], None);
        let [rows, others] = ["rows", "others"].map(|name| b.parameter(name, DType::I32, &[1], None));
        let long = b.parameter("long", DType::I32, &[9, 4], Some(rows));
        b.parameter("short", DType::I32, &[5], Some(rows));
        b.parameter("other", DType::I32, &[7], Some(others));
        let graph = b.finish();
        let offset = |id| match graph.value(id).kind {
            ValueKind::Parameter { offset } => u64::from(offset),
            _ => unreachable!(),
        };
        let (rows, others) = (offset(rows), offset(others));
        assert!(rows < others);
        let expected = [Check::Count { offset: rows, max: 5 }, Check::Count { offset: others, max: 7 }];
        assert_eq!(Check::counts(&graph), expected);
        assert_eq!(Live::of(&graph, graph.value(long)), Live { offset: Some(rows), max: 9 });
    }

    proptest! {
        #[test]
        fn no_block_makes_a_check_panic(
            block in prop::collection::vec(any::<i32>().prop_map(|n| n >> (n & 31)), 0..12),
            offset in 0u64..48,
            counted in prop::option::of(0u64..48),
            max in any::<u32>(),
            limit in any::<u64>(),
        ) {
            let live = Live { offset: counted, max };
            for check in [
                Check::Count { offset, max },
                Check::Sequences { offset, live, rows: fixed(max), slots: max, positions: limit },
                Check::Planes { offset, live, planes: max },
                Check::Records { offset, live, count: max },
                Check::NothingKept { offset, live, sequences: limit },
                Check::Cells { offset, live, limit },
                Check::Selected { offset, live, rows: live },
                Check::Updates { offset, live, shape: [max, max] },
            ] {
                let outcome = check.apply(Block(&block));
                let is_list = !matches!(check, Check::Count { .. });
                if is_list && counted.is_none() && max as usize > block.len() {
                    prop_assert!(outcome.is_err(), "{check:?} of a block that is too short");
                }
            }
        }
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
