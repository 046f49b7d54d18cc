//! The lock file of a plugin folder: what was installed there, and which of it is used.
//!
//! ```toml
//! format = 1
//!
//! [plugin.echo]
//! enabled = false         # left out: true
//! use = "=0.1.0"          # left out: the highest version
//!
//! [[file]]
//! id = "echo"
//! version = "0.1.0"
//! name = "libecho@0.1.0.so"
//! sha256 = "b5bb9d80..."
//! source = "/home/me/echo/target/release/libecho.so"
//! installed = "2026-03-01T12:00:00Z"
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Name of the file.
pub(super) const LOCK_FILE: &str = "plugins.lock";
const FORMAT: u32 = 1;
const HEAD: &str = "# Written by `paceline plugins install`, `remove`, `enable`, `disable` and `use`.\n";

/// What a lock file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lock {
    /// What was decided about plugins, by their ids.
    pub choices: BTreeMap<String, Choice>,
    /// The files that were installed.
    pub files: Vec<Installed>,
}

/// What was decided about a plugin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// It is switched off.
    pub disabled: bool,
    /// The versions among which the highest is used.
    pub version: Option<semver::VersionReq>,
}

/// A file that was installed.
#[derive(Clone, Debug, PartialEq)]
pub struct Installed {
    /// The plugin's id.
    pub id: String,
    /// Its version.
    pub version: semver::Version,
    /// The file's name in the folder.
    pub name: String,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
    /// SHA-256 of the descriptor, where that is a file beside the library.
    pub descriptor_sha256: Option<String>,
    /// Where it was copied from.
    pub source: PathBuf,
    /// When, in UTC, such as `2026-03-01T12:00:00Z`.
    pub installed: String,
}

#[derive(Serialize, Deserialize)]
struct RawLock {
    format: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    plugin: BTreeMap<String, RawChoice>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    file: Vec<RawInstalled>,
}

#[derive(Serialize, Deserialize)]
struct RawChoice {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(default, rename = "use", skip_serializing_if = "Option::is_none")]
    version: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct RawInstalled {
    id: String,
    version: String,
    name: String,
    sha256: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    descriptor_sha256: Option<String>,
    source: String,
    installed: String,
}

impl Lock {
    /// Reads the text of a lock file. Fails with what is wrong, as a clause.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }

        let wrong = |error: toml::de::Error| {
            let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let place = line.map_or(String::new(), |line| format!("line {line}: "));
            format!("{place}{}", error.message().replace('\n', ", "))
        };
        let Format { format } = toml::from_str(text).map_err(wrong)?;
        if format != FORMAT {
            return Err(format!("it has the format {format}, and this program knows {FORMAT}"));
        }
        let raw: RawLock = toml::from_str(text).map_err(wrong)?;
        let choices = raw.plugin.into_iter().map(|(id, raw)| {
            let version = raw.version.map(|text| text.parse::<semver::VersionReq>()).transpose();
            let version = version.map_err(|error| format!("`plugin.{id}.use`: {error}"))?;
            Ok((id, Choice { disabled: raw.enabled == Some(false), version }))
        });
        Ok(Self {
            choices: choices.collect::<Result<_, String>>()?,
            files: raw.file.into_iter().map(Installed::from_raw).collect::<Result<_, String>>()?,
        })
    }

    /// The text of a lock file that says this.
    pub(super) fn text(&self) -> Result<String, toml::ser::Error> {
        let choices = self.choices.iter().filter(|(_, choice)| **choice != Choice::default());
        let raw = RawLock {
            format: FORMAT,
            plugin: choices.map(|(id, choice)| (id.clone(), choice.to_raw())).collect(),
            file: self.files.iter().map(Installed::to_raw).collect(),
        };
        Ok(format!("{HEAD}{}", toml::to_string(&raw)?))
    }

    /// The entry of a file.
    pub fn file(&self, name: &str) -> Option<&Installed> {
        self.files.iter().find(|file| file.name == name)
    }

    /// The versions of a plugin that were installed, lowest first.
    pub fn versions(&self, id: &str) -> Vec<&semver::Version> {
        let mut versions: Vec<_> =
            self.files.iter().filter(|file| file.id == id).map(|file| &file.version).collect();
        versions.sort();
        versions
    }

    /// The ids of plugins that are switched off.
    pub fn disabled(&self) -> impl Iterator<Item = &str> {
        self.choices.iter().filter(|(_, choice)| choice.disabled).map(|(id, _)| id.as_str())
    }
}

