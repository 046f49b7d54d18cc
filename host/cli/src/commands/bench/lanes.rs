//! An engine for each arm.

use std::sync::Arc;

use paceline_engine::{Engine, SequenceId};
use paceline_gguf::Gguf;

use super::arms::Arm;
use crate::app::App;
use crate::args::{SettingArg, StrategyChoice};
use crate::engine_setup::Setup;
use crate::failure::Failure;
use crate::strategies::Strategies;

/// What an arm's engine is made of.
#[derive(Clone)]
pub struct Plan {
    /// Name of the arm.
    pub name: String,
    /// Its strategies, with their settings.
    pub strategies: Strategies,
    /// Settings of the backend that differ between arms.
    pub settings: Vec<(String, String)>,
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
    settings: &[SettingArg],
    draft: Option<&Arc<Gguf>>,
    context: u32,
    app: &App,
) -> Result<Vec<String>, Failure> {
    let mut strategies = setup.choose(&StrategyChoice::Auto, settings, draft)?;
    while let Err(error) = setup.plan(&strategies, Some(context)) {
        if !strategies.leave_out(&error) {
            return Err(setup.failure(error));
        }
    }
    for (id, reason) in &strategies.left_out {
        app.printer.detail(format_args!("strategy `{id}` is left out: {reason}"));
    }
    let ids: Vec<String> = strategies.drafters().into_iter().map(str::to_owned).collect();
    let name = StrategyChoice::Named(ids.clone()).name();
    app.printer.status(format_args!("auto is {name} here"));
    Ok(ids)
}

/// What the engines of all arms are made of. `settings` are those that all arms share.
pub fn plan(
    setup: &Setup,
    arms: Vec<Arm>,
    settings: &[SettingArg],
    draft: Option<&Arc<Gguf>>,
) -> Result<Vec<Plan>, Failure> {
    let mut all_settings = settings.to_vec();
    let mut used = Vec::new();
    let mut plans = Vec::with_capacity(arms.len());
    for arm in arms {
        let of_arm = [settings, &arm.settings].concat();
        let strategies = setup.choose(&StrategyChoice::Named(arm.strategies), &of_arm, draft)?;
        used.extend(strategies.settings_in_use());
        let of_backend = arm.settings.iter().filter(|it| it.plugin == setup.backend());
        plans.push(Plan {
            name: arm.name,
            strategies,
            settings: of_backend.map(|it| (it.key.clone(), it.value.clone())).collect(),
        });
        all_settings.extend(arm.settings);
    }
    setup.check_settings(&all_settings, used)?;
    Ok(plans)
}

impl Lane {
    /// Loads the model for an arm.
    pub fn new(plan: Plan, setup: &Setup, context: u32, app: &App) -> Result<Self, Failure> {
        let Plan { name, mut strategies, settings } = plan;
        let mut engine = setup.engine_with(&mut strategies, &settings, Some(context), None, app)?;
        let plain =
            setup.plan(&Strategies::default(), Some(context)).map_err(|error| setup.failure(error))?;
        Ok(Self {
            name,
            sequence: engine.new_sequence()?,
            strategy_bytes: engine.memory().total().saturating_sub(plain.total()),
            accepts_others: strategies.options.acceptance == paceline_engine::Acceptance::Reject,
            engine,
        })
    }
}
