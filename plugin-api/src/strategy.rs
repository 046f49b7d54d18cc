//! What a strategy implements: drafters, which guess what the target will say, and rollback strategies, which take
//! back recurrent state.
//!
//! A drafter is made for one context. While it is made it reads facts of the models and declares what it needs: taps
//! of hidden states, a ring, programs. Everything is planned, and memory for it reserved, before the context is
//! ready; later the drafter only runs its programs. The host verifies every draft, so a drafter can lose time but not
//! change what is said.
//!
//! One round of a sequence that has processed positions `[0, frontier)` and whose last token, the **anchor**, belongs
//! at `frontier`: [`Drafter::propose`]; the host verifies `[anchor, draft...]` in one run, accepts the longest prefix
//! that the target agrees with and keeps as many rows; [`Drafter::resolve`] tells what became of the draft,
//! [`Drafter::observe`] which rows were kept. The last emitted token is the next anchor.

use crate::error::{Error, Result};
use crate::graph::step::{ContextShape, Tap};
use crate::graph::{DType, Graph};

pub use crate::abi::{draft_cost, draft_kind};

/// A file that a strategy can ask about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The model that is run.
    Target,
    /// The drafter's own file, if one was given. Weights of it are named with [`DRAFT_WEIGHT`] in front.
    Draft,
}

/// In front of the names of weights that come from the drafter's file.
pub const DRAFT_WEIGHT: &str = "draft/";

/// Facts of the context that a strategy is made for.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Tokens of the target's vocabulary.
    pub vocabulary: u32,
    /// Width of the target's residual stream.
    pub hidden: u32,
    /// Layers of the target's trunk.
    pub layers: u32,
    /// Sizes of the context.
    pub context: ContextShape,
    /// Most rows of the target's runs.
    pub microbatch: u32,
    /// Id of the backend that runs the target's layers.
    pub backend: String,
    /// Architecture of the target.
    pub architecture: String,
}

/// Shape and type of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorFacts {
    /// Type.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub dims: Vec<u32>,
}

/// Number of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProgramId(pub u32);

/// Rows of one group of a program: consecutive positions of the run's sequence.
#[derive(Clone, Copy, Debug)]
pub struct GroupRows<'a> {
    /// Position of the first row.
    pub position: u32,
    /// Number of rows.
    pub count: u32,
    /// Token ids, one a row, where the graph takes them from the host.
    pub tokens: Option<&'a [u32]>,
}

impl<'a> GroupRows<'a> {
    /// Rows of these tokens.
    pub fn tokens(position: u32, tokens: &'a [u32]) -> Self {
        Self { position, count: tokens.len() as u32, tokens: Some(tokens) }
    }

    /// One row whose token the graph makes.
    pub fn row(position: u32) -> GroupRows<'static> {
        GroupRows { position, count: 1, tokens: None }
    }
}

/// What the host offers to a strategy.
pub trait Session {
    /// Entry `index` of a metadata key of whole numbers or switches.
    fn integer_at(&self, source: Source, key: &str, index: u32) -> Option<i64>;

    /// A metadata key that is a number.
    fn number(&self, source: Source, key: &str) -> Option<f64>;

    /// A metadata key that is a text.
    fn text(&self, source: Source, key: &str) -> Option<String>;

    /// Shape and type of a tensor.
    fn tensor(&self, source: Source, name: &str) -> Option<TensorFacts>;

    /// True if the target's family has the fragment.
    fn has_fragment(&self, name: &str) -> bool;

    /// Has a hidden state copied to [`Tap::state`] after every run of the target. Only while a strategy is made.
    ///
    /// # Errors
    /// A layer that the target does not have.
    fn declare_tap(&mut self, tap: Tap) -> Result<()>;

    /// Gives the strategy a ring of `blocks` blocks of 256 positions per sequence. Only while a strategy is made.
    ///
    /// # Errors
    /// A second ring, or one of no block.
    fn declare_ring(&mut self, blocks: u32) -> Result<()>;

    /// Declares a program. Only while a strategy is made.
    ///
    /// # Errors
    /// A graph that breaks its rules, or a fragment that the family lacks.
    fn declare_program(&mut self, name: &str, graph: &Graph) -> Result<ProgramId>;

