//! Graphs of one operation, and how their parameters are filled.

mod attention;
mod choice;
mod content;
mod elementwise;
mod experts;
mod norms;
mod products;
mod recurrent;
mod views;

pub(super) use content::Content;

use super::declared::Declared;
use super::tolerance::Tolerance;
use crate::block::ParameterBlock;
use crate::quant;
use crate::random::Random;
use paceline_plugin_api::graph::{Attribute, Builder, DType, Graph, ValueId, ops::KV_BLOCK};

/// Name of the parameter that counts the rows of a run.
pub(super) const ROWS: &str = "rows";
/// Most sequences in a run of a sequence sample.
pub(super) const MAX_SEQUENCES: u32 = 3;
/// Most updates of a block table in a run of a sequence sample.
pub(super) const MAX_UPDATES: u32 = 8;

/// Makes a graph for runs of up to so many rows.
type MakeGraph = Box<dyn Fn(u32) -> Graph>;
/// Parameters whose rows are filled, and with what.
type Contents = Vec<(&'static str, Content)>;

/// A graph whose rows do not depend on each other: row r of every result follows from row r of the parameters.
pub(super) struct RowSample {
    pub operation: &'static str,
    pub name: String,
    make: MakeGraph,
    contents: Contents,
    pub tolerance: Tolerance,
    seed: u64,
    /// The type of some of the weights, if the plugin declares it.
    pub declared: Option<Declared>,
}

impl RowSample {
    fn new(
        operation: &'static str,
        name: impl Into<String>,
        contents: &[(&'static str, Content)],
        make: impl Fn(&mut Rows) + 'static,
    ) -> Self {
        let make = move |max_rows| {
            let mut rows = Rows::new(max_rows);
            make(&mut rows);
            rows.builder.finish()
        };
        Self {
            operation,
            name: name.into(),
            make: Box::new(make),
            contents: contents.to_vec(),
            tolerance: super::tolerance::of_operation(operation),
            seed: 0,
            declared: None,
        }
    }

    fn with_tolerance(mut self, tolerance: Tolerance) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// The graph for runs of up to so many rows.
    pub fn graph(&self, max_rows: u32) -> Graph {
        (self.make)(max_rows)
    }

    /// The weights; they do not depend on the number of rows.
    pub fn weights(&self, graph: &Graph) -> Vec<Vec<u8>> {
        weights_of(graph, self.seed, &self.name, self.declared.as_ref())
    }

    /// Parameters of a run of `rows` rows; whatever stands beyond them is garbage. A row's content depends on its
    /// index alone.
    pub fn parameters(&self, graph: &Graph, rows: u32) -> Vec<u8> {
        let mut block = ParameterBlock::new(graph);
        block.set_integers(ROWS, &[rows as i32]);
        for (name, content) in &self.contents {
            for row in 0..rows {
                let key = format!("{} {name} {row}", self.name);
                content.fill_row(
                    &mut block,
                    graph,
                    name,
                    row,
                    row.into(),
                    &mut Random::named(self.seed, &key),
                );
            }
        }
        block.into_bytes()
    }
}

/// A graph over rows of sequences with state. The parameters `sequence_count` and `sequences` are there, and for
/// caches `update_count`, `updates` and `cells`. The result is `out`.
pub(super) struct SequenceSample {
    pub operation: &'static str,
    pub name: String,
    make: MakeGraph,
    pub contents: Contents,
    pub tolerance: Tolerance,
    /// Slots of states and tables.
    pub slots: u32,
    /// Blocks of a cache, if there is one, and entries of a slot's table.
    pub cache: Option<(u32, u32)>,
    /// False if rows see rows after them, so that a sequence cannot be split over runs.
    pub is_causal: bool,
}

impl SequenceSample {
    /// The graph for runs of up to so many rows.
    pub fn graph(&self, max_rows: u32) -> Graph {
        (self.make)(max_rows)
    }

    /// The weights; they do not depend on the number of rows.
    pub fn weights(&self, graph: &Graph, seed: u64) -> Vec<Vec<u8>> {
        random_weights(graph, seed, &self.name)
    }

    /// Most positions of a sequence; none without a cache.
    pub fn capacity(&self) -> Option<u32> {
        self.cache.map(|(_, entries)| entries * KV_BLOCK)
    }
}

/// A builder with the parameters that all samples have.
pub(super) struct Rows {
    pub builder: Builder,
    pub max_rows: u32,
    rows: ValueId,
}

impl Rows {
    pub fn new(max_rows: u32) -> Self {
        let mut builder = Builder::new();
        let rows = builder.parameter(ROWS, DType::I32, &[1], None);
        Self { builder, max_rows, rows }
    }

    fn row_parameter(&mut self, name: &str, dtype: DType, row_dims: &[u32]) -> ValueId {
        let dims = [&[self.max_rows], row_dims].concat();
        self.builder.parameter(name, dtype, &dims, Some(self.rows))
    }

    /// An f32 parameter with rows of these dimensions.
    pub fn floats(&mut self, name: &str, row_dims: &[u32]) -> ValueId {
        self.row_parameter(name, DType::F32, row_dims)
    }

    /// An i32 parameter with one element per row.
    pub fn integers(&mut self, name: &str) -> ValueId {
        self.row_parameter(name, DType::I32, &[])
    }

    /// An i32 parameter with what a row is drawn with.
    pub fn noise(&mut self, name: &str) -> ValueId {
        self.row_parameter(name, DType::I32, &[4])
    }

    /// The parameter that describes the sequences of a run.
    pub fn sequences(&mut self) -> ValueId {
        let count = self.builder.parameter("sequence_count", DType::I32, &[1], None);
        self.builder.parameter("sequences", DType::I32, &[MAX_SEQUENCES, 4], Some(count))
    }

    /// A node with one output of interest, the first.
    pub fn node(&mut self, operation: &str, inputs: &[ValueId], attributes: &[(&str, Attribute)]) -> ValueId {
        let attributes = attributes.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        self.builder.node(operation, 1, inputs, attributes).expect("a sample's node is well-formed")[0]
    }

    /// Marks the result `out`.
    pub fn out(&mut self, value: ValueId) {
        self.builder.result("out", value);
    }
}

/// Weights for a graph: integers of the size of tokens; matrices whose rows have a length near 1, the last row but one of zeros; vectors near 1.
pub(super) fn random_weights(graph: &Graph, seed: u64, name: &str) -> Vec<Vec<u8>> {
    weights_of(graph, seed, name, None)
}

/// As [`random_weights`], where some weights may be of a type that the plugin declares.
fn weights_of(graph: &Graph, seed: u64, name: &str, declared: Option<&Declared>) -> Vec<Vec<u8>> {
    graph
        .weights()
        .map(|id| {
            let value = graph.value(id);
            let mut random = Random::named(seed, &format!("{name} {}", value.name));
            let width = value.shape.last() as usize;
            let elements = value.shape.elements().unwrap_or(0) as usize;
            if value.dtype == DType::I32 {
                return (0..elements).flat_map(|_| random.below(1 << 18).to_ne_bytes()).collect();
            }
            let values: Vec<f32> = if value.shape.rank() == 1 {
                (0..elements).map(|_| random.between(0.5, 1.5)).collect()
            } else {
                let mut values = random.floats(elements, 1.0 / (width as f32).sqrt());
                let rows = elements / width;
                if rows > 2 {
                    values[(rows - 2) * width..(rows - 1) * width].fill(0.0);
                }
                values
            };
            match declared.filter(|declared| declared.dtype() == value.dtype) {
                Some(declared) => declared.write(&values, &mut random),
                None => quant::quantize(value.dtype, &values).expect("samples use types with a writer"),
            }
        })
        .collect()
}

/// Samples of all operations without state.
pub(super) fn row_samples(seed: u64) -> Vec<RowSample> {
    let mut samples = Vec::new();
    products::add(&mut samples);
    norms::add(&mut samples);
    elementwise::add(&mut samples);
    views::add(&mut samples);
    choice::add(&mut samples);
    experts::add(&mut samples);
    for sample in &mut samples {
        sample.seed = seed;
    }
    samples
}

/// Samples of the operations that take any weight type, on one that the plugin declares.
pub(super) fn declared_samples(seed: u64, declared: &Declared) -> Vec<RowSample> {
    let mut samples = products::of_declared(declared.dtype(), declared.kind.elements);
    for sample in &mut samples {
        sample.seed = seed;
        // People know the type by its name.
        sample.name = sample.name.replacen(&declared.dtype().to_string(), &declared.kind.name, 1);
        sample.declared = Some(declared.clone());
    }
    samples
}

/// Samples of all operations over sequences.
pub(super) fn sequence_samples() -> Vec<SequenceSample> {
    let mut samples = Vec::new();
    attention::add(&mut samples);
    recurrent::add(&mut samples);
    samples
}
