//! The programs: rows of the text enter the ring, and a block is filled.

use crate::model::DraftModel;
use crate::ring::Ring;
use paceline_plugin_api::graph::ops::KV_BLOCK;
use paceline_plugin_api::graph::step::{StepInputs, Tap, declare_ring_table};
use paceline_plugin_api::graph::{Attribute, Builder, Graph, StateKind, ValueId, fragment};
use paceline_plugin_api::strategy::{Facts, ProgramId, Session};
use paceline_plugin_api::{Error, ErrorKind, Result};

/// Rows at the head of a draft that enter the ring, rounded up.
const HEAD_ROWS: [u32; 4] = [1, 2, 5, 16];
/// Rows of a program that only lets rows enter; the last is the microbatch, or the ring if that is less.
const FILL_ROWS: [u32; 2] = [16, 64];

pub(crate) struct Programs {
    /// By rows.
    drafts: Vec<(u32, ProgramId)>,
    fills: Vec<(u32, ProgramId)>,
    /// Where the ids of the block's rows, and the count of rows that were not numbers, are in the result block.
    ids: usize,
    faults: usize,
}

/// Builds the graphs of a context.
pub(crate) struct GraphBuilder<'a> {
    pub facts: &'a Facts,
    pub model: &'a DraftModel,
    pub ring: Ring,
    /// Most rows of a block, the anchor included.
    pub block: u32,
    /// Tokens are drawn where the target draws its own.
    pub draw: bool,
}

impl Programs {
    pub fn declare(graphs: &GraphBuilder<'_>, session: &mut dyn Session) -> Result<Self> {
        // Rows of one launch go to different cells.
        let most = graphs.facts.microbatch.min(graphs.ring.rows());
        let fill_rows = FILL_ROWS.into_iter().filter(|&rows| rows < most).chain([most]);
        let fills = fill_rows
            .map(|rows| Ok((rows, session.declare_program(&format!("fill {rows}"), &graphs.fill(rows))?)))
            .collect::<Result<_>>()?;
        let (mut drafts, mut places) = (Vec::new(), None);
        for rows in HEAD_ROWS {
            let graph = graphs.draft(rows)?;
            let at = |name: &str| graph.result(name).map(|result| result.offset as usize);
            places = at("ids").zip(at("faults"));
            drafts.push((rows, session.declare_program(&format!("draft on {rows}"), &graph)?));
        }
        let (ids, faults) =
            places.ok_or_else(|| Error::new(ErrorKind::Internal, "a draft's graph lacks its results"))?;
        Ok(Self { drafts, fills, ids, faults })
    }

    /// The smallest program that lets `rows` rows enter, or the largest there is; and its rows.
    pub fn fill(&self, rows: u32) -> Option<(u32, ProgramId)> {
        self.fills.iter().find(|(most, _)| *most >= rows).or(self.fills.last()).copied()
    }

    /// The smallest draft with room for `rows` rows at its head.
    pub fn draft(&self, rows: u32) -> Option<ProgramId> {
        self.drafts.iter().find(|(most, _)| *most >= rows).map(|&(_, id)| id)
    }

    /// Most rows at the head of a draft.
    pub const fn most_head_rows() -> u32 {
        HEAD_ROWS[HEAD_ROWS.len() - 1]
    }

    /// The tokens of `steps` masks in a draft's results; `None` if logits were not numbers.
    pub fn tokens<'a>(&self, results: &'a [u8], steps: usize) -> Option<impl Iterator<Item = u32> + use<'a>> {
        let word = |at: usize| {
            let bytes = results.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_ne_bytes)
        };
        let ids = self.ids;
        // Row 0 is the anchor's, which says nothing.
        (word(self.faults) == 0).then(|| (1..=steps).map(move |row| word(ids + row * 4)))
    }
}

