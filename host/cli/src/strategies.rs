//! Chooses the strategies of a context.

use std::collections::BTreeSet;
use std::sync::Arc;

use paceline_engine::{
    Acceptance, DrafterOptions, EngineError, LayerKind, Model, RollbackOptions, Select, StrategyOptions,
};
use paceline_gguf::Gguf;
use paceline_plugin_api::ErrorKind;
use paceline_plugin_api::abi::kind;
use paceline_plugin_api::settings::nearest;
use paceline_registry::settings::Given;
use paceline_registry::{Candidates, Error, Plugin, PluginKind, Registry};
use serde_json::{Value, json};

use crate::args::StrategyChoice;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::resolution::{ROLLBACK, Resolved};

/// In front of the settings that are the host's own.
pub const HOST: &str = "speculation";
/// The drafter that reads a file of its own.
pub const DFLASH: &str = "dflash";
/// The drafter that needs a prediction block in the model.
const MTP_CHAIN: &str = "mtp-chain";
/// The drafter that needs nothing but the text.
const NGRAM: &str = "ngram-adaptive";
/// The value of the setting that asks for a rollback strategy.
const BY_STRATEGY: &str = "replay";
/// Why a strategy that `auto` would take is not to be found.
const NOT_THERE: &str = "this program was built without it, or it is switched off";
const NO_RECURRENT_LAYERS: &str = "the model has no recurrent layers";

/// The strategies of a context, and those that were left out.
#[derive(Clone, Default)]
pub struct Strategies {
    /// What the engine gets.
    pub options: StrategyOptions,
    /// Ids of plugins that nobody named: they may be left out.
    optional: Vec<String>,
    /// The rollback strategy that may be used.
    rollback: Option<String>,
    /// It was asked for by its name.
    is_rollback_named: bool,
    /// Why recurrent state cannot be taken back by a strategy here.
    no_rollback: Option<String>,
    /// Plugins that were left out, and why.
    pub left_out: Vec<(String, String)>,
    /// Settings whose values by rules cannot be had, and why.
    pub refused: Vec<(String, String)>,
}

