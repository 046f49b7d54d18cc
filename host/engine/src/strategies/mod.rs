//! Strategies of a context: what a user asks for, what they declare, and running their programs.

mod facts;
mod panics;
mod session;

pub use panics::PluginPanic;
pub(crate) use panics::{Panics, WatchedDrafter};
pub(crate) use session::RunSession;

use crate::error::{EngineError, Result};
use crate::fragments::{Check, inline_family};
use crate::model::Model;
use crate::step::ContextShape;
use facts::ModelFacts;
use paceline_gguf::Gguf;
use paceline_plugin_api::Result as PluginResult;
use paceline_plugin_api::client::{DrafterPluginClient, RollbackClient, RollbackPluginClient};
use paceline_plugin_api::graph::Graph;
use paceline_plugin_api::graph::step::Tap;
use paceline_plugin_api::strategy::{Facts, GroupRows, ProgramId, Session, Source, TensorFacts};
use paceline_plugin_api::{Error as PluginError, ErrorKind};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most drafted tokens that one run of the target verifies: a verification has at most 16 rows.
pub const MOST_VERIFIED: u32 = 15;

/// Rows that a tap keeps beyond a microbatch, so that a drafter may work on them later.
pub(crate) const STAGED_AFTER_MICROBATCH: u32 = 64;

/// How a draft is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acceptance {
    /// The target's own token, by its largest logit or its sampler, is drawn at every row; a drafted token that
    /// equals it is accepted. Exact with any sampler, and the text is that without a strategy.
    #[default]
    Agree,
    /// Drafts that come with a distribution q are accepted with probability min(1, p/q), else the residual of p is
    /// drawn from: the distribution of the text is the target's, with more acceptance.
    Reject,
}

/// How one of several drafters is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Select {
    /// By the value of the round: expected tokens for the time that it takes.
    #[default]
    Value,
    /// The first one, in the given order, that guesses anything.
    Order,
}

/// A drafter that a context shall use.
#[derive(Clone)]
pub struct DrafterOptions {
    /// The plugin.
    pub plugin: DrafterPluginClient,
    /// Settings, keys without the plugin's name.
    pub settings: Vec<(String, String)>,
}

/// A rollback strategy that a context shall use.
#[derive(Clone)]
pub struct RollbackOptions {
    /// The plugin.
    pub plugin: RollbackPluginClient,
    /// Settings, keys without the plugin's name.
    pub settings: Vec<(String, String)>,
}

/// The strategies of a context.
#[derive(Clone)]
pub struct StrategyOptions {
    /// Drafters, in order of preference.
    pub drafters: Vec<DrafterOptions>,
    /// Takes back recurrent state; without it the engine keeps snapshots.
    pub rollback: Option<RollbackOptions>,
    /// The drafters' own file.
    pub draft: Option<Arc<Gguf>>,
    /// Hidden states that the caller wants to read itself, besides those that drafters declare.
    pub taps: Vec<Tap>,
    /// How drafts are accepted.
    pub acceptance: Acceptance,
    /// How a drafter is chosen.
    pub select: Select,
    /// Adapt the length of drafts, and switch drafting off while it does not pay.
    pub controller: bool,
    /// Most drafted tokens that one run verifies, from 1 to 15. It decides how much recurrent state is kept.
    pub most_verified: u32,
}

impl Default for StrategyOptions {
    fn default() -> Self {
        Self {
            drafters: Vec::new(),
            rollback: None,
            draft: None,
            taps: Vec::new(),
            acceptance: Acceptance::Agree,
            select: Select::Value,
            controller: true,
            most_verified: MOST_VERIFIED,
        }
    }
}

/// A program that a strategy declared.
pub(crate) struct DeclaredProgram {
    pub plugin: String,
    pub name: String,
    pub ring_blocks: u32,
    pub graph: Graph,
}

/// What the strategies of a context declared while they were made.
#[derive(Default)]
pub(crate) struct Setup {
    pub taps: BTreeSet<Tap>,
    pub rollback: Option<RollbackClient>,
    /// Of all drafters, one after the other.
    pub programs: Vec<DeclaredProgram>,
    pub draft: Option<Arc<Gguf>>,
    /// What panics of the plugins are told to.
    pub panics: Panics,
}

/// A drafter of the context.
pub(crate) struct Drafter {
    pub client: WatchedDrafter,
    /// Its programs, as numbers over all strategies.
    pub programs: std::ops::Range<usize>,
}

/// The session while a strategy is made.
struct SetupSession<'a> {
    plugin: &'a str,
    facts: ModelFacts<'a>,
    context: &'a ContextShape,
    setup: &'a mut Setup,
    ring_blocks: u32,
    first_program: usize,
}