impl Choice {
    fn to_raw(&self) -> RawChoice {
        RawChoice {
            enabled: self.disabled.then_some(false),
            version: self.version.as_ref().map(ToString::to_string),
        }
    }
}

impl Installed {
    fn from_raw(raw: RawInstalled) -> Result<Self, String> {
        let RawInstalled { id, version, name, sha256, descriptor_sha256, source, installed } = raw;
        // What is removed later must lie in the folder.
        if Path::new(&name).file_name().is_none_or(|plain| plain != name.as_str()) {
            return Err(format!("`name` of `{}` is no file name: {name:?}", id.escape_debug()));
        }
        let version = version
            .parse()
            .map_err(|error| format!("`version` of {:?} is no version: {error}", name.as_str()))?;
        Ok(Self { id, version, name, sha256, descriptor_sha256, source: source.into(), installed })
    }

    fn to_raw(&self) -> RawInstalled {
        RawInstalled {
            id: self.id.clone(),
            version: self.version.to_string(),
            name: self.name.clone(),
            sha256: self.sha256.clone(),
            descriptor_sha256: self.descriptor_sha256.clone(),
            source: self.source.to_string_lossy().into_owned(),
            installed: self.installed.clone(),
        }
    }
}

/// A time in seconds since 1970, as `2026-03-01T12:00:00Z`.
pub(crate) fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Counted from 1 March of the year 0, so that a leap day is the last day of a year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock() -> Lock {
        Lock {
            choices: [
                ("echo".to_owned(), Choice { disabled: true, version: Some("=0.1.0".parse().unwrap()) }),
                ("other".to_owned(), Choice::default()),
            ]
            .into(),
            files: vec![Installed {
                id: "echo".to_owned(),
                version: "0.1.0".parse().unwrap(),
                name: "libecho@0.1.0.so".to_owned(),
                sha256: "00ff".to_owned(),
                descriptor_sha256: None,
                source: "/home/me/libecho.so".into(),
                installed: utc(1_772_366_400),
            }],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = lock().text().unwrap();
        insta::assert_snapshot!(text, @r#"
        # Written by `paceline plugins install`, `remove`, `enable`, `disable` and `use`.
        format = 1

        [plugin.echo]
        enabled = false
        use = "=0.1.0"

        [[file]]
        id = "echo"
        version = "0.1.0"
        name = "libecho@0.1.0.so"
        sha256 = "00ff"
        source = "/home/me/libecho.so"
        installed = "2026-03-01T12:00:00Z"
        "#);
        let mut expected = lock();
        expected.choices.remove("other");
        assert_eq!(Lock::parse(&text).unwrap(), expected);
    }

    #[test]
    fn a_lock_file_may_say_anything() {
        let problem = |text: &str| Lock::parse(text).unwrap_err();
        insta::assert_snapshot!(problem(""), @"line 1: missing field `format`");
        insta::assert_snapshot!(problem("format = 2\nnew = 3"), @"it has the format 2, and this program knows 1");
        insta::assert_snapshot!(problem("format = 1\nfile = ["), @"line 2: unclosed array, expected `]`");
        let with_file = |line: &str| lock().text().unwrap().replace("name = \"libecho@0.1.0.so\"", line);
        insta::assert_snapshot!(
            problem(&with_file("name = \"../x\"")), @r#"`name` of `echo` is no file name: "../x""#
        );
        insta::assert_snapshot!(problem(&with_file("name = \"..\"")), @r#"`name` of `echo` is no file name: "..""#);
        let version = lock().text().unwrap().replace("\"0.1.0\"", "\"new\"");
        insta::assert_snapshot!(
            problem(&version),
            @r#"`version` of "libecho@0.1.0.so" is no version: unexpected character 'n' while parsing major version number"#
        );
    }

    #[test]
    fn days_are_counted_right() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
        ] {
            assert_eq!(utc(seconds), expected);
        }
    }
}
