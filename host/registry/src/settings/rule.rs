//! Rules: defaults that hold where their conditions do.

use toml::Spanned;
use toml::de::DeValue;

use super::facts::LayerKind;
use super::fault::{Fault, nearest_or_all};
use super::source::Place;
use super::toml_text::Text;
use super::value::{AUTO, Value};
use super::when::When;

const KEYS: [&str; 6] = ["set", "value", "when", "concerns", "measured", "untested"];

/// A rule as it is written. Whether the setting takes the value, the schema knows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule {
    /// Key of the setting.
    pub set: String,
    /// The value that it gets.
    pub value: Value,
    /// When it gets it.
    pub when: When,
    /// The layers whose devices count; all if `None`.
    pub concerns: Option<LayerKind>,
    /// What shows that the rule is right.
    pub measured: Option<String>,
    /// What nobody tried.
    pub untested: Option<String>,
    /// Where the rule begins.
    pub place: Place,
    /// Where its key stands.
    pub set_place: Place,
    /// Where its value stands.
    pub value_place: Place,
    /// Where its conditions stand.
    pub when_place: Place,
}

impl Rule {
    /// Whether this rule is the exception to another one: it asks for all that the other one asks for, and for more.
    pub(super) fn is_narrower_than(&self, other: &Self) -> bool {
        self.concerns == other.concerns && self.when.is_narrower_than(&other.when)
    }

    /// Whether both can hold in some context.
    pub(super) fn can_hold_with(&self, other: &Self) -> bool {
        // All devices are those of recurrent layers too, while those of attention layers may be others.
        let share_devices =
            self.concerns == other.concerns || self.concerns.is_none() || other.concerns.is_none();
        !self.when.excludes(&other.when, share_devices)
    }
}

/// Reads the list behind `rule`.
pub(super) fn read_rules(text: &Text<'_>, value: &Spanned<DeValue<'_>>) -> Result<Vec<Rule>, Fault> {
    let list = value.get_ref().as_array().ok_or_else(|| {
        text.fault(value.span().start, "`rule` takes a list of tables, which are written as `[[rule]]`")
    })?;
    list.iter().map(|rule| read_rule(text, rule)).collect()
}

/// Reads one rule.
pub(super) fn read_rule(text: &Text<'_>, value: &Spanned<DeValue<'_>>) -> Result<Rule, Fault> {
    let table = text.table("rule", value)?;
    text.only(table, " in a rule", &KEYS)?;
    let missing = |key: &str| text.fault(value.span().start, format!("the rule has no `{key}`"));
    let needed = |key: &str| table.get(key).ok_or_else(|| missing(key));
    let optional = |key: &str| table.get(key).map(|value| text.string(key, value)).transpose();

    let (set, given, when) = (needed("set")?, needed("value")?, needed("when")?);
    let read = text.value("value", given)?;
    if read == Value::Text(AUTO.to_owned()) {
        let message = format!("`{AUTO}` means not set, so the rule would do nothing");
        return Err(text.fault(given.span().start, message));
    }
    let concerns = match table.get("concerns") {
        None => None,
        Some(value) => match text.string("concerns", value)?.as_str() {
            "all" => None,
            "recurrent" => Some(LayerKind::Recurrent),
            "attention" => Some(LayerKind::Attention),
            other => {
                let hint = nearest_or_all(other, &["all", "recurrent", "attention"]);
                let message = format!("`concerns` cannot be `{other}`{hint}");
                return Err(text.fault(value.span().start, message));
            }
        },
    };
    Ok(Rule {
        set: text.string("set", set)?,
        value: read,
        when: When::read(text, when)?,
        concerns,
        measured: optional("measured")?,
        untested: optional("untested")?,
        place: text.place(value.span().start),
        set_place: text.place(set.span().start),
        value_place: text.place(given.span().start),
        when_place: text.place(when.span().start),
    })
}
