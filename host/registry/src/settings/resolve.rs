//! Finds the value of every setting in one context.

use std::collections::{BTreeMap, BTreeSet};

use paceline_plugin_api::settings::Stage;

use super::facts::{ContextFacts, ModelFacts};
use super::fault::{Fault, Faults};
use super::files::ConfigFile;
use super::given::Given;
use super::host_settings::SPECULATION;
use super::observe::{Concern, Observe};
use super::resolution::{Candidate, Decided, Loser, Resolution, Unused, Why};
use super::rule::Rule;
use super::schema::{DefaultValue, Owner, Schema, Setting, Unknown, conflicts};
use super::source::Source;
use super::value::{AUTO, Value};

/// All that sets settings, checked. What comes out depends on the facts of a context and on nothing else.
#[derive(Clone, Debug)]
pub struct Resolver {
    schema: Schema,
    entries: Vec<Entry>,
    notes: Vec<String>,
}

/// Something that gives a setting a value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Key with the plugin's id in front.
    pub key: String,
    /// The value; `None` for `auto`.
    pub value: Option<Value>,
    /// Where it comes from.
    pub source: Source,
    rule: Option<Rule>,
}

impl Entry {
    /// The conditions under which it holds, as text; `None` if it always does.
    pub fn when(&self) -> Option<String> {
        let rule = self.rule.as_ref()?;
        let concerns = rule.concerns.map(|kind| format!(", for {} layers", kind.name())).unwrap_or_default();
        Some(format!("{}{concerns}", rule.when))
    }

    fn candidate(&self) -> Candidate {
        let rule = self.rule.as_ref();
        Candidate {
            value: self.value.clone(),
            source: self.source.clone(),
            when: self.when(),
            measured: rule.and_then(|rule| rule.measured.clone()),
            untested: rule.and_then(|rule| rule.untested.clone()),
        }
    }
}

impl Resolver {
    /// Checks all that sets settings, whatever the context. In which order files and values come means nothing.
    ///
    /// # Errors
    /// All that is wrong: settings that are not there, values that they do not take, two files of one layer, two values
    /// of one rank that can both hold. What is for a plugin that is not there is only noted in files.
    pub fn new(schema: Schema, files: &[ConfigFile], given: &[Given]) -> Result<Self, Faults> {
        let mut resolver = Self { schema, entries: Vec::new(), notes: Vec::new() };
        let mut faults = Vec::new();
        for (id, rules) in &resolver.schema.rules {
            resolver.entries.extend(rules.iter().map(|rule| Entry {
                key: rule.set.clone(),
                value: Some(rule.value.clone()),
                source: Source::PluginRule { plugin: id.clone(), place: rule.place.clone() },
                rule: Some(rule.clone()),
            }));
        }
        for (index, file) in files.iter().enumerate() {
            if files[..index].iter().any(|other| other.layer == file.layer) {
                faults.push(Fault::new(format!("there are two {} files of settings", file.layer)));
            }
            resolver.add_file(file, &mut faults);
        }
        for given in given {
            if let Err(fault) = resolver.add_given(given) {
                faults.push(fault);
            }
        }
        // The order of whatever was handed over means nothing.
        resolver.entries.sort_by(|a, b| {
            (&a.key, b.source.rank(), a.source.place()).cmp(&(&b.key, a.source.rank(), b.source.place()))
        });
        resolver.notes.sort();
        Faults::check(faults)?;
        Ok(resolver)
    }

    fn add_file(&mut self, file: &ConfigFile, faults: &mut Vec<Fault>) {
        let layer = file.layer;
        for plain in &file.plain {
            match self.schema.find(&plain.key) {
                Ok(setting) => {
                    match plain.value.clone().map(|value| setting.takes.fit_written(value)).transpose() {
                        Ok(value) => self.entries.push(Entry {
                            key: plain.key.clone(),
                            value,
                            source: Source::File { layer, place: plain.place.clone() },
                            rule: None,
                        }),
                        Err(takes) => {
                            let value = plain.value.as_ref().map(Value::to_string).unwrap_or_default();
                            let message = format!("`{}` cannot be `{value}`: {takes}", plain.key);
                            faults.push(Fault::at(&plain.value_place, message));
                        }
                    }
                }
                Err(Unknown::Plugin(message)) => self.notes.push(format!("{}: {message}", plain.place)),
                Err(Unknown::Key(message)) => faults.push(Fault::at(&plain.place, message)),
            }
        }
        let mut rules = Vec::new();
        for rule in &file.rules {
            if let Err(Unknown::Plugin(message)) = self.schema.find(&rule.set) {
                self.notes.push(format!("{}: {message}", rule.set_place));
                continue;
            }
            let mut rule = rule.clone();
            match self.schema.check_rule(&mut rule) {
                Ok(()) => rules.push(rule),
                Err(fault) => faults.push(fault),
            }
        }
        faults.extend(conflicts(&rules));
        self.entries.extend(rules.into_iter().map(|rule| Entry {
            key: rule.set.clone(),
            value: Some(rule.value.clone()),
            source: Source::Rule { layer, place: rule.place.clone() },
            rule: Some(rule),
        }));
    }

