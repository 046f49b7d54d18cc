//! Values from outside files: the environment, the command line, a request.

use super::fault::{Fault, Faults, did_you_mean};
use super::schema::{Schema, Unknown};
use super::source::Source;

/// A value that somebody gave for a setting, as text.
#[derive(Clone, Debug)]
pub struct Given {
    /// Key with the plugin's id in front.
    pub key: String,
    /// The value; `auto` for not set.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
}

/// What the environment sets.
#[derive(Clone, Debug, Default)]
pub struct FromEnvironment {
    /// Settings.
    pub given: Vec<Given>,
    /// Variables without effect, a sentence each.
    pub notes: Vec<String>,
}

impl Given {
    /// A value of `--set KEY=VALUE`.
    pub fn set(key: &str, value: &str) -> Self {
        Self::option("--set", key, value)
    }

    /// A value of an option that stands for a setting, such as `--ctx` for `context`.
    pub fn option(option: &str, key: &str, value: &str) -> Self {
        let source = Source::CommandLine { option: option.to_owned() };
        Self { key: key.to_owned(), value: value.to_owned(), source }
    }

    /// A value of a request to a server.
    pub fn request(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), value: value.to_owned(), source: Source::Request }
    }

    /// The settings among variables of the environment. `others` are variables of this program that are no settings.
    ///
    /// # Errors
    /// Variables that begin as settings do and are none. One of a plugin that is not there is only noted: the same
    /// environment may serve several programs.
    pub fn environment(
        schema: &Schema,
        variables: impl IntoIterator<Item = (String, String)>,
        others: &[&str],
    ) -> Result<FromEnvironment, Faults> {
        let mut variables: Vec<_> = variables.into_iter().collect();
        variables.sort();
        let (mut found, mut faults) = (FromEnvironment::default(), Vec::new());
        for (variable, value) in variables {
            let Some(rest) = variable.strip_prefix("PACELINE_") else { continue };
            if others.contains(&variable.as_str()) {
                continue;
            }
            if let Some(setting) = schema.by_variable(&variable) {
                let key = setting.key.clone();
                found.given.push(Given { key, value, source: Source::Environment { variable } });
                continue;
            }
            let known: Vec<String> = schema.settings().map(super::Setting::variable).collect();
            let hint =
                did_you_mean(&variable, known.iter().map(String::as_str).chain(others.iter().copied()));
            // Asked as a key, a name tells whether its plugin is there.
            let key = rest.to_ascii_lowercase().replace("__", ".").replace('_', "-");
            match schema.find(&key) {
                Err(Unknown::Plugin(message)) => {
                    found.notes.push(format!("the variable {variable}: {message}"))
                }
                _ => faults.push(Fault::new(format!("the variable {variable} is no setting{hint}"))),
            }
        }
        Faults::check(faults)?;
        Ok(found)
    }

    /// As it was given.
    pub(super) fn shown(&self) -> String {
        let Self { key, value, source } = self;
        match source {
            Source::CommandLine { option } if option == "--set" => format!("--set {key}={value}"),
            Source::CommandLine { option } => format!("{option} {value}"),
            Source::Environment { variable } => format!("{variable}={value}"),
            _ => format!("`{key}` of the request"),
        }
    }
}
