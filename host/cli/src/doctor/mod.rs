//! Judges the machine, its drivers and the plugins: from facts to findings, and what to do about those that are problems.
//!
//! `facts` collects, `judge` decides and is a pure function, `variables` knows what others set in the environment.

mod facts;
mod judge;
mod variables;

pub use facts::collect;
pub use judge::{Finding, Level, judge};
use paceline_registry::KnownBackend;

/// What is known about this machine.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Version of this program.
    pub version: String,
    /// Versions of the plugin ABI that it speaks.
    pub abi: String,
    /// The operating system, such as `linux x86_64`, with its version if that is known.
    pub system: String,
    /// The processor's name.
    pub processor: Option<String>,
    /// Its features that matter for the speed of models.
    pub features: Vec<String>,
    /// What the CPU backend computes with, in its words; `None` without that backend.
    pub cpu_backend: Option<String>,
    /// Threads that this process may use, and that the machine has.
    pub threads: [Option<usize>; 2],
    /// Memory.
    pub memory: Memory,
    /// Variables that are set and mean something here, in order of their names.
    pub variables: Vec<(String, String)>,
    /// Drivers that were looked for.
    pub drivers: Vec<Driver>,
    /// Folders that are searched for plugins, in order.
    pub folders: Vec<Folder>,
    /// The folder for what is known about plugins.
    pub cache: Option<Folder>,
    /// What is wrong with the lock file, and what to do.
    pub lock_fault: Option<[String; 2]>,
    /// Plugins, and files that should be some.
    pub plugins: Vec<PluginFact>,
}

/// Memory in bytes, each part if it is known.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// All of the machine.
    pub total: Option<u64>,
    /// What programs can get now.
    pub available: Option<u64>,
    /// Limit of this process's control group.
    pub limit: Option<u64>,
    /// Whether transparent huge pages are given: always, madvise or never.
    pub huge_pages: Option<String>,
}

/// A driver's library.
#[derive(Clone, Debug)]
pub struct Driver {
    /// What it is for, and the names of its library.
    pub known: &'static KnownBackend,
    /// The library that was found, else the first that was looked for.
    pub library: String,
    /// A file by which the system shows that there is such a device.
    pub device: Option<String>,
    /// The library's path, or why it cannot be loaded.
    pub found: Result<String, String>,
}

/// A folder.
#[derive(Clone, Debug)]
pub struct Folder {
    /// Where it is.
    pub path: String,
    /// What it is like.
    pub state: FolderState,
}

/// What a folder is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FolderState {
    /// It is not there.
    Missing,
    /// It can be used, with its permission bits where the system has some.
    Fine(Option<u32>),
    /// It cannot be used, and what to do.
    Faulty(String, String),
}

/// A plugin, or a file that should be one.
#[derive(Clone, Debug)]
pub struct PluginFact {
    /// Id and version, as far as they are known.
    pub name: String,
    /// Where it comes from.
    pub origin: String,
    /// Whether it is used, and why not.
    pub state: String,
    /// What its hash says, if it was installed.
    pub hash: Option<&'static str>,
    /// It cannot be used, and what to do if that is known.
    pub fault: Option<Option<String>>,
}
