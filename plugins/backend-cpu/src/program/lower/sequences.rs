//! Nodes that know positions or sequences: rotation, caches and tables, attention, convolution, the delta rule.

use super::{Lowered, Lowering};
use crate::kernels::attention::{MOST_SHARED_ROWS, part_floats};
use crate::kernels::conv::MAX_TAPS;
use crate::kernels::kv::BLOCK;
use crate::kernels::rope::RopePairing;
use crate::program::{
    AttentionWork, Cache, ConvWork, DeltaMode, DeltaWork, Id, Kernel, Live, Records, ReplayWork, Rotation,
    RowKernel, StateLayout,
};
use paceline_plugin_api::graph::ops::Attributes;
use paceline_plugin_api::graph::{Node, Value, ValueId};
use paceline_plugin_api::support::ParameterCheck;

impl Lowering<'_> {
    pub(super) fn rope(&mut self, node: &Node) -> Lowered<&'static str> {
        let attributes = Attributes::of(node);
        let value = self.value(node.inputs[0]);
        let rotary = attributes.integer("rotary") as usize;
        let rotation =
            Rotation { rotary, base: attributes.float("base"), divisor: attributes.float("divisor") };
        let pairing = match attributes.text("pairing") {
            "half" => RopePairing::Halves,
            "adjacent" => RopePairing::Adjacent,
            other => return Err(format!("pairing `{other}` has no kernel")),
        };
        let known = self.rotations.iter().position(|&r| r == rotation);
        let table = known.unwrap_or_else(|| {
            self.rotations.push(rotation);
            self.rotations.len() - 1
        });
        let positions = self.root(node.inputs[1]);
        let factors = match node.inputs.get(2) {
            Some(&id) => Some(self.elements(id)?),
            None => None,
        };
        let angles = match self.angles.get(&(positions, table, factors)) {
            Some(&known) => known,
            None => {
                let out = self.intermediate(value.shape.first() as usize * rotary * size_of::<f32>());
                self.rows(self.value(node.inputs[1]), RowKernel::Angles { positions, table, factors, out });
                self.angles.insert((positions, table, factors), out);
                out
            }
        };
        let kernel = RowKernel::Rope {
            x: self.elements(node.inputs[0])?,
            angles,
            pairs: rotary / 2,
            heads: value.shape.dims()[1] as usize,
            pairing,
            out: self.output(node.outputs[0])?,
        };
        self.rows(value, kernel);
        Ok("rope")
    }

    pub(super) fn table_update(&mut self, node: &Node) -> Lowered<&'static str> {
        let shape = table_shape(self.value(node.inputs[0]));
        let live = self.live(self.value(node.inputs[1]));
        let offset = self.parameter_offset(node.inputs[1])?;
        self.checks.push(ParameterCheck::Updates {
            offset: offset as u64,
            live: live.into(),
            shape: shape.map(|length| length as u32),
        });
        let (table, updates) = (node.inputs[0].index(), node.inputs[1].index());
        self.kernels.push(Kernel::TableUpdate { table, shape, updates, live });
        Ok("table_update")
    }

    pub(super) fn cache(&self, id: ValueId) -> Lowered<Cache> {
        match self.state_layouts[self.states[&id.index()]] {
            StateLayout::Cache { format, blocks, heads, width } => {
                Ok(Cache { state: id.index(), format, blocks, heads, width })
            }
            StateLayout::Plain { .. } => {
                let dtype = self.value(id).dtype;
                Err(format!(
                    "a KV cache of {dtype} has no kernel; f32, f16, q8_0, q5_1, q5_0, q4_1 and q4_0 have"
                ))
            }
        }
    }

    pub(super) fn kv_append(&mut self, node: &Node) -> Lowered<&'static str> {
        let value = self.value(node.inputs[0]);
        let caches = [self.cache(node.inputs[2])?, self.cache(node.inputs[3])?];
        if caches[0].width != caches[1].width {
            return Err("keys and values of different width have no kernel".into());
        }
        let offset = self.parameter_offset(node.inputs[4])?;
        let live = self.live(self.value(node.inputs[4]));
        let limit = caches.map(|c| c.blocks * BLOCK).into_iter().min().unwrap_or(0);
        self.checks.push(ParameterCheck::Cells {
            offset: offset as u64,
            live: live.into(),
            limit: limit as u64,
        });
        let kernel = RowKernel::KvAppend {
            k: self.elements(node.inputs[0])?,
            v: self.elements(node.inputs[1])?,
            caches,
            cells: node.inputs[4].index(),
        };
        self.rows(value, kernel);
        Ok("kv_append")
    }

    pub(super) fn sequences(
        &mut self,
        id: ValueId,
        rows: Live,
        slots: usize,
        positions: usize,
    ) -> Lowered<Live> {
        let offset = self.parameter_offset(id)?;
        let live = self.live(self.value(id));
        self.check(ParameterCheck::Sequences {
            offset: offset as u64,
            live: live.into(),
            rows: rows.into(),
            slots: slots as u32,
            positions: positions as u64,
        });
        Ok(live)
    }

    pub(super) fn check(&mut self, check: ParameterCheck) {
        if !self.checks.contains(&check) {
            self.checks.push(check);
        }
    }

    /// A rollback parameter whose planes are used.
    fn planes(&mut self, id: ValueId, planes: usize) -> Lowered<Id> {
        let (offset, live) = (self.parameter_offset(id)?, self.live(self.value(id)));
        self.check(ParameterCheck::Planes {
            offset: offset as u64,
            live: live.into(),
            planes: planes as u32,
        });
        Ok(id.index())
    }

    /// Records, and a rollback parameter whose banks and keeps are used.
    fn records(&mut self, records: ValueId, rollback: ValueId) -> Lowered<(Records, Id)> {
        let shape = self.value(records).shape;
        let count = shape.dims()[1] as usize;
        let (offset, live) = (self.parameter_offset(rollback)?, self.live(self.value(rollback)));
        self.check(ParameterCheck::Records { offset: offset as u64, live: live.into(), count: count as u32 });
        let records = Records { state: records.index(), count, width: shape.last() as usize };
        Ok((records, rollback.index()))
    }

    pub(super) fn attention(&mut self, node: &Node) -> Lowered<&'static str> {
        let attributes = Attributes::of(node);
        let value = self.value(node.inputs[0]);
        let rows = self.live(value);
        let table_shape = table_shape(self.value(node.inputs[3]));
        let sequences_live = self.sequences(node.inputs[4], rows, table_shape[0], table_shape[1] * BLOCK)?;
        let (window, causal) = (attributes.integer("window") as usize, attributes.flag("causal"));
        let key = (node.inputs[4].index(), window, causal);
        let known = self.visible.get(&key).copied();
        let visible = match known {
            Some(id) => id,
            None => self.intermediate(rows.max * 2 * size_of::<i32>()),
        };
        let softcap = attributes.float("softcap") as f32;
        let mut work = AttentionWork {
            q: self.elements(node.inputs[0])?,
            caches: [self.cache(node.inputs[1])?, self.cache(node.inputs[2])?],
            table: node.inputs[3].index(),
            table_shape,
            sequences: node.inputs[4].index(),
            sequences_live,
            sinks: node.inputs.get(5).map(|&id| self.elements(id)).transpose()?,
            scale: attributes.float("scale") as f32,
            cap: (softcap != 0.0).then_some(softcap),
            window,
            causal,
            heads: value.shape.dims()[1] as usize,
            rows,
            visible,
            parts: 0,
            out: self.output(node.outputs[0])?,
        };
        let part = work.most_spans() * work.heads * part_floats(work.caches[0].width);
        work.parts = self.intermediate(rows.max.min(MOST_SHARED_ROWS) * part * size_of::<f32>());
        if known.is_none() {
            self.visible.insert(key, visible);
            self.kernels.push(Kernel::Visible(work.clone()));
        }
        self.kernels.push(Kernel::Attention(work.clone()));
        self.kernels.push(Kernel::AttentionCombine(work));
        Ok("attention over blocks of 256")
    }

    pub(super) fn conv(&mut self, node: &Node) -> Lowered<&'static str> {
        let value = self.value(node.inputs[0]);
        let taps = self.value(node.inputs[1]).shape.last() as usize;
        if taps > MAX_TAPS {
            return Err(format!("a convolution of {taps} taps has no kernel; at most {MAX_TAPS}"));
        }
        let rows = self.live(value);
        let planes = Attributes::of(node).integer("planes") as usize;
        let slots = self.value(node.inputs[2]).shape.first() as usize / planes;
        let work = ConvWork {
            x: self.elements(node.inputs[0])?,
            weight: self.elements(node.inputs[1])?,
            state: node.inputs[2].index(),
            slots,
            sequences: node.inputs[3].index(),
            sequences_live: self.sequences(node.inputs[3], rows, slots, usize::MAX)?,
            planes,
            rollback: node.inputs.get(4).map(|&id| self.planes(id, planes)).transpose()?,
            channels: value.shape.last() as usize,
            taps,
            silu: Attributes::of(node).text("activation") == "silu",
            rows,
            out: self.output(node.outputs[0])?,
        };
        self.kernels.push(Kernel::Conv(work));
        Ok("conv_causal")
    }

    pub(super) fn delta(&mut self, node: &Node) -> Lowered<&'static str> {
        let (q, v) = (self.value(node.inputs[0]), self.value(node.inputs[2]));
        let rows = self.live(v);
        let attributes = Attributes::of(node);
        let planes = attributes.integer("planes") as usize;
        let slots = self.value(node.inputs[5]).shape.first() as usize / planes;
        let mode = match attributes.text("mode") {
            "plain" => DeltaMode::Plain,
            "snapshots" => DeltaMode::Snapshots { planes, rollback: self.planes(node.inputs[7], planes)? },
            "records" => {
                let (records, rollback) = self.records(node.inputs[7], node.inputs[8])?;
                DeltaMode::Records { records, rollback }
            }
            other => return Err(format!("mode `{other}` has no kernel")),
        };
        let replay = self.take_replay(node.inputs[5].index(), &mode, node.inputs[6].index());
        let mut inputs = [0; 5];
        for (input, &id) in inputs.iter_mut().zip(&node.inputs) {
            *input = self.elements(id)?;
        }
        let work = DeltaWork {
            inputs,
            state: node.inputs[5].index(),
            slots,
            mode,
            replay,
            sequences: node.inputs[6].index(),
            sequences_live: self.sequences(node.inputs[6], rows, slots, usize::MAX)?,
            key_heads: q.shape.dims()[1] as usize,
            value_heads: v.shape.dims()[1] as usize,
            key_width: q.shape.last() as usize,
            value_width: v.shape.last() as usize,
            scale: attributes.float("scale") as f32,
            rows,
            out: self.output(node.outputs[0])?,
        };
        self.kernels.push(Kernel::Delta(work));
        Ok("gated_delta_net, sequential")
    }

    /// A replay that only prepares the state for a delta rule with records or in place, taken out of the program: it is
    /// done in one pass with the rows. It must be the last that touched the state or the records, for the same sequences.
    fn take_replay(&mut self, state: Id, mode: &DeltaMode, sequences: Id) -> Option<ReplayWork> {
        let writes = match *mode {
            DeltaMode::Plain => None,
            DeltaMode::Records { records, rollback } => Some((records, rollback)),
            DeltaMode::Snapshots { .. } => return None,
        };
        let touches = |kernel: &Kernel, id: Id| kernel.reads().contains(&id) || kernel.writes().contains(&id);
        let last = self.kernels.iter().rposition(|kernel| touches(kernel, state))?;
        let Kernel::Replay(work) = &self.kernels[last] else { return None };
        let fits = work.state == state
            && work.sequences == sequences
            && writes.is_none_or(|writes| writes == (work.records, work.rollback));
        let records = work.records.state;
        if !fits || self.kernels[last + 1..].iter().any(|kernel| touches(kernel, records)) {
            return None;
        }
        match self.kernels.remove(last) {
            Kernel::Replay(work) => Some(work),
            _ => None,
        }
    }

    pub(super) fn replay(&mut self, node: &Node) -> Lowered<&'static str> {
        let shape = self.value(node.inputs[0]).shape;
        let [slots, value_heads, key_width, value_width] =
            [0, 1, 2, 3].map(|axis| shape.dims()[axis] as usize);
        let (records, rollback) = self.records(node.inputs[1], node.inputs[3])?;
        // The node has no rows of its own to hold the sequences against.
        let rows = Live { offset: None, max: usize::MAX };
        let sequences_live = self.sequences(node.inputs[2], rows, slots, usize::MAX)?;
        self.check(ParameterCheck::NothingKept {
            offset: self.parameter_offset(node.inputs[3])? as u64,
            live: sequences_live.into(),
            sequences: self.parameter_offset(node.inputs[2])? as u64,
        });
        let work = ReplayWork {
            state: node.inputs[0].index(),
            slots,
            records,
            sequences: node.inputs[2].index(),
            sequences_live,
            rollback,
            key_heads: (records.width - value_heads * (value_width + 1)) / key_width,
            value_heads,
            key_width,
            value_width,
        };
        self.kernels.push(Kernel::Replay(work));
        Ok("gated_delta_net_replay")
    }

    pub(super) fn select_rows(&mut self, node: &Node) -> Lowered<&'static str> {
        let value = self.value(node.inputs[0]);
        let offset = self.parameter_offset(node.inputs[1])?;
        let live = self.live(self.value(node.inputs[1]));
        self.checks.push(ParameterCheck::Selected {
            offset: offset as u64,
            live: live.into(),
            rows: self.live(value).into(),
        });
        let kernel = RowKernel::SelectRows {
            x: self.elements(node.inputs[0])?,
            x_rows: value.shape.first() as usize,
            rows: self.root(node.inputs[1]),
            out: self.output(node.outputs[0])?,
        };
        self.rows(self.value(node.outputs[0]), kernel);
        Ok("select_rows")
    }
}

fn table_shape(value: &Value) -> [usize; 2] {
    [value.shape.first() as usize, value.shape.last() as usize]
}
