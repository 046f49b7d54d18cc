//! What commands take that run a model.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use paceline_plugin_api::graph::DType;

/// What computes, and how it is set up.
#[derive(Debug, clap::Args)]
pub struct BackendArgs {
    /// Use the backend plugin with this id
    #[arg(long, value_name = "ID")]
    pub backend: Option<String>,

    /// Set a setting, of a plugin such as `cpu.threads=2` or of the host such as `microbatch=256`; may be given several
    /// times
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<SettingArg>,
}

impl BackendArgs {
    /// The settings of one plugin, as keys and values.
    pub fn settings_of(&self, plugin: &str) -> Vec<(String, String)> {
        let of_plugin = self.set.iter().filter(|setting| setting.plugin == plugin);
        of_plugin.map(|setting| (setting.key.clone(), setting.value.clone())).collect()
    }
}

/// One `--set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingArg {
    /// What stands in front of the first dot: id of the plugin. Empty for settings of the host without a dot.
    pub plugin: String,
    /// Key of the setting, without the plugin.
    pub key: String,
    /// Value as text.
    pub value: String,
}

impl SettingArg {
    /// The whole key.
    pub fn name(&self) -> String {
        match self.plugin.as_str() {
            "" => self.key.clone(),
            plugin => format!("{plugin}.{}", self.key),
        }
    }
}

impl FromStr for SettingArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "it must be a key, `=` and a value, as in `cpu.threads=2`".to_owned();
        let (name, value) = text.split_once('=').ok_or_else(wrong)?;
        let (plugin, key) = name.split_once('.').unwrap_or(("", name));
        if key.is_empty() || name.starts_with('.') {
            return Err(wrong());
        }
        Ok(Self { plugin: plugin.to_owned(), key: key.to_owned(), value: value.to_owned() })
    }
}

/// A device of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceArg {
    /// Id of the backend; `None` for the one that is used anyway.
    pub backend: Option<String>,
    /// The device's number, from 0.
    pub index: u32,
}

impl FromStr for DeviceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "it must be a number, or a backend with one, as in `cuda:1`".to_owned();
        // People write `rocm0` as well.
        let digits = text.len() - text.trim_end_matches(|it: char| it.is_ascii_digit()).len();
        let (id, number) = match text.split_once(':') {
            Some((id, number)) if !id.is_empty() => (id, number),
            Some(_) => return Err(wrong()),
            None => text.split_at(text.len() - digits),
        };
        let index = number.parse().map_err(|_| wrong())?;
        Ok(Self { backend: (!id.is_empty()).then(|| id.to_owned()), index })
    }
}

/// How the engine runs a model.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    #[command(flatten)]
    pub backend: BackendArgs,

    /// Threads that compute; short for `--set PLUGIN.threads=N` of the backend
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,

    /// Type of cached keys and values: f16, f32, q8_0, q5_1, q5_0, q4_1 or q4_0; two of them, as in `q8_0/q5_1`, for
    /// keys and for values; f16 unless it is set elsewhere
    #[arg(long, value_name = "TYPE")]
    pub kv_type: Option<KvTypes>,

    /// The device, as `paceline devices` calls it, such as `cuda:1`; with a number alone, that one of the backend; the first
    /// one if left out
    #[arg(long, value_name = "[ID:]N")]
    pub device: Option<DeviceArg>,
}

/// Where a text comes from; standard input if nothing is given.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub struct PromptArgs {
    /// The text; read from standard input if neither this nor --file is given
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,

    /// Read the text from this file, line break at the end included
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Types of a KV cache that can be asked for.
const KV_TYPES: [DType; 7] =
    [DType::F16, DType::F32, DType::Q8_0, DType::Q5_1, DType::Q5_0, DType::Q4_1, DType::Q4_0];

/// Types of cached keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvTypes(pub [DType; 2]);

impl fmt::Display for KvTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([keys, values]) = self;
        if keys == values { write!(f, "{keys}") } else { write!(f, "{keys}/{values}") }
    }
}

impl FromStr for KvTypes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = |name: &str| DType::from_name(name).filter(|kv_type| KV_TYPES.contains(kv_type));
        let (keys, values) = text.split_once('/').unwrap_or((text, text));
        match (known(keys), known(values)) {
            (Some(keys), Some(values)) => Ok(Self([keys, values])),
            _ => {
                let names = KV_TYPES.map(|kv_type| kv_type.to_string()).join(", ");
                Err(format!("it must be one of {names}, or two of them with `/` between, as in `q8_0/f16`"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_a_plugin_a_key_and_a_value() {
        let setting = "cpu.threads=2".parse::<SettingArg>().unwrap();
        assert_eq!((&*setting.plugin, &*setting.key, &*setting.value), ("cpu", "threads", "2"));
        assert_eq!(setting.name(), "cpu.threads");
        let setting = "cpu.a.b=x=y".parse::<SettingArg>().unwrap();
        assert_eq!((&*setting.key, &*setting.value), ("a.b", "x=y"));
        let setting = "microbatch=256".parse::<SettingArg>().unwrap();
        assert_eq!((setting.name().as_str(), &*setting.plugin), ("microbatch", ""));
        for text in ["", "cpu", "cpu.threads", "=2", ".threads=2", "cpu.=2"] {
            assert!(text.parse::<SettingArg>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_device_has_a_number_and_may_have_a_backend() {
        let device = |text: &str| text.parse::<DeviceArg>().map(|it| (it.backend, it.index));
        assert_eq!(device("1"), Ok((None, 1)));
        for text in ["rocm:2", "rocm2"] {
            assert_eq!(device(text), Ok((Some("rocm".to_owned()), 2)), "{text}");
        }
        assert_eq!(device("my-chip2:0"), Ok((Some("my-chip2".to_owned()), 0)));
        for text in ["", "rocm", "rocm:", ":1", "rocm:x", "99999999999"] {
            assert!(device(text).is_err(), "{text}");
        }
    }

    #[test]
    fn one_type_is_for_keys_and_values() {
        assert_eq!("f32".parse::<KvTypes>().unwrap().0, [DType::F32; 2]);
        assert_eq!("q8_0/f16".parse::<KvTypes>().unwrap().0, [DType::Q8_0, DType::F16]);
        assert_eq!("q5_1/q4_0".parse::<KvTypes>().unwrap().0, [DType::Q5_1, DType::Q4_0]);
        for text in ["", "/", "banana", "f16/", "f16/f16/f16", "q4_K", "i32"] {
            assert!(text.parse::<KvTypes>().is_err(), "{text}");
        }
    }
}
