//! Nodes that know positions or sequences: rotation, caches and tables, attention, convolution, the delta rule.

use super::fusions::{Heads, Turned};
use super::{Item, Lowered, Lowering};
use crate::program::view::{ELEMENT, Lie};
use crate::program::{KernelStep, Ref};
use paceline_kernels::params::cache::{
    ADJACENT, AttentionJoin, AttentionParts, AttentionRows, HALVES, HeadsToCache, KV_BLOCK, KvAppend,
    MAX_HEAD, Rope, RowSpans, rope_table,
};
use paceline_kernels::params::fused::JoinQuantize;
use paceline_kernels::params::led::Maker;
use paceline_kernels::params::recurrent::{
    ConvCausal, DeltaReplay, GatedDeltaNet, MAX_KEY, MAX_TAPS, PLAIN, RECORDS, SNAPSHOTS,
};
use paceline_kernels::params::rows::TableUpdate;
use paceline_kernels::params::{Parameters, View};
use paceline_plugin_api::graph::ops::Attributes;
use paceline_plugin_api::graph::{DType, Node, Value, ValueId, ValueKind};
use paceline_plugin_api::support::{Live, ParameterCheck};

/// Types of cached keys and values.
const CACHE_TYPES: [DType; 8] =
    [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q5_1, DType::Q5_0, DType::Q4_1, DType::Q4_0];

/// Rows that attention takes at once, so that scratch does not grow with a prompt.
const ATTENTION_ROWS: u32 = 64;

/// Rows up to which partial results are spread over a device; with more there are groups enough without.
const FEW_ROWS: u32 = 16;

/// What tells forms of attention with the same bits from others.
const ON_MATRIX_UNITS: &str = "attention over blocks of 256, matrix units";

/// What a rotation needs besides what it turns.
struct Rotation {
    positions: u64,
    table: u64,
    factors: u64,
    pairs: u32,
    pairing: u32,
}

/// Where keys and values go.
struct Caches {
    k: u64,
    v: u64,
    types: [u32; 2],
    cells: u64,
    cells_end: u32,
}

/// A rollback parameter, and records if there are any.
struct Records {
    state: u64,
    count: u32,
    width: u32,
}

