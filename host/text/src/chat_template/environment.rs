//! The engine with the functions and filters that chat templates expect.

use minijinja::functions;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value};

use super::error::{RaisedMessage, TemplateError};
use super::strftime::LocalTime;
use super::{json, python, values};

/// There is one template in an environment.
pub(super) const TEMPLATE_NAME: &str = "chat";
/// Macros within each other. Each is many stack frames of the engine.
const MAX_RECURSION: usize = 100;
/// As in the sandbox of Jinja2.
const MAX_RANGE: i64 = 100_000;

/// Compiles a template.
pub(super) fn with_template(source: String) -> Result<Environment<'static>, TemplateError> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(|error| TemplateError::from_compiler(&error))?;
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_unknown_method_callback(python::method);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter(values::BOUND, values::bound);
    environment.add_filter(values::STORED, values::stored);
    environment.add_filter(values::TERM, values::term);
    environment.add_filter(values::FACTOR, values::factor);
    // Jinja2 does not have these two, which join lists without a count.
    environment.remove_filter("chain");
    environment.remove_filter("zip");
    // In Python, whatever has a length and items: also maps and texts.
    environment.add_test("sequence", |value: &Value| value.len().is_some());
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("range", range);
    environment.add_function("dict", dict);
    environment.add_function("namespace", namespace);
    // Shows the variables of the program that renders, for development.
    environment.remove_global("debug");
    environment
        .add_template_owned(TEMPLATE_NAME, source)
        .map_err(|error| TemplateError::from_compiler(&error))?;
    Ok(environment)
}

/// The function `strftime_now(format)`.
pub(super) fn strftime_now(now: LocalTime) -> Value {
    Value::from_function(move |format: &str| now.strftime(format))
}

fn raise_exception(message: Value) -> Result<Value, Error> {
    let error = Error::new(ErrorKind::InvalidOperation, "raise_exception");
    Err(error.with_source(RaisedMessage(message.to_string())))
}

fn dict(state: &State, first: Option<ValueOrKwargs>, rest: Kwargs) -> Result<Value, Error> {
    values::bound(state, functions::dict(first.map(ValueOrKwargs::into_value), rest)?)
}

fn namespace(state: &State, fields: Option<ValueOrKwargs>) -> Result<Value, Error> {
    values::bound(state, functions::namespace(fields)?)
}

/// A list, since the engine's own range is a promise of numbers that cost nothing until they are
/// looked at, all of them or none.
fn range(state: &State, first: i64, second: Option<i64>, step: Option<i64>) -> Result<Value, Error> {
    let (start, stop) = second.map_or((0, first), |stop| (first, stop));
    let step = step.unwrap_or(1);
    let distance =
        if step > 0 { i128::from(stop) - i128::from(start) } else { i128::from(start) - i128::from(stop) };
    let size = i128::from(step.unsigned_abs());
    if size == 0 {
        return Err(Error::new(ErrorKind::InvalidOperation, "the step of a range cannot be 0"));
    }
    let count = (distance.max(0) + size - 1) / size;
    if count > i128::from(MAX_RANGE) {
        let reason = format!("a range cannot have more than {MAX_RANGE} numbers");
        return Err(Error::new(ErrorKind::InvalidOperation, reason));
    }
    state.consume_fuel(count as u64 / 2)?;
    let number = |index: i128| Value::from((i128::from(start) + index * i128::from(step)) as i64);
    Ok((0..count).map(number).collect())
}
