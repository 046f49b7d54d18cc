//! What templates expect of Python's values and the engine does not have.

use minijinja::value::{ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

const MAX_WIDTH_DIGITS: usize = 3;
const STEPS_PER_FIELD: u64 = 16;

/// A method of a value.
pub(super) fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        if value.kind() == ValueKind::Seq && name == "index" {
            let (wanted,): (&Value,) = from_args(args)?;
            return position(value, wanted);
        }
        return unknown_method_callback(state, value, name, args);
    };
    match name {
        // Python strips and splits at a few more characters than Rust.
        "strip" | "lstrip" | "rstrip" if is_unset(args) => Ok(Value::from(match name {
            "strip" => text.trim_matches(is_space),
            "lstrip" => text.trim_start_matches(is_space),
            _ => text.trim_end_matches(is_space),
        })),
        "split" if is_unset(args) => {
            Ok(text.split(is_space).filter(|word| !word.is_empty()).map(Value::from).collect())
        }
        "format" => {
            pay_for_format(state, text)?;
            unknown_method_callback(state, value, name, args)
        }
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(args)?;
            Ok(lines(text, keep_ends.unwrap_or(false)))
        }
        "rsplit" => {
            let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
            rsplit(text, separator, most)
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            partition(text, separator, name == "rpartition")
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "index" => {
            let (wanted,): (&str,) = from_args(args)?;
            let place = text.find(wanted).ok_or_else(|| refused("the text to look for is not there"))?;
            Ok(Value::from(text[..place].chars().count()))
        }
        _ => unknown_method_callback(state, value, name, args),
    }
}

fn is_unset(args: &[Value]) -> bool {
    matches!(args, []) || matches!(args, [only] if only.is_none())
}

/// What `str.isspace` takes for white space.
fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

/// The engine does not count what `str.format` writes, which a width makes as long as one likes.
fn pay_for_format(state: &State, format: &str) -> Result<(), Error> {
    let fields = format.matches('{').count();
    // Two opening brackets in a row stand for one that is text.
    let mut open = 0;
    let is_nested = format.replace("{{", "").chars().any(|character| {
        open = match character {
            '{' => open + 1,
            '}' => 0,
            _ => open,
        };
        open > 1
    });
    let longest_number = format.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap_or(0);
    if is_nested || longest_number > MAX_WIDTH_DIGITS {
        return Err(refused("a width in the text to format is too large, or a field itself"));
    }
    state.consume_fuel(fields as u64 * STEPS_PER_FIELD)
}

fn lines(text: &str, keep_ends: bool) -> Value {
    let ends_line = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(ends_line) {
        let end_length = if rest[end..].starts_with("\r\n") {
            2
        } else {
            rest[end..].chars().next().map_or(1, char::len_utf8)
        };
        let with_end = end + end_length;
        lines.push(Value::from(&rest[..if keep_ends { with_end } else { end }]));
        rest = &rest[with_end..];
    }
    if !rest.is_empty() {
        lines.push(Value::from(rest));
    }
    Value::from(lines)
}

fn position(list: &Value, wanted: &Value) -> Result<Value, Error> {
    for (index, item) in list.try_iter()?.checked().enumerate() {
        if item? == *wanted {
            return Ok(Value::from(index));
        }
    }
    Err(refused("the value to look for is not in the list"))
}

fn rsplit(text: &str, separator: Option<&str>, most: Option<i64>) -> Result<Value, Error> {
    let most =
        most.and_then(|most| usize::try_from(most).ok()).map_or(usize::MAX, |most| most.saturating_add(1));
    let mut parts: Vec<&str> = match separator {
        Some("") => return Err(refused("the text to split at is empty")),
        Some(separator) => text.rsplitn(most, separator).collect(),
        None if most == usize::MAX => text.rsplit(is_space).filter(|word| !word.is_empty()).collect(),
        None => return Err(refused("rsplit needs a text to split at when it is limited")),
    };
    parts.reverse();
    Ok(parts.into_iter().map(Value::from).collect())
}

fn partition(text: &str, separator: &str, from_end: bool) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(refused("the text to split at is empty"));
    }
    let parts = if from_end { text.rsplit_once(separator) } else { text.split_once(separator) };
    let parts = match (parts, from_end) {
        (Some((before, after)), _) => [before, separator, after],
        (None, false) => [text, "", ""],
        (None, true) => ["", "", text],
    };
    Ok(parts.into_iter().map(Value::from).collect())
}

fn refused(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// A finite number as `repr` writes it: the shortest digits that mean it, with an exponent where
/// it is very large or very small.
pub(super) fn float_text(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => format!("{number:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_python_writes_them() {
        let numbers = [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1.5e16, "1.5e+16"),
            (1e100, "1e+100"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123456.789, "123456.789"),
        ];
        for (number, text) in numbers {
            assert_eq!(float_text(number), text);
        }
    }
}
