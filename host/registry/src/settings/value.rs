//! Values of settings, and which ones a setting takes.

use std::fmt;

use serde::{Serialize, Serializer};

/// The word that stands for "not set": what is weaker decides.
pub const AUTO: &str = "auto";

/// A value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A switch.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
    /// A word.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(true) => f.write_str("on"),
            Self::Bool(false) => f.write_str("off"),
            Self::Integer(number) => number.fmt(f),
            Self::Float(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bool(switch) => serializer.serialize_bool(*switch),
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

/// The values that a setting takes.
#[derive(Clone, Debug, PartialEq)]
pub enum Takes {
    /// A switch.
    Bool,
    /// Whole numbers.
    Integer {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// Numbers.
    Float {
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
    },
    /// One of several words.
    Choice(Vec<String>),
    /// One of several words, or two of them with `/` between.
    Pair(Vec<String>),
}

impl Takes {
    /// Reads a value as it is typed.
    ///
    /// # Errors
    /// What the setting takes instead, as `it takes …`.
    pub fn read(&self, text: &str) -> Result<Value, String> {
        let value = match self {
            Self::Bool | Self::Choice(_) | Self::Pair(_) => Some(Value::Text(text.to_owned())),
            Self::Integer { .. } => text.parse().ok().map(Value::Integer),
            Self::Float { .. } => text.parse().ok().map(Value::Float),
        };
        value.map_or_else(|| Err(format!("it takes {self}")), |value| self.fit(value))
    }

    /// The value if the setting takes it; words for a switch and whole numbers for numbers are turned into those.
    ///
    /// # Errors
    /// As [`Takes::read`].
    pub fn fit(&self, value: Value) -> Result<Value, String> {
        let known = |options: &[String], word: &str| options.iter().any(|option| option == word);
        let fits = match (self, value) {
            (Self::Bool, Value::Bool(switch)) => Some(Value::Bool(switch)),
            (Self::Bool, Value::Text(text)) => match text.as_str() {
                "on" | "true" => Some(Value::Bool(true)),
                "off" | "false" => Some(Value::Bool(false)),
                _ => None,
            },
            (Self::Integer { min, max }, Value::Integer(number)) => {
                (*min..=*max).contains(&number).then_some(Value::Integer(number))
            }
            (Self::Float { min, max }, Value::Float(number)) => {
                (*min..=*max).contains(&number).then_some(Value::Float(number))
            }
            (Self::Float { .. }, Value::Integer(number)) => return self.fit(Value::Float(number as f64)),
            (Self::Choice(options), Value::Text(text)) => known(options, &text).then_some(Value::Text(text)),
            (Self::Pair(options), Value::Text(text)) => {
                let (first, second) = text.split_once('/').unwrap_or((&text, &text));
                (known(options, first) && known(options, second)).then_some(Value::Text(text))
            }
            // A switch with words of its own may be written as one.
            (Self::Choice(_), Value::Bool(switch)) => {
                return self.fit(Value::Text(Value::Bool(switch).to_string()));
            }
            _ => None,
        };
        fits.ok_or_else(|| format!("it takes {self}"))
    }

    /// As [`Takes::fit`], for a value of a file, where a number in quotes is a text.
    ///
    /// # Errors
    /// As [`Takes::read`].
    pub(super) fn fit_written(&self, value: Value) -> Result<Value, String> {
        let is_quoted = matches!(&value, Value::Text(text) if text.parse::<f64>().is_ok());
        let is_number = matches!(self, Self::Integer { .. } | Self::Float { .. });
        let quotes = if is_quoted && is_number { ", without quotes" } else { "" };
        self.fit(value).map_err(|takes| takes + quotes)
    }
}

impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("on or off"),
            Self::Integer { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Float { min, max } => write!(f, "a number from {min} to {max}"),
            Self::Choice(options) => write!(f, "one of {}", options.join(", ")),
            Self::Pair(options) => write!(f, "one of {}, or two of them as `A/B`", options.join(", ")),
        }
    }
}
