//! Whether a plugin's library has the same idea of the ABI's types as this program.

use std::path::Path;

/// What came of comparing layouts.
#[cfg_attr(not(feature = "layouts"), allow(dead_code, reason = "without it nothing is compared"))]
pub enum Layouts {
    /// They are the same.
    Equal,
    /// The library carries none, as it may.
    NotCarried,
    /// They are others, or cannot be read. The text goes on from the file's name.
    Different(String),
    /// Nothing was compared.
    NotCompared(&'static str),
}

impl Layouts {
    /// What came of it, for people; goes on from a sentence.
    pub fn note(&self) -> String {
        match self {
            Self::Equal => "its layouts are this program's".to_owned(),
            Self::NotCarried => "it carries no layouts to compare".to_owned(),
            Self::Different(difference) => difference.clone(),
            Self::NotCompared(why) => format!("layouts were not compared: {why}"),
        }
    }

    /// The outcome in a word, for programs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::NotCarried => "not_carried",
            Self::Different(_) => "different",
            Self::NotCompared(_) => "not_compared",
        }
    }
}

/// Compares the layouts that the library carries. Loads it here, so it was tried in another process before.
#[cfg(feature = "layouts")]
pub fn compare(file: &Path) -> Layouts {
    match paceline_abi_stable::compare(file) {
        Ok(()) => Layouts::Equal,
        Err(paceline_abi_stable::LayoutDifference::NotCarried) => Layouts::NotCarried,
        Err(difference) => Layouts::Different(difference.to_string()),
    }
}

/// This program cannot.
#[cfg(not(feature = "layouts"))]
pub fn compare(_: &Path) -> Layouts {
    Layouts::NotCompared("this program was built without the feature `layouts`")
}