impl Session for SetupSession<'_> {
    fn integer_at(&self, source: Source, key: &str, index: u32) -> Option<i64> {
        self.facts.integer_at(source, key, index)
    }

    fn number(&self, source: Source, key: &str) -> Option<f64> {
        self.facts.number(source, key)
    }

    fn text(&self, source: Source, key: &str) -> Option<String> {
        self.facts.text(source, key)
    }

    fn tensor(&self, source: Source, name: &str) -> Option<TensorFacts> {
        self.facts.tensor(source, name)
    }

    fn has_fragment(&self, name: &str) -> bool {
        self.facts.has_fragment(name)
    }

    fn declare_tap(&mut self, tap: Tap) -> PluginResult<()> {
        let layers = self.facts.model.shape().layers.len() as u32;
        if let Tap::LayerInput(layer) = tap
            && !tap.fits(layers)
        {
            return Err(PluginError::unsupported(format!(
                "a tap of layer {layer} was asked for; the model has {layers} layers"
            )));
        }
        self.setup.taps.insert(tap);
        Ok(())
    }

    fn declare_ring(&mut self, blocks: u32) -> PluginResult<()> {
        let most = self.context.blocks_per_sequence;
        if !(1..=most).contains(&blocks) {
            return Err(PluginError::invalid(format!(
                "a ring has from 1 to {most} blocks here, not {blocks}"
            )));
        }
        if self.ring_blocks != 0 || self.setup.programs.len() > self.first_program {
            return Err(PluginError::invalid(
                "a strategy has one ring, which it declares before its programs",
            ));
        }
        self.ring_blocks = blocks;
        Ok(())
    }

    fn declare_program(&mut self, name: &str, graph: &Graph) -> PluginResult<ProgramId> {
        let model = self.facts.model;
        let check = Check { taps: &self.setup.taps, draft: self.facts.draft, draws: true };
        // The host builds it again for real; what is wrong with it is best told now.
        inline_family(graph, model, self.context, self.plugin, &check)
            .map_err(|error| PluginError::invalid(format!("program `{name}`: {error}")))?;
        let id = ProgramId((self.setup.programs.len() - self.first_program) as u32);
        self.setup.programs.push(DeclaredProgram {
            plugin: self.plugin.to_owned(),
            name: name.to_owned(),
            ring_blocks: self.ring_blocks,
            graph: graph.clone(),
        });
        Ok(id)
    }

    fn run(&mut self, _: ProgramId, _: u32, _: &[GroupRows<'_>]) -> PluginResult<&[u8]> {
        Err(PluginError::new(ErrorKind::Invalid, "no program can run before the context is ready"))
    }
}

/// Makes the strategies of a context.
///
/// # Errors
/// A strategy that cannot work on this context, with its reason.
pub(crate) fn create(
    model: &Model,
    backend: &str,
    context: &ContextShape,
    microbatch: u32,
    options: &StrategyOptions,
) -> Result<(Setup, Vec<Drafter>)> {
    let shape = model.shape();
    let facts = Facts {
        vocabulary: shape.vocabulary,
        hidden: shape.hidden,
        layers: shape.layers.len() as u32,
        context: context.clone(),
        microbatch,
        backend: backend.to_owned(),
        architecture: shape.architecture.clone(),
    };
    let layers = shape.layers.len() as u32;
    if let Some(Tap::LayerInput(layer)) = options.taps.iter().find(|tap| !tap.fits(layers)) {
        return Err(EngineError::Request(format!(
            "the hidden state before layer {layer} was asked for; the model has {layers} layers"
        )));
    }
    let taps = options.taps.iter().copied().collect();
    let mut setup = Setup { taps, draft: options.draft.clone(), ..Setup::default() };
    let mut drafters = Vec::with_capacity(options.drafters.len());
    for wanted in &options.drafters {
        let plugin = wanted.plugin.plugin();
        let first_program = setup.programs.len();
        let client = with_session(model, options, context, &mut setup, plugin, |session| {
            wanted.plugin.create(&facts, &wanted.settings, session)
        })?;
        let client = WatchedDrafter::new(client, setup.panics.clone());
        drafters.push(Drafter { client, programs: first_program..setup.programs.len() });
    }
    if let Some(wanted) = &options.rollback {
        let plugin = wanted.plugin.plugin();
        let client = with_session(model, options, context, &mut setup, plugin, |session| {
            wanted.plugin.create(&facts, &wanted.settings, session)
        })?;
        setup.rollback = Some(client);
    }
    Ok((setup, drafters))
}

fn with_session<T>(
    model: &Model,
    options: &StrategyOptions,
    context: &ContextShape,
    setup: &mut Setup,
    plugin: &str,
    create: impl FnOnce(&mut dyn Session) -> PluginResult<T>,
) -> Result<T> {
    let first_program = setup.programs.len();
    let facts = ModelFacts { model, draft: options.draft.as_deref() };
    let mut session = SetupSession { plugin, facts, context, setup, ring_blocks: 0, first_program };
    create(&mut session).map_err(|source| EngineError::StrategyRefused { plugin: plugin.to_owned(), source })
}
