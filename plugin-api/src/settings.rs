//! What a user may set: declared with type, range, unit, default and a sentence; read from text.

use crate::error::{Error, Result};
use std::fmt;

/// The type of a setting, with its default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SettingType {
    /// A switch.
    Bool {
        /// Value when not set.
        default: bool,
    },
    /// A whole number.
    Integer {
        /// Value when not set.
        default: i64,
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// A number.
    Float {
        /// Value when not set.
        default: f64,
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
    },
    /// One of several words; the first is the default.
    Choice {
        /// The words.
        options: &'static [&'static str],
    },
}

/// When a setting is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Before layers are placed.
    Placement,
    /// When a context is made.
    Context,
    /// At any time.
    Run,
}

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Key without the plugin's name.
    pub key: &'static str,
    /// Type, range and default.
    pub kind: SettingType,
    /// When it is decided.
    pub stage: Stage,
    /// Unit of a number, or empty.
    pub unit: &'static str,
    /// One sentence.
    pub doc: &'static str,
}

/// A value that fits its setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SettingValue {
    /// A switch.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
    /// A word.
    Choice(&'static str),
}

/// The values of a schema: what was given, defaults elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    values: Vec<(&'static str, SettingValue)>,
}

impl Settings {
    /// Reads texts against a schema.
    ///
    /// # Errors
    /// A key that is not in the schema (with the nearest one), a key given twice, a value of the wrong type or out
    /// of range.
    pub fn read(schema: &[Setting], given: &[(String, String)]) -> Result<Settings> {
        for (index, (key, _)) in given.iter().enumerate() {
            if given[..index].iter().any(|(earlier, _)| earlier == key) {
                return Err(Error::invalid(format!("setting `{key}` is given twice")));
            }
            if !schema.iter().any(|s| s.key == key) {
                let hint = nearest(key, schema.iter().map(|s| s.key))
                    .map(|near| format!("; did you mean `{near}`?"))
                    .unwrap_or_default();
                return Err(Error::invalid(format!("setting `{key}` is not known{hint}")));
            }
        }
        let values = schema
            .iter()
            .map(|setting| {
                let text = given.iter().find(|(key, _)| key == setting.key).map(|(_, text)| text.as_str());
                Ok((setting.key, setting.value(text)?))
            })
            .collect::<Result<_>>()?;
        Ok(Settings { values })
    }

    fn value(&self, key: &str) -> Option<SettingValue> {
        self.values.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    /// A switch; false for a key that the schema does not have as one.
    pub fn bool(&self, key: &str) -> bool {
        matches!(self.value(key), Some(SettingValue::Bool(true)))
    }

    /// A whole number; 0 for a key that the schema does not have as one.
    pub fn integer(&self, key: &str) -> i64 {
        match self.value(key) {
            Some(SettingValue::Integer(value)) => value,
            _ => 0,
        }
    }

    /// A number; 0 for a key that the schema does not have as one.
    pub fn float(&self, key: &str) -> f64 {
        match self.value(key) {
            Some(SettingValue::Float(value)) => value,
            _ => 0.0,
        }
    }

    /// A word; empty for a key that the schema does not have as one.
    pub fn choice(&self, key: &str) -> &'static str {
        match self.value(key) {
            Some(SettingValue::Choice(value)) => value,
            _ => "",
        }
    }
}

impl Setting {
    /// The value of a text, or the default for `None`.
    ///
    /// # Errors
    /// A text that does not fit, with what would.
    pub fn value(&self, text: Option<&str>) -> Result<SettingValue> {
        let fault = |text: &str| {
            Error::invalid(format!("setting `{}` cannot be `{text}`; it takes {}", self.key, self.kind))
        };
        let Some(text) = text else {
            return Ok(self.default_value());
        };
        match self.kind {
            SettingType::Bool { .. } => match text {
                "true" | "on" => Ok(SettingValue::Bool(true)),
                "false" | "off" => Ok(SettingValue::Bool(false)),
                _ => Err(fault(text)),
            },
            SettingType::Integer { min, max, .. } => text
                .parse()
                .ok()
                .filter(|v| (min..=max).contains(v))
                .map(SettingValue::Integer)
                .ok_or_else(|| fault(text)),
            SettingType::Float { min, max, .. } => text
                .parse()
                .ok()
                .filter(|v| (min..=max).contains(v))
                .map(SettingValue::Float)
                .ok_or_else(|| fault(text)),
            SettingType::Choice { options } => options
                .iter()
                .find(|&&option| option == text)
                .map(|&option| SettingValue::Choice(option))
                .ok_or_else(|| fault(text)),
        }
    }

    fn default_value(&self) -> SettingValue {
        match self.kind {
            SettingType::Bool { default } => SettingValue::Bool(default),
            SettingType::Integer { default, .. } => SettingValue::Integer(default),
            SettingType::Float { default, .. } => SettingValue::Float(default),
            SettingType::Choice { options } => SettingValue::Choice(options.first().copied().unwrap_or("")),
        }
    }
}

impl fmt::Display for SettingType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool { .. } => f.write_str("on or off"),
            Self::Integer { min, max, .. } => write!(f, "a whole number from {min} to {max}"),
            Self::Float { min, max, .. } => write!(f, "a number from {min} to {max}"),
            Self::Choice { options } => write!(f, "one of {}", options.join(", ")),
        }
    }
}

/// The candidate nearest to a mistyped word, if any is near (at most a third of its letters differ).
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, candidate)| distance * 3 <= candidate.chars().count().max(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &[Setting] = &[
        Setting {
            key: "threads",
            kind: SettingType::Integer { default: 0, min: 0, max: 512 },
            stage: Stage::Placement,
            unit: "threads",
            doc: "Threads.",
        },
        Setting {
            key: "level",
            kind: SettingType::Choice { options: &["auto", "scalar"] },
            stage: Stage::Placement,
            unit: "",
            doc: "Level.",
        },
    ];

    fn read(given: &[(&str, &str)]) -> Result<Settings> {
        let given: Vec<_> = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Settings::read(SCHEMA, &given)
    }

    #[test]
    fn defaults_and_given_values() {
        let settings = read(&[("threads", "3")]).unwrap();
        assert_eq!((settings.integer("threads"), settings.choice("level")), (3, "auto"));
    }

    #[test]
    fn wrong_settings_are_named() {
        let message = |given: &[(&str, &str)]| read(given).unwrap_err().message;
        assert_eq!(message(&[("thread", "3")]), "setting `thread` is not known; did you mean `threads`?");
        assert_eq!(message(&[("banana", "3")]), "setting `banana` is not known");
        assert_eq!(
            message(&[("threads", "-1")]),
            "setting `threads` cannot be `-1`; it takes a whole number from 0 to 512"
        );
        assert_eq!(
            message(&[("level", "avx")]),
            "setting `level` cannot be `avx`; it takes one of auto, scalar"
        );
        assert_eq!(message(&[("level", "auto"), ("level", "auto")]), "setting `level` is given twice");
    }
}