    fn add_given(&mut self, given: &Given) -> Result<(), Fault> {
        let fault = |message: String| Fault::new(format!("{}: {message}", given.shown()));
        let setting = self.schema.get(&given.key).map_err(|unknown| fault(unknown.message))?;
        let value = match given.value.as_str() {
            AUTO => None,
            text => Some(setting.takes.read(text).map_err(|takes| {
                fault(format!("`{}` cannot be `{}`: {takes}", given.key, text.escape_debug()))
            })?),
        };
        let rank = given.source.rank();
        let earlier = self.entries.iter().find(|it| it.key == given.key && it.source.rank() == rank);
        if let Some(earlier) = earlier {
            let message = format!("`{}` is given twice, by {} too", given.key, earlier.source);
            return Err(fault(message));
        }
        let (key, source) = (given.key.clone(), given.source.clone());
        self.entries.push(Entry { key, value, source, rule: None });
        Ok(())
    }

    /// What has no effect although nothing is wrong with it, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What is wrong with the rules of plugins, whether they are used or not.
    pub fn plugin_faults(&self) -> impl Iterator<Item = &Fault> {
        self.schema.faults.values()
    }

    /// All settings that there are.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// All that gives settings values, whether it holds or not: in order of keys, stronger ones first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The settings that are decided before layers are placed: those of the host, and of all plugins that may be used.
    ///
    /// # Errors
    /// Rules of one rank that disagree; [`Resolver::new`] finds those already.
    pub fn before_placement(&self, model: &ModelFacts) -> Result<Resolution, Faults> {
        let settings = self.schema.settings().filter(|setting| setting.stage == Stage::Placement);
        let decided = settings.map(|setting| self.decide(setting, model)).collect::<Result<_, _>>()?;
        Ok(Resolution { decided, unused: Vec::new(), without_effect: BTreeMap::new() })
    }

    /// All settings of a context: what was decided before stays, and the rest is decided by the facts. `strategies` are
    /// those that the context may use.
    ///
    /// # Errors
    /// Values that were given for this run and have no effect in this context; faulty rules of plugins that it uses.
    pub fn on_placement(
        &self,
        facts: &ContextFacts,
        strategies: &BTreeSet<String>,
        before: &Resolution,
    ) -> Result<Resolution, Faults> {
        let backends = facts.backends();
        let mut faults: Vec<Fault> = self
            .schema
            .faults
            .iter()
            .filter(|(id, _)| backends.contains(id.as_str()) || strategies.contains(*id))
            .map(|(_, fault)| fault.clone())
            .collect();
        let mut resolution =
            Resolution { decided: Vec::new(), unused: Vec::new(), without_effect: BTreeMap::new() };
        for setting in self.schema.settings() {
            if let Some(because) = without_effect(setting, &backends, strategies) {
                for entry in self.entries.iter().filter(|entry| entry.key == setting.key) {
                    if entry.source.is_for_this_run() && entry.value.is_some() {
                        let value = entry.candidate().text();
                        faults.push(Fault::new(format!(
                            "`{}` is {value} by {}, which has no effect: {because}",
                            entry.key, entry.source
                        )));
                    } else if entry.source.is_explicit() && entry.value.is_some() {
                        resolution.unused.push(Unused {
                            key: entry.key.clone(),
                            value: entry.value.clone(),
                            source: entry.source.clone(),
                            because: because.clone(),
                        });
                    }
                }
                resolution.without_effect.insert(setting.key.clone(), because);
                continue;
            }
            match before.get(&setting.key) {
                Some(decided) => resolution.decided.push(decided.clone()),
                None => match self.decide(setting, facts) {
                    Ok(decided) => resolution.decided.push(decided),
                    Err(fault) => faults.push(fault),
                },
            }
        }
        Faults::check(faults)?;
        Ok(resolution)
    }