    /// Runs a program for one sequence, waits for it and gives its result block. Only after the strategy was made.
    ///
    /// # Errors
    /// Rows that do not fit the program or the context; a backend that fails.
    fn run(&mut self, program: ProgramId, sequence: u32, groups: &[GroupRows<'_>]) -> Result<&[u8]>;
}

impl dyn Session + '_ {
    /// A metadata key that is a whole number or a switch.
    pub fn integer(&self, source: Source, key: &str) -> Option<i64> {
        self.integer_at(source, key, 0)
    }

    /// A metadata key that is a list of whole numbers or switches; empty if there is none.
    pub fn integers(&self, source: Source, key: &str) -> Vec<i64> {
        (0..).map_while(|index| self.integer_at(source, key, index)).collect()
    }

    /// A whole number that must be there, in a range.
    ///
    /// # Errors
    /// A key that is missing or out of range, by name.
    pub fn require(&self, source: Source, key: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32> {
        let value = self
            .integer(source, key)
            .ok_or_else(|| Error::unsupported(format!("{} has no key `{key}`", source.words())))?;
        u32::try_from(value).ok().filter(|value| range.contains(value)).ok_or_else(|| {
            Error::unsupported(format!(
                "{} has the value {value} for `{key}`; from {} to {} would do",
                source.words(),
                range.start(),
                range.end()
            ))
        })
    }
}

impl Source {
    /// The file, for messages.
    pub fn words(self) -> &'static str {
        match self {
            Self::Target => "the model",
            Self::Draft => "the drafter's file",
        }
    }
}

/// What a drafter says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrafterInfo {
    /// Longest draft that it makes.
    pub most: u32,
    /// One of [`draft_kind`].
    pub kind: u32,
    /// One of [`draft_cost`].
    pub cost: u32,
    /// A user fixed the length of drafts: the host does not adapt it.
    pub fixed: bool,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The sequence.
    pub sequence: u32,
    /// Positions that are processed: the anchor's position.
    pub frontier: u32,
    /// The last token of the text, which is not processed yet.
    pub anchor: u32,
    /// Most tokens that are wanted, at least 1.
    pub most: u32,
}

/// Where a draft goes; the buffers are the host's.
#[derive(Debug)]
pub struct Draft<'a> {
    tokens: &'a mut [u32],
    confidence: &'a mut [f32],
    distributions: Option<&'a mut [f32]>,
    count: usize,
}

impl<'a> Draft<'a> {
    /// An empty draft on these buffers: as many tokens as `tokens` has entries, `confidence` likewise, distributions
    /// of that many rows.
    pub fn new(
        tokens: &'a mut [u32],
        confidence: &'a mut [f32],
        distributions: Option<&'a mut [f32]>,
    ) -> Self {
        Self { tokens, confidence, distributions, count: 0 }
    }

    /// Appends a token; nothing if the draft is as long as was wanted. `confidence` is its probability, NaN if that
    /// is not known.
    pub fn push(&mut self, token: u32, confidence: f32) {
        if let (Some(place), Some(certain)) =
            (self.tokens.get_mut(self.count), self.confidence.get_mut(self.count))
        {
            *place = token;
            *certain = confidence;
            self.count += 1;
        }
    }

    /// The distribution of the next token, to be filled in before it is pushed; `None` where none is wanted. The token must
    /// really be drawn from it: the host accepts by it.
    pub fn distribution(&mut self) -> Option<&mut [f32]> {
        let rows = self.tokens.len();
        let all = self.distributions.as_deref_mut()?;
        let width = all.len().checked_div(rows)?;
        all.get_mut(self.count * width..(self.count + 1) * width)
    }

    /// Most tokens.
    pub fn most(&self) -> usize {
        self.tokens.len()
    }

    /// Tokens so far.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if nothing was guessed.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// What became of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The sequence.
    pub sequence: u32,
    /// Tokens of this drafter's draft that were verified; 0 if another one's draft, or none, was.
    pub verified: u32,
    /// How many of them were accepted.
    pub accepted: u32,
    /// Tokens that this drafter proposed.
    pub drafted: u32,
    /// Most tokens that were wanted.
    pub wanted: u32,
}

/// The plugin's side of `paceline.drafter/1`: makes drafters.
pub trait DrafterPlugin: Send + Sync + 'static {
    /// A drafter for one context.
    type Drafter: Drafter;

    /// Makes a drafter: checks that it can work on this context and declares its needs.
    ///
    /// # Errors
    /// Why it cannot work here, in words that a user can act on; a setting that is unknown or out of range.
    fn create(
        &self,
        facts: &Facts,
        settings: &[(String, String)],
        session: &mut dyn Session,
    ) -> Result<Self::Drafter>;
}

/// A drafter for one context. See the module's documentation.
pub trait Drafter: Send {
    /// What it is.
    fn info(&self) -> DrafterInfo;

    /// A sequence begins, empty.
    ///
    /// # Errors
    /// A failure of the drafter.
    fn begin(&mut self, sequence: u32) -> Result<()>;

    /// The target has processed and kept `tokens` at `position` and after. Their hidden states are in the states of
    /// the taps until the next run of the target that needs the place. Positions follow one another, but after a
    /// [`Drafter::restore`] they may begin anywhere. A drafter that is not free and not asked may be told of many rounds
    /// at once, of at most a microbatch of tokens, and always before it is asked or its sequence is saved.
    ///
    /// # Errors
    /// A program that fails.
    fn observe(
        &mut self,
        session: &mut dyn Session,
        sequence: u32,
        position: u32,
        tokens: &[u32],
    ) -> Result<()>;