impl GraphBuilder<'_> {
    /// Keys and values of a layer, each `[blocks, 256, KV heads, width]`.
    fn caches(&self, b: &mut Builder, layer: u32) -> [ValueId; 2] {
        let context = &self.facts.context;
        let blocks = self.ring.blocks.saturating_mul(context.sequences);
        let dims = [blocks, KV_BLOCK, self.model.kv_heads, self.model.head_width];
        let [k, v] = context.kv_types;
        [("k", k), ("v", v)].map(|(part, dtype)| {
            b.state(&format!("blk.{layer}.ring_{part}"), StateKind::PerPosition, dtype, &dims)
        })
    }

    /// A layer's weight.
    fn weight(&self, b: &mut Builder, layer: u32, part: &str) -> ValueId {
        self.model.weight(b, &format!("blk.{layer}.{part}.weight"))
    }

    /// x·W as heads f32\[R, H, width\], each normed by itself.
    fn normed_heads(&self, b: &mut Builder, layer: u32, x: ValueId, part: &str, heads: u32) -> ValueId {
        let (weight, norm) = (self.weight(b, layer, part), self.weight(b, layer, &format!("{part}_norm")));
        let x = self.heads(b, x, weight, heads);
        b.rms_norm(x, norm, self.model.eps)
    }

    fn heads(&self, b: &mut Builder, x: ValueId, weight: ValueId, heads: u32) -> ValueId {
        let x = b.linear(x, weight);
        let rows = b.dims(x)[0];
        b.reshape(x, &[rows, heads, self.model.head_width])
    }

    /// Rows `x` give a layer keys and values in the ring.
    fn append(&self, b: &mut Builder, step: &StepInputs, layer: u32, x: ValueId) -> [ValueId; 2] {
        let model = self.model;
        let keys = self.normed_heads(b, layer, x, "attn_k", model.kv_heads);
        let keys = b.rope(keys, step.positions, model.rotary, model.rope_base);
        let weight = self.weight(b, layer, "attn_v");
        let values = self.heads(b, x, weight, model.kv_heads);
        let caches = self.caches(b, layer);
        let cells = step.ring_cells(b);
        b.kv_append(keys, values, caches, cells);
        caches
    }

    /// The rows of a group enter the ring: their features, fused, are the rows of all layers. Features are taken as
    /// they are, since no operation replaces numbers that are not finite; a draft that meets them is dropped.
    fn enter(&self, b: &mut Builder, step: &StepInputs) {
        let facts = self.facts;
        let entries = step.staged(b);
        let load = |b: &mut Builder, layer: u32| {
            let state = Tap::LayerInput(layer).state(b, &facts.context, facts.hidden);
            b.rows_load(state, entries)
        };
        let features: Vec<ValueId> = self.model.target_layers.iter().map(|&layer| load(b, layer)).collect();
        let features = match features.as_slice() {
            [one] => *one,
            several => b.concat(several),
        };
        let (fusion, norm) =
            (self.model.weight(b, "fc.weight"), self.model.weight(b, "enc.output_norm.weight"));
        let fused = b.linear(features, fusion);
        let fused = b.rms_norm(fused, norm, self.model.eps);
        for layer in 0..self.model.layers {
            self.append(b, step, layer, fused);
        }
    }

    /// Lets up to `rows` rows enter.
    pub fn fill(&self, rows: u32) -> Graph {
        let mut b = Builder::new();
        let table = declare_ring_table(&mut b, &self.facts.context);
        let step = StepInputs::group(&mut b, &self.facts.context, table, 0, rows);
        self.enter(&mut b, &step);
        b.finish()
    }

    /// Lets up to `rows` rows enter, then fills a block behind them.
    pub fn draft(&self, rows: u32) -> Result<Graph> {
        let (model, facts) = (self.model, self.facts);
        let mut b = Builder::new();
        let table = declare_ring_table(&mut b, &self.facts.context);
        let head = StepInputs::group(&mut b, &facts.context, table, 0, rows);
        let block = StepInputs::group(&mut b, &facts.context, table, 1, self.block);
        self.enter(&mut b, &head);
        let mut x = self.embed(&mut b, block.ids);
        for layer in 0..model.layers {
            x = self.layer(&mut b, &block, layer, x)?;
        }
        let norm = model.weight(&mut b, "output_norm.weight");
        let x = b.rms_norm(x, norm, model.eps);
        let logits = match model.own_head() {
            Some(own) => {
                let weight = model.weight(&mut b, own);
                b.linear(x, weight)
            }
            None => b.row_fragment(fragment::HEAD, x, facts.vocabulary),
        };
        let (ids, faults) = if self.draw {
            let noise = block.noise(&mut b);
            b.draw(logits, noise, None)
        } else {
            b.argmax(logits)
        };
        b.result("ids", ids);
        b.result("faults", faults);
        Ok(b.finish())
    }

    fn embed(&self, b: &mut Builder, ids: ValueId) -> ValueId {
        let x = match self.model.own_embedding() {
            Some(own) => {
                let weight = self.model.weight(b, own);
                b.embed(ids, weight).0
            }
            None => b.row_fragment(fragment::EMBED, ids, self.facts.hidden),
        };
        if self.model.embedding_scale == 1.0 { x } else { b.scale(x, self.model.embedding_scale) }
    }

    fn layer(&self, b: &mut Builder, step: &StepInputs, layer: u32, x: ValueId) -> Result<ValueId> {
        let model = self.model;
        let norm = self.weight(b, layer, "attn_norm");
        let u = b.rms_norm(x, norm, model.eps);
        let queries = self.normed_heads(b, layer, u, "attn_q", model.heads);
        let queries = b.rope(queries, step.positions, model.rotary, model.rope_base);
        let caches = self.append(b, step, layer, u);
        let mixed = self.attention(b, step, layer, queries, caches)?;
        let rows = b.dims(mixed)[0];
        let mixed = b.reshape(mixed, &[rows, model.heads * model.head_width]);
        let output = self.weight(b, layer, "attn_output");
        let mixed = b.linear(mixed, output);
        let x = b.add(x, mixed);

        let norm = self.weight(b, layer, "ffn_norm");
        let u = b.rms_norm(x, norm, model.eps);
        let [gate, up, down] = ["ffn_gate", "ffn_up", "ffn_down"].map(|part| self.weight(b, layer, part));
        let (gate, up) = (b.linear(u, gate), b.linear(u, up));
        let inner = b.glu(gate, up, "silu");
        let out = b.linear(inner, down);
        Ok(b.add(x, out))
    }

    /// Attention over the ring and the whole block.
    fn attention(
        &self,
        b: &mut Builder,
        step: &StepInputs,
        layer: u32,
        queries: ValueId,
        caches: [ValueId; 2],
    ) -> Result<ValueId> {
        // The ring forgets, so it bounds what every layer sees.
        let windows = [self.ring.window, self.model.windows[layer as usize]];
        let window = windows.into_iter().filter(|&window| window > 0).min().unwrap_or(0);
        let attributes = vec![
            ("scale".to_owned(), Attribute::Float(self.model.scale)),
            ("causal".to_owned(), Attribute::Integer(self.model.causal.into())),
            ("window".to_owned(), Attribute::Integer(window.into())),
        ];
        let inputs = [queries, caches[0], caches[1], step.table, step.sequences];
        let made = b
            .node("attention", 1, &inputs, attributes)
            .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        made.first().copied().ok_or_else(|| Error::new(ErrorKind::Internal, "attention makes nothing"))
    }
}
