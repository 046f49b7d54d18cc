//! Finds where a key stands in a descriptor.

use std::ops::Range;

use serde_ignored::Path;
use toml::de::{DeTable, DeValue};

/// A step from a table or list to what is in it.
#[derive(Debug)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// The steps from the whole text to a key.
pub(super) fn steps(path: &Path<'_>) -> Vec<Step> {
    match path {
        Path::Root => Vec::new(),
        Path::Seq { parent, index } => with(parent, Step::Index(*index)),
        // Where a value's place is asked for, it shows as a table of a key like this.
        Path::Map { parent, key } if key.starts_with("$__") => steps(parent),
        Path::Map { parent, key } => with(parent, Step::Key(key.clone())),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            steps(parent)
        }
    }
}

fn with(parent: &Path<'_>, last: Step) -> Vec<Step> {
    let mut all = steps(parent);
    all.push(last);
    all
}

/// The bytes of the last key of `steps`.
pub(super) fn find(text: &str, steps: &[Step]) -> Option<Range<usize>> {
    let whole = DeTable::parse(text).ok()?;
    let mut table: &DeTable<'_> = whole.get_ref();
    let mut value: Option<&DeValue<'_>> = None;
    let mut span = None;
    for step in steps {
        let next = match step {
            Step::Key(wanted) => {
                if let Some(value) = value {
                    table = value.as_table()?;
                }
                let (key, next) = table.iter().find(|(key, _)| key.get_ref() == wanted)?;
                span = Some(key.span());
                next
            }
            Step::Index(index) => {
                let next = value?.as_array()?.get(*index)?;
                span = Some(next.span());
                next
            }
        };
        value = Some(next.get_ref());
    }
    span
}