    /// Guesses what follows the anchor; nothing is a legal guess.
    ///
    /// # Errors
    /// A program that fails.
    fn propose(&mut self, session: &mut dyn Session, request: Request, draft: &mut Draft<'_>) -> Result<()>;

    /// What became of a draft, this drafter's or another's, when all of it that is verified was; before the last rows that
    /// were kept are observed. A draft that is dropped, as the text went on without it, is not resolved.
    ///
    /// # Errors
    /// A failure of the drafter.
    fn resolve(&mut self, outcome: Outcome) -> Result<()> {
        let _ = outcome;
        Ok(())
    }

    /// Only the first `length` positions of the sequence remain.
    ///
    /// # Errors
    /// A failure of the drafter.
    fn truncate(&mut self, sequence: u32, length: u32) -> Result<()>;

    /// What it keeps of a sequence besides the states of its programs; `None` if it cannot say, and a restored sequence
    /// begins anew.
    ///
    /// # Errors
    /// A failure of the drafter.
    fn save(&self, sequence: u32) -> Result<Option<Vec<u8>>> {
        let _ = sequence;
        Ok(None)
    }

    /// The reverse of [`Drafter::save`], after the states were restored. The sequence holds `tokens`. Nothing was saved of
    /// a sequence that came from a context without this drafter: `saved` is empty, and so are its states.
    ///
    /// # Errors
    /// Bytes that are not this drafter's.
    fn restore(&mut self, sequence: u32, tokens: &[u32], saved: &[u8]) -> Result<()> {
        let _ = (tokens, saved);
        self.begin(sequence)
    }

    /// What it would tell a user about its choices, a line each.
    fn explain(&self) -> String {
        String::new()
    }
}

/// Sizes of a recurrent layer of the kind Gated DeltaNet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaNetShape {
    /// Most rows of the graph.
    pub rows: u32,
    /// Most sequences of the graph.
    pub sequences: u32,
    /// State slots of the context.
    pub slots: u32,
    /// Rows that can be rolled back.
    pub depth: u32,
    /// Key heads.
    pub key_heads: u32,
    /// Value heads.
    pub value_heads: u32,
    /// Elements of a key head.
    pub key_width: u32,
    /// Elements of a value head.
    pub value_width: u32,
    /// What the output is multiplied by.
    pub scale: f32,
}

/// The plugin's side of `paceline.rollback/1`.
pub trait RollbackPlugin: Send + Sync + 'static {
    /// A strategy for one context.
    type Rollback: Rollback;

    /// Makes a strategy for a context.
    ///
    /// # Errors
    /// Why it cannot work here.
    fn create(
        &self,
        facts: &Facts,
        settings: &[(String, String)],
        session: &mut dyn Session,
    ) -> Result<Self::Rollback>;
}

/// A rollback strategy: provides the part of a recurrent layer that keeps state.
///
/// The host keeps a plane, a bank of records and a number of records to keep for every sequence, as the parameter
/// `rollback` of `gated_delta_net/1` defines them, and the fragment must hold to that.
pub trait Rollback: Send + Sync {
    /// The fragment of a Gated DeltaNet layer: a graph with the parameters `row_count`, `q`, `k`, `v`, `g`, `beta`,
    /// `sequence_count`, `sequences` and `rollback`, states of its own, and the result `o`. One of the states is called
    /// `delta` and has an entry of the layer's state for every slot.
    ///
    /// # Errors
    /// A layer that the strategy cannot roll back.
    fn delta_net(&self, shape: &DeltaNetShape) -> Result<Graph>;

    /// A graph with the parameters `sequence_count`, `sequences` and `rollback` that brings `delta` up to the records that
    /// are kept, so that it can be saved, or that rows which stay can go into it.
    ///
    /// # Errors
    /// A layer that the strategy cannot roll back.
    fn settle(&self, shape: &DeltaNetShape) -> Result<Graph>;
}

/// Declares the ports of a Gated DeltaNet layer in a fragment's graph.
pub struct DeltaNetPorts {
    /// Queries, keys, values, log decay and strength.
    pub inputs: [crate::graph::ValueId; 5],
    /// Sequences of the run.
    pub sequences: crate::graph::ValueId,
    /// Plane, bank and kept records of each sequence.
    pub rollback: crate::graph::ValueId,
}

impl DeltaNetPorts {
    /// Declares them.
    pub fn declare(b: &mut crate::graph::Builder, s: &DeltaNetShape) -> Self {
        let rows = b.parameter("row_count", DType::I32, &[1], None);
        let mut port = |name: &str, dims: &[u32]| b.parameter(name, DType::F32, dims, Some(rows));
        let q = port("q", &[s.rows, s.key_heads, s.key_width]);
        let k = port("k", &[s.rows, s.key_heads, s.key_width]);
        let v = port("v", &[s.rows, s.value_heads, s.value_width]);
        let g = port("g", &[s.rows, s.value_heads]);
        let beta = port("beta", &[s.rows, s.value_heads]);
        let [sequences, rollback] = Self::declare_sequences(b, s);
        Self { inputs: [q, k, v, g, beta], sequences, rollback }
    }

    /// Declares the sequences and the rollback parameter alone.
    pub fn declare_sequences(b: &mut crate::graph::Builder, s: &DeltaNetShape) -> [crate::graph::ValueId; 2] {
        let count = b.parameter("sequence_count", DType::I32, &[1], None);
        [
            b.parameter("sequences", DType::I32, &[s.sequences, 4], Some(count)),
            b.parameter("rollback", DType::I32, &[s.sequences, 3], Some(count)),
        ]
    }
}
