//! What the files of settings say, before any plugin is known.

use paceline_registry::Environment;
use paceline_registry::settings::{ConfigFile, Faults, PluginSet};

/// Variables of this program that are no settings.
pub const OTHER_VARIABLES: [&str; 11] = [
    "PACELINE_PLUGIN_DIRS",
    "PACELINE_LOG",
    "PACELINE_ROCM_LIBRARY",
    "PACELINE_ROCM_TUNING",
    "PACELINE_SIM_DEVICES",
    "PACELINE_TEST_MODELS",
    "PACELINE_COVERS",
    "PACELINE_ACCEPT_ABI",
    "PACELINE_ACCEPT_HEADER",
    "PACELINE_INTEL_OPENCL",
    "PACELINE_LONG_TESTS",
];

/// The files: the one that is part of the program, the site's, the user's.
pub struct Config {
    /// What was read.
    pub files: Vec<ConfigFile>,
    /// Which plugins they ask for.
    pub plugins: PluginSet,
}

impl Config {
    /// Reads the files that are there.
    pub fn read() -> Result<Self, Faults> {
        Self::of(ConfigFile::all(&Environment::of_process())?)
    }

    /// What these files say.
    pub fn of(files: Vec<ConfigFile>) -> Result<Self, Faults> {
        let plugins = PluginSet::of(&files)?;
        Ok(Self { files, plugins })
    }
}
