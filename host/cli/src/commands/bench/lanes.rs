//! An engine for each arm.

use std::sync::Arc;

use paceline_engine::{Engine, SequenceId};
use paceline_gguf::Gguf;
use paceline_registry::settings::Given;

use super::arms::Arm;
use crate::app::App;
use crate::args::StrategyChoice;
use crate::engine_setup::{Context, Setup};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::resolution::CONTEXT;
use crate::strategies::Strategies;

/// What an arm's engine is made of.
#[derive(Clone)]
pub struct Plan {
    /// Name of the arm.
    pub name: String,
    /// Its strategies and settings.
    pub context: Context,
}

/// An arm that can run.
pub struct Lane {
    /// Name of the arm.
    pub name: String,
    /// Its engine.
    pub engine: Engine,
    /// The one sequence of it.
    pub sequence: SequenceId,
    /// Bytes that its strategies take on the device.
    pub strategy_bytes: u64,
    /// Whether drafts may be accepted that the model's own choice differs from.
    pub accepts_others: bool,
}

/// The strategies that `auto` stands for with this model.
pub fn what_auto_is(
    setup: &Setup,
    draft: Option<&Arc<Gguf>>,
    positions: u32,
    app: &App,
) -> Result<Vec<String>, Failure> {
    let strategies = setup.choose(&StrategyChoice::Auto, draft)?;
    let given = given(setup, &strategies, positions);
    let mut context = setup.context(strategies, given)?;
    setup.settle(&mut context)?.map_err(|error| setup.failure(error))?;
    for (id, reason) in &context.strategies.left_out {
        app.printer.detail(format_args!("strategy `{id}` is left out: {reason}"));
    }
    let ids: Vec<String> = context.strategies.drafters().into_iter().map(str::to_owned).collect();
    let name = StrategyChoice::Named(ids.clone()).name();
    app.printer.status(format_args!("auto is {name} here"));
    Ok(ids)
}

/// What the command line gives for an arm with these strategies: a setting of a strategy is for the arms that have it.
fn given(setup: &Setup, strategies: &Strategies, positions: u32) -> Vec<Given> {
    let mut given = setup.effective(strategies);
    // As much as the longest text takes, whatever is set for runs.
    if !given.iter().any(|given| given.key == CONTEXT) {
        given.push(Given::option("the longest prompt", CONTEXT, &positions.to_string()));
    }
    given
}

/// What the engines of all arms are made of.
pub fn plan(
    setup: &Setup,
    arms: Vec<Arm>,
    positions: u32,
    draft: Option<&Arc<Gguf>>,
) -> Result<Vec<Plan>, Failure> {
    let mut without_effect: Vec<String> = setup.given.iter().map(|given| given.key.clone()).collect();
    let mut plans = Vec::with_capacity(arms.len());
    for arm in arms {
        let strategies = setup.choose(&StrategyChoice::Named(arm.strategies), draft)?;
        let mut given = given(setup, &strategies, positions);
        without_effect.retain(|key| !given.iter().any(|given| given.key == *key));
        given.extend(arm.settings.iter().map(|it| Given::set(&it.name(), &it.value)));
        plans.push(Plan { name: arm.name, context: setup.context(strategies, given)? });
    }
    match without_effect.first() {
        None => Ok(plans),
        Some(key) => {
            let plugin = key.split_once('.').map_or("", |(plugin, _)| plugin);
            let because = if plugin == crate::strategies::HOST {
                "no strategy is used here".to_owned()
            } else {
                format!("`{plugin}` is not used here")
            };
            Err(Failure::new(Exit::Usage, format!("setting `{key}` has no effect: {because}")))
        }
    }
}

impl Lane {
    /// Loads the model for an arm.
    pub fn new(plan: Plan, setup: &Setup, app: &App) -> Result<Self, Failure> {
        let Plan { name, mut context } = plan;
        let mut engine = setup.load(&mut context, None, app)?;
        let plain = setup.plain_plan(&context)?;
        let acceptance = context.strategies.options.acceptance;
        Ok(Self {
            name,
            sequence: engine.new_sequence()?,
            strategy_bytes: engine.memory().total().saturating_sub(plain.total()),
            accepts_others: acceptance == paceline_engine::Acceptance::Reject,
            engine,
        })
    }
}
