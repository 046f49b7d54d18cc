//! The memory plan: every byte that a model and its context will take on a device, known before anything is
//! allocated.

use crate::error::{EngineError, Result};
use paceline_plugin_api::backend::{ArenaClass, MemoryInfo};
use std::fmt;

/// One row of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRow {
    /// What the bytes are for.
    pub what: &'static str,
    /// Arena class that they are in.
    pub class: ArenaClass,
    /// Bytes.
    pub bytes: u64,
}

/// All memory of a model and its context on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    rows: Vec<MemoryRow>,
    /// Bytes of KV cache and block tables per block of 256 positions, for all sequences together.
    pub(crate) bytes_per_block: u64,
    pub(crate) blocks_per_sequence: u64,
}

impl MemoryPlan {
    pub(crate) fn new(bytes_per_block: u64, blocks_per_sequence: u64) -> Self {
        Self { rows: Vec::new(), bytes_per_block, blocks_per_sequence }
    }

    pub(crate) fn add(&mut self, what: &'static str, class: ArenaClass, bytes: u64) {
        self.rows.push(MemoryRow { what, class, bytes });
    }

    /// The rows, in the order in which they are allocated.
    pub fn rows(&self) -> &[MemoryRow] {
        &self.rows
    }

    /// Bytes of a class.
    pub fn class_bytes(&self, class: ArenaClass) -> u64 {
        self.rows.iter().filter(|r| r.class == class).map(|r| r.bytes).sum()
    }

    /// All bytes.
    pub fn total(&self) -> u64 {
        self.rows.iter().map(|r| r.bytes).sum()
    }

    /// Checks the plan against a device.
    ///
    /// # Errors
    /// What is short, by how much, and which context would fit.
    pub fn check(&self, device: &str, memory: MemoryInfo) -> Result<()> {
        let needed = self.total();
        if needed <= memory.free {
            return Ok(());
        }
        let cache = self.bytes_per_block.saturating_mul(self.blocks_per_sequence);
        let room = memory.free.checked_sub(needed - cache.min(needed));
        let blocks = room.map_or(0, |room| room.checked_div(self.bytes_per_block).unwrap_or(0));
        Err(EngineError::Memory(Box::new(Shortage {
            device: device.to_owned(),
            plan: self.clone(),
            free: memory.free,
            context: self.blocks_per_sequence.saturating_mul(256),
            fitting_context: (blocks > 0).then_some(blocks.saturating_mul(256)),
        })))
    }
}

/// Memory that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The device.
    pub device: String,
    /// What was planned.
    pub plan: MemoryPlan,
    /// Bytes that the device has free.
    pub free: u64,
    /// Positions that were asked for.
    pub context: u64,
    /// The longest context that would fit, in whole blocks; `None` if the model itself does not.
    pub fitting_context: Option<u64>,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needed = self.plan.total();
        write!(
            f,
            "{} has {} free, a context of {} needs {}: {} short (",
            self.device,
            Bytes(self.free),
            self.context,
            Bytes(needed),
            Bytes(needed.saturating_sub(self.free)),
        )?;
        for (index, row) in self.plan.rows().iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{} {}", row.what, Bytes(row.bytes))?;
        }
        match self.fitting_context {
            Some(context) => write!(f, "); a context of {context} would fit"),
            None => write!(f, "); the model does not fit at any context"),
        }
    }
}

/// Bytes for people.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let (mut value, mut unit) = (self.0 as f64 / 1024.0, 0);
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(blocks: u64) -> MemoryPlan {
        let mut plan = MemoryPlan::new(1000, blocks);
        plan.add("weights", ArenaClass::Weights, 50_000);
        plan.add("KV cache", ArenaClass::Kv, 1000 * blocks);
        plan
    }

    fn memory(free: u64) -> MemoryInfo {
        MemoryInfo { total: free, free, granularity: 1 }
    }

    #[test]
    fn a_shortage_says_what_would_fit() {
        assert!(plan(10).check("cpu:0", memory(60_000)).is_ok());
        let error = plan(10).check("cpu:0", memory(59_999)).unwrap_err().to_string();
        assert_eq!(
            error,
            "cpu:0 has 58.6 KiB free, a context of 2560 needs 58.6 KiB: 1 B short (weights 48.8 KiB, KV cache 9.8 KiB); \
             a context of 2304 would fit"
        );
        let error = plan(10).check("cpu:0", memory(40_000)).unwrap_err().to_string();
        assert!(error.ends_with("the model does not fit at any context"), "{error}");
    }

    #[test]
    fn bytes_are_readable() {
        let shown = [0, 1023, 1024, 1_572_864, u64::MAX].map(|b| Bytes(b).to_string());
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "16384.0 PiB"]);
    }
}
