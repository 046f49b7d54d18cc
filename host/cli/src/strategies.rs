//! Chooses the strategies of a context, and checks their settings.

use std::sync::Arc;

use paceline_engine::{
    Acceptance, DrafterOptions, EngineError, LayerKind, Model, RollbackOptions, Select, StrategyOptions,
};
use paceline_gguf::Gguf;
use paceline_plugin_api::ErrorKind;
use paceline_plugin_api::abi::kind;
use paceline_plugin_api::settings::{Setting, SettingType, Settings, Stage, nearest};
use paceline_registry::{Candidates, Error, Plugin, PluginKind, Registry};
use serde_json::{Value, json};

use crate::args::{SettingArg, StrategyChoice};
use crate::exit::Exit;
use crate::failure::Failure;

/// In front of the settings that are the host's own.
pub const HOST: &str = "speculation";
/// The drafter that reads a file of its own.
pub const DFLASH: &str = "dflash";
/// The drafter that needs a prediction block in the model.
const MTP_CHAIN: &str = "mtp-chain";
/// The drafter that needs nothing but the text.
const NGRAM: &str = "ngram-adaptive";
/// The rollback strategy for recurrent layers.
const REPLAY: &str = "gdn-replay";

const fn choice(key: &'static str, options: &'static [&'static str], doc: &'static str) -> Setting {
    Setting { key, kind: SettingType::Choice { options }, stage: Stage::Context, unit: "", doc }
}

/// How the host uses strategies.
const SETTINGS: &[Setting] = &[
    choice("select", &["value", "order"], "Which of several drafts is taken: the best worth, or the first."),
    Setting {
        key: "controller",
        kind: SettingType::Bool { default: true },
        stage: Stage::Context,
        unit: "",
        doc: "Adapt the length of drafts, and stop drafting while it does not pay.",
    },
    choice(
        "acceptance",
        &["agree", "reject"],
        "Whether a guess must be the model's own token, or may be drawn.",
    ),
    Setting {
        key: "most_verified",
        kind: SettingType::Integer { default: 15, min: 1, max: 15 },
        stage: Stage::Context,
        unit: "tokens",
        doc: "Most guesses that one run of the model looks at.",
    },
    choice("rollback", &["auto", "replay", "snapshots"], "How recurrent state is taken back."),
];

/// The strategies of a context, and those that were left out.
#[derive(Clone, Default)]
pub struct Strategies {
    /// What the engine gets.
    pub options: StrategyOptions,
    /// Ids of plugins that nobody named: they may be left out.
    optional: Vec<String>,
    /// Plugins that were left out, and why.
    pub left_out: Vec<(String, String)>,
}

/// Loads the plugins that a choice may need. A built-in gives way to a file as backends do.
pub fn load(
    registry: &mut Registry,
    candidates: &Candidates,
    choice: &StrategyChoice,
) -> Result<(), Failure> {
    let named = match choice {
        StrategyChoice::Auto => &[][..],
        StrategyChoice::Named(ids) if ids.is_empty() => return Ok(()),
        StrategyChoice::Named(ids) => ids,
    };
    for id in named {
        registry.load(candidates, id).map_err(|error| unknown(error, candidates))?;
    }
    let automatic: &[&str] = if named.is_empty() { &[NGRAM, MTP_CHAIN, DFLASH, REPLAY] } else { &[REPLAY] };
    for id in automatic {
        match registry.load(candidates, id) {
            // A build may lack it.
            Ok(_) | Err(Error::Unknown { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Chooses strategies for a model. `settings` are all that were given, of which the others are not looked at.
pub fn choose(
    registry: &Registry,
    choice: &StrategyChoice,
    settings: &[SettingArg],
    draft: Option<&Arc<Gguf>>,
    model: &Model,
) -> Result<Strategies, Failure> {
    let host = Settings::read(SETTINGS, &settings_of(settings, HOST))
        .map_err(|error| Failure::new(Exit::Usage, format!("{HOST}: {error}")))?;
    let mut chosen = Strategies::default();
    let ids = match choice {
        StrategyChoice::Named(ids) => ids.clone(),
        StrategyChoice::Auto => automatic(registry, settings, draft.is_some(), model, &mut chosen),
    };
    chosen.options = StrategyOptions {
        drafters: ids.iter().map(|id| drafter(registry, id, settings)).collect::<Result<_, _>>()?,
        rollback: None,
        draft: draft.filter(|_| !ids.is_empty()).cloned(),
        acceptance: if host.choice("acceptance") == "reject" {
            Acceptance::Reject
        } else {
            Acceptance::Agree
        },
        select: if host.choice("select") == "order" { Select::Order } else { Select::Value },
        controller: host.bool("controller"),
        most_verified: host.integer("most_verified").try_into().unwrap_or(1),
    };
    if !ids.is_empty() {
        choose_rollback(registry, host.choice("rollback"), settings, model, &mut chosen)?;
    }
    Ok(chosen)
}

/// The drafters that suit a model; the reasons of the others are kept.
fn automatic(
    registry: &Registry,
    settings: &[SettingArg],
    has_draft: bool,
    model: &Model,
    chosen: &mut Strategies,
) -> Vec<String> {
    let mut ids = vec![NGRAM];
    if has_draft {
        ids.push(DFLASH);
    } else if model.shape().has_nextn {
        ids.push(MTP_CHAIN);
    } else {
        chosen.left_out.push((MTP_CHAIN.to_owned(), "the model has no prediction block".to_owned()));
    }
    ids.retain(|id| {
        let is_there = registry.find(id).is_ok();
        if !is_there {
            chosen.left_out.push(((*id).to_owned(), "this program was built without it".to_owned()));
        }
        is_there
    });
    // What a user gave a file or a setting for is wanted.
    let is_optional = |id: &&&str| **id != DFLASH && !settings.iter().any(|it| it.plugin == **id);
    chosen.optional = ids.iter().filter(is_optional).map(|id| (*id).to_owned()).collect();
    ids.into_iter().map(str::to_owned).collect()
}

fn choose_rollback(
    registry: &Registry,
    how: &str,
    settings: &[SettingArg],
    model: &Model,
    chosen: &mut Strategies,
) -> Result<(), Failure> {
    let has_recurrent = model.shape().count(LayerKind::Recurrent) > 0;
    if how == "snapshots" || (how == "auto" && !has_recurrent) {
        return Ok(());
    }
    if !has_recurrent {
        let message =
            format!("setting `{HOST}.rollback={how}` has no effect: the model has no recurrent layers");
        return Err(Failure::new(Exit::Usage, message));
    }
    match registry.find(REPLAY) {
        Ok(plugin) => {
            let rollbacks =
                plugin.client.rollbacks().map_err(|error| Failure::plugin_call(REPLAY, &error))?;
            let plugin = rollbacks.ok_or_else(|| no_strategy(REPLAY, "it does not roll back"))?;
            chosen.options.rollback =
                Some(RollbackOptions { plugin, settings: settings_of(settings, REPLAY) });
            if how == "auto" {
                chosen.optional.push(REPLAY.to_owned());
            }
            Ok(())
        }
        Err(_) if how == "auto" => {
            chosen.left_out.push((REPLAY.to_owned(), "this program was built without it".to_owned()));
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// The drafter with that id, and its settings.
pub fn drafter(registry: &Registry, id: &str, settings: &[SettingArg]) -> Result<DrafterOptions, Failure> {
    let client = &registry.find(id)?.client;
    if client.kind() != kind::STRATEGY {
        return Err(no_strategy(id, "it is a backend").hint(format!("give it with `--backend {id}`")));
    }
    match client.drafters().map_err(|error| Failure::plugin_call(id, &error))? {
        Some(plugin) => Ok(DrafterOptions { plugin, settings: settings_of(settings, id) }),
        None => Err(no_strategy(id, "it rolls state back, and guesses nothing")
            .hint(format!("it is used where it helps; `--set {HOST}.rollback=replay` makes sure of it"))),
    }
}

impl Strategies {
    /// Ids of the drafters.
    pub fn drafters(&self) -> Vec<&str> {
        self.options.drafters.iter().map(|it| it.plugin.plugin()).collect()
    }

    /// Id of the rollback strategy.
    pub fn rollback(&self) -> Option<&str> {
        self.options.rollback.as_ref().map(|it| it.plugin.plugin())
    }

    /// Names in front of settings that have an effect.
    pub fn settings_in_use(&self) -> Vec<String> {
        let drafters = self.drafters();
        let host = (!drafters.is_empty()).then_some(HOST);
        drafters.into_iter().chain(self.rollback()).chain(host).map(str::to_owned).collect()
    }

    /// Leaves out what an engine could not be made with, if nobody asked for it. False if nothing can be left out, so
    /// that the error is the user's.
    pub fn leave_out(&mut self, error: &EngineError) -> bool {
        let (ids, reason) = match error {
            EngineError::StrategyRefused { plugin, source } => (vec![plugin.clone()], source.to_string()),
            EngineError::Strategy { plugin, what } => (vec![plugin.clone()], what.clone()),
            EngineError::Memory(_) => (self.ids(), "there is no memory for it".to_owned()),
            EngineError::Backend { source, .. } if source.kind == ErrorKind::Unsupported => {
                (self.ids(), source.to_string())
            }
            _ => return false,
        };
        if ids.is_empty() || !ids.iter().all(|id| self.optional.contains(id)) {
            return false;
        }
        self.options.drafters.retain(|it| !ids.iter().any(|id| id == it.plugin.plugin()));
        // Without drafters nothing is taken back.
        if self.options.drafters.is_empty() || self.rollback().is_some_and(|it| ids.iter().any(|id| id == it))
        {
            self.options.rollback = None;
        }
        self.left_out.extend(ids.into_iter().map(|id| (id, reason.clone())));
        true
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

fn settings_of(settings: &[SettingArg], plugin: &str) -> Vec<(String, String)> {
    let of_plugin = settings.iter().filter(|setting| setting.plugin == plugin);
    of_plugin.map(|setting| (setting.key.clone(), setting.value.clone())).collect()
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
    use paceline_plugin_api::Error as PluginError;

    fn automatic(settings: &[&str]) -> Strategies {
        let model = Model::new(Arc::new(ModelSource::Demo.open().unwrap())).unwrap();
        let settings: Vec<SettingArg> = settings.iter().map(|text| text.parse().unwrap()).collect();
        choose(&Registry::new().unwrap(), &StrategyChoice::Auto, &settings, None, &model).unwrap()
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

    #[test]
    fn what_has_a_setting_is_not_left_out() {
        let mut strategies = automatic(&["mtp-chain.depth=4"]);
        assert!(!strategies.leave_out(&refused_by(MTP_CHAIN)));
        assert_eq!(strategies.drafters(), [NGRAM, MTP_CHAIN]);
    }
}
