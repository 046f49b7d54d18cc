//! Keeps the values of a template small and shallow.
//!
//! The engine counts steps and the bytes of new texts, but a list that holds another list twice
//! costs it nothing, and forty such steps make a value that takes years to print, compare or
//! drop. Therefore what a template binds to a name, writes as a list, adds or multiplies is looked
//! at first, by filters that [`scan`](super::scan) writes into the template.

use minijinja::value::{DynObject, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// The filter for what becomes a variable.
pub(super) const BOUND: &str = "__bound";
/// The filter for what becomes a field of a namespace.
pub(super) const STORED: &str = "__stored";

/// The filter for what is added to something.
pub(super) const TERM: &str = "__term";
/// The filter for what is multiplied.
pub(super) const FACTOR: &str = "__factor";

const MAX_DEPTH: usize = 64;
/// Bytes of text in a list or map, counted once for each place it stands in.
const MAX_TEXT_BYTES: usize = 64 << 20;
/// Values that one step pays for.
const VALUES_PER_STEP: u64 = 4;
const TEXT_BYTES_PER_VALUE: usize = 128;

pub(super) fn bound(state: &State, value: Value) -> Result<Value, Error> {
    // A namespace is bound by `set ns = namespace(...)`, but is no part of anything.
    if let Some(namespace) = value.as_object().filter(|object| is_namespace(object)) {
        let mut visit = Visit::new(state);
        for (_, field) in namespace.try_iter_pairs().into_iter().flatten() {
            visit.checked(&field, 1)?;
        }
        visit.pay_rest()?;
        return Ok(value);
    }
    stored(state, value)
}

pub(super) fn stored(state: &State, value: Value) -> Result<Value, Error> {
    let mut visit = Visit::new(state);
    let changed = visit.checked(&value, 0)?;
    visit.pay_rest()?;
    Ok(changed.unwrap_or(value))
}

/// Adding lists makes a list that is as long as all of them and costs nothing until it is looked
/// at, so each is paid for as if it were copied.
pub(super) fn term(state: &State, value: Value) -> Result<Value, Error> {
    if value.as_object().is_some() { stored(state, value) } else { Ok(value) }
}

/// The engine repeats texts at their price, but lists for nothing.
pub(super) fn factor(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Number | ValueKind::Bool | ValueKind::String | ValueKind::Undefined => Ok(value),
        kind => Err(refused(format!("a value of the kind {kind} cannot be multiplied"))),
    }
}

/// Through the name, since the engine does not show the type.
fn is_namespace(object: &DynObject) -> bool {
    object.type_name().ends_with("::Namespace")
}

struct Visit<'a, 'template, 'env> {
    state: &'a State<'template, 'env>,
    unpaid_values: u64,
    text_bytes: usize,
}

impl<'a, 'template, 'env> Visit<'a, 'template, 'env> {
    fn new(state: &'a State<'template, 'env>) -> Self {
        Visit { state, unpaid_values: 0, text_bytes: 0 }
    }

    /// Checks a value that lies within `depth` others. Returns what to take in its place where it
    /// is, or holds, a promise of values that is worked out each time it is looked at.
    fn checked(&mut self, value: &Value, depth: usize) -> Result<Option<Value>, Error> {
        self.unpaid_values += 1;
        if self.unpaid_values >= VALUES_PER_STEP {
            self.pay_rest()?;
        }
        let Some(object) = value.as_object() else {
            // A text of its own has been paid for when it was made.
            return if depth == 0 { Ok(None) } else { self.count_text(value) };
        };
        if depth >= MAX_DEPTH {
            return Err(refused(format!(
                "a value has more than {MAX_DEPTH} lists and maps within each other"
            )));
        }
        if is_namespace(object) {
            return Err(refused("a namespace cannot be stored in another value".into()));
        }
        if object.repr() == ObjectRepr::Map {
            let pairs = || object.try_iter_pairs().into_iter().flatten();
            let mut changed: Option<Vec<(Value, Value)>> = None;
            for (index, (key, field)) in pairs().enumerate() {
                self.count_text(&key)?;
                if let Some(new) = self.checked(&field, depth + 1)? {
                    changed.get_or_insert_with(|| pairs().take(index).collect()).push((key, new));
                } else if let Some(changed) = &mut changed {
                    changed.push((key, field));
                }
            }
            return Ok(changed.map(Value::from_pairs));
        }
        if let Some(list) = object.downcast_ref::<Vec<Value>>() {
            let mut changed: Option<Vec<Value>> = None;
            for (index, item) in list.iter().enumerate() {
                if let Some(new) = self.checked(item, depth + 1)? {
                    changed.get_or_insert_with(|| list[..index].to_vec()).push(new);
                } else if let Some(changed) = &mut changed {
                    changed.push(item.clone());
                }
            }
            return Ok(changed.map(Value::from));
        }
        if matches!(object.repr(), ObjectRepr::Seq | ObjectRepr::Iterable) {
            let mut items = Vec::new();
            // Tuples stay what they are; all else becomes a list.
            let mut is_changed = !value.is_tuple();
            for item in value.try_iter()?.checked() {
                let item = item?;
                let new = self.checked(&item, depth + 1)?;
                is_changed |= new.is_some();
                items.push(new.unwrap_or(item));
            }
            return Ok(is_changed.then(|| Value::from(items)));
        }
        Ok(None)
    }

    fn count_text(&mut self, value: &Value) -> Result<Option<Value>, Error> {
        let length = value.as_str().map_or(0, str::len);
        self.text_bytes = self.text_bytes.saturating_add(length);
        if self.text_bytes > MAX_TEXT_BYTES {
            return Err(refused(format!("a value has more than {MAX_TEXT_BYTES} bytes of text")));
        }
        self.unpaid_values += (length / TEXT_BYTES_PER_VALUE) as u64;
        Ok(None)
    }

    fn pay_rest(&mut self) -> Result<(), Error> {
        self.state.consume_fuel(self.unpaid_values.div_ceil(VALUES_PER_STEP))?;
        self.unpaid_values = 0;
        Ok(())
    }
}

fn refused(reason: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}
