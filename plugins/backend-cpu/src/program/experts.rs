//! A mixture of experts as kernels.
//!
//! Assignments (a row and an expert that it chose) are grouped by expert, so that a run of many rows reads each
//! expert's weights once, and one of few rows only those that are needed. Where few rows come, that is one product of
//! one row for each assignment. Whatever is grouped, a product of a row has the bits of that row alone.

use super::{Id, Live};
use crate::kernels::elementwise::Activation;
use crate::kernels::experts::Grouping;
use crate::weights::WeightType;

/// What follows what in [`ExpertsWork`]; threads meet between stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertStage {
    /// Groups the assignments; where they are few, also gathers their rows.
    Group,
    /// Copies the row of each assignment to its position.
    Gather,
    /// f(gate x) · (up x).
    Inner,
    /// Quantises what [`ExpertStage::Inner`] made.
    Quantize,
    /// The product with the last matrix.
    Outer,
    /// The weighted sums of the rows.
    Combine,
}

impl ExpertStage {
    /// All, in order.
    pub const ALL: [ExpertStage; 6] =
        [Self::Group, Self::Gather, Self::Inner, Self::Quantize, Self::Outer, Self::Combine];
}

/// A weight of one matrix per expert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ExpertMatrix {
    pub weight: Id,
    pub kind: WeightType,
    /// Outputs and inputs of one expert.
    pub n: usize,
    pub k: usize,
}

/// A mixture of experts. Intermediates have one entry per position of the grouping.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExpertsWork {
    pub gate: ExpertMatrix,
    pub up: ExpertMatrix,
    pub down: ExpertMatrix,
    pub activation: Activation,
    /// Rows of the run.
    pub rows: Live,
    /// Experts that a row chooses.
    pub chosen: usize,
    pub grouping: Grouping,
    pub ids: Id,
    pub weights: Id,
    /// Rows as they are, where gate or up want floats, and where they are gathered.
    pub plain: Option<[Id; 2]>,
    /// Rows quantised, where gate or up want that, and where they are gathered.
    pub quantized: Option<[Id; 2]>,
    /// The grouping's list.
    pub list: Id,
    pub gate_out: Id,
    pub up_out: Id,
    pub inner: Id,
    /// `inner` quantised, if the last matrix wants that.
    pub inner_quantized: Option<Id>,
    pub outer: Id,
    pub out: Id,
}

impl ExpertsWork {
    fn sources(&self, which: usize) -> impl Iterator<Item = Id> + '_ {
        [self.plain, self.quantized].into_iter().flatten().map(move |pair| pair[which])
    }

    /// Values that a stage reads.
    pub fn reads(&self, stage: ExpertStage) -> Vec<Id> {
        match stage {
            ExpertStage::Group => self.sources(0).chain([self.ids]).collect(),
            ExpertStage::Gather => self.sources(0).chain([self.list]).collect(),
            ExpertStage::Inner => {
                self.sources(1).chain([self.list, self.gate.weight, self.up.weight]).collect()
            }
            ExpertStage::Quantize => vec![self.inner, self.list],
            ExpertStage::Outer => {
                vec![self.inner_quantized.unwrap_or(self.inner), self.list, self.down.weight]
            }
            ExpertStage::Combine => vec![self.outer, self.list, self.weights],
        }
    }

    /// Values that a stage writes.
    pub fn writes(&self, stage: ExpertStage) -> Vec<Id> {
        match stage {
            ExpertStage::Group => self.sources(1).chain([self.list]).collect(),
            ExpertStage::Gather => self.sources(1).collect(),
            ExpertStage::Inner => vec![self.gate_out, self.up_out, self.inner],
            ExpertStage::Quantize => self.inner_quantized.into_iter().collect(),
            ExpertStage::Outer => vec![self.outer],
            ExpertStage::Combine => vec![self.out],
        }
    }
}
