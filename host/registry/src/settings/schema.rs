//! All settings that there are: the host's own, and those of plugins by their descriptors.

use std::collections::BTreeMap;

use paceline_plugin_api::settings::Stage;
use serde_json::{Value as Json, json};
use toml::Spanned;
use toml::de::DeValue;

use super::fault::{Fault, did_you_mean};
use super::host_settings;
use super::observe::Fact;
use super::rule::{Rule, read_rule};
use super::toml_text::Text;
use super::value::{AUTO, Takes, Value};
use crate::KnownBackend;
use crate::descriptor::{AbiVersion, DeclaredType, Descriptor, PluginKind};

/// In front of the variables of the environment that are settings.
const VARIABLE_PREFIX: &str = "PACELINE_";

/// Whose setting it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The host's own.
    Host,
    /// A backend plugin's, with its id. It has an effect on layers that this backend runs.
    Backend(String),
    /// A strategy plugin's, with its id.
    Strategy(String),
}

impl Owner {
    /// The plugin; `None` for the host.
    pub fn plugin(&self) -> Option<&str> {
        match self {
            Self::Host => None,
            Self::Backend(id) | Self::Strategy(id) => Some(id),
        }
    }
}

/// The value of a setting that nobody and nothing set.
#[derive(Clone, Debug, PartialEq)]
pub enum DefaultValue {
    /// This one.
    Value(Value),
    /// It follows from something else, which these words name; shown as `auto`.
    Decided(String),
}

/// One setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Key with the plugin's id in front.
    pub key: String,
    /// Whose it is.
    pub owner: Owner,
    /// Its values.
    pub takes: Takes,
    /// Its value when not set.
    pub default: DefaultValue,
    /// When it is decided.
    pub stage: Stage,
    /// Unit of a number, or empty.
    pub unit: String,
    /// One sentence.
    pub doc: String,
}

impl Setting {
    /// The variable of the environment that sets it: `mtp-chain.depth` is `PACELINE_MTP_CHAIN__DEPTH`.
    pub fn variable(&self) -> String {
        VARIABLE_PREFIX.to_owned() + &self.key.to_ascii_uppercase().replace('.', "__").replace('-', "_")
    }

    /// The default, as it is shown.
    pub fn default_text(&self) -> String {
        match &self.default {
            DefaultValue::Value(value) => value.to_string(),
            DefaultValue::Decided(_) => AUTO.to_owned(),
        }
    }

    /// When it is decided, in a word.
    pub fn stage_name(&self) -> &'static str {
        stage_name(self.stage)
    }
}

pub(super) fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Placement => "placement",
        Stage::Context => "context",
        Stage::Run => "run",
    }
}

/// All settings, and the rules that plugins bring along.
#[derive(Clone, Debug)]
pub struct Schema {
    settings: BTreeMap<String, Setting>,
    /// Kind of each plugin.
    plugins: BTreeMap<String, PluginKind>,
    /// Rules of each plugin.
    pub(super) rules: BTreeMap<String, Vec<Rule>>,
    /// What is wrong with the rules of each plugin; it counts where the plugin is used.
    pub(super) faults: BTreeMap<String, Fault>,
}

/// Why there is no such setting.
pub(super) enum Unknown {
    /// The plugin in front of the dot is not there, so nothing can be said about its settings.
    Plugin(String),
    /// The plugin, or the host, has no such setting.
    Key(String),
}

impl Schema {
    /// The settings of the host.
    pub fn host() -> Self {
        let settings =
            host_settings::all().into_iter().map(|setting| (setting.key.clone(), setting)).collect();
        Self { settings, plugins: BTreeMap::new(), rules: BTreeMap::new(), faults: BTreeMap::new() }
    }

