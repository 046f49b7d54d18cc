//! Engines with strategies, for tests.

use paceline_engine::{DrafterOptions, Engine, EngineOptions, Model, RollbackOptions, StrategyOptions};
use paceline_gguf::{Gguf, OpenOptions};
use paceline_plugin_api::client::{BackendClient, DrafterPluginClient, RollbackPluginClient};
use paceline_registry::Registry;
use std::path::Path;
use std::sync::Arc;

fn settings(given: &[(&str, &str)]) -> Vec<(String, String)> {
    given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// A drafter that is linked into the test, with these settings.
pub fn drafter(id: &str, given: &[(&str, &str)]) -> DrafterOptions {
    DrafterOptions {
        plugin: drafter_plugin(&Registry::new().expect("built-in plugins enter"), id),
        settings: settings(given),
    }
}

/// The drafters of a plugin of a registry.
pub fn drafter_plugin(registry: &Registry, id: &str) -> DrafterPluginClient {
    let plugin = registry.find(id).unwrap_or_else(|error| panic!("{id}: {error}"));
    plugin.client.drafters().expect("its table is whole").expect("it drafts")
}

/// The rollback strategy that is linked into the test.
pub fn rollback(id: &str) -> RollbackOptions {
    RollbackOptions {
        plugin: rollback_plugin(&Registry::new().expect("built-in plugins enter"), id),
        settings: Vec::new(),
    }
}

/// The rollback strategy of a plugin of a registry.
pub fn rollback_plugin(registry: &Registry, id: &str) -> RollbackPluginClient {
    let plugin = registry.find(id).unwrap_or_else(|error| panic!("{id}: {error}"));
    plugin.client.rollbacks().expect("its table is whole").expect("it rolls back")
}

/// An engine on a model file with strategies.
pub fn engine_at(
    path: &Path,
    backend: &BackendClient,
    options: EngineOptions,
    strategies: &StrategyOptions,
) -> Engine {
    engine(open(path), backend, options, strategies)
}

/// A model file.
pub fn open(path: &Path) -> Arc<Gguf> {
    Arc::new(Gguf::open(path, &OpenOptions::default()).expect("a valid file"))
}

/// An engine on a model with strategies.
pub fn engine(
    gguf: Arc<Gguf>,
    backend: &BackendClient,
    options: EngineOptions,
    strategies: &StrategyOptions,
) -> Engine {
    let model = Model::new(gguf).expect("a model that runs");
    Engine::with_strategies(model, backend, options, strategies, &mut |_, _| {}).expect("it fits")
}

/// Drafters by id with their settings, in order of preference.
pub type Drafters<'a> = &'a [(&'a str, &'a [(&'a str, &'a str)])];

/// Options with these drafters, replay or snapshots for recurrent state, and drafts of fixed length.
pub fn strategies(drafters: Drafters<'_>, replay: bool) -> StrategyOptions {
    StrategyOptions {
        drafters: drafters.iter().map(|(id, settings)| drafter(id, settings)).collect(),
        rollback: replay.then(|| rollback("gdn-replay")),
        controller: false,
        ..StrategyOptions::default()
    }
}

/// True if tests are to walk over all that they can, however long it takes.
pub fn wants_long_tests() -> bool {
    std::env::var_os("PACELINE_LONG_TESTS").is_some_and(|value| !value.is_empty())
}
