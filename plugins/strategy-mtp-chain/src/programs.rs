//! The programs: filling the block's KV cache, and chains of steps.

use paceline_plugin_api::graph::step::{StepInputs, Tap, declare_table};
use paceline_plugin_api::graph::{Builder, DType, Graph, StateKind, ValueId, fragment};
use paceline_plugin_api::strategy::{Facts, ProgramId, Session};
use paceline_plugin_api::{Error, ErrorKind, Result};

/// Rows of true hidden states at the head of a draft: those of the last verification and the anchor's, rounded up.
const HEAD_ROWS: [u32; 4] = [1, 2, 5, 17];
/// Rows of a program that fills the cache; the last is the microbatch.
const FILL_ROWS: [u32; 2] = [16, 64];

/// What a draft is made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// Longest draft.
    pub most: u32,
    /// A launch a step.
    pub looped: bool,
    /// Probabilities of the tokens are wanted.
    pub probabilities: bool,
    /// Tokens are drawn where the target draws its own.
    pub draw: bool,
    /// Filling computes keys and values only.
    pub kv_only: bool,
}

/// The head that is used.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// Tokens that it knows.
    pub rows: u32,
    /// The weight that names them, if they are a part of the vocabulary.
    pub tokens: Option<String>,
}

/// A chain of `steps` steps with at most `rows` rows at its head.
pub(crate) struct Chain {
    pub steps: u32,
    pub rows: u32,
    pub id: ProgramId,
    places: Vec<Places>,
}

/// Where a step's results are in the result block.
#[derive(Clone, Copy)]
struct Places {
    id: usize,
    faults: usize,
    probability: Option<usize>,
}

/// A token that a step guessed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Guess {
    pub token: u32,
    /// Its probability, NaN if none was asked for.
    pub probability: f32,
}

pub(crate) struct Programs {
    /// By rows, then steps.
    chains: Vec<Chain>,
    fills: Vec<(u32, ProgramId)>,
    /// In the looped form: one more step.
    next: Option<Chain>,
}

/// Builds the graphs of a context.
struct GraphBuilder<'a> {
    facts: &'a Facts,
    form: Form,
    head: &'a Head,
}

impl Programs {
    pub fn declare(facts: &Facts, form: Form, head: &Head, session: &mut dyn Session) -> Result<Self> {
        let graphs = GraphBuilder { facts, form, head };
        let fill_rows =
            FILL_ROWS.into_iter().filter(|&rows| rows < facts.microbatch).chain([facts.microbatch]);
        let fills = fill_rows
            .map(|rows| Ok((rows, session.declare_program(&format!("fill {rows}"), &graphs.fill(rows))?)))
            .collect::<Result<_>>()?;
        let steps = if form.looped { 1 } else { form.most };
        let mut chains = Vec::new();
        for rows in HEAD_ROWS {
            for steps in 1..=steps {
                let graph = graphs.chain(rows, steps, false);
                let id = session.declare_program(&format!("chain of {steps} on {rows}"), &graph)?;
                chains.push(Chain { steps, rows, id, places: places(&graph, steps)? });
            }
        }
        let next = form.looped.then(|| {
            let graph = graphs.chain(1, 1, true);
            let id = session.declare_program("next", &graph)?;
            Ok(Chain { steps: 1, rows: 1, id, places: places(&graph, 1)? })
        });
        Ok(Self { chains, fills, next: next.transpose()? })
    }

    /// The smallest program that fills `rows` rows, or the largest there is.
    pub fn fill(&self, rows: usize) -> (usize, ProgramId) {
        let found = self.fills.iter().find(|(most, _)| *most as usize >= rows).or(self.fills.last());
        found.map_or((0, ProgramId(0)), |&(most, id)| (most as usize, id))
    }

    /// The smallest chain of `steps` steps with room for `rows` rows.
    pub fn chain(&self, rows: usize, steps: u32) -> Option<&Chain> {
        self.chains.iter().find(|chain| chain.rows as usize >= rows && chain.steps == steps)
    }

    /// One more step of the looped form.
    pub fn next(&self) -> Option<&Chain> {
        self.next.as_ref()
    }

    /// Most rows at the head of a draft.
    pub fn most_head_rows() -> usize {
        HEAD_ROWS[HEAD_ROWS.len() - 1] as usize
    }
}

impl Chain {
    /// The guesses in a result block, until one whose logits were not numbers; the second value says if there was one.
    pub fn guesses<'a>(&'a self, results: &'a [u8]) -> (impl Iterator<Item = Guess> + 'a, bool) {
        let word = |at: usize| {
            let bytes = results.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_ne_bytes)
        };
        let is_sound = move |places: &&Places| word(places.faults) == 0;
        let faulty = !self.places.iter().all(|places| is_sound(&places));
        let guesses = self.places.iter().take_while(is_sound).map(move |places| Guess {
            token: word(places.id),
            probability: places.probability.map_or(f32::NAN, |at| f32::from_bits(word(at))),
        });
        (guesses, faulty)
    }
}

