//! Parts of a family in a strategy's graph, and parts of a strategy in a family's: a graph is built anew with other
//! nodes in the place of some.

use crate::error::{EngineError, Result};
use crate::families::Family;
use crate::model::Model;
use crate::step::{ContextShape, StepInputs};
use crate::strategy_graph;
use paceline_gguf::Gguf;
use paceline_plugin_api::error::catch;
use paceline_plugin_api::graph::step::Tap;
use paceline_plugin_api::graph::{
    Attribute, Builder, DType, Graph, Node, StateKind, ValueId, ValueKind, fragment, ops, step,
};
use paceline_plugin_api::strategy::{DeltaNetPorts, DeltaNetShape};
use std::collections::BTreeSet;

/// A fault of a strategy's graph.
pub(crate) fn fault(plugin: &str, what: impl Into<String>) -> EngineError {
    EngineError::Strategy { plugin: plugin.to_owned(), what: what.into() }
}

/// True if the family has a fragment of that name.
pub(crate) fn has_fragment(family: &dyn Family, name: &str) -> bool {
    match name {
        fragment::EMBED | fragment::HEAD => true,
        fragment::NEXTN_EMBED | fragment::NEXTN_FULL | fragment::NEXTN_KV_ONLY | fragment::NEXTN_HEAD => {
            family.nextn().is_some()
        }
        fragment::NEXTN_DRAFT_HEAD | fragment::NEXTN_DRAFT_IDS => {
            family.nextn().is_some_and(|nextn| nextn.draft_head_rows().is_some())
        }
        _ => false,
    }
}

/// Copies values and nodes of one graph into a builder.
struct Copier<'a> {
    from: &'a Graph,
    plugin: &'a str,
    values: Vec<Option<ValueId>>,
}

impl<'a> Copier<'a> {
    fn new(from: &'a Graph, plugin: &'a str) -> Self {
        Self { from, plugin, values: vec![None; from.values().len()] }
    }

    fn set(&mut self, from: ValueId, to: ValueId) {
        self.values[from.index()] = Some(to);
    }

    fn get(&self, id: ValueId) -> Result<ValueId> {
        self.values
            .get(id.index())
            .copied()
            .flatten()
            .ok_or_else(|| fault(self.plugin, format!("value {id} of its graph is used before it is made")))
    }

    fn inputs(&self, node: &Node) -> Result<Vec<ValueId>> {
        node.inputs.iter().map(|&id| self.get(id)).collect()
    }

    /// Copies a node as it is.
    fn node(&mut self, b: &mut Builder, node: &Node) -> Result<()> {
        let inputs = self.inputs(node)?;
        let attributes = node.attributes.clone();
        let made = if ops::is_known(&node.operation, node.version) {
            b.node(&node.operation, node.version, &inputs, attributes)
        } else {
            let outputs: Vec<ops::Output> = node
                .outputs
                .iter()
                .map(|&id| {
                    let value = self.from.value(id);
                    let live = value.live.map(|live| self.get(live)).transpose()?;
                    Ok(ops::Output { dtype: value.dtype, shape: value.shape, live })
                })
                .collect::<Result<_>>()?;
            b.vendor_node(&node.operation, node.version, &inputs, attributes, &outputs)
        };
        let made = made.map_err(|error| fault(self.plugin, error.to_string()))?;
        self.take(node, &made)
    }

    /// What was built takes the place of the node's outputs.
    fn take(&mut self, node: &Node, made: &[ValueId]) -> Result<()> {
        if made.len() != node.outputs.len() {
            return Err(fault(
                self.plugin,
                format!("{} makes {} values, not {}", node.operation, made.len(), node.outputs.len()),
            ));
        }
        for (&from, &to) in node.outputs.iter().zip(made) {
            self.set(from, to);
        }
        Ok(())
    }

    /// True if a value of the new graph is what the old one says of it.
    fn fits(&self, b: &Builder, from: ValueId, to: ValueId) -> bool {
        let value = self.from.value(from);
        b.dims(to) == value.shape.dims() && b.dtype(to) == value.dtype
    }
}

/// What a strategy's graph may refer to.
pub(crate) struct Check<'a> {
    /// Taps that were declared.
    pub taps: &'a BTreeSet<Tap>,
    /// The drafters' own file.
    pub draft: Option<&'a Gguf>,
    /// The backend knows `draw`. Where it does not, guesses are the largest logits instead, which is as right and agrees with the
    /// target less often.
    pub draws: bool,
}

