//! Reads TOML that people write, so that every fault knows its line and column.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{Fault, nearest_or_all};
use super::source::Place;
use super::value::Value;
use crate::descriptor::line_and_column;

/// A text with the name of its file.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    pub file: &'a str,
    pub text: &'a str,
}

impl<'a> Text<'a> {
    /// The whole text as a table.
    pub(super) fn parse(&self) -> Result<Spanned<DeTable<'a>>, Fault> {
        DeTable::parse(self.text).map_err(|error| {
            // The parser explains itself on several lines.
            let lines = error.message().lines().map(str::trim).filter(|line| !line.is_empty());
            let message = lines.collect::<Vec<_>>().join(", ");
            self.fault(error.span().map_or(0, |span| span.start), message)
        })
    }

    /// The place of a byte.
    pub(super) fn place(&self, at: usize) -> Place {
        let (line, column) = line_and_column(self.text, at);
        Place { file: self.file.to_owned(), line, column }
    }

    /// A fault at a byte.
    pub(super) fn fault(&self, at: usize, message: impl Into<String>) -> Fault {
        Fault { place: Some(self.place(at)), message: message.into() }
    }

    /// Makes sure that a table has no other keys than these. `of` says in a word whose keys they are.
    pub(super) fn only(&self, table: &DeTable<'_>, of: &str, known: &[&str]) -> Result<(), Fault> {
        // In the order of the text, not of the keys.
        let strange = table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        match strange.min_by_key(|key| key.span().start) {
            None => Ok(()),
            Some(key) => {
                let name = key.get_ref();
                let hint = nearest_or_all(name, known);
                Err(self.fault(key.span().start, format!("the key `{name}` is not known{of}{hint}")))
            }
        }
    }

    /// A value as a table.
    pub(super) fn table<'t, 'i>(
        &self,
        name: &str,
        value: &'t Spanned<DeValue<'i>>,
    ) -> Result<&'t DeTable<'i>, Fault> {
        value.get_ref().as_table().ok_or_else(|| self.wrong(name, "a table", value))
    }

    /// A value as text.
    pub(super) fn string(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<String, Fault> {
        let text = value.get_ref().as_str().map(str::to_owned);
        text.ok_or_else(|| self.wrong(name, "text in quotes", value))
    }

    /// A value as a list of texts.
    pub(super) fn strings(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, Fault> {
        let list = value.get_ref().as_array().ok_or_else(|| self.wrong(name, "a list of texts", value))?;
        list.iter().map(|item| self.string(name, item)).collect()
    }

    /// A value as a switch.
    pub(super) fn flag(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<bool, Fault> {
        value.get_ref().as_bool().ok_or_else(|| self.wrong(name, "true or false", value))
    }

    /// A value that a setting may have.
    pub(super) fn value(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<Value, Fault> {
        let read = match value.get_ref() {
            DeValue::Boolean(flag) => Some(Value::Bool(*flag)),
            DeValue::Integer(_) => whole_number(value).map(Value::Integer),
            DeValue::Float(number) => number.as_str().replace('_', "").parse().ok().map(Value::Float),
            DeValue::String(text) => Some(Value::Text(text.to_string())),
            _ => None,
        };
        read.ok_or_else(|| self.wrong(name, "a value of a setting", value))
    }

    /// A value of the wrong type.
    pub(super) fn wrong(&self, name: &str, takes: &str, value: &Spanned<DeValue<'_>>) -> Fault {
        self.fault(value.span().start, format!("`{name}` takes {takes}, not {}", kind_of(value)))
    }
}

/// A whole number.
pub(super) fn whole_number(value: &Spanned<DeValue<'_>>) -> Option<i64> {
    let number = value.get_ref().as_integer()?;
    i64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
}

/// What a value is, in words.
pub(super) fn kind_of(value: &Spanned<DeValue<'_>>) -> String {
    match value.get_ref() {
        DeValue::String(text) => format!("the text `{}`", text.escape_debug()),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
