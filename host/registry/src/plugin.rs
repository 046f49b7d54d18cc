//! One plugin and where it comes from.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paceline_plugin_api::abi::kind;
use paceline_plugin_api::client::PluginClient;
use paceline_plugin_api::weight_types::WeightType;

use crate::descriptor::Descriptor;

/// Where a plugin comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Linked into this program.
    BuiltIn,
    /// A shared library, by its canonical path.
    File(PathBuf),
}

impl Origin {
    /// The shared library's path; `None` for a built-in.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::BuiltIn => None,
            Self::File(path) => Some(path),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built in"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A plugin that entered this process.
#[derive(Clone)]
pub struct Plugin {
    /// The plugin behind its table.
    pub client: PluginClient,
    /// Where it comes from.
    pub origin: Origin,
    descriptor: Option<Arc<Descriptor>>,
}

impl Plugin {
    /// A plugin that is linked in; its descriptor stands in its table.
    pub(crate) fn built_in(client: PluginClient) -> Self {
        let descriptor = Descriptor::parse(&client.descriptor())
            .inspect_err(|fault| {
                tracing::warn!("the descriptor of built-in plugin `{}` is wrong at {fault}", client.id());
            })
            .ok();
        Self { client, origin: Origin::BuiltIn, descriptor: descriptor.map(Arc::new) }
    }

    /// A plugin from a file, with the descriptor by which it was chosen.
    pub(crate) fn from_file(client: PluginClient, path: PathBuf, descriptor: Descriptor) -> Self {
        Self { client, origin: Origin::File(path), descriptor: Some(Arc::new(descriptor)) }
    }

    /// What the plugin says about itself; `None` for a built-in whose descriptor cannot be read.
    pub fn descriptor(&self) -> Option<&Descriptor> {
        self.descriptor.as_deref()
    }

    /// Weight types that the plugin declares.
    pub fn weight_types(&self) -> &[WeightType] {
        self.descriptor().map_or(&[], |descriptor| &descriptor.weight_types)
    }

    /// The plugin's id.
    pub fn id(&self) -> String {
        self.client.id()
    }

    /// Whether the plugin says that it is a backend.
    pub fn is_backend(&self) -> bool {
        self.client.kind() == kind::BACKEND
    }

    /// The plugin's kind in words.
    pub fn kind_name(&self) -> String {
        match self.client.kind() {
            kind::BACKEND => "backend".to_owned(),
            kind::STRATEGY => "strategy".to_owned(),
            other => format!("unknown ({other})"),
        }
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("id", &self.id()).field("origin", &self.origin).finish_non_exhaustive()
    }
}
