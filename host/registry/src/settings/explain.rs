//! Shows people, and programs, where settings got their values.

use std::fmt::Write;

use serde_json::{Value as Json, json};

use super::facts::{ContextFacts, DrafterPlace, LayerKind, Offer, Role, Split};
use super::fault::Fault;
use super::resolution::{Candidate, Decided, Loser, Resolution, Why};
use super::schema::{DefaultValue, Schema, stage_name};
use super::source::Source;
use super::table;

/// Conditions of a rule that stand in the table; the others are left to [`Report::why`].
const CONDITIONS_SHOWN: usize = 2;

/// One context and its settings, to be shown.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// The model's name.
    pub title: &'a str,
    /// The facts of the context.
    pub facts: &'a ContextFacts,
    /// Its settings.
    pub resolution: &'a Resolution,
    /// All settings that there are.
    pub schema: &'a Schema,
    /// Backends that run no layers, and why.
    pub not_used: &'a [(String, String)],
    /// Backends that may take the place of the one in use if it fails, in order.
    pub fallback: &'a [String],
    /// Strategies that the context uses.
    pub strategies: &'a [String],
    /// Strategies that it does not use, and why.
    pub refused: &'a [(String, String)],
}

impl Report<'_> {
    /// All settings as a table, with what they follow from.
    pub fn text(&self) -> String {
        let mut text = String::new();
        table::write(&mut text, &self.header());
        text.push('\n');
        let mut rows = vec![["setting", "value", "from", "instead of"].map(str::to_owned).to_vec()];
        rows.extend(self.resolution.settings().iter().map(|decided| self.row(decided)));
        table::write(&mut text, &rows);
        self.write_notes(&mut text);
        text
    }

    /// The same for programs, with every value that lost.
    pub fn json(&self) -> Json {
        let pairs = |pairs: &[(String, String)]| -> Json {
            pairs.iter().map(|(id, reason)| json!({ "id": id, "reason": reason })).collect()
        };
        let placement: Json = self
            .facts
            .spans()
            .into_iter()
            .map(|(range, offers)| {
                let devices: Json = offers
                    .iter()
                    .map(|it| json!({ "device": it.label, "backend": it.plugin, "version": it.version.to_string() }))
                    .collect();
                json!({ "first_layer": range.start, "last_layer": range.end - 1, "devices": devices })
            })
            .collect();
        let settings: Json = self
            .resolution
            .settings()
            .iter()
            .map(|decided| {
                json!({
                    "key": decided.key,
                    "plugin": decided.owner.plugin(),
                    "value": decided.winner.value,
                    "text": self.value(decided),
                    "stage": stage_name(decided.stage),
                    "from": decided.winner,
                    "instead_of": decided.losers,
                })
            })
            .collect();
        let model = self.facts.model();
        json!({
            "model": {
                "name": self.title,
                "arch": model.arch,
                "layers": model.layers.len(),
                "recurrent_layers": count(self.facts, LayerKind::Recurrent),
                "has_mtp": model.has_mtp,
                "has_trimmed_head": model.has_trimmed_head,
            },
            "placement": placement,
            "not_used": pairs(self.not_used),
            "fallback": self.fallback,
            "strategies": self.strategies,
            "refused": pairs(self.refused),
            "settings": settings,
            "overridden": self.resolution.overridden(),
            "without_effect": self.resolution.unused(),
        })
    }

    /// All about one setting.
    ///
    /// # Errors
    /// A setting that is not there.
    pub fn why(&self, key: &str) -> Result<String, Fault> {
        let setting = self.schema.get(key)?;
        let mut text = String::new();
        let decided = self.resolution.get(key);
        let _ = match decided {
            Some(it) => {
                writeln!(text, "{}", format!("{key} = {} {}", self.value(it), setting.unit).trim_end())
            }
            None => writeln!(text, "{key} has no effect in this context"),
        };
        let _ = writeln!(text, "{} It takes {}.", setting.doc, setting.takes);
        text.push('\n');
        let mut rows = decided.map(|decided| self.reasons(decided)).unwrap_or_default();
        if let Some(because) = self.resolution.without_effect.get(key) {
            rows.push(vec!["because".into(), because.clone()]);
        }
        for unused in self.resolution.unused().iter().filter(|unused| unused.key == key) {
            let value = unused.value.as_ref().map(ToString::to_string).unwrap_or_default();
            rows.push(vec!["ignored".into(), format!("{value} by {}", unused.source)]);
        }
        let stage = match setting.stage_name() {
            "placement" => "before layers are placed",
            "context" => "when the context is made, by what runs its layers",
            _ => "at any time",
        };
        rows.push(vec!["decided".into(), stage.into()]);
        rows.push(vec!["set it".into(), format!("--set {key}=VALUE, {}=VALUE", setting.variable())]);
        table::write(&mut text, &rows);
        Ok(text)
    }

    fn header(&self) -> Vec<Vec<String>> {
        let is_drafter = self.facts.model().role == Role::Drafter;
        let first = if is_drafter { "drafter" } else { "model" };
        let mut rows = vec![vec![first.into(), format!("{}: {}", self.title, model_text(self.facts))]];
        for (index, (range, offers)) in self.facts.spans().into_iter().enumerate() {
            let layers = match range.len() {
                1 => format!("layer {}", range.start),
                _ => format!("layers {}-{}", range.start, range.end - 1),
            };
            let devices: Vec<String> = offers.into_iter().map(offer_text).collect();
            let name = if index == 0 { "placement" } else { "" };
            let follows = is_drafter && self.facts.drafter_place == DrafterPlace::SameDevice;
            let follows = if follows { ", where the model is" } else { "" };
            rows.push(vec![name.into(), format!("{layers} on {}{follows}", devices.join(", "))]);
        }
        if self.facts.split == Split::Tensor {
            rows.push(vec![
                String::new(),
                format!("each layer split over {} devices", self.facts.group_size),
            ]);
        }
        for (id, reason) in self.not_used {
            rows.push(vec!["not used".into(), format!("{id}: {reason}")]);
        }
        if is_drafter {
            return rows;
        }
        if !self.fallback.is_empty() {
            rows.push(vec!["fallback".into(), self.fallback.join(", ")]);
        }
        let strategies =
            if self.strategies.is_empty() { "none".to_owned() } else { self.strategies.join(", ") };
        rows.push(vec!["strategies".into(), strategies]);
        for (id, reason) in self.refused {
            rows.push(vec!["refused".into(), format!("{id}: {reason}")]);
        }
        rows
    }

    fn row(&self, decided: &Decided) -> Vec<String> {
        let instead = match telling(decided) {
            Some(loser) => {
                let others = decided.losers.len() - 1;
                let more = if others == 0 { String::new() } else { format!(" and {others} more") };
                format!("{} ({}){more}", loser.candidate.text(), loser_text(loser))
            }
            None => "-".to_owned(),
        };
        vec![decided.key.clone(), self.value(decided), self.from(decided), instead]
    }

    /// The value, or what was made of it where nothing is set.
    fn value(&self, decided: &Decided) -> String {
        match (&decided.winner.value, decided.key.as_str()) {
            (None, "context") => self.facts.context.to_string(),
            _ => decided.winner.text(),
        }
    }

    fn from(&self, decided: &Decided) -> String {
        match (&decided.winner.value, &decided.default) {
            (None, DefaultValue::Decided(by)) => by.clone(),
            _ => source_text(&decided.winner, true),
        }
    }

    fn reasons(&self, decided: &Decided) -> Vec<Vec<String>> {
        let winner = &decided.winner;
        let mut rows = vec![vec!["from".to_owned(), self.full_source(decided)]];
        let mut say = |name: &str, text: &Option<String>| {
            if let Some(text) = text {
                rows.push(vec![name.to_owned(), text.clone()]);
            }
        };
        say("because", &winner.when);
        say("measured", &winner.measured);
        say("untested", &winner.untested);
        for loser in &decided.losers {
            let source = source_text(&loser.candidate, false);
            let reason =
                format!("{} by {source}: {}", loser.candidate.text(), reason(loser, &decided.winner));
            rows.push(vec!["instead of".to_owned(), reason]);
        }
        rows
    }

    fn full_source(&self, decided: &Decided) -> String {
        match (&decided.winner.value, &decided.default) {
            (None, DefaultValue::Decided(by)) => format!("built-in default: {by}"),
            _ => decided.winner.source.to_string(),
        }
    }

    /// What was asked for in vain, and what the rules that hold rest on.
    fn write_notes(&self, text: &mut String) {
        let overridden: Vec<Vec<String>> = self
            .resolution
            .overridden()
            .iter()
            .map(|it| vec!["overridden".to_owned(), it.to_string()])
            .collect();
        let unused = self.resolution.unused().iter().map(|it| {
            let value = it.value.as_ref().map(ToString::to_string).unwrap_or_default();
            vec!["no effect".to_owned(), format!("`{}` is {value} by {}: {}", it.key, it.source, it.because)]
        });
        let mut rows = overridden;
        rows.extend(unused);
        for decided in self.resolution.settings() {
            let mut say = |name: &str, what: &Option<String>| {
                if let Some(what) = what {
                    rows.push(vec![name.to_owned(), format!("{}: {what}", decided.key)]);
                }
            };
            say("measured", &decided.winner.measured);
            say("untested", &decided.winner.untested);
        }
        if !rows.is_empty() {
            text.push('\n');
            table::write(text, &rows);
        }
    }
}