    fn decide(&self, setting: &Setting, facts: &dyn Observe) -> Result<Decided, Fault> {
        let of_setting: Vec<&Entry> = self.entries.iter().filter(|it| it.key == setting.key).collect();
        let mut holding: Vec<&Entry> = Vec::new();
        let mut losers: Vec<(&Entry, Why)> = Vec::new();
        for entry in of_setting {
            let unmet = entry.rule.as_ref().and_then(|rule| rule.when.unmet(facts, &concern(rule, setting)));
            match unmet {
                _ if entry.value.is_none() => losers.push((entry, Why::NotSet)),
                Some(unmet) => {
                    losers.push((entry, Why::Unmet { condition: unmet.condition, actual: unmet.actual }));
                }
                None => holding.push(entry),
            }
        }
        let winner = strongest(&holding)?;
        for entry in holding {
            match winner {
                Some(winner) if std::ptr::eq(entry, winner) => {}
                Some(winner) => losers.push((entry, lost(entry, winner))),
                None => {}
            }
        }
        losers.sort_by(|(a, _), (b, _)| {
            (b.source.rank(), a.source.place()).cmp(&(a.source.rank(), b.source.place()))
        });
        let losers = losers.into_iter().map(|(it, why)| Loser { candidate: it.candidate(), why });
        let mut losers: Vec<Loser> = losers.collect();
        let default = default_of(setting);
        let winner = match winner {
            None => default,
            Some(winner) => {
                losers.push(Loser { candidate: default, why: Why::Weaker });
                winner.candidate()
            }
        };
        Ok(Decided {
            key: setting.key.clone(),
            owner: setting.owner.clone(),
            stage: setting.stage,
            unit: setting.unit.clone(),
            doc: setting.doc.clone(),
            winner,
            losers,
            default: setting.default.clone(),
        })
    }
}

/// Why nothing depends on a setting in this context; `None` if something does.
fn without_effect(
    setting: &Setting,
    backends: &BTreeSet<&str>,
    strategies: &BTreeSet<String>,
) -> Option<String> {
    match &setting.owner {
        Owner::Backend(id) if !backends.contains(id.as_str()) => Some(format!("`{id}` runs no layers here")),
        Owner::Strategy(id) if !strategies.contains(id) => Some(format!("`{id}` is not used here")),
        Owner::Host if setting.key.starts_with(SPECULATION) && strategies.is_empty() => {
            Some("no strategy is used here".to_owned())
        }
        _ => None,
    }
}

/// The layers that a rule is about. What a backend's own setting is about, that backend runs.
fn concern(rule: &Rule, setting: &Setting) -> Concern {
    let plugin = match &setting.owner {
        Owner::Backend(id) => Some(id.clone()),
        Owner::Host | Owner::Strategy(_) => None,
    };
    Concern { kind: rule.concerns, plugin }
}

/// Of all that holds, what has the highest rank; of rules, the exception to all others of that rank.
fn strongest<'e>(holding: &[&'e Entry]) -> Result<Option<&'e Entry>, Fault> {
    let Some(rank) = holding.iter().map(|entry| entry.source.rank()).max() else { return Ok(None) };
    let best: Vec<&Entry> = holding.iter().filter(|it| it.source.rank() == rank).copied().collect();
    let is_general = |entry: &Entry| best.iter().any(|other| is_narrower(other, entry));
    let mut special = best.iter().filter(|entry| !is_general(entry));
    let first = special.next();
    match first.and_then(|first| special.find(|other| other.value != first.value).map(|other| (first, other)))
    {
        None => Ok(first.copied()),
        Some((first, other)) => Err(Fault::new(format!(
            "`{}` is {} by {} and {} by {}, and neither is an exception to the other",
            first.key,
            first.candidate().text(),
            first.source,
            other.candidate().text(),
            other.source
        ))),
    }
}

fn is_narrower(entry: &Entry, other: &Entry) -> bool {
    matches!((&entry.rule, &other.rule), (Some(rule), Some(other)) if rule.is_narrower_than(other))
}

fn lost(entry: &Entry, winner: &Entry) -> Why {
    if entry.source.rank() != winner.source.rank() {
        Why::Weaker
    } else if is_narrower(winner, entry) {
        Why::LessSpecific
    } else if entry.value == winner.value {
        Why::Same
    } else {
        Why::LessSpecific
    }
}

fn default_of(setting: &Setting) -> Candidate {
    let value = match &setting.default {
        DefaultValue::Value(value) => Some(value.clone()),
        DefaultValue::Decided(_) => None,
    };
    let source = match setting.owner.plugin() {
        None => Source::BuiltIn,
        Some(plugin) => Source::PluginDefault { plugin: plugin.to_owned() },
    };
    Candidate { value, source, when: None, measured: None, untested: None }
}
