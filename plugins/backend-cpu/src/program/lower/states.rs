//! Nodes that store and load rows of a state, and look up entries of a table.

use super::{Lowered, Lowering};
use crate::program::{Kernel, RowKernel, RowsStore};
use paceline_plugin_api::graph::{Node, ValueId, ValueKind};
use paceline_plugin_api::support::ParameterCheck;

impl Lowering<'_> {
    /// Has a launch check cells that are parameters; kernels pass over what nodes made and does not fit.
    fn check_cells(&mut self, cells: ValueId, limit: usize) {
        let value = self.value(cells);
        if let ValueKind::Parameter { offset } = value.kind {
            self.check(ParameterCheck::Cells {
                offset: offset.into(),
                live: self.live(value).into(),
                limit: limit as u64,
            });
        }
    }

    pub(super) fn rows_store(&mut self, node: &Node) -> Lowered<&'static str> {
        let [x, state, cells] = [node.inputs[0], node.inputs[1], node.inputs[2]];
        let shape = self.value(state).shape;
        let entries = shape.first() as usize;
        self.check_cells(cells, entries);
        self.kernels.push(Kernel::RowsStore(RowsStore {
            x: self.elements(x)?,
            state: state.index(),
            entries,
            width: shape.last() as usize,
            cells: self.root(cells),
            rows: self.live(self.value(x)),
        }));
        Ok("rows_store")
    }

    pub(super) fn lookup(&mut self, node: &Node) -> Lowered<&'static str> {
        let kernel = RowKernel::Lookup {
            ids: self.root(node.inputs[0]),
            table: self.elements(node.inputs[1])?,
            entries: self.value(node.inputs[1]).shape.first() as usize,
            out: self.output(node.outputs[0])?,
        };
        self.rows(self.value(node.outputs[0]), kernel);
        Ok("lookup")
    }

    pub(super) fn draw(&mut self, node: &Node) -> Lowered<&'static str> {
        let x = node.inputs[0];
        let (ids, faults) = (self.output(node.outputs[0])?, self.output(node.outputs[1])?);
        self.counters.push(faults);
        let kernel = RowKernel::Draw {
            x: self.elements(x)?,
            noise: self.root(node.inputs[1]),
            tokens: node.inputs.get(2).map(|&tokens| self.elements(tokens)).transpose()?,
            ids,
            faults,
        };
        self.rows(self.value(x), kernel);
        Ok("draw")
    }

    pub(super) fn rows_load(&mut self, node: &Node) -> Lowered<&'static str> {
        let (state, cells) = (node.inputs[0], node.inputs[1]);
        let entries = self.value(state).shape.first() as usize;
        self.check_cells(cells, entries);
        let kernel = RowKernel::RowsLoad {
            state: state.index(),
            entries,
            cells: self.root(cells),
            out: self.output(node.outputs[0])?,
        };
        self.rows(self.value(node.outputs[0]), kernel);
        Ok("rows_load")
    }
}
