//! What is wrong with settings.

use std::fmt;

use super::source::Place;

/// Something that is wrong with a file, a variable or an option.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Where it stands; `None` for what was not written in a file.
    pub place: Option<Place>,
    /// What is wrong, one line.
    pub message: String,
}

impl Fault {
    pub(super) fn at(place: &Place, message: impl Into<String>) -> Self {
        Self { place: Some(place.clone()), message: message.into() }
    }

    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { place: None, message: message.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { file, line, column }) = &self.place {
            write!(f, "{file}:{line}:{column}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

/// All that is wrong, in order of files and lines. There is at least one fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl Faults {
    /// `Ok` if there are none.
    pub(super) fn check(mut faults: Vec<Fault>) -> Result<(), Self> {
        faults.sort();
        faults.dedup();
        if faults.is_empty() { Ok(()) } else { Err(Self(faults)) }
    }
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Self(vec![fault])
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// `; did you mean …?`, or nothing.
pub(super) fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    paceline_plugin_api::settings::nearest(word, candidates)
        .map(|near| format!("; did you mean `{near}`?"))
        .unwrap_or_default()
}

/// The nearest word, or all that there are.
pub(super) fn nearest_or_all(word: &str, candidates: &[&str]) -> String {
    let near = did_you_mean(word, candidates.iter().copied());
    if near.is_empty() { format!("; there is {}", listed(candidates)) } else { near }
}

/// Words in backticks with commas between.
pub(super) fn listed(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