    /// Adds the settings and rules of a plugin. In which order plugins are added means nothing. A rule that is wrong
    /// is kept as a fault, which counts where the plugin is used; [`super::Resolver::plugin_faults`] has all of them.
    ///
    /// # Errors
    /// A plugin that is there already; keys that are the host's, or whose variables are those of others.
    pub fn add(&mut self, descriptor: &Descriptor) -> Result<(), Fault> {
        let id = &descriptor.id;
        if self.plugins.contains_key(id) {
            return Err(Fault::new(format!("the settings of plugin `{id}` are there twice")));
        }
        let prefix = format!("{id}.");
        if let Some(key) = self.settings.keys().find(|key| *key == id || key.starts_with(&prefix)) {
            return Err(Fault::new(format!(
                "a plugin cannot be named `{id}`: `{key}` is a setting of the host"
            )));
        }
        let owner = match descriptor.kind {
            PluginKind::Backend => Owner::Backend(id.clone()),
            PluginKind::Strategy => Owner::Strategy(id.clone()),
        };
        let declared: Vec<Setting> = descriptor.settings.iter().map(|it| declared(it, &owner, id)).collect();
        for (index, setting) in declared.iter().enumerate() {
            let others = self.settings.values().chain(&declared[..index]);
            if let Some(other) = others.into_iter().find(|other| other.variable() == setting.variable()) {
                return Err(Fault::new(format!(
                    "the settings `{}` and `{}` have the same variable {}",
                    other.key,
                    setting.key,
                    setting.variable()
                )));
            }
        }
        self.settings.extend(declared.into_iter().map(|setting| (setting.key.clone(), setting)));
        self.plugins.insert(id.clone(), descriptor.kind);
        match self.rules_of(descriptor) {
            Ok(rules) => {
                self.rules.insert(id.clone(), rules);
            }
            Err(fault) => {
                self.faults.insert(id.clone(), fault);
            }
        }
        Ok(())
    }

    /// Makes sure that the settings and rules of a plugin are possible, for those who check plugins.
    ///
    /// # Errors
    /// As [`Schema::add`], and the first rule that is wrong.
    pub fn check(descriptor: &Descriptor) -> Result<(), Fault> {
        let mut schema = Self::host();
        schema.add(descriptor)?;
        schema.faults.into_values().next().map_or(Ok(()), Err)
    }

    /// All settings in order of their keys.
    pub fn settings(&self) -> impl Iterator<Item = &Setting> {
        self.settings.values()
    }

    /// The setting with that key.
    ///
    /// # Errors
    /// That there is none, with the nearest one.
    pub fn get(&self, key: &str) -> Result<&Setting, Fault> {
        self.find(key).map_err(|(Unknown::Key(message) | Unknown::Plugin(message))| Fault::new(message))
    }

    /// All settings, for JSON.
    pub fn as_json(&self) -> Json {
        self.settings()
            .map(|setting| {
                let (kind, limits) = match &setting.takes {
                    Takes::Bool => ("bool", Json::Null),
                    Takes::Integer { min, max } => ("integer", json!([min, max])),
                    Takes::Float { min, max } => ("float", json!([min, max])),
                    Takes::Choice(options) => ("choice", json!(options)),
                    Takes::Pair(options) => ("pair", json!(options)),
                };
                let (default, decided) = match &setting.default {
                    DefaultValue::Value(value) => (json!(value), Json::Null),
                    DefaultValue::Decided(by) => (Json::Null, json!(by)),
                };
                json!({
                    "key": setting.key,
                    "plugin": setting.owner.plugin(),
                    "type": kind,
                    "takes": limits,
                    "default": default,
                    "default_from": decided,
                    "stage": setting.stage_name(),
                    "unit": setting.unit,
                    "doc": setting.doc,
                    "variable": setting.variable(),
                })
            })
            .collect()
    }

    pub(super) fn has_plugin(&self, id: &str) -> bool {
        self.plugins.contains_key(id)
    }

    pub(super) fn plugin_ids(&self) -> impl Iterator<Item = &str> {
        self.plugins.keys().map(String::as_str)
    }

    pub(super) fn find(&self, key: &str) -> Result<&Setting, Unknown> {
        if let Some(setting) = self.settings.get(key) {
            return Ok(setting);
        }
        let keys = || self.settings.keys().map(String::as_str);
        let own = |id: &str| self.has_plugin(id) || format!("{id}.") == host_settings::SPECULATION;
        Err(match key.split_once('.') {
            Some((id, _)) if own(id) => {
                let prefix = format!("{id}.");
                let hint = did_you_mean(key, keys().filter(|it| it.starts_with(&prefix)));
                Unknown::Key(format!("the setting `{key}` is not known{hint}"))
            }
            Some((id, _)) => {
                let near = did_you_mean(key, keys());
                let near = if near.is_empty() { did_you_mean(id, self.plugin_ids()) } else { near };
                let missing = match KnownBackend::find(id) {
                    Some(known) => format!("the plugin `{id}` for {} is not installed", known.devices),
                    None => format!("there is no plugin `{id}`"),
                };
                Unknown::Plugin(format!("{missing}, so `{key}` has no effect{near}"))
            }
            None => Unknown::Key(format!("the setting `{key}` is not known{}", did_you_mean(key, keys()))),
        })
    }

