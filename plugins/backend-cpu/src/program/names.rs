//! Names of kernels, for people.

use super::{ExpertStage, Kernel, RowKernel};

impl Kernel {
    /// What it does; of a chain of row kernels, all of them.
    pub fn name(&self) -> String {
        match self {
            Self::Rows { chain, .. } => {
                chain.iter().map(|(kernel, _)| kernel.name()).collect::<Vec<_>>().join(" + ")
            }
            Self::Linear(_) => "linear".into(),
            Self::Experts(stage, _) => match stage {
                ExpertStage::Group => "experts, grouped".into(),
                ExpertStage::Gather => "experts, rows gathered".into(),
                ExpertStage::Inner => "experts, gate and up".into(),
                ExpertStage::Quantize => "experts, quantize".into(),
                ExpertStage::Outer => "experts, down".into(),
                ExpertStage::Combine => "experts, combined".into(),
            },
            Self::RowsStore(_) => "rows_store".into(),
            Self::Attention(_) => "attention".into(),
            Self::AttentionCombine(_) => "attention, spans combined".into(),
            Self::Conv(_) => "conv_causal".into(),
            Self::Delta(_) => "gated_delta_net".into(),
            Self::Replay(_) => "gated_delta_net_replay".into(),
            Self::Visible(_) => "visible positions".into(),
            Self::TableUpdate { .. } => "table_update".into(),
        }
    }
}

impl RowKernel {
    fn name(&self) -> &'static str {
        match self {
            Self::Embed { .. } => "embed",
            Self::RmsNorm { .. } => "rms_norm",
            Self::L2Norm { .. } => "l2_norm",
            Self::Add { .. } => "add",
            Self::Mul { .. } => "mul",
            Self::Scale { .. } => "scale",
            Self::Activation { .. } => "activation",
            Self::Glu { .. } => "glu",
            Self::Columns { .. } => "copy",
            Self::Quantize { .. } => "quantize",
            Self::Angles { .. } => "angles",
            Self::Rope { .. } => "rope",
            Self::SelectRows { .. } => "select_rows",
            Self::Argmax { .. } => "argmax",
            Self::Draw { .. } => "draw",
            Self::TopK { .. } => "top_k",
            Self::Softmax { .. } => "softmax",
            Self::Route { .. } => "route",
            Self::Lookup { .. } => "lookup",
            Self::RowsLoad { .. } => "rows_load",
            Self::KvAppend { .. } => "kv_append",
        }
    }
}
