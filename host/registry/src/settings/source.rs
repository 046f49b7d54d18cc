//! Where values come from, and which source wins.

use std::fmt;

use serde::Serialize;

/// A place in a text that people write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Name of the file, or `descriptor of plugin X`.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Whose file it is; later ones win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// Part of the program.
    Shipped,
    /// The administrator's.
    Site,
    /// The user's.
    User,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shipped => "shipped",
            Self::Site => "site",
            Self::User => "user",
        })
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Source {
    /// The host's own default.
    BuiltIn,
    /// The default that a plugin declares.
    PluginDefault {
        /// The plugin.
        plugin: String,
    },
    /// A rule in a plugin's descriptor.
    PluginRule {
        /// The plugin.
        plugin: String,
        /// Where the rule begins.
        place: Place,
    },
    /// A rule in a file.
    Rule {
        /// Whose file.
        layer: Layer,
        /// Where the rule begins.
        place: Place,
    },
    /// A plain setting in a file.
    File {
        /// Whose file.
        layer: Layer,
        /// Where it stands.
        place: Place,
    },
    /// A variable of the environment.
    Environment {
        /// Its name.
        variable: String,
    },
    /// An option of the command line.
    CommandLine {
        /// The option, such as `--set`.
        option: String,
    },
    /// A request to a server.
    Request,
}

impl Source {
    /// Stronger sources have higher ranks. What a layer says outranks all that weaker layers say, and in a layer a plain
    /// setting outranks rules.
    pub fn rank(&self) -> u8 {
        match self {
            Self::BuiltIn | Self::PluginDefault { .. } => 0,
            Self::PluginRule { .. } => 1,
            Self::Rule { layer, .. } => 2 + 2 * *layer as u8,
            Self::File { layer, .. } => 3 + 2 * *layer as u8,
            Self::Environment { .. } => 8,
            Self::CommandLine { .. } => 9,
            Self::Request => 10,
        }
    }

    /// Whether somebody asked for exactly this, so that it may not be dropped without a word.
    pub fn is_explicit(&self) -> bool {
        match self {
            Self::BuiltIn | Self::PluginDefault { .. } | Self::PluginRule { .. } | Self::Rule { .. } => false,
            Self::File { layer, .. } => *layer != Layer::Shipped,
            Self::Environment { .. } | Self::CommandLine { .. } | Self::Request => true,
        }
    }

    /// Whether it was given for this run alone, so that it must have an effect.
    pub fn is_for_this_run(&self) -> bool {
        matches!(self, Self::CommandLine { .. } | Self::Request)
    }

    /// Where it stands in a text.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::PluginRule { place, .. } | Self::Rule { place, .. } | Self::File { place, .. } => {
                Some(place)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in default"),
            Self::PluginDefault { plugin } => write!(f, "default of {plugin}"),
            Self::PluginRule { plugin, place } => write!(f, "rule in plugin {plugin}, line {}", place.line),
            Self::Rule { place, .. } => write!(f, "rule {place}"),
            Self::File { place, .. } => place.fmt(f),
            Self::Environment { variable } => f.write_str(variable),
            Self::CommandLine { option } => f.write_str(option),
            Self::Request => f.write_str("request"),
        }
    }
}
