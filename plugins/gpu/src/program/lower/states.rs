//! Nodes that choose rows, store and load rows of a state, and look up entries of a table.

use super::{Lowered, Lowering};
use crate::program::view::rows_of;
use paceline_kernels::params::View;
use paceline_kernels::params::rows::{Lookup, RowsLoad, RowsStore, SelectRows};
use paceline_plugin_api::graph::{Node, ValueId, ValueKind};
use paceline_plugin_api::support::ParameterCheck;

impl Lowering<'_> {
    /// Has a launch check cells that are parameters; kernels pass over what nodes made and does not fit.
    fn check_cells(&mut self, cells: ValueId, limit: u32) {
        let value = self.value(cells);
        if let ValueKind::Parameter { offset } = value.kind {
            self.check(ParameterCheck::Cells {
                offset: offset.into(),
                live: self.live(value),
                limit: limit.into(),
            });
        }
    }

    pub(super) fn select_rows(&mut self, node: &Node) -> Lowered<&'static str> {
        let (value, list) = (self.value(node.inputs[0]), self.value(node.inputs[1]));
        if let ValueKind::Parameter { offset } = list.kind {
            let (live, rows) = (self.live(list), self.live(value));
            self.check(ParameterCheck::Selected { offset: offset.into(), live, rows });
        }
        let live = self.live_address(value);
        let x = self.elements(node.inputs[0])?;
        let x = self.dense_rows(x, live);
        let out = self.output(node.outputs[0])?;
        self.push(&SelectRows {
            x: x.view(),
            out: out.view(),
            list: self.address(node.inputs[1])?,
            live: self.live_address(list),
            rows: list.shape.first(),
            x_rows: x.rows,
            width: x.row_elements(),
            reserved: 0,
        });
        Ok("select_rows")
    }

    pub(super) fn rows_store(&mut self, node: &Node) -> Lowered<&'static str> {
        let [x, state, cells] = [node.inputs[0], node.inputs[1], node.inputs[2]];
        let shape = self.value(state).shape;
        let entries = shape.first();
        self.check_cells(cells, entries);
        let live = self.live_address(self.value(x));
        let lie = self.elements(x)?;
        let lie = self.dense_rows(lie, live);
        self.push(&RowsStore {
            x: lie.view(),
            state: self.address(state)?,
            cells: self.address(cells)?,
            live,
            rows: lie.rows,
            entries,
            width: shape.last(),
            reserved: 0,
        });
        Ok("rows_store")
    }

    pub(super) fn rows_load(&mut self, node: &Node) -> Lowered<&'static str> {
        let (state, cells) = (node.inputs[0], node.inputs[1]);
        let shape = self.value(state).shape;
        self.check_cells(cells, shape.first());
        let out = self.output(node.outputs[0])?;
        let value = self.value(cells);
        self.push(&RowsLoad {
            out: View::dense(out.address(), 1, shape.last()),
            state: self.address(state)?,
            cells: self.address(cells)?,
            live: self.live_address(value),
            rows: value.shape.first(),
            entries: shape.first(),
            width: shape.last(),
            reserved: 0,
        });
        Ok("rows_load")
    }

    pub(super) fn lookup(&mut self, node: &Node) -> Lowered<&'static str> {
        let (ids, table) = (self.value(node.inputs[0]), self.value(node.inputs[1]));
        let (rows, _) = rows_of(ids);
        let out = self.output(node.outputs[0])?.address();
        self.push(&Lookup {
            ids: self.address(node.inputs[0])?,
            table: self.elements(node.inputs[1])?.address(),
            out,
            live: self.live_address(ids),
            rows: if ids.live.is_some() { rows } else { ids.shape.first() },
            entries: table.shape.first(),
        });
        Ok("lookup")
    }
}
