//! A directory of plugins with everything that a discovery needs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use paceline_registry::{Candidates, DiscoverConfig, Prober, Registry, State};
use tempfile::TempDir;

use super::{CPlugin, GOOD, registry, shown, small_host, without};

/// A directory of plugins, a cache, and a counter of trials.
pub struct Case {
    root: TempDir,
    time_limit: Duration,
}

impl Case {
    /// An empty directory.
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for name in ["plugins", "outside"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        std::fs::write(root.path().join("counter"), "").unwrap();
        Self { root, time_limit: Duration::from_secs(10) }
    }

    /// A directory with a plugin that is all right.
    pub fn with_good() -> Self {
        let case = Self::new();
        CPlugin::new(GOOD).build(&case.file("libgood.so"));
        case
    }

    /// Sets the time that a plugin has.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// The folder of everything.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The directory that is searched.
    pub fn plugins(&self) -> PathBuf {
        self.root.path().join("plugins")
    }

    /// The directory of what is known.
    pub fn cache(&self) -> PathBuf {
        self.root.path().join("cache")
    }

    /// A file in the directory that is searched.
    pub fn file(&self, name: &str) -> PathBuf {
        self.plugins().join(name)
    }

    /// A file that is not.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.root.path().join("outside").join(name)
    }

    /// What is asked for.
    pub fn config(&self) -> DiscoverConfig {
        let arguments = ["probe".into(), self.root.path().join("counter").into()];
        DiscoverConfig {
            directories: vec![self.plugins()],
            prober: Some(Prober::new(small_host(), arguments).with_time_limit(self.time_limit)),
            cache: Some(self.cache()),
            ..DiscoverConfig::default()
        }
    }

    /// Looks at the directory.
    pub fn discover(&self) -> Candidates {
        Registry::discover(&self.config())
    }

    /// What came of a file, with its hint.
    pub fn state(&self, candidates: &Candidates, path: &Path) -> String {
        // The list has canonical paths, where there are any.
        let canonical = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let found = candidates.list().iter().find(|candidate| candidate.path == canonical);
        match found.map(|candidate| &candidate.state) {
            None => "not listed".to_owned(),
            Some(State::Refused(error)) => shown(error, self.root()),
            Some(state) => without(&state.to_string(), self.root()),
        }
    }

    /// What came of a bad file beside the good one, which must still be usable.
    pub fn refusal(&self, name: &str) -> String {
        let mut candidates = self.discover();
        let mut registry = registry();
        let backend = registry.load_backend(&mut candidates, GOOD).expect("the others still work");
        assert_eq!(backend.devices().unwrap().len(), 1);
        self.state(&candidates, &self.file(name))
    }

    /// How many files were tried so far.
    pub fn trials(&self) -> usize {
        std::fs::read(self.root.path().join("counter")).unwrap().len()
    }

    /// The small host, with the case's directories as its arguments.
    pub fn host(&self, command: &str, id: &str) -> Command {
        let mut host = Command::new(small_host());
        host.arg(command).arg(self.plugins()).arg(self.cache());
        if !id.is_empty() {
            host.arg(id);
        }
        host
    }

    /// Makes all that is known older.
    pub fn age(&self, seconds: u64) {
        self.change_known(|entry| age_parts(entry, &["describe", "devices"], seconds));
    }

    /// Makes the devices that were found older.
    pub fn age_found(&self, seconds: u64) {
        self.change_known(|entry| age_parts(entry, &["found"], seconds));
    }

    /// Forgets all verdicts on devices.
    pub fn forget_devices(&self) {
        self.change_known(|entry| entry["devices"] = serde_json::Value::Null);
    }

    /// Changes what is kept about each file.
    fn change_known(&self, change: impl Fn(&mut serde_json::Value)) {
        let file = self.cache().join("probes.json");
        let mut known: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        known["files"].as_object_mut().unwrap().values_mut().for_each(change);
        std::fs::write(&file, serde_json::to_vec(&known).unwrap()).unwrap();
    }
}

fn age_parts(entry: &mut serde_json::Value, parts: &[&str], seconds: u64) {
    for part in parts {
        if let Some(then) = entry[*part]["seconds"].as_u64() {
            entry[*part]["seconds"] = (then - seconds).into();
        }
    }
}

/// What comes of a plugin that `bend` changed.
pub fn refused(bend: impl FnOnce(CPlugin) -> CPlugin) -> String {
    let case = Case::with_good();
    bend(CPlugin::new("bad")).build(&case.file("libbad.so"));
    case.refusal("libbad.so")
}

/// What comes of a file that `make` makes.
pub fn refused_file(make: impl FnOnce(&Path)) -> String {
    let case = Case::with_good();
    make(&case.file("libbad.so"));
    case.refusal("libbad.so")
}
