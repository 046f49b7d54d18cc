//! `route/1` and `experts/1`.

use super::super::{ExpertMatrix, ExpertStage, ExpertsWork, Kernel, RowKernel};
use super::{Lowered, Lowering, activation};
use crate::kernels::experts::{Grouping, Routing};
use crate::quantized::row_bytes;
use paceline_plugin_api::graph::ops::Attributes;
use paceline_plugin_api::graph::{Node, Value, ValueId};

impl Lowering<'_> {
    pub(super) fn route(&mut self, node: &Node) -> Lowered<&'static str> {
        let attributes = Attributes::of(node);
        let routing = Routing {
            count: attributes.integer("k") as usize,
            sigmoid: attributes.text("scoring") == "sigmoid",
            normalize: attributes.flag("normalize"),
            factor: attributes.float("factor") as f32,
        };
        let kernel = RowKernel::Route {
            logits: self.elements(node.inputs[0])?,
            routing,
            ids: self.output(node.outputs[0])?,
            weights: self.output(node.outputs[1])?,
        };
        self.rows(self.value(node.inputs[0]), kernel);
        Ok("route")
    }

    pub(super) fn experts(&mut self, node: &Node) -> Lowered<&'static str> {
        let [x, gate, up, down, ids, weights] = node.inputs[..] else {
            return Err("it takes 6 inputs".into());
        };
        let [gate, up, down] =
            [self.expert_matrix(gate)?, self.expert_matrix(up)?, self.expert_matrix(down)?];
        let value = self.value(x);
        let (rows, width) = (value.shape.first() as usize, value.shape.last() as usize);
        let chosen = self.value(ids).shape.last() as usize;
        let experts = self.value(node.inputs[1]).shape.first() as usize;
        let grouping = Grouping { experts, assignments: rows * chosen };
        let (source, ids, weights) = (self.elements(x)?, self.root(ids), self.elements(weights)?);

        let wants = |quantized: bool| [gate, up].iter().any(|matrix| matrix.kind.is_quantized() == quantized);
        let most = grouping.assignments;
        let floats = |width: usize| most * width * size_of::<f32>();
        let plain = wants(false).then(|| [source, self.intermediate(floats(width))]);
        let quantized = wants(true).then(|| {
            let rows = self.quantized_rows(value, source);
            [rows, self.intermediate(most * row_bytes(width))]
        });
        let work = ExpertsWork {
            activation: activation(Attributes::of(node).text("kind"))?,
            rows: self.live(value),
            chosen,
            ids,
            weights,
            plain,
            quantized,
            list: self.intermediate(grouping.len() * size_of::<i32>()),
            gate_out: self.intermediate(floats(gate.n)),
            up_out: self.intermediate(floats(gate.n)),
            inner: self.intermediate(floats(gate.n)),
            inner_quantized: down.kind.is_quantized().then(|| self.intermediate(most * row_bytes(gate.n))),
            outer: self.intermediate(floats(width)),
            out: self.output(node.outputs[0])?,
            gate,
            up,
            down,
            grouping,
        };
        for stage in ExpertStage::ALL {
            if stage != ExpertStage::Quantize || work.inner_quantized.is_some() {
                self.kernels.push(Kernel::Experts(stage, work.clone()));
            }
        }
        Ok("experts, grouped")
    }

    fn expert_matrix(&self, id: ValueId) -> Lowered<ExpertMatrix> {
        let kind = self.packed(id)?;
        match *self.value(id).shape.dims() {
            [_, n, k] => Ok(ExpertMatrix { weight: id.index(), kind, n: n as usize, k: k as usize }),
            _ => Err("experts must have weights of 3 dimensions".into()),
        }
    }

    /// Of a weight of `experts/1`: the part that a run of all rows reads at most, and the rows that each part sees on
    /// average.
    pub(super) fn expert_share(&self, node: &Node, weight: &Value) -> Option<(f64, f64)> {
        let ids = *node.inputs.get(4).filter(|_| node.operation == "experts")?;
        let assignments = self.value(ids).shape.elements()? as f64 / f64::from(weight.shape.first());
        Some((assignments.min(1.0), assignments))
    }
}
