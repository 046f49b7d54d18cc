//! Settings whose defaults follow the backend in use.
//!
//! A setting gets its value from the strongest source that has one, weakest first: its default, a rule in its plugin's
//! descriptor, then rules and plain settings of the shipped `registry.toml`, of a site's file and of a user's, then
//! the environment, the command line, and a request. A rule is a default with conditions; it can test what is true of
//! the context ([`ContextFacts`]), which follows from where the layers are, and nothing else. So what else a machine
//! has, and in which order plugins are found, changes no value.
//!
//! ```
//! use paceline_registry::settings::{
//!     ConfigFile, DeviceKind, Given, LayerKind, ModelFacts, Offer, Placement, Resolver, Schema,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let schema = Schema::host(); // and `add` for each plugin that may be used
//! let files = [ConfigFile::shipped()?];
//! let resolver = Resolver::new(schema, &files, &[Given::option("--ctx", "context", "4096")])?;
//!
//! // What decides the placement comes first.
//! let model = ModelFacts { arch: "llama".into(), layers: vec![LayerKind::Attention; 8], ..ModelFacts::default() };
//! let before = resolver.before_placement(&model)?;
//! assert_eq!(before.value("context").map(ToString::to_string).as_deref(), Some("4096"));
//!
//! // Then layers are placed, and the rest follows from where they are.
//! let cpu = Offer {
//!     plugin: "cpu".into(),
//!     version: semver::Version::new(0, 1, 0),
//!     label: "cpu:0".into(),
//!     arch: "x86_64".into(),
//!     kind: DeviceKind::Cpu,
//!     memory: 8 << 30,
//!     capabilities: Default::default(),
//! };
//! let facts = Placement::new(model).layers(0..8, &cpu).context(4096).commit()?;
//! let settings = resolver.on_placement(&facts, &Default::default(), &before)?;
//! for warning in settings.overridden() {
//!     println!("warning: {warning}");
//! }
//! # Ok(())
//! # }
//! ```

mod explain;
mod facts;
mod fault;
mod files;
mod given;
mod host_settings;
mod observe;
mod plugin_set;
mod resolution;
mod resolve;
mod rule;
mod schema;
mod source;
mod table;
mod toml_text;
mod value;
mod when;

pub use explain::Report;
pub use facts::{
    ContextFacts, DeviceKind, DrafterPlace, LayerKind, Link, ModelFacts, Offer, Placement, PlacementFault,
    Role, Split,
};
pub use fault::{Fault, Faults};
pub use files::{ConfigFile, Strategy};
pub use given::{FromEnvironment, Given};
pub use plugin_set::PluginSet;
pub use resolution::{Candidate, Decided, Loser, Overridden, Resolution, Unused, Why};
pub use resolve::{Entry, Resolver};
pub use schema::{DefaultValue, Owner, Schema, Setting};
pub use source::{Layer, Place, Source};
pub use value::{AUTO, Takes, Value};