/// Loads the plugins that a choice may need. A built-in gives way to a file as backends do.
pub fn load(
    registry: &mut Registry,
    candidates: &Candidates,
    choice: &StrategyChoice,
    rollbacks: &[String],
) -> Result<(), Failure> {
    let named = match choice {
        StrategyChoice::Auto => &[][..],
        StrategyChoice::Named(ids) if ids.is_empty() => return Ok(()),
        StrategyChoice::Named(ids) => ids,
    };
    for id in named {
        registry.load(candidates, id).map_err(|error| unknown(error, candidates))?;
    }
    let automatic: &[&str] = if named.is_empty() { &[NGRAM, MTP_CHAIN, DFLASH] } else { &[] };
    for id in automatic.iter().copied().chain(rollbacks.iter().map(String::as_str)) {
        match registry.load(candidates, id) {
            // A build may lack it, and a file may switch it off.
            Ok(_) | Err(Error::Unknown { .. } | Error::Disabled(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Chooses strategies for a model. What has a setting on the command line, as `is_set` knows, is wanted.
pub fn choose(
    registry: &Registry,
    choice: &StrategyChoice,
    is_set: &dyn Fn(&str) -> bool,
    draft: Option<&Arc<Gguf>>,
    model: &Model,
    rollbacks: &[String],
) -> Result<Strategies, Failure> {
    let mut chosen = Strategies::default();
    let ids = match choice {
        StrategyChoice::Named(ids) => chosen.name_rollback(registry, ids)?,
        StrategyChoice::Auto => automatic(registry, is_set, draft.is_some(), model, &mut chosen),
    };
    if chosen.rollback.is_none() {
        chosen.rollback = rollback(registry, rollbacks);
    }
    chosen.options = StrategyOptions {
        drafters: ids.iter().map(|id| drafter(registry, id)).collect::<Result<_, _>>()?,
        draft: draft.filter(|_| !ids.is_empty()).cloned(),
        ..StrategyOptions::default()
    };
    chosen.no_rollback = if model.shape().count(LayerKind::Recurrent) == 0 {
        Some(NO_RECURRENT_LAYERS.to_owned())
    } else if chosen.rollback.is_none() {
        let ids: Vec<String> = rollbacks.iter().map(|id| format!("`{id}`")).collect();
        Some(format!("{}: {NOT_THERE}", ids.join(", ")))
    } else {
        None
    };
    Ok(chosen)
}

/// Whether a plugin takes recurrent state back.
fn rolls_back(plugin: &Plugin) -> bool {
    plugin.client.kind() == kind::STRATEGY && matches!(plugin.client.rollbacks(), Ok(Some(_)))
}

/// The rollback strategy that is used where one is asked for: of those that the files of settings prefer the first that is
/// there, then one from a file that the user gave, then a built-in one. The order of plugins means nothing.
fn rollback(registry: &Registry, preferred: &[String]) -> Option<String> {
    let rank = |plugin: &Plugin| {
        let place = preferred.iter().position(|id| *id == plugin.id()).unwrap_or(preferred.len());
        (place, plugin.origin.path().is_none(), plugin.id())
    };
    registry.plugins().iter().filter(|plugin| rolls_back(plugin)).map(rank).min().map(|(_, _, id)| id)
}

/// The drafters that suit a model; the reasons of the others are kept.
fn automatic(
    registry: &Registry,
    is_set: &dyn Fn(&str) -> bool,
    has_draft: bool,
    model: &Model,
    chosen: &mut Strategies,
) -> Vec<String> {
    let mut ids = vec![NGRAM];
    if has_draft {
        ids.push(DFLASH);
    }
    if model.shape().has_nextn {
        ids.push(MTP_CHAIN);
    } else {
        chosen.left_out.push((MTP_CHAIN.to_owned(), "the model has no prediction block".to_owned()));
    }
    ids.retain(|id| {
        let is_there = registry.find(id).is_ok();
        if !is_there {
            chosen.left_out.push(((*id).to_owned(), NOT_THERE.to_owned()));
        }
        is_there
    });
    // What a user gave a file or a setting for is wanted.
    let is_optional = |id: &&&str| **id != DFLASH && !is_set(id);
    chosen.optional = ids.iter().filter(is_optional).map(|id| (*id).to_owned()).collect();
    ids.into_iter().map(str::to_owned).collect()
}

/// The drafter with that id, still without settings.
fn drafter(registry: &Registry, id: &str) -> Result<DrafterOptions, Failure> {
    let client = &registry.find(id)?.client;
    if client.kind() != kind::STRATEGY {
        return Err(no_strategy(id, "it is a backend").hint(format!("give it with `--backend {id}`")));
    }
    match client.drafters().map_err(|error| Failure::plugin_call(id, &error))? {
        Some(plugin) => Ok(DrafterOptions { plugin, settings: Vec::new() }),
        None => Err(no_strategy(id, "it neither guesses nor rolls back")),
    }
}

impl Strategies {
    /// Takes the rollback strategy out of those that were named; the others are drafters.
    fn name_rollback(&mut self, registry: &Registry, ids: &[String]) -> Result<Vec<String>, Failure> {
        let is_rollback =
            |id: &&String| registry.find(id).is_ok_and(|plugin| rolls_back(plugin) && !drafts(plugin));
        let (rollbacks, drafters): (Vec<&String>, Vec<&String>) = ids.iter().partition(is_rollback);
        match rollbacks.as_slice() {
            [] => {}
            [id] if drafters.is_empty() => {
                return Err(no_strategy(id, "it rolls state back, and guesses nothing")
                    .hint(format!("name one that guesses too, as in `--strategy {NGRAM}+{id}`")));
            }
            [id] => (self.rollback, self.is_rollback_named) = (Some((*id).clone()), true),
            [first, second, ..] => {
                let message = format!("`{first}` and `{second}` both roll state back: only one of them can");
                return Err(Failure::new(Exit::Usage, message));
            }
        }
        Ok(drafters.into_iter().cloned().collect())
    }

    /// A rollback strategy that was named is asked for as a setting would.
    pub fn add_given(&self, given: &mut Vec<Given>) {
        let asked = |it: &Given| it.key == ROLLBACK && it.value == BY_STRATEGY;
        if self.is_rollback_named && !given.iter().any(asked) {
            given.push(Given::option("--strategy", ROLLBACK, BY_STRATEGY));
        }
    }

    /// The rollback strategy that the context may use, whether it does or not.
    pub fn rollback_in_sight(&self) -> Option<&str> {
        self.rollback.as_deref().filter(|_| self.no_rollback.is_none() && !self.options.drafters.is_empty())
    }

    /// The drafter that has a model of its own, and that.
    pub fn with_file(&self) -> Option<(&str, &Gguf)> {
        let draft = self.options.draft.as_deref()?;
        let ids = self.drafters();
        let others = || ids.iter().copied().find(|id| ![NGRAM, MTP_CHAIN].contains(id));
        Some((ids.iter().copied().find(|id| *id == DFLASH).or_else(others)?, draft))
    }

    /// Ids of the drafters.
    pub fn drafters(&self) -> Vec<&str> {
        self.options.drafters.iter().map(|it| it.plugin.plugin()).collect()
    }

    /// Id of the rollback strategy.
    pub fn rollback(&self) -> Option<&str> {
        self.options.rollback.as_ref().map(|it| it.plugin.plugin())
    }

    /// Ids of the strategies that the context may use.
    pub fn possible(&self) -> BTreeSet<String> {
        let drafters: BTreeSet<String> = self.drafters().into_iter().map(str::to_owned).collect();
        drafters.into_iter().chain(self.rollback_in_sight().map(str::to_owned)).collect()
    }

    /// Why a strategy that is there does nothing in this context.
    pub fn why_not(&self, id: &str) -> String {
        let is_rollback = self.rollback.as_deref() == Some(id);
        match id {
            _ if is_rollback && self.drafters().is_empty() => "no strategy guesses".to_owned(),
            _ if is_rollback => {
                self.no_rollback.clone().unwrap_or_else(|| format!("`{ROLLBACK}` is snapshots"))
            }
            MTP_CHAIN if self.options.draft.is_some() => "a drafter is given (--draft)".to_owned(),
            DFLASH if self.options.draft.is_none() => "no drafter is given (--draft)".to_owned(),
            _ => "not asked for (--strategy)".to_owned(),
        }
    }

    /// The drafter that works with a model of its own, or with a block of the model.
    pub fn with_model(&self) -> Option<&str> {
        self.drafters().into_iter().find(|id| [DFLASH, MTP_CHAIN].contains(id))
    }

    /// Takes over the settings of a context. What cannot be had there is refused, so that the next best counts.
    pub fn configure(&mut self, registry: &Registry, resolved: &mut Resolved) -> Result<(), Failure> {
        self.options.rollback = None;
        if resolved.word(ROLLBACK) == BY_STRATEGY {
            let decided = resolved.resolution.get(ROLLBACK);
            let for_this_run = decided.is_some_and(|it| it.winner.source.is_for_this_run());
            match (&self.no_rollback, self.rollback.clone()) {
                // A file may speak of other models.
                (Some(reason), _) if reason == NO_RECURRENT_LAYERS && !for_this_run => {}
                (Some(reason), _) => resolved.refuse(ROLLBACK, reason)?,
                (None, Some(id)) => self.use_rollback(&id, registry, resolved)?,
                (None, None) => {}
            }
        }
        for drafter in &mut self.options.drafters {
            drafter.settings = resolved.settings_of(drafter.plugin.plugin());
        }
        self.options.acceptance = match resolved.word("speculation.acceptance") {
            "reject" => Acceptance::Reject,
            _ => Acceptance::Agree,
        };
        self.options.select = match resolved.word("speculation.select") {
            "order" => Select::Order,
            _ => Select::Value,
        };
        self.options.controller = resolved.switch("speculation.controller");
        if let Some(most) = resolved.number("speculation.most_verified") {
            self.options.most_verified = most;
        }
        Ok(())
    }

    fn use_rollback(&mut self, id: &str, registry: &Registry, resolved: &Resolved) -> Result<(), Failure> {
        let client = &registry.find(id)?.client;
        let plugin = client.rollbacks().map_err(|error| Failure::plugin_call(id, &error))?;
        let plugin = plugin.ok_or_else(|| no_strategy(id, "it does not roll back"))?;
        self.options.rollback = Some(RollbackOptions { plugin, settings: resolved.settings_of(id) });
        self.optional.retain(|other| other != id);
        if !resolved.is_explicit(ROLLBACK) {
            self.optional.push(id.to_owned());
        }
        Ok(())
    }

    /// Gives up values that only rules say, after a plugin refused its settings or the context that they make. False if it
    /// has none: then something else is wrong.
    pub fn refuse_rules(&mut self, error: &EngineError, resolved: &Resolved) -> bool {
        let (plugin, reason) = match error {
            EngineError::StrategyRefused { plugin, source } => (plugin, source),
            EngineError::Backend { plugin, source, .. } if source.kind == ErrorKind::Invalid => {
                (plugin, source)
            }
            _ => return false,
        };
        let mut guilty = resolved.set_by_rules(plugin);
        // Most say which one it is.
        let own = |key: &str| key.split_once('.').map_or(String::new(), |(_, own)| format!("`{own}`"));
        let is_named = |key: &str| reason.message.contains(&own(key));
        if guilty.iter().any(|decided| is_named(&decided.key)) {
            guilty.retain(|decided| is_named(&decided.key));
        }
        for decided in &guilty {
            let (key, winner) = (&decided.key, &decided.winner);
            tracing::warn!(
                "`{key}` is {} by {}, which cannot be had here: {reason}",
                winner.text(),
                winner.source
            );
            self.refused.push((key.clone(), reason.to_string()));
        }
        !guilty.is_empty()
    }

    /// Leaves out what an engine could not be made with, if nobody asked for it. False if nothing can be left out, so
    /// that the error is the user's.
    pub fn leave_out(&mut self, error: &EngineError) -> bool {
        let (ids, reason) = match error {
            EngineError::StrategyRefused { plugin, source } => (vec![plugin.clone()], source.to_string()),
            EngineError::Strategy { plugin, what } => (vec![plugin.clone()], what.clone()),
            // What is left may fit.
            EngineError::Memory(_) => {
                let is_optional = |id: &&str| self.optional.iter().any(|it| it == id);
                let last = self.drafters().into_iter().rfind(is_optional).map(str::to_owned);
                (last.into_iter().collect(), "there is no memory for it".to_owned())
            }
            EngineError::Backend { source, .. } if source.kind == ErrorKind::Unsupported => {
                (self.ids(), source.to_string())
            }
            _ => return false,
        };
        if ids.is_empty() || !ids.iter().all(|id| self.optional.contains(id)) {
            return false;
        }
        self.drop_all(&ids, &reason);
        true
    }

    /// Leaves out a strategy whoever asked for it; false if it is not there.
    pub fn give_up(&mut self, id: &str, reason: &str) -> bool {
        let there = self.ids().iter().any(|it| it == id);
        if there {
            self.drop_all(&[id.to_owned()], reason);
        }
        there
    }

    fn drop_all(&mut self, ids: &[String], reason: &str) {
        self.options.drafters.retain(|it| !ids.iter().any(|id| id == it.plugin.plugin()));
        // Without drafters nothing is taken back.
        if self.options.drafters.is_empty() || self.rollback().is_some_and(|it| ids.iter().any(|id| id == it))
        {
            self.options.rollback = None;
        }
        if ids.iter().any(|id| Some(id) == self.rollback.as_ref()) {
            self.no_rollback = Some(reason.to_owned());
        }
        self.left_out.extend(ids.iter().map(|id| (id.clone(), reason.to_owned())));
    }

    fn ids(&self) -> Vec<String> {
        self.drafters().into_iter().chain(self.rollback()).map(str::to_owned).collect()
    }

    /// For JSON.
    pub fn as_json(&self) -> Value {
        let left_out = self.left_out.iter().map(|(id, reason)| json!({ "id": id, "reason": reason }));
        json!({
            "drafters": self.drafters(),
            "rollback": self.rollback(),
            "left_out": left_out.collect::<Vec<_>>(),
        })
    }
}

fn no_strategy(id: &str, what: &str) -> Failure {
    Failure::new(Exit::Usage, format!("`{id}` cannot be given as a strategy: {what}"))
}

/// A strategy that is not there, with those that are.
fn unknown(error: Error, candidates: &Candidates) -> Failure {
    let Error::Unknown { id, .. } = &error else { return error.into() };
    let found = candidates.list().iter().filter_map(|candidate| candidate.descriptor.as_ref());
    let found = found.filter(|it| it.kind == PluginKind::Strategy).map(|it| it.id.clone());
    let built_in = Registry::new().ok();
    let built_in = built_in.iter().flat_map(|it| it.plugins()).filter(|it| drafts(it)).map(Plugin::id);
    let mut known: Vec<String> = found.chain(built_in).collect();
    known.sort();
    known.dedup();
    let failure = if known.is_empty() {
        Failure::new(Exit::Usage, format!("there is no strategy `{id}`, and no other one"))
    } else {
        let listed = known.iter().map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", ");
        Failure::new(Exit::Usage, format!("there is no strategy `{id}`; there is {listed}"))
    };
    match nearest(id, known.iter().map(String::as_str)) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure.hint("a strategy in a shared library is loaded with `--plugin PATH`"),
    }
}

/// Whether a plugin guesses ahead.
fn drafts(plugin: &Plugin) -> bool {
    plugin.client.kind() == kind::STRATEGY && matches!(plugin.client.drafters(), Ok(Some(_)))
}

#[cfg(all(test, feature = "demo-model", feature = "strategies"))]
mod tests {
    use super::*;
    use crate::model_source::ModelSource;
    use paceline_engine::{Engine, EngineOptions, Shortage};
    use paceline_plugin_api::Error as PluginError;

    const REPLAY: &str = "gdn-replay";

    /// As `auto` chooses, with recurrent state taken back by replay.
    fn automatic(set: &[&str]) -> Strategies {
        let model = Model::new(Arc::new(ModelSource::Demo.open().unwrap())).unwrap();
        let registry = Registry::new().unwrap();
        let is_set = |id: &str| set.contains(&id);
        let mut chosen = choose(&registry, &StrategyChoice::Auto, &is_set, None, &model, &[]).unwrap();
        let rollbacks = registry.find(REPLAY).unwrap().client.rollbacks().unwrap();
        let settings = Vec::new();
        chosen.options.rollback = rollbacks.map(|plugin| RollbackOptions { plugin, settings });
        chosen.optional.push(REPLAY.to_owned());
        chosen
    }

    fn refused_by(plugin: &str) -> EngineError {
        let source = PluginError::unsupported("it cannot");
        EngineError::StrategyRefused { plugin: plugin.to_owned(), source }
    }

    #[test]
    fn what_nobody_named_is_left_out() {
        let mut strategies = automatic(&[]);
        assert_eq!(strategies.drafters(), [NGRAM, MTP_CHAIN]);
        assert!(strategies.leave_out(&refused_by(MTP_CHAIN)));
        assert_eq!((strategies.drafters(), strategies.rollback()), (vec![NGRAM], Some(REPLAY)));
        assert!(strategies.leave_out(&refused_by(REPLAY)));
        assert_eq!((strategies.drafters(), strategies.rollback()), (vec![NGRAM], None));
        let reasons = [(MTP_CHAIN, "it cannot"), (REPLAY, "it cannot")];
        assert_eq!(strategies.left_out, reasons.map(|(id, reason)| (id.to_owned(), reason.to_owned())));
        assert!(!strategies.leave_out(&EngineError::Request("no fault of theirs".to_owned())));
    }

    /// A backend may lack what they need.
    #[test]
    fn all_are_left_out_where_the_backend_cannot_run_them() {
        let source = PluginError::unsupported("no such operation");
        let error = EngineError::Backend { plugin: "b".to_owned(), doing: "plan".to_owned(), source };
        let mut strategies = automatic(&[]);
        assert!(strategies.leave_out(&error));
        assert!(strategies.drafters().is_empty() && strategies.rollback().is_none());
        assert!(!strategies.leave_out(&error));
    }

    /// What takes memory goes first; what is left may fit.
    #[test]
    fn one_after_the_other_is_left_out_where_memory_is_short() {
        let mut strategies = automatic(&[]);
        let registry = Registry::new().unwrap();
        let backend = registry.find("cpu").unwrap().client.backend().unwrap();
        let model = Model::new(Arc::new(ModelSource::Demo.open().unwrap())).unwrap();
        let plan = Engine::plan(&model, &backend, EngineOptions::default(), &strategies.options).unwrap();
        let shortage = Shortage { device: "cpu:0".into(), plan, free: 0, context: 1, fitting_context: None };
        let short = EngineError::Memory(Box::new(shortage));
        assert!(strategies.leave_out(&short));
        assert_eq!((strategies.drafters(), strategies.rollback()), (vec![NGRAM], Some(REPLAY)));
        assert!(strategies.leave_out(&short));
        assert!(strategies.drafters().is_empty() && strategies.rollback().is_none());
        assert!(!strategies.leave_out(&short));
        assert!(strategies.left_out.iter().all(|(_, reason)| reason == "there is no memory for it"));
    }

    #[test]
    fn what_has_a_setting_is_not_left_out() {
        let mut strategies = automatic(&[MTP_CHAIN]);
        assert!(!strategies.leave_out(&refused_by(MTP_CHAIN)));
        assert_eq!(strategies.drafters(), [NGRAM, MTP_CHAIN]);
    }
}