/// Builds a strategy's graph with the family's parts in the place of its fragments.
///
/// # Errors
/// A graph that does not hold to the names and shapes that the host expects, or that could touch what is the target's.
pub(crate) fn inline_family(
    graph: &Graph,
    model: &Model,
    context: &ContextShape,
    plugin: &str,
    check: &Check<'_>,
) -> Result<Graph> {
    graph.validate().map_err(|error| fault(plugin, error.to_string()))?;
    strategy_graph::check(graph, model, context, check).map_err(|what| fault(plugin, what))?;
    let mut b = Builder::new();
    let mut copier = Copier::new(graph, plugin);
    for (index, value) in graph.values().iter().enumerate() {
        let from = ValueId(index as u32);
        let dims = value.shape.dims();
        let to = match value.kind {
            ValueKind::Node => continue,
            ValueKind::Weight => b.weight(&value.name, value.dtype, dims),
            ValueKind::State(kind) => {
                let own = format!("{plugin}/{}", value.name);
                let name = if strategy_graph::is_shared(&value.name) { &value.name } else { &own };
                b.state(name, kind, value.dtype, dims)
            }
            ValueKind::Parameter { .. } => {
                let live = value.live.map(|live| copier.get(live)).transpose()?;
                b.parameter(&value.name, value.dtype, dims, live)
            }
        };
        copier.set(from, to);
    }
    for node in graph.nodes() {
        if node.operation == "draw" && !check.draws {
            let (ids, faults) = b.argmax(copier.get(node.inputs[0])?);
            copier.take(node, &[ids, faults])?;
        } else if node.operation == fragment::OPERATION {
            // What a fragment is given is the plugin's word; building with it may find it wrong.
            let made = catch(|| Ok(expand(&mut b, &copier, node, model.family(), context)))
                .map_err(|error| fault(plugin, format!("a fragment of its graph: {error}")))??;
            for (&from, &to) in node.outputs.iter().zip(&made) {
                if !copier.fits(&b, from, to) {
                    return Err(fault(plugin, format!("a fragment makes {:?}", b.dims(to))));
                }
            }
            copier.take(node, &made)?;
        } else {
            copier.node(&mut b, node)?;
        }
    }
    for result in graph.results() {
        b.result(&result.name, copier.get(result.value)?);
    }
    let built = b.finish();
    built.validate().map_err(|error| fault(plugin, error.to_string()))?;
    let offsets = |graph: &Graph| graph.results().iter().map(|r| r.offset).collect::<Vec<_>>();
    if offsets(&built) != offsets(graph) {
        return Err(fault(plugin, "the results of its graph are not packed in order, 16 bytes aligned"));
    }
    Ok(built)
}

/// The family's nodes for a fragment.
fn expand(
    b: &mut Builder,
    copier: &Copier<'_>,
    node: &Node,
    family: &dyn Family,
    context: &ContextShape,
) -> Result<Vec<ValueId>> {
    let plugin = copier.plugin;
    let Some(Attribute::Text(name)) = node.attribute("name") else {
        return Err(fault(plugin, "a fragment of its graph has no name"));
    };
    let inputs = copier.inputs(node)?;
    let missing = || fault(plugin, format!("the model has no fragment `{name}`"));
    let count = || fault(plugin, format!("fragment `{name}` does not take {} inputs", inputs.len()));
    let hidden_width = family.shape().hidden;
    let one = |b: &Builder, dtype: DType| {
        let &[x] = inputs.as_slice() else { return Err(count()) };
        let fits = match dtype {
            DType::I32 => b.dims(x).len() == 1,
            _ => matches!(b.dims(x), &[_, width] if width == hidden_width),
        };
        if fits && b.dtype(x) == dtype {
            return Ok(x);
        }
        let form =
            if dtype == DType::I32 { "i32 [R]".to_owned() } else { format!("f32 [R, {hidden_width}]") };
        Err(fault(plugin, format!("fragment `{name}` takes {form}, not {} {:?}", b.dtype(x), b.dims(x))))
    };
    let nextn = || family.nextn().ok_or_else(missing);
    let rows = |b: &Builder| -> Result<(ValueId, ValueId, StepInputs)> {
        let &[embedded, hidden, positions, cells, sequences, table] = inputs.as_slice() else {
            return Err(count());
        };
        let rows = b.dims(hidden).first().copied().unwrap_or(0);
        if [embedded, hidden].iter().any(|&x| b.dims(x) != [rows, hidden_width]) {
            return Err(fault(plugin, format!("fragment `{name}` takes rows of {hidden_width}")));
        }
        let step = StepInputs::of_fragment(context, rows, [positions, cells, sequences, table]);
        Ok((embedded, hidden, step))
    };
    Ok(match name.as_str() {
        fragment::EMBED => {
            let x = one(b, DType::I32)?;
            vec![family.embed(b, x).0]
        }
        fragment::HEAD => {
            let x = one(b, DType::F32)?;
            vec![family.head(b, x)]
        }
        fragment::NEXTN_EMBED => {
            let x = one(b, DType::I32)?;
            vec![nextn()?.embed(b, x).0]
        }
        fragment::NEXTN_HEAD => {
            let x = one(b, DType::F32)?;
            vec![nextn()?.head(b, x)]
        }
        fragment::NEXTN_DRAFT_HEAD => {
            let x = one(b, DType::F32)?;
            vec![nextn()?.draft_head(b, x).ok_or_else(missing)?]
        }
        fragment::NEXTN_DRAFT_IDS => {
            let x = one(b, DType::I32)?;
            vec![nextn()?.draft_ids(b, x).ok_or_else(missing)?]
        }
        fragment::NEXTN_FULL => {
            let (embedded, hidden, step) = rows(b)?;
            vec![nextn()?.full(b, &step, embedded, hidden)]
        }
        fragment::NEXTN_KV_ONLY => {
            let (embedded, hidden, step) = rows(b)?;
            nextn()?.kv_only(b, &step, embedded, hidden);
            Vec::new()
        }
        _ => return Err(missing()),
    })
}