/// The value that a reader would have expected: of those that held, the strongest other one, and else the first rule
/// that nearly held.
fn telling(decided: &Decided) -> Option<&Loser> {
    let other = |loser: &&Loser| loser.candidate.value != decided.winner.value;
    let held = |loser: &&Loser| !matches!(loser.why, Why::Unmet { .. } | Why::NotSet | Why::Same);
    let losers = || decided.losers.iter().filter(other);
    losers().find(held).or_else(|| losers().find(|loser| matches!(loser.why, Why::Unmet { .. })))
}

/// Where a loser comes from, and what is wrong with it if that does not follow from the winner.
fn loser_text(loser: &Loser) -> String {
    let source = &loser.candidate.source;
    match &loser.why {
        Why::Unmet { condition, actual } => format!("{source} needs {condition}, here {actual}"),
        Why::Refused { because } => format!("{source}, refused: {because}"),
        _ => source.to_string(),
    }
}

fn source_text(candidate: &Candidate, short: bool) -> String {
    let Some(when) = &candidate.when else { return candidate.source.to_string() };
    let mut conditions: Vec<&str> = when.split(", ").collect();
    if short && conditions.len() > CONDITIONS_SHOWN {
        conditions.truncate(CONDITIONS_SHOWN);
        conditions.push("…");
    }
    format!("{} ({})", candidate.source, conditions.join(", "))
}