fn places(graph: &Graph, steps: u32) -> Result<Vec<Places>> {
    let at = |name: String| graph.result(&name).map(|result| result.offset as usize);
    let missing = || Error::new(ErrorKind::Internal, "a chain lacks its results");
    (0..steps)
        .map(|step| {
            Ok(Places {
                id: at(format!("id.{step}")).ok_or_else(missing)?,
                faults: at(format!("faults.{step}")).ok_or_else(missing)?,
                probability: at(format!("probability.{step}")),
            })
        })
        .collect()
}

impl GraphBuilder<'_> {
    /// True hidden states of the positions before the rows.
    fn hidden_before(&self, b: &mut Builder, step: &StepInputs) -> ValueId {
        let state = Tap::Hidden.state(b, &self.facts.context, self.facts.hidden);
        let entries = step.staged_previous(b);
        b.rows_load(state, entries)
    }

    fn fill(&self, rows: u32) -> Graph {
        let mut b = Builder::new();
        let table = declare_table(&mut b, &self.facts.context, rows);
        let step = StepInputs::group(&mut b, &self.facts.context, table, 0, rows);
        let embedded = b.row_fragment(fragment::NEXTN_EMBED, step.ids, self.facts.hidden);
        let hidden = self.hidden_before(&mut b, &step);
        if self.form.kv_only {
            b.nextn_kv_only(&step, embedded, hidden);
        } else {
            b.nextn_full(&step, embedded, hidden);
        }
        b.finish()
    }

    /// `steps` steps; the first has up to `rows` rows, of which only the last draws a token. With `goes_on` the first
    /// step takes up the hidden state that the launch before left.
    fn chain(&self, rows: u32, steps: u32, goes_on: bool) -> Graph {
        let facts = self.facts;
        let mut b = Builder::new();
        let table = declare_table(&mut b, &facts.context, rows + steps);
        let first = StepInputs::group(&mut b, &facts.context, table, 0, rows);
        let mut embedded = b.row_fragment(fragment::NEXTN_EMBED, first.ids, facts.hidden);
        let before = if goes_on {
            let (carried, entries) = (self.carried(&mut b), first.staged_previous(&mut b));
            b.rows_load(carried, entries)
        } else {
            self.hidden_before(&mut b, &first)
        };
        let hidden = b.nextn_full(&first, embedded, before);
        let last = first.last_row(&mut b);
        let mut hidden = b.select_rows(hidden, last);
        if self.form.looped {
            // The last row's entry comes as a group of its own.
            let last = StepInputs::single(&mut b, &facts.context, table, 1);
            let (carried, entry) = (self.carried(&mut b), last.staged(&mut b));
            b.rows_store(hidden, carried, entry);
        }
        let mut id = self.guess(&mut b, 0, hidden, &first);
        for number in 1..steps {
            let step = StepInputs::single(&mut b, &facts.context, table, number as usize);
            embedded = b.row_fragment(fragment::NEXTN_EMBED, id, facts.hidden);
            hidden = b.nextn_full(&step, embedded, hidden);
            id = self.guess(&mut b, number, hidden, &step);
        }
        b.finish()
    }

    /// Where the looped form leaves a step's hidden state for the next launch.
    fn carried(&self, b: &mut Builder) -> ValueId {
        let dims = [self.facts.context.staged_entries(), self.facts.hidden];
        b.state("carried", StateKind::Ring, DType::F32, &dims)
    }

    /// The token of step `number`, i32\[1\], and the results of the step. It is drawn as the target will draw its own, so that the
    /// two agree as often as their distributions do.
    fn guess(&self, b: &mut Builder, number: u32, hidden: ValueId, step: &StepInputs) -> ValueId {
        let is_trimmed = self.head.tokens.is_some();
        let head = if is_trimmed { fragment::NEXTN_DRAFT_HEAD } else { fragment::NEXTN_HEAD };
        let logits = b.row_fragment(head, hidden, self.head.rows);
        let (id, faults) = if self.form.draw {
            let noise = step.noise_next(b);
            let tokens = self.head.tokens.as_deref();
            let tokens = tokens.map(|name| b.weight(name, DType::I32, &[self.head.rows]));
            b.draw(logits, noise, tokens)
        } else {
            b.argmax(logits)
        };
        let id = if is_trimmed { b.nextn_draft_ids(id) } else { id };
        b.result(&format!("faults.{number}"), faults);
        if self.form.probabilities {
            let probabilities = b.softmax(logits);
            let (_, probability) = b.top_k(probabilities, 1);
            b.result(&format!("probability.{number}"), probability);
        }
        b.result(&format!("id.{number}"), id);
        id
    }
}
