//! What came of settings: values, and the whole way to them.

use std::collections::BTreeMap;
use std::fmt;

use paceline_plugin_api::settings::Stage;
use serde::Serialize;

use super::fault::Fault;
use super::schema::{DefaultValue, Owner};
use super::source::Source;
use super::value::{AUTO, Value};

/// The values of all settings that have an effect in one context.
#[derive(Clone, Debug)]
pub struct Resolution {
    pub(super) decided: Vec<Decided>,
    pub(super) unused: Vec<Unused>,
    /// Why settings that are there have no effect in this context.
    pub(super) without_effect: BTreeMap<String, String>,
}

/// A setting with its value and where that comes from.
#[derive(Clone, Debug)]
pub struct Decided {
    /// Key with the plugin's id in front.
    pub key: String,
    /// Whose setting it is.
    pub owner: Owner,
    /// When it was decided.
    pub stage: Stage,
    /// Unit of a number, or empty.
    pub unit: String,
    /// One sentence.
    pub doc: String,
    /// What won.
    pub winner: Candidate,
    /// What lost, the strongest first.
    pub losers: Vec<Loser>,
    /// The default, and what it follows from.
    pub(super) default: DefaultValue,
}

/// A value that a source gives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The value; `None` for `auto`.
    pub value: Option<Value>,
    /// Where it comes from.
    pub source: Source,
    /// The conditions of a rule, as text.
    pub when: Option<String>,
    /// What shows that a rule is right.
    pub measured: Option<String>,
    /// What nobody tried.
    pub untested: Option<String>,
}

/// A value that did not win.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loser {
    /// The value and its source.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// Why it lost.
    pub why: Why,
}

/// Why a value did not win.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Why {
    /// A condition of the rule does not hold.
    Unmet {
        /// The condition.
        condition: String,
        /// What the fact is.
        actual: String,
    },
    /// A stronger source has a value.
    Weaker,
    /// Another rule of the same rank has more conditions.
    LessSpecific,
    /// Another rule of the same rank says the same.
    Same,
    /// It is `auto`.
    NotSet,
    /// It cannot be done here.
    Refused {
        /// The reason.
        because: String,
    },
}

/// A value for a setting that has no effect in this context.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unused {
    /// The setting.
    pub key: String,
    /// The value.
    pub value: Option<Value>,
    /// Where it comes from.
    pub source: Source,
    /// Why it has no effect.
    pub because: String,
}

/// A value that somebody asked for and that a stronger source overrides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overridden {
    /// The setting.
    pub key: String,
    /// What counts.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
    /// What does not count.
    pub instead_of: String,
    /// Where that comes from.
    pub overridden: Source,
}

impl fmt::Display for Overridden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, source, instead_of, overridden } = self;
        write!(f, "`{key}` is {value} by {source}; {instead_of} by {overridden} is overridden")
    }
}

impl Resolution {
    /// Leaves only what a plugin's own settings came to, for a drafter whose facts are others than the target's.
    pub fn keep_only(&mut self, plugin: &str) {
        let is_own = |key: &str| key.strip_prefix(plugin).is_some_and(|rest| rest.starts_with('.'));
        self.decided.retain(|decided| is_own(&decided.key));
        self.unused.retain(|unused| is_own(&unused.key));
        self.without_effect.retain(|key, _| is_own(key));
    }

    /// Takes out what a plugin's own settings came to.
    pub fn leave_to(&mut self, plugin: &str) {
        self.decided.retain(|decided| decided.owner.plugin() != Some(plugin));
    }

    /// All settings in order of their keys.
    pub fn settings(&self) -> &[Decided] {
        &self.decided
    }

    /// One setting; `None` if it has no effect in this context.
    pub fn get(&self, key: &str) -> Option<&Decided> {
        self.decided.iter().find(|decided| decided.key == key)
    }

    /// A value; `None` if the setting has no effect in this context, or is `auto`.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.get(key)?.winner.value.as_ref()
    }

    /// What a plugin gets: keys without its id, and values as text. Its own defaults are left to it.
    pub fn settings_of(&self, plugin: &str) -> Vec<(String, String)> {
        let of_plugin = self.decided.iter().filter(|it| it.owner.plugin() == Some(plugin));
        let set = of_plugin.filter(|it| it.winner.source.rank() > 0);
        set.filter_map(|it| {
            let key = it.key.strip_prefix(plugin)?.strip_prefix('.')?;
            Some((key.to_owned(), it.winner.value.as_ref()?.to_string()))
        })
        .collect()
    }

    /// What somebody asked for and a stronger source overrides; to be logged as warnings.
    pub fn overridden(&self) -> Vec<Overridden> {
        let all = self.decided.iter().flat_map(|it| it.losers.iter().map(move |loser| (it, loser)));
        all.filter(|(it, loser)| {
            loser.why == Why::Weaker
                && loser.candidate.source.is_explicit()
                && loser.candidate.value != it.winner.value
        })
        .map(|(it, loser)| Overridden {
            key: it.key.clone(),
            value: it.winner.text(),
            source: it.winner.source.clone(),
            instead_of: loser.candidate.text(),
            overridden: loser.candidate.source.clone(),
        })
        .collect()
    }

    /// Values for settings that have no effect here, such as those of backends that run no layers.
    pub fn unused(&self) -> &[Unused] {
        &self.unused
    }

    /// Says that the value of a setting cannot be had. If nobody asked for exactly this value, the next one counts,
    /// and the reason is kept for `explain`. To be called until it is a value that can be had.
    ///
    /// # Errors
    /// A value that somebody asked for, or one without an alternative.
    pub fn refuse(&mut self, key: &str, because: &str) -> Result<(), Fault> {
        let Some(decided) = self.decided.iter_mut().find(|decided| decided.key == key) else { return Ok(()) };
        let cannot = |winner: &Candidate| {
            let from = format!("`{key}` is {} by {}", winner.text(), winner.source);
            let message = format!("{from}, which cannot be had here: {because}");
            winner.source.place().map_or_else(|| Fault::new(&message), |place| Fault::at(place, &message))
        };
        if decided.winner.source.is_explicit() {
            return Err(cannot(&decided.winner));
        }
        let refused = decided.winner.value.clone();
        let Some(next) = decided.alternative() else { return Err(cannot(&decided.winner)) };
        let next = decided.losers.remove(next).candidate;
        let refused_winner = std::mem::replace(&mut decided.winner, next);
        // Others that say the same are refused with it.
        for loser in &mut decided.losers {
            if matches!(loser.why, Why::Weaker | Why::LessSpecific | Why::Same)
                && loser.candidate.value == refused
            {
                loser.why = Why::Refused { because: because.to_owned() };
            }
        }
        let why = Why::Refused { because: because.to_owned() };
        decided.losers.insert(0, Loser { candidate: refused_winner, why });
        Ok(())
    }
}

impl Decided {
    /// The loser that would count if the winner's value could not be had.
    fn alternative(&self) -> Option<usize> {
        self.losers.iter().position(|loser| {
            matches!(loser.why, Why::Weaker | Why::LessSpecific) && loser.candidate.value != self.winner.value
        })
    }

    /// Whether [`Resolution::refuse`] would find another value: nobody asked for exactly this one, and there is one.
    pub fn can_be_refused(&self) -> bool {
        !self.winner.source.is_explicit() && self.alternative().is_some()
    }
}

impl Candidate {
    /// The value as text.
    pub fn text(&self) -> String {
        self.value.as_ref().map_or_else(|| AUTO.to_owned(), Value::to_string)
    }
}
