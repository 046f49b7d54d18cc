//! What commands share.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use paceline_registry::settings::Faults;
use paceline_registry::{
    Candidates, DiscoverConfig, Environment, Error, PluginKind, PluginStore, Prober, Registry,
};

use crate::builtins::BUILTINS;
use crate::config::Config;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::printer::Printer;

/// The option that makes this program try a plugin, and nothing else.
pub const PROBE_OPTION: &str = "--probe";

/// The printer, and the plugins that were asked for.
pub struct App {
    /// Writes all output.
    pub printer: Printer,
    plugin_files: Vec<PathBuf>,
    config: OnceCell<Result<Config, Faults>>,
}

impl App {
    /// An app that will load these plugin files.
    pub fn new(printer: Printer, plugin_files: Vec<PathBuf>) -> Self {
        Self { printer, plugin_files, config: OnceCell::new() }
    }

    /// What the files of settings say. Files that are wrong are an error for every command that runs something.
    pub fn config(&self) -> Result<&Config, Failure> {
        self.config_or_faults().map_err(Failure::faults)
    }

    fn config_or_faults(&self) -> Result<&Config, &Faults> {
        self.config.get_or_init(Config::read).as_ref()
    }

    /// The plugins that there are, and the registry with those that the user named.
    pub fn plugins(&self) -> Result<(Registry, Candidates), Failure> {
        self.config()?;
        let candidates = self.discover(None);
        Ok((self.with_named(&candidates)?, candidates))
    }

    /// The plugins for a command that runs something: those that are named, and the built-in ones or newer ones in
    /// their places. `backend` is loaded wherever it is found. Commands that need no plugin do not pay for them.
    pub fn registry(&self, backend: Option<&str>) -> Result<Registry, Failure> {
        let (mut registry, mut candidates) = self.plugins()?;
        let wanted = match backend {
            Some(id) => vec![id.to_owned()],
            None => registry.plugins().iter().filter(|it| it.is_backend()).map(|it| it.id()).collect(),
        };
        for id in wanted {
            // What the user named is there, and is not asked for its devices before it is used.
            if !registry.find(&id).is_ok_and(|plugin| plugin.origin.path().is_some()) {
                registry
                    .load_backend(&mut candidates, &id)
                    .map_err(|error| among_backends(error, &registry, &candidates))?;
            }
        }
        Ok(registry)
    }

    /// The built-in plugins and those that the user named. A named one that cannot be used is an error.
    pub fn with_named(&self, candidates: &Candidates) -> Result<Registry, Failure> {
        // Faulty files may have said which plugins are not to be trusted.
        self.config()?;
        let mut registry = Registry::new()?;
        registry.expect_builtins(BUILTINS)?;
        candidates.expect_named()?;
        registry.drop_disabled(candidates);
        for candidate in candidates.list().iter().filter(|candidate| candidate.is_wanted()) {
            if let Some(id) = candidate.id() {
                registry.load(candidates, id)?;
            }
        }
        Ok(registry)
    }

    /// Looks at the files that the user named, `first` before the others, and at those in the directories. Loads
    /// nothing in this process.
    pub fn discover(&self, first: Option<&Path>) -> Candidates {
        let environment = Environment::of_process();
        let config = self.config_or_faults();
        if let Err(faults) = config {
            // Whoever looks for what is wrong has to get that far.
            faults.0.iter().for_each(|fault| self.printer.warning(fault));
        }
        let plugins = config.ok().map(|config| &config.plugins);
        Registry::discover(&DiscoverConfig {
            files: first.map(Path::to_owned).into_iter().chain(self.plugin_files.iter().cloned()).collect(),
            directories: plugins
                .map_or_else(|| environment.search_directories(), |it| it.directories(&environment)),
            pins: plugins.map(|it| it.pins.clone()).unwrap_or_default(),
            disabled: plugins.map(|it| it.disabled.clone()).unwrap_or_default(),
            cache: environment.cache_directory(),
            installed: environment.user_plugin_directory(),
            signatures: plugins.map(|it| it.signatures.clone()).unwrap_or_default(),
            // Without knowing whom the files trust, nothing is tried.
            prober: plugins.and_then(|_| prober()),
        })
    }
}

/// An unknown backend is told from other backends, not from strategies.
pub fn among_backends(mut error: Error, registry: &Registry, candidates: &Candidates) -> Error {
    let is_strategy = |id: &String| match registry.find(id) {
        Ok(plugin) => !plugin.is_backend(),
        Err(_) => candidates.list().iter().any(|candidate| {
            let kind = candidate.descriptor.as_ref().map(|descriptor| descriptor.kind);
            candidate.id() == Some(id) && kind == Some(PluginKind::Strategy)
        }),
    };
    if let Error::Unknown { known, .. } = &mut error {
        known.retain(|id| !is_strategy(id));
    }
    error
}

/// Tries plugins in this program, started once more.
pub fn prober() -> Option<Prober> {
    std::env::current_exe().ok().map(|program| Prober::new(program, [PROBE_OPTION.into()]))
}

/// The folder in which this user's plugins are installed.
pub fn plugin_store() -> Result<PluginStore, Failure> {
    let folder = Environment::of_process().user_plugin_directory();
    folder.map(PluginStore::new).ok_or_else(|| {
        let message =
            "there is no folder for plugins: neither `HOME` nor `XDG_DATA_HOME` is an absolute path";
        Failure::new(Exit::Failed, message).hint("set `XDG_DATA_HOME` to a folder of yours")
    })
}
