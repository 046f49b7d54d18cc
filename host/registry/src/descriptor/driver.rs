//! Drivers that a plugin needs, and their versions.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A driver that a plugin needs, by its library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// File names of the library, of which one will do, in the order in which they are looked for; `*` stands for any
    /// characters.
    pub libraries: Vec<String>,
    /// Versions that will do; `None` for any.
    pub version: Option<DriverRange>,
    /// Where the version of the one that is installed can be read; `None` if it cannot, and only its presence counts.
    pub version_from: Option<VersionSource>,
}

/// Where the version of an installed driver can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionSource {
    /// In the name of the file that the library's name is a link to, behind `.so.`.
    FileName,
}

impl FromStr for VersionSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "file_name" => Ok(Self::FileName),
            _ => Err(format!("`{text}` is no place where a driver's version stands; there is `file_name`")),
        }
    }
}

impl Driver {
    /// Whether a file's name is a library's, where `*` stands for any characters.
    pub(crate) fn is_named(library: &str, file: &str) -> bool {
        let mut parts = library.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = file.strip_prefix(first) else { return false };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        true
    }
}

/// Versions of a driver, such as `>=535.54, <600`. Drivers do not follow semver: a version is any count of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverRange {
    limits: Vec<(Comparison, Vec<u64>)>,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    Equal,
    AtLeast,
    Greater,
}

impl DriverRange {
    /// Whether a version, such as `535.104.05`, is in the range. One that is not of numbers is not.
    pub fn contains(&self, version: &str) -> bool {
        let Some(version) = numbers(version) else { return false };
        self.limits.iter().all(|(comparison, limit)| {
            let ordering = compare(&version, limit);
            match comparison {
                Comparison::Less => ordering.is_lt(),
                Comparison::AtMost => ordering.is_le(),
                Comparison::Equal => ordering.is_eq(),
                Comparison::AtLeast => ordering.is_ge(),
                Comparison::Greater => ordering.is_gt(),
            }
        })
    }
}

impl FromStr for DriverRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault =
            || format!("`{text}` is no range of a driver's versions: it has the form `>=535.54, <600`");
        let limits = text.split(',').map(|limit| {
            let limit = limit.trim();
            // The longer signs first, as they begin with the shorter ones.
            let signs = [
                ("<=", Comparison::AtMost),
                (">=", Comparison::AtLeast),
                ("<", Comparison::Less),
                (">", Comparison::Greater),
                ("=", Comparison::Equal),
            ];
            let (rest, comparison) = signs
                .iter()
                .find_map(|(sign, it)| Some((limit.strip_prefix(sign)?, *it)))
                .ok_or_else(fault)?;
            Ok((comparison, numbers(rest.trim()).ok_or_else(fault)?))
        });
        Ok(Self { limits: limits.collect::<Result<_, String>>()?, text: text.to_owned() })
    }
}

impl fmt::Display for DriverRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn numbers(version: &str) -> Option<Vec<u64>> {
    version.split('.').map(|number| number.parse().ok()).collect()
}

/// Compares number by number; those that are not there are zeros.
fn compare(a: &[u64], b: &[u64]) -> Ordering {
    let number = |version: &[u64], index: usize| version.get(index).copied().unwrap_or(0);
    (0..a.len().max(b.len()))
        .map(|index| number(a, index).cmp(&number(b, index)))
        .find(|ordering| ordering.is_ne())
        .unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_number_by_number() {
        let range: DriverRange = ">=535.54, <600".parse().unwrap();
        for inside in ["535.54", "535.54.03", "535.104.05", "599.99"] {
            assert!(range.contains(inside), "{inside}");
        }
        for outside in ["535.53.9", "600", "600.0.0", "6.1-custom", ""] {
            assert!(!range.contains(outside), "{outside}");
        }
        assert_eq!(range.to_string(), ">=535.54, <600");
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        let named = Driver::is_named;
        assert!(named("libnvrtc.so.*", "libnvrtc.so.12.4") && named("libnvrtc.so.*", "libnvrtc.so."));
        assert!(named("lib*-driver*.so", "libacme-driver-2.so") && named("*", "anything"));
        assert!(!named("libnvrtc.so.*", "libnvrtc.so") && !named("libnvrtc.so", "libnvrtc.so.12"));
        assert!(!named("lib*-driver*.so", "libacme.so") && !named("a*a", "a"));
    }

    #[test]
    fn other_texts_are_no_range() {
        for text in ["535", ">=", ">=a", "", ">=1,"] {
            assert!(text.parse::<DriverRange>().is_err(), "{text}");
        }
    }
}
