//! Finds plugins, built in or in shared libraries, and opens them through the ABI.
//!
//! ```no_run
//! # fn main() -> Result<(), paceline_registry::Error> {
//! use paceline_registry::Registry;
//!
//! let mut registry = Registry::new()?;
//! registry.expect_builtins(&["cpu"])?;
//! registry.load_file("plugins/libmy_backend.so")?;
//! let backend = registry.backend(None)?;
//! # let _ = backend;
//! # Ok(())
//! # }
//! ```
//!
//! A program that searches directories, and lets nothing that it finds there take it down:
//!
//! ```no_run
//! # fn main() -> Result<(), paceline_registry::Error> {
//! use paceline_registry::{DiscoverConfig, Environment, Prober, Registry};
//!
//! let environment = Environment::of_process();
//! let config = DiscoverConfig {
//!     directories: environment.search_directories(),
//!     cache: environment.cache_directory(),
//!     // The program has to call `probe_main` when it is started so.
//!     prober: std::env::current_exe().ok().map(|program| Prober::new(program, ["--probe".into()])),
//!     ..DiscoverConfig::default()
//! };
//! let mut candidates = Registry::discover(&config);
//! for candidate in candidates.list() {
//!     println!("{}: {}", candidate.path.display(), candidate.state);
//! }
//! let backend = Registry::new()?.load_backend(&mut candidates, "cuda")?;
//! # let _ = backend;
//! # Ok(())
//! # }
//! ```
//!
//! Rules:
//!
//! - A file is looked at before it is loaded: who may write it, whether it is a whole shared library for this
//!   machine, what its descriptor says. Loading runs code in it, so what fails these checks is refused first.
//! - What is found in directories is tried in a process of its own before it is loaded in this one, once for every
//!   change of the file. Devices are asked for in the same way, and only of backends that are used.
//! - A plugin is never unloaded.
//! - A file that is given explicitly takes the place of the built-in plugin with the same id, one that was found only
//!   if it is newer or was chosen in the lock file. Of several files with one id the newest is used; if that does not
//!   tell which, none is.
//! - One plugin or device that fails does not hide the others.
//! - Defaults of [`settings`] follow from which backend runs which layers, never from what else there is.

#![deny(unsafe_code)]

mod bytes;
mod cache;
mod candidates;
mod cpu_features;
mod descriptor;
mod drivers;
mod error;
mod examine;
mod fault;
mod host_table;
mod identity;
mod known;
mod library;
mod log_bridge;
mod plugin;
mod probe;
mod registry;
mod search;
pub mod settings;
mod shared_object;
mod signature;
mod store;
mod trust;

pub use cache::{Distrusted, forget};
pub use candidates::{Candidate, Candidates, DiscoverConfig, Pin, Source, State};
pub use cpu_features::processor_features;
pub use descriptor::{
    AbiRange, AbiVersion, DeclaredRule, DeclaredSetting, DeclaredType, Descriptor, DescriptorFault, Driver,
    DriverRange, PluginKind, VersionSource,
};
pub use error::{Error, Result};
pub use fault::FileFault;
pub use host_table::HOST_TABLE;
pub use known::{DriverSearch, KnownBackend};
pub use plugin::{Origin, Plugin};
pub use probe::{
    Cause, Described, Earlier, Failure, FoundDriver, Phase, ProbedDevice, Prober, Verdict, probe_main,
};
pub use registry::{BackendDevices, Registry};
pub use search::Environment;
pub use semver;
pub use signature::{SignaturePolicy, Signatures, TrustedKey};
pub use store::{Choice, Installation, Installed, Lock, PluginStore};
pub use trust::check_folder;