    /// The setting that a variable sets.
    pub(super) fn by_variable(&self, variable: &str) -> Option<&Setting> {
        self.settings.values().find(|setting| setting.variable() == variable)
    }

    /// Makes sure that a rule is possible, and gives its value the type of the setting.
    pub(super) fn check_rule(&self, rule: &mut Rule) -> Result<(), Fault> {
        let setting = self.get(&rule.set).map_err(|fault| Fault::at(&rule.set_place, fault.message))?;
        rule.value = setting.takes.fit_written(rule.value.clone()).map_err(|takes| {
            Fault::at(&rule.value_place, format!("`{}` cannot be `{}`: {takes}", rule.set, rule.value))
        })?;
        let later = |fact: &Fact| setting.stage == Stage::Placement && fact.known_from() != Stage::Placement;
        if let Some(fact) = rule.when.facts().find(later) {
            let early = Fact::ALL.into_iter().filter(|fact| fact.known_from() == Stage::Placement);
            let early: Vec<&str> = early.map(Fact::name).collect();
            return Err(Fault::at(
                &rule.when_place,
                format!(
                    "`{}` is decided before layers are placed, and `{}` is a fact of the placement; its rules can \
                     test {}",
                    rule.set,
                    fact.name(),
                    early.join(", ")
                ),
            ));
        }
        if rule.concerns.is_some() && !rule.when.facts().any(Fact::is_of_devices) {
            let message = "`concerns` has no effect: no condition is about a backend or a device";
            return Err(Fault::at(&rule.when_place, message));
        }
        Ok(())
    }

    fn rules_of(&self, descriptor: &Descriptor) -> Result<Vec<Rule>, Fault> {
        let file = format!("descriptor of plugin {}", descriptor.id);
        let text = Text { file: &file, text: &descriptor.text };
        let document = text.parse()?;
        let list = document.get_ref().get("rule").and_then(|list| list.get_ref().as_array());
        let mut rules = Vec::new();
        for rule in list.into_iter().flatten() {
            match self.rule_of(&descriptor.id, &text, rule) {
                Ok(rule) => rules.push(rule),
                // A newer plugin may know facts that this host does not; such a rule never holds here.
                Err(_) if descriptor.abi.built > AbiVersion::HOST => {}
                Err(fault) => return Err(fault),
            }
        }
        match conflicts(&rules).into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(rules),
        }
    }

    fn rule_of(&self, id: &str, text: &Text<'_>, rule: &Spanned<DeValue<'_>>) -> Result<Rule, Fault> {
        let mut rule = read_rule(text, rule)?;
        if !rule.set.starts_with(&format!("{id}.")) {
            let message =
                format!("a rule of plugin `{id}` can only set settings of `{id}`, and not `{}`", rule.set);
            return Err(Fault::at(&rule.set_place, message));
        }
        self.check_rule(&mut rule)?;
        Ok(rule)
    }
}

/// Pairs of rules with one rank that can hold at once and disagree.
pub(super) fn conflicts(rules: &[Rule]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, second) in rules.iter().enumerate() {
        for first in &rules[..index] {
            let settled = first.is_narrower_than(second) || second.is_narrower_than(first);
            if first.set == second.set
                && first.value != second.value
                && !settled
                && first.can_hold_with(second)
            {
                faults.push(Fault::at(
                    &second.place,
                    format!(
                        "this rule gives `{}` the value `{}`, the one at {} gives `{}`, and both can hold: give one of \
                         them all conditions of the other and a further one, so that it is the exception",
                        second.set, second.value, first.place, first.value
                    ),
                ));
            }
        }
    }
    faults
}

fn declared(setting: &crate::DeclaredSetting, owner: &Owner, id: &str) -> Setting {
    let (takes, default) = match &setting.kind {
        DeclaredType::Bool { default } => (Takes::Bool, Value::Bool(*default)),
        DeclaredType::Integer { default, min, max } => {
            (Takes::Integer { min: *min, max: *max }, Value::Integer(*default))
        }
        DeclaredType::Float { default, min, max } => {
            (Takes::Float { min: *min, max: *max }, Value::Float(*default))
        }
        DeclaredType::Choice { options, default } => {
            (Takes::Choice(options.clone()), Value::Text(default.clone()))
        }
    };
    Setting {
        key: format!("{id}.{}", setting.key),
        owner: owner.clone(),
        takes,
        default: DefaultValue::Value(default),
        stage: setting.stage,
        unit: setting.unit.clone(),
        doc: setting.doc.clone(),
    }
}
