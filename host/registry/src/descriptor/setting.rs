//! What a user may set, as a descriptor declares it.

use paceline_plugin_api::settings::Stage;
use serde::Deserialize;

/// A setting that a plugin declares.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredSetting {
    /// Key without the plugin's id.
    pub key: String,
    /// Type, range and default.
    pub kind: DeclaredType,
    /// When it is decided.
    pub stage: Stage,
    /// Unit of a number, or empty.
    pub unit: String,
    /// One sentence.
    pub doc: String,
}

/// The type of a setting, with its default.
#[derive(Clone, Debug, PartialEq)]
pub enum DeclaredType {
    /// A switch.
    Bool {
        /// Value when not set.
        default: bool,
    },
    /// A whole number.
    Integer {
        /// Value when not set.
        default: i64,
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// A number.
    Float {
        /// Value when not set.
        default: f64,
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
    },
    /// One of several words.
    Choice {
        /// The words.
        options: Vec<String>,
        /// The word when not set.
        default: String,
    },
}

#[derive(Deserialize)]
pub(super) struct RawSetting {
    key: String,
    #[serde(rename = "type")]
    kind: String,
    range: Option<[toml::Value; 2]>,
    options: Option<Vec<String>>,
    default: Option<toml::Value>,
    stage: String,
    #[serde(default)]
    unit: String,
    doc: String,
}

impl RawSetting {
    /// The setting, or what is wrong with it.
    pub fn check(self) -> Result<DeclaredSetting, String> {
        let key = self.key.clone();
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        if !key.bytes().all(allowed) || !key.starts_with(|first: char| first.is_ascii_lowercase()) {
            return Err(format!(
                "the key `{}` must be lower case letters, digits and `-_.`, the first a letter",
                key.escape_debug()
            ));
        }
        let stage = match self.stage.as_str() {
            "placement" => Stage::Placement,
            "context" => Stage::Context,
            "run" => Stage::Run,
            other => {
                return Err(format!(
                    "setting `{key}`: the stage `{other}` is not known; there is `placement`, `context` and `run`"
                ));
            }
        };
        let kind = self.declared_type().map_err(|fault| format!("setting `{key}`: {fault}"))?;
        Ok(DeclaredSetting { key, kind, stage, unit: self.unit, doc: self.doc })
    }

    fn declared_type(&self) -> Result<DeclaredType, String> {
        if self.kind != "choice" && self.options.is_some() {
            return Err("only a choice has `options`".to_owned());
        }
        if !matches!(self.kind.as_str(), "integer" | "float") && self.range.is_some() {
            return Err("only a number has a `range`".to_owned());
        }
        match self.kind.as_str() {
            "bool" => match &self.default {
                Some(toml::Value::Boolean(default)) => Ok(DeclaredType::Bool { default: *default }),
                _ => Err("a bool needs a `default`, true or false".to_owned()),
            },
            "integer" => {
                let (default, min, max) = self.numbers(toml::Value::as_integer)?;
                Ok(DeclaredType::Integer { default, min, max })
            }
            "float" => {
                let (default, min, max) = self.numbers(as_float)?;
                Ok(DeclaredType::Float { default, min, max })
            }
            "choice" => self.choice(),
            other => Err(format!(
                "the type `{other}` is not known; there is `bool`, `integer`, `float` and `choice`"
            )),
        }
    }

    /// Default, smallest and largest number, in order.
    fn numbers<N: PartialOrd>(&self, read: impl Fn(&toml::Value) -> Option<N>) -> Result<(N, N, N), String> {
        let kind = &self.kind;
        let range = self.range.as_ref().and_then(|[min, max]| Some((read(min)?, read(max)?)));
        let (min, max) =
            range.ok_or_else(|| format!("this {kind} needs a `range` of two numbers of its type"))?;
        let default = self.default.as_ref().and_then(read);
        let default = default.ok_or_else(|| format!("this {kind} needs a `default` of its type"))?;
        if min <= default && default <= max {
            Ok((default, min, max))
        } else {
            Err("the `default` does not lie in the `range`".to_owned())
        }
    }

    fn choice(&self) -> Result<DeclaredType, String> {
        let options = self.options.clone().filter(|options| !options.is_empty());
        let options = options.ok_or_else(|| "a choice needs `options`".to_owned())?;
        let default = match &self.default {
            None => options[0].clone(),
            Some(toml::Value::String(default)) if options.contains(default) => default.clone(),
            Some(_) => return Err("the `default` is none of the `options`".to_owned()),
        };
        Ok(DeclaredType::Choice { options, default })
    }
}

/// Whole numbers are numbers too.
fn as_float(value: &toml::Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|number| number as f64))
}