fn reason(loser: &Loser, winner: &Candidate) -> String {
    match &loser.why {
        Why::Unmet { condition, actual } => format!("it needs {condition}, and that is {actual} here"),
        Why::Weaker => match winner.source {
            Source::BuiltIn | Source::PluginDefault { .. } => "weaker".to_owned(),
            _ => format!("{} is stronger", winner.source),
        },
        Why::LessSpecific => format!("{} has more conditions", winner.source),
        Why::Same => "it says the same".to_owned(),
        Why::NotSet => "auto means not set".to_owned(),
        Why::Refused { because } => format!("refused: {because}"),
    }
}

fn offer_text(offer: &Offer) -> String {
    format!("{} ({} {})", offer.label, offer.plugin, offer.version)
}

fn count(facts: &ContextFacts, kind: LayerKind) -> usize {
    facts.model().layers.iter().filter(|it| **it == kind).count()
}

fn model_text(facts: &ContextFacts) -> String {
    let model = facts.model();
    let layers = model.layers.len();
    let recurrent = count(facts, LayerKind::Recurrent);
    let kinds = match recurrent {
        0 => String::new(),
        _ => format!(" ({recurrent} recurrent, {} attention)", layers - recurrent),
    };
    let head = match (model.has_mtp, model.has_trimmed_head) {
        (false, _) => "",
        (true, false) => ", MTP head",
        (true, true) => ", trimmed MTP head",
    };
    format!("{}, {layers} layers{kinds}{head}", model.arch)
}