/// Builds a part of a layer that a rollback strategy provides into a graph: `ports` are its parameters by name. Gives
/// its result `o`, if it has one.
///
/// # Errors
/// Parameters that are none of the ports, or of another shape.
pub(crate) fn inline_layer(
    b: &mut Builder,
    fragment: &Graph,
    plugin: &str,
    layer: u32,
    ports: &[(&str, ValueId)],
) -> Result<Option<ValueId>> {
    fragment.validate().map_err(|error| fault(plugin, error.to_string()))?;
    let mut copier = Copier::new(fragment, plugin);
    for (index, value) in fragment.values().iter().enumerate() {
        let from = ValueId(index as u32);
        let to = match value.kind {
            ValueKind::Node => continue,
            ValueKind::Weight => {
                return Err(fault(plugin, format!("its fragment has a weight, `{}`", value.name)));
            }
            ValueKind::State(kind) => {
                let name = layer_state(layer, plugin, &value.name);
                b.state(&name, kind, value.dtype, value.shape.dims())
            }
            // Counts of live rows are those of the ports.
            ValueKind::Parameter { .. } if value.name.ends_with("_count") => continue,
            ValueKind::Parameter { .. } => {
                let port = ports.iter().find(|(name, _)| *name == value.name);
                let to = port.map(|(_, port)| *port).filter(|&to| copier.fits(b, from, to));
                to.ok_or_else(|| {
                    let (name, shape) = (&value.name, value.shape);
                    fault(plugin, format!("its fragment takes `{name}` {shape}, which the layer lacks"))
                })?
            }
        };
        copier.set(from, to);
    }
    for node in fragment.nodes() {
        copier.node(b, node)?;
    }
    fragment.result("o").map(|out| copier.get(out.value)).transpose()
}

/// Name of a rollback strategy's state of a layer.
pub(crate) fn layer_state(layer: u32, plugin: &str, state: &str) -> String {
    format!("blk.{layer}.{plugin}/{state}")
}

/// The part of a Gated DeltaNet layer that keeps state.
///
/// # Errors
/// Those of [`inline_layer`]; no result, or one of another shape.
pub(crate) fn inline_delta_net(
    b: &mut Builder,
    fragment: &Graph,
    plugin: &str,
    layer: u32,
    ports: &DeltaNetPorts,
) -> Result<ValueId> {
    let [q, k, v, g, beta] = ports.inputs;
    let named = [
        ("q", q),
        ("k", k),
        ("v", v),
        ("g", g),
        ("beta", beta),
        (step::name::SEQUENCES, ports.sequences),
        (step::name::ROLLBACK, ports.rollback),
    ];
    let out = inline_layer(b, fragment, plugin, layer, &named)?;
    let out = out.ok_or_else(|| fault(plugin, "its fragment has no result `o`"))?;
    if b.dims(out) != b.dims(v) {
        return Err(fault(
            plugin,
            format!("its fragment makes {:?} from values of {:?}", b.dims(out), b.dims(v)),
        ));
    }
    Ok(out)
}

/// Brings the state of a Gated DeltaNet layer up to the records that are kept. Gives that state, which is then the layer's.
///
/// # Errors
/// Those of [`inline_layer`]; no state `delta`, or one of another shape.
pub(crate) fn inline_settled(
    b: &mut Builder,
    fragment: &Graph,
    plugin: &str,
    layer: u32,
    ports: &DeltaNetPorts,
    shape: &DeltaNetShape,
) -> Result<ValueId> {
    let dims = [shape.slots, shape.value_heads, shape.key_width, shape.value_width];
    let is_base = |id: ValueId| {
        let value = fragment.value(id);
        value.name == BASE_STATE && value.dtype == DType::F32 && value.shape.dims() == dims
    };
    if !fragment.states().any(is_base) {
        return Err(fault(plugin, format!("its fragment has no state `{BASE_STATE}` f32 {dims:?}")));
    }
    let named = [(step::name::SEQUENCES, ports.sequences), (step::name::ROLLBACK, ports.rollback)];
    inline_layer(b, fragment, plugin, layer, &named)?;
    let name = layer_state(layer, plugin, BASE_STATE);
    Ok(b.state(&name, StateKind::PerSlot, DType::F32, &dims))
}

/// A rollback strategy's state of a layer that is the layer's own once the sequence is settled.
pub(crate) const BASE_STATE: &str = "delta";
