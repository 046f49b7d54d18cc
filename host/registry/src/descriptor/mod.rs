//! What a plugin says about itself in TOML, readable without running it.
//!
//! ```toml
//! id = "cuda"
//! kind = "backend"                                # or "strategy"
//! version = "0.1.0"                               # semver
//! abi = { oldest = "1.0", built = "1.0" }
//! license = "MIT"
//! summary = "One sentence."
//! needs = [{ library = "libcuda.so.1", version = ">=535", version_from = "file_name" }]   # or any_of = ["a.so.2", "a.so.1"]
//! cpu_features = ["avx2"]                         # of the whole file, not of paths chosen at run time
//! gpu_targets = ["sm_90"]
//! operations = ["acme.ternary_linear/1"]          # of the vendor's own
//!
//! [[weight_type]]                                 # a type of weights that only this plugin knows
//! id = 200                                        # in model files; from 64 on
//! name = "T1_58"
//! elements = 256                                  # per block
//! bytes = 54                                      # per block
//!
//! [[setting]]
//! key = "streams"
//! type = "integer"                                # bool, integer, float or choice
//! range = [1, 16]
//! default = 2
//! stage = "placement"                             # placement, context or run
//! doc = "One sentence."
//!
//! [[rule]]
//! set = "cuda.streams"
//! value = 4
//! when = { sequences = 1 }
//! ```

mod driver;
mod fault;
mod place;
mod raw;
mod setting;
mod vendor;

use std::fmt;
use std::str::FromStr;

pub use driver::{Driver, DriverRange, VersionSource};
use paceline_plugin_api::abi;
use paceline_plugin_api::weight_types::WeightType;
pub use setting::{DeclaredSetting, DeclaredType};

pub use fault::DescriptorFault;
pub(crate) use fault::line_and_column;

/// Longest id.
const ID_LIMIT: usize = 64;

/// What a plugin says about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor {
    /// Id: lower case letters, digits and dashes.
    pub id: String,
    /// What it plugs into.
    pub kind: PluginKind,
    /// Version of the plugin.
    pub version: semver::Version,
    /// Versions of the ABI that it speaks.
    pub abi: AbiRange,
    /// SPDX expression of its licence.
    pub license: Option<String>,
    /// One sentence.
    pub summary: Option<String>,
    /// Libraries of drivers that it needs.
    pub needs: Vec<Driver>,
    /// Features without which no code of the file can run.
    pub cpu_features: Vec<String>,
    /// Architectures of accelerators that it has code for.
    pub gpu_targets: Vec<String>,
    /// Operations of the vendor's own, with their versions, such as `acme.ternary_linear/1`.
    pub operations: Vec<String>,
    /// Types of weights that only this plugin knows.
    pub weight_types: Vec<WeightType>,
    /// What a user may set.
    pub settings: Vec<DeclaredSetting>,
    /// Defaults that hold where their facts do.
    pub rules: Vec<DeclaredRule>,
    /// The whole text.
    pub text: String,
}

/// What a plugin plugs into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginKind {
    /// Computes graphs on devices.
    Backend,
    /// Guesses ahead or rolls back.
    Strategy,
}

impl PluginKind {
    /// The kind's number in the plugin's table.
    pub fn code(self) -> u32 {
        match self {
            Self::Backend => abi::kind::BACKEND,
            Self::Strategy => abi::kind::STRATEGY,
        }
    }
}

impl fmt::Display for PluginKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backend => "backend",
            Self::Strategy => "strategy",
        })
    }
}

/// A version of the ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AbiVersion {
    /// Versions with another major have nothing in common.
    pub major: u32,
    /// Counts what was appended.
    pub minor: u32,
}

impl AbiVersion {
    /// Newest version that this program speaks.
    pub const HOST: Self = Self { major: abi::ABI_MAJOR, minor: abi::ABI_MINOR };
    /// Oldest version that this program speaks.
    pub const HOST_OLDEST: Self = Self { major: abi::ABI_MAJOR, minor: abi::ABI_OLDEST_MINOR };
}

impl FromStr for AbiVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| part.parse::<u16>().ok().map(u32::from);
        text.split_once('.')
            .and_then(|(major, minor)| Some(Self { major: number(major)?, minor: number(minor)? }))
            .ok_or_else(|| format!("`{text}` is no version of the ABI: it has the form `1.0`"))
    }
}

impl fmt::Display for AbiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Versions of the ABI that a plugin speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbiRange {
    /// Oldest one that it can talk to.
    pub oldest: AbiVersion,
    /// The one that it was built with.
    pub built: AbiVersion,
}

impl AbiRange {
    /// What this program speaks.
    pub const HOST: Self = Self { oldest: AbiVersion::HOST_OLDEST, built: AbiVersion::HOST };

    /// Whether two sides have a version in common.
    pub fn meets(self, other: Self) -> bool {
        self.oldest <= other.built && other.oldest <= self.built
    }
}

impl fmt::Display for AbiRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.oldest, self.built)
    }
}

/// A default that holds where its facts do.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredRule {
    /// The rule as it stands.
    pub table: toml::Table,
    /// Line of the descriptor on which it begins.
    pub line: usize,
}

impl Descriptor {
    /// Reads a descriptor.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and column. Keys that this version does not know are wrong,
    /// unless the plugin was built with a later version of the ABI.
    pub fn parse(text: &str) -> Result<Self, DescriptorFault> {
        raw::parse(text)
    }
}

/// Checks the form of an id.
pub(crate) fn check_id(id: &str) -> Result<(), String> {
    if id.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(format!("the id `{id}` must be in lower case, as `{}`", id.to_ascii_lowercase()));
    }
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = id.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if !begins || id.ends_with('-') || id.len() > ID_LIMIT || !id.bytes().all(allowed) {
        return Err(format!(
            "the id `{}` must be lower case letters, digits and dashes, at most {ID_LIMIT}, the first a letter",
            id.escape_debug()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
