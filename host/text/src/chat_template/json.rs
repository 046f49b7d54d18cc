//! The filter `tojson`, which writes what Python's `json.dumps` writes.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::python;

const MAX_DEPTH: usize = 128;
/// Bytes written between two payments.
const BYTES_PER_PAYMENT: usize = 4096;
const BYTES_PER_STEP: usize = 16;

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, as
/// transformers defines it.
pub(super) fn tojson(
    state: &State,
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let named = |name: &str| kwargs.get::<Option<Value>>(name);
    let ensure_ascii = ensure_ascii.map_or_else(|| named("ensure_ascii"), |value| Ok(Some(value)))?;
    let indent = indent.map_or_else(|| named("indent"), |value| Ok(Some(value)))?;
    let separators = named("separators")?.filter(|value| !value.is_none());
    let sort_keys = named("sort_keys")?;
    kwargs.assert_all_used()?;

    let indent = indent.filter(|value| !value.is_none()).map(|value| indent_text(&value)).transpose()?;
    let separators = match separators {
        Some(pair) => (separator(&pair, 0)?, separator(&pair, 1)?),
        None if indent.is_some() => (",".into(), ": ".into()),
        None => (", ".into(), ": ".into()),
    };
    let mut writer = Writer {
        state,
        ensure_ascii: ensure_ascii.is_some_and(|value| value.is_true()),
        sort_keys: sort_keys.is_some_and(|value| value.is_true()),
        indent,
        separators,
        text: String::new(),
        paid: 0,
    };
    writer.write(value, 0)?;
    Ok(Value::from(writer.text))
}

fn indent_text(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.into());
    }
    let columns = if value.kind() == ValueKind::Bool {
        i64::from(value.is_true())
    } else {
        value.as_i64().unwrap_or(-1)
    };
    match columns {
        // Python takes a negative number for 0 as well.
        ..=0 if value.as_i64().is_some() || value.kind() == ValueKind::Bool => Ok(String::new()),
        1..=64 => Ok(" ".repeat(columns as usize)),
        _ => Err(refused("the indent of tojson must be a text or a number of at most 64")),
    }
}

fn separator(pair: &Value, index: usize) -> Result<String, Error> {
    let part = pair.get_item_by_index(index).ok();
    let text = part.as_ref().and_then(Value::as_str);
    text.map(String::from).ok_or_else(|| refused("the separators of tojson must be two texts"))
}

struct Writer<'a, 'template, 'env> {
    state: &'a State<'template, 'env>,
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    /// Between items, and between key and value.
    separators: (String, String),
    text: String,
    paid: usize,
}

impl Writer<'_, '_, '_> {
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if self.text.len() - self.paid >= BYTES_PER_PAYMENT {
            self.state.consume_fuel(((self.text.len() - self.paid) / BYTES_PER_STEP) as u64)?;
            self.paid = self.text.len();
        }
        match value.kind() {
            ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self.text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.text.push_str(&number(value)),
            ValueKind::String => self.write_text(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                self.write_items('[', ']', depth, value.try_iter()?.checked(), Writer::write)?;
            }
            ValueKind::Map => self.write_map(value, depth)?,
            kind => return Err(refused(&format!("a value of the kind {kind} cannot be written as JSON"))),
        }
        Ok(())
    }

    fn write_map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut fields = Vec::new();
        for key in value.try_iter()?.checked() {
            let key = key?;
            let field = value.get_item(&key)?;
            fields.push((key_text(&key)?, field));
        }
        if self.sort_keys {
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        self.write_items('{', '}', depth, fields.into_iter().map(Ok), |writer, (key, field), depth| {
            writer.write_text(key);
            let separator = writer.separators.1.clone();
            writer.text.push_str(&separator);
            writer.write(field, depth)
        })
    }

    fn write_items<T>(
        &mut self,
        open: char,
        close: char,
        depth: usize,
        items: impl Iterator<Item = Result<T, Error>>,
        write_item: impl Fn(&mut Self, &T, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if depth >= MAX_DEPTH {
            return Err(refused("the value is nested too deeply to be written as JSON"));
        }
        self.text.push(open);
        let mut is_empty = true;
        for item in items {
            if !is_empty {
                let separator = self.separators.0.clone();
                self.text.push_str(&separator);
            }
            is_empty = false;
            self.new_line(depth + 1);
            write_item(self, &item?, depth + 1)?;
        }
        if !is_empty {
            self.new_line(depth);
        }
        self.text.push(close);
        Ok(())
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn write_text(&mut self, text: &str) {
        self.text.push('"');
        for character in text.chars() {
            match character {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                ' '..='~' => self.text.push(character),
                _ if self.ensure_ascii || character < ' ' => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        self.text.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                _ => self.text.push(character),
            }
        }
        self.text.push('"');
    }
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(float) if float.is_nan() => "NaN".into(),
        Ok(float) if float.is_infinite() => if float > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        Ok(float) => python::float_text(float),
        Err(_) => value.to_string(),
    }
}

/// Keys that are no text are written as JSON and become text.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().into()),
        ValueKind::None => Ok("null".into()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.into()),
        ValueKind::Number => Ok(number(key)),
        kind => Err(refused(&format!("a key of the kind {kind} cannot be written as JSON"))),
    }
}

fn refused(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.to_owned())
}