impl Lowering<'_> {
    /// What a node `rope` turns by.
    fn rotation(&mut self, node: &Node) -> Lowered<Rotation> {
        let attributes = Attributes::of(node);
        let rotary = attributes.integer("rotary") as u32;
        let pairing = match attributes.text("pairing") {
            "half" => HALVES,
            "adjacent" => ADJACENT,
            other => return Err(format!("pairing `{other}` has no kernel")),
        };
        let factors = match node.inputs.get(2) {
            Some(&id) => self.elements(id)?.address(),
            None => 0,
        };
        let table = rope_table(rotary, attributes.float("base"), attributes.float("divisor"));
        let table = self.constant(table.iter().flatten().flat_map(|turns| turns.to_ne_bytes()).collect());
        Ok(Rotation { positions: self.address(node.inputs[1])?, table, factors, pairs: rotary / 2, pairing })
    }

    pub(super) fn rope(&mut self, node: &Node) -> Lowered<&'static str> {
        let value = self.value(node.inputs[0]);
        let &[rows, heads, width] = value.shape.dims() else { return Err("x is not [R,H,d]".into()) };
        let live = self.live_address(value);
        let Rotation { positions, table, factors, pairs, pairing } = self.rotation(node)?;
        let x = self.elements(node.inputs[0])?;
        let x = self.split(x, live, heads, width);
        let out = View::dense(self.output(node.outputs[0])?.address(), heads, width);
        self.push(&Rope {
            x: x.view(),
            out,
            positions,
            table,
            factors,
            live,
            rows,
            heads,
            width,
            pairs,
            pairing,
            reserved: 0,
        });
        Ok("rope")
    }

    pub(super) fn table_update(&mut self, node: &Node) -> Lowered<&'static str> {
        let [rows, columns] = table_shape(self.value(node.inputs[0]));
        let updates = self.value(node.inputs[1]);
        let offset = self.parameter_offset(node.inputs[1])?;
        self.check(ParameterCheck::Updates { offset, live: self.live(updates), shape: [rows, columns] });
        let update = TableUpdate {
            table: self.address(node.inputs[0])?,
            updates: self.address(node.inputs[1])?,
            live: self.live_address(updates),
            count: updates.shape.first(),
            rows,
            columns,
            reserved: 0,
        };
        let table = node.inputs[0].index();
        let touches = |item: &Item| matches!(item, Item::Step(step) if step.touches().any(|id| id == table));
        if self.items.iter().any(touches) {
            self.changing.insert(table);
            self.push(&update);
        } else {
            self.push_leading(&update);
        }
        Ok("table_update")
    }

    /// The number of the type of a cache, if there is a kernel for it.
    fn cache_type(&self, id: ValueId) -> Lowered<u32> {
        let dtype = self.value(id).dtype;
        match CACHE_TYPES.contains(&dtype) {
            true => Ok(dtype.0),
            false => Err(format!("a KV cache of {dtype} has no kernel")),
        }
    }

    /// The caches of a node `kv_append`, whose cells a launch will check.
    fn caches(&mut self, node: &Node) -> Lowered<Caches> {
        let types = [self.cache_type(node.inputs[2])?, self.cache_type(node.inputs[3])?];
        let blocks = |id: ValueId| self.value(id).shape.first();
        let cells_end = blocks(node.inputs[2])
            .min(blocks(node.inputs[3]))
            .checked_mul(KV_BLOCK)
            .filter(|&cells| i32::try_from(cells).is_ok())
            .ok_or("a cache of 2^31 positions or more has no kernel")?;
        let offset = self.parameter_offset(node.inputs[4])?;
        let live = self.live(self.value(node.inputs[4]));
        self.check(ParameterCheck::Cells { offset, live, limit: cells_end.into() });
        let [k, v, cells] =
            [self.address(node.inputs[2])?, self.address(node.inputs[3])?, self.address(node.inputs[4])?];
        Ok(Caches { k, v, types, cells, cells_end })
    }

    pub(super) fn kv_append(&mut self, node: &Node) -> Lowered<&'static str> {
        let [k, v] = [0, 1].map(|index| self.value(node.inputs[index]));
        let live = self.live_address(k);
        let (&[rows, heads, k_width], &[_, v_heads, v_width]) = (k.shape.dims(), v.shape.dims()) else {
            return Err("k and v are not [R,H,d]".into());
        };
        if heads != v_heads {
            return Err("keys and values with different numbers of heads have no kernel".into());
        }
        let caches = self.caches(node)?;
        let k = self.elements(node.inputs[0])?;
        let k = self.split(k, live, heads, k_width);
        let v = self.elements(node.inputs[1])?;
        let v = self.split(v, live, heads, v_width);
        self.push(&KvAppend {
            k: k.view(),
            v: v.view(),
            k_cache: caches.k,
            v_cache: caches.v,
            cells: caches.cells,
            live,
            rows,
            heads,
            k_width,
            v_width,
            k_type: caches.types[0],
            v_type: caches.types[1],
            cells_end: caches.cells_end,
            reserved: 0,
        });
        Ok("kv_append")
    }

    /// Norms and rotation of queries and keys, and the append, in one launch.
    pub(super) fn heads_to_cache(&mut self, heads: &Heads) -> Lowered<()> {
        let graph = self.graph;
        let (rope, append) = (&graph.nodes()[heads.rope], &graph.nodes()[heads.append]);
        let &[rows, kv_heads, width] = self.value(append.inputs[0]).shape.dims() else {
            return Err("k is not [R,H,d]".into());
        };
        let live = self.live_address(self.value(append.inputs[0]));
        let Rotation { positions, table, factors, pairs, pairing } = self.rotation(rope)?;
        let caches = self.caches(append)?;
        let weight = |this: &mut Self, turned: &Turned| match turned.weight {
            Some(id) => {
                let lie = this.elements(id)?;
                Ok(this.dense(lie, 0).address())
            }
            None => Ok::<u64, String>(0),
        };
        let k_weight = weight(self, &heads.keys)?;
        let [k, v] = [self.elements(heads.keys.x)?, self.elements(append.inputs[1])?]
            .map(|lie| self.split(lie, live, kv_heads, width).view());
        let norms =
            [Some(&heads.keys), heads.queries.as_ref()].into_iter().flatten().filter_map(|t| t.weight);
        let factors_of = rope.inputs.get(2).copied();
        let positions_are_given = matches!(self.value(rope.inputs[1]).kind, ValueKind::Parameter { .. });
        let early = positions_are_given && norms.chain(factors_of).all(|id| self.is_given_weight(id));
        let (mut q, mut q_out, mut q_weight, mut query_heads) = (View::default(), View::default(), 0, 0);
        if let Some(queries) = &heads.queries {
            query_heads = self.value(queries.out).shape.dims()[1];
            q_weight = weight(self, queries)?;
            let lie = self.elements(queries.x)?;
            q = self.split(lie, live, query_heads, width).view();
            q_out = View::dense(self.output(queries.out)?.address(), query_heads, width);
        }
        self.push(&HeadsToCache {
            q,
            q_out,
            k,
            v,
            q_weight,
            k_weight,
            positions,
            table,
            factors,
            k_cache: caches.k,
            v_cache: caches.v,
            cells: caches.cells,
            live,
            rows,
            heads: query_heads,
            kv_heads,
            width,
            pairs,
            pairing,
            k_type: caches.types[0],
            v_type: caches.types[1],
            cells_end: caches.cells_end,
            epsilon: heads.epsilon,
            early: early.into(),
            reserved: 0,
        });
        Ok(())
    }

    /// Has a launch check the sequences; what stands for the address of their live count, and their largest number.
    fn sequences(&mut self, id: ValueId, rows: Live, slots: u32, positions: u64) -> Lowered<(u64, u32)> {
        let offset = self.parameter_offset(id)?;
        let value = self.value(id);
        self.check(ParameterCheck::Sequences { offset, live: self.live(value), rows, slots, positions });
        Ok((self.live_address(value), value.shape.first()))
    }

    /// A rollback parameter whose planes are used.
    fn planes(&mut self, id: ValueId, planes: u32) -> Lowered<u64> {
        let (offset, live) = (self.parameter_offset(id)?, self.live(self.value(id)));
        self.check(ParameterCheck::Planes { offset, live, planes });
        self.address(id)
    }

    /// Records, and a rollback parameter whose banks and keeps are used.
    fn records(&mut self, records: ValueId, rollback: ValueId) -> Lowered<(Records, u64)> {
        let shape = self.value(records).shape;
        let count = shape.dims()[1];
        let (offset, live) = (self.parameter_offset(rollback)?, self.live(self.value(rollback)));
        self.check(ParameterCheck::Records { offset, live, count });
        Ok((Records { state: self.address(records)?, count, width: shape.last() }, self.address(rollback)?))
    }

    /// The cells of the caches of an attention that a run writes, as far as they can be told beforehand: there is one append of the
    /// same rows, and nothing else that changes them. 0 otherwise.
    fn written_cells(&self, node: &Node) -> Lowered<u64> {
        let caches = [node.inputs[1], node.inputs[2]];
        let touches = |other: &&Node| caches.iter().any(|cache| other.inputs.contains(cache));
        let mut others =
            self.graph.nodes().iter().filter(touches).filter(|other| other.operation != "attention");
        let (Some(append), None) = (others.next(), others.next()) else { return Ok(0) };
        let is_append = append.operation == "kv_append" && append.inputs[2..4] == caches;
        let (own, appended) = (self.value(node.inputs[0]), self.value(append.inputs[0]));
        let same_rows = own.live == appended.live && own.shape.first() == appended.shape.first();
        if is_append && same_rows { self.address(append.inputs[4]) } else { Ok(0) }
    }

    pub(super) fn attention(&mut self, node: &Node) -> Lowered<&'static str> {
        let attributes = Attributes::of(node);
        let value = self.value(node.inputs[0]);
        let &[rows, heads, width] = value.shape.dims() else { return Err("q is not [R,H,d]".into()) };
        if width > MAX_HEAD {
            return Err(format!("heads of {width} have no kernel; at most {MAX_HEAD}"));
        }
        let (live, rows_live) = (self.live_address(value), self.live(value));
        let [k_type, v_type] = [self.cache_type(node.inputs[1])?, self.cache_type(node.inputs[2])?];
        let [k_cache, v_cache] = [1, 2].map(|index| self.value(node.inputs[index]).shape);
        let (kv_heads, blocks) = (k_cache.dims()[2], k_cache.first().min(v_cache.first()));
        let [slots, table_columns] = table_shape(self.value(node.inputs[3]));
        let positions = u64::from(table_columns) * u64::from(KV_BLOCK);
        let (live_sequences, max_sequences) = self.sequences(node.inputs[4], rows_live, slots, positions)?;
        let (window, causal) = (attributes.integer("window") as u32, attributes.flag("causal"));
        let q = self.elements(node.inputs[0])?;
        let q = self.split(q, live, heads, width);

        let key = (node.inputs[4].index(), window, causal, rows_live);
        let known = self.known.spans.get(&key).copied();
        let spans = known.unwrap_or_else(|| self.intermediate(u64::from(rows) * 4 * ELEMENT));
        let spans_address = Ref::new(spans, 0).token();
        if known.is_none() {
            self.known.spans.insert(key, spans);
            self.push_leading(&RowSpans {
                sequences: self.address(node.inputs[4])?,
                live_sequences,
                spans: spans_address,
                live,
                rows,
                max_sequences,
                window,
                causal: causal.into(),
            });
        }
        let sinks = match node.inputs.get(5) {
            Some(&id) => {
                let lie = self.elements(id)?;
                self.dense(lie, 0).address()
            }
            None => 0,
        };
        let fused = self.quantized_join(node, heads, width)?;
        let out = match fused {
            Some(_) => Lie::dense(node.outputs[0].index(), rows, heads * width),
            None => self.output(node.outputs[0])?,
        };
        let out = Lie { items: heads, item: width, width, ..out };
        let chunk_blocks = AttentionParts::chunk_blocks(table_columns);
        let mut parts = AttentionParts {
            q: q.view(),
            k_cache: self.address(node.inputs[1])?,
            v_cache: self.address(node.inputs[2])?,
            table: self.address(node.inputs[3])?,
            spans: spans_address,
            scratch: 0,
            live,
            cells: 0,
            rows,
            heads,
            kv_heads,
            width,
            k_type,
            v_type,
            table_columns,
            blocks,
            chunk_blocks,
            splits: AttentionParts::splits(table_columns),
            scale: attributes.float("scale") as f32,
            softcap: attributes.float("softcap") as f32,
            early: (!self.changing.contains(&node.inputs[3].index())).into(),
            reserved: 0,
        };
        if rows > FEW_ROWS
            && let Some(many) = AttentionRows::of(&parts)
            && (self.has_kernel)(many.launch().entry)
        {
            let (quantized, gate) = match &fused {
                Some((quantized, gate)) => (Ref::new(*quantized, 0).token(), gate.as_ref()),
                None => (0, None),
            };
            let gate = gate.map_or(View::default(), Lie::view);
            let bf16_groups = self.bf16_groups(rows);
            self.push(&AttentionRows { out: out.view(), gate, quantized, sinks, bf16_groups, ..many });
            return Ok(ON_MATRIX_UNITS);
        }

        if rows <= FEW_ROWS {
            parts.cells = self.written_cells(node)?;
        }
        let tile = rows.min(ATTENTION_ROWS);
        // One tile has the run's live count; of several, those behind it see nothing by what `RowSpans` says.
        let live = if tile == rows { live } else { 0 };
        let scratch = self.scratch(AttentionParts::scratch_bytes(tile, heads, width, table_columns));
        let mut kernel = "attention over blocks of 256";
        let (all_rows, bf16_groups) = (rows, self.bf16_groups(rows));
        for first in (0..rows).step_by(tile as usize) {
            let from =
                |lie: &Lie| Lie { offset: lie.offset + u64::from(first) * u64::from(lie.row), ..*lie }.view();
            let rows = tile.min(rows - first);
            let spans = Ref::new(spans, u64::from(first) * 4 * ELEMENT).token();
            parts = AttentionParts { q: from(&q), spans, scratch, live, rows, ..parts };
            // Whether there is such a form depends on the caches alone, so all numbers of rows have one.
            match parts.launch_matrix().filter(|launch| (self.has_kernel)(launch.entry)) {
                Some(launch) => {
                    kernel = ON_MATRIX_UNITS;
                    self.push_step(KernelStep::launched(&parts, launch));
                }
                None => self.push(&parts),
            }
            if let Some((quantized, gate)) = fused {
                // A tile begins at a multiple of the rows that lie together.
                let offset = self.quantized_offset(all_rows, first, heads * width);
                self.push_maker(Maker::Join(JoinQuantize {
                    gate: gate.as_ref().map_or(View::default(), from),
                    scratch,
                    spans,
                    sinks,
                    quantized: Ref::new(quantized, offset).token(),
                    live,
                    rows,
                    heads,
                    width,
                    table_columns,
                    chunk_blocks,
                    bf16_groups,
                }));
                continue;
            }
            self.push(&AttentionJoin {
                out: from(&out),
                scratch,
                spans,
                sinks,
                live,
                rows,
                heads,
                width,
                table_columns,
                chunk_blocks,
                reserved: 0,
            });
        }
        Ok(kernel)
    }

    pub(super) fn conv(&mut self, node: &Node) -> Lowered<&'static str> {
        let value = self.value(node.inputs[0]);
        let (live, rows_live) = (self.live_address(value), self.live(value));
        let (channels, taps) = (value.shape.last(), self.value(node.inputs[1]).shape.last());
        if taps > MAX_TAPS {
            return Err(format!("a convolution of {taps} taps has no kernel; at most {MAX_TAPS}"));
        }
        let planes = Attributes::of(node).integer("planes") as u32;
        let slots = self.value(node.inputs[2]).shape.first() / planes;
        let (live_sequences, max_sequences) = self.sequences(node.inputs[3], rows_live, slots, u64::MAX)?;
        let rollback = match node.inputs.get(4) {
            Some(&id) => self.planes(id, planes)?,
            None => 0,
        };
        let x = self.elements(node.inputs[0])?;
        let x = self.dense_rows(x, live);
        let early = self.is_given_weight(node.inputs[1]) && self.is_untouched(node.inputs[2]);
        let weight = self.elements(node.inputs[1])?;
        let weight = self.dense(weight, 0).address();
        let out = View::dense(self.output(node.outputs[0])?.address(), 1, channels);
        self.push(&ConvCausal {
            x: x.view(),
            out,
            weight,
            state: self.address(node.inputs[2])?,
            sequences: self.address(node.inputs[3])?,
            live_sequences,
            rollback,
            max_sequences,
            channels,
            taps,
            planes,
            slots,
            silu: (Attributes::of(node).text("activation") == "silu").into(),
            rows: value.shape.first(),
            early: early.into(),
        });
        Ok("conv_causal")
    }

    /// True if no launch of a run in front of the node that is lowered touches a state. Those of the run before have ended,
    /// since a run begins with a copy that everything waits for.
    fn is_untouched(&self, state: ValueId) -> bool {
        let mut before = self.graph.nodes()[..self.node_index].iter();
        before.all(|node| !node.inputs.contains(&state)) && self.graph.parameter_bytes() > 0
    }

    pub(super) fn delta(&mut self, node: &Node) -> Lowered<&'static str> {
        let (q, v) = (self.value(node.inputs[0]), self.value(node.inputs[2]));
        let (live, rows_live) = (self.live_address(v), self.live(v));
        let attributes = Attributes::of(node);
        let planes = attributes.integer("planes") as u32;
        let slots = self.value(node.inputs[5]).shape.first() / planes;
        let [key_heads, key_width] = [1, 2].map(|axis| q.shape.dims()[axis]);
        let [value_heads, value_width] = [1, 2].map(|axis| v.shape.dims()[axis]);
        if key_width > MAX_KEY {
            return Err(format!("keys of {key_width} have no kernel; at most {MAX_KEY}"));
        }
        let (mode, rollback, records) = match attributes.text("mode") {
            "plain" => (PLAIN, 0, None),
            "snapshots" => (SNAPSHOTS, self.planes(node.inputs[7], planes)?, None),
            "records" => {
                let (records, rollback) = self.records(node.inputs[7], node.inputs[8])?;
                (RECORDS, rollback, Some(records))
            }
            other => return Err(format!("mode `{other}` has no kernel")),
        };
        let (live_sequences, max_sequences) = self.sequences(node.inputs[6], rows_live, slots, u64::MAX)?;
        let shapes = [
            (key_heads, key_width),
            (key_heads, key_width),
            (value_heads, value_width),
            (value_heads, 1),
            (value_heads, 1),
        ];
        let mut views = [View::default(); 5];
        // Decays and strengths may be made by the kernel itself, below.
        let made = if self.fusions.gates.contains_key(&self.node_index) { 3 } else { 5 };
        for ((view, &id), (heads, width)) in views.iter_mut().zip(&node.inputs).zip(shapes).take(made) {
            let lie = self.elements(id)?;
            *view = self.split(lie, live, heads, width).view();
        }
        let [q, k, v, mut g, mut beta] = views;
        let (mut dt, mut a) = (0, 0);
        if let Some(gates) = self.fusions.gates.get(&self.node_index).copied() {
            let made = [gates.alpha, gates.beta].map(|id| self.elements(id));
            let [made_g, made_beta] = made;
            (g, beta) = (
                self.split(made_g?, live, value_heads, 1).view(),
                self.split(made_beta?, live, value_heads, 1).view(),
            );
            (dt, a) = (self.elements(gates.dt)?.address(), self.elements(gates.a)?.address());
        }
        let early = self.is_untouched(node.inputs[5]);
        let epsilon = self.fusions.normalized.get(&self.node_index).copied();
        let out = View::dense(self.output(node.outputs[0])?.address(), value_heads, value_width);
        self.push(&GatedDeltaNet {
            q,
            k,
            v,
            g,
            beta,
            out,
            state: self.address(node.inputs[5])?,
            records: records.as_ref().map_or(0, |records| records.state),
            sequences: self.address(node.inputs[6])?,
            live_sequences,
            rollback,
            dt,
            a,
            max_sequences,
            key_heads,
            value_heads,
            key_width,
            value_width,
            slots,
            planes,
            mode,
            records_count: records.as_ref().map_or(0, |records| records.count),
            scale: attributes.float("scale") as f32,
            normalize: epsilon.is_some().into(),
            epsilon: epsilon.unwrap_or(0.0),
            early: early.into(),
            reserved: 0,
        });
        Ok("gated_delta_net, sequential")
    }

    pub(super) fn replay(&mut self, node: &Node) -> Lowered<&'static str> {
        let shape = self.value(node.inputs[0]).shape;
        let [slots, value_heads, key_width, value_width] = [0, 1, 2, 3].map(|axis| shape.dims()[axis]);
        if key_width > MAX_KEY {
            return Err(format!("keys of {key_width} have no kernel; at most {MAX_KEY}"));
        }
        let (records, rollback) = self.records(node.inputs[1], node.inputs[3])?;
        // The node has no rows of its own to hold the sequences against.
        let rows = Live { offset: None, max: u32::MAX };
        let (live_sequences, max_sequences) = self.sequences(node.inputs[2], rows, slots, u64::MAX)?;
        self.check(ParameterCheck::NothingKept {
            offset: self.parameter_offset(node.inputs[3])?,
            live: self.live(self.value(node.inputs[2])),
            sequences: self.parameter_offset(node.inputs[2])?,
        });
        self.push(&DeltaReplay {
            state: self.address(node.inputs[0])?,
            records: records.state,
            sequences: self.address(node.inputs[2])?,
            live_sequences,
            rollback,
            max_sequences,
            key_heads: (records.width - value_heads * (value_width + 1)) / key_width,
            value_heads,
            key_width,
            value_width,
            slots,
            records_count: records.count,
            reserved: 0,
        });
        Ok("gated_delta_net_replay")
    }
}

fn table_shape(value: &Value) -> [u32; 2] {
    [value.shape.first(), value.shape.last()]
}
