//! Which plugins panicked while a context was used.
//!
//! A panic of a strategy ends no request, and one of a backend may reach the host through a strategy that ran a program.
//! So both are noted where they happen, with the plugin whose code it was.

use crate::error::EngineError;
use paceline_plugin_api::client::DrafterClient;
use paceline_plugin_api::strategy::{DrafterInfo, Outcome, Request, Session};
use paceline_plugin_api::{Error as PluginError, ErrorKind, Result as PluginResult};
use std::sync::{Arc, Mutex, PoisonError};

/// A plugin's code panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginPanic {
    /// Id of the plugin.
    pub plugin: String,
    /// What it said.
    pub message: String,
}

/// The panics of a context, shared by all who call plugins for it.
#[derive(Clone, Default)]
pub(crate) struct Panics(Arc<Mutex<Vec<PluginPanic>>>);

impl Panics {
    /// Notes an error of a backend, if it is a panic.
    pub fn note(&self, error: &EngineError) {
        if let Some(panic) = error.panic() {
            self.add(panic);
        }
    }

    /// Notes an error of a strategy's call, if it is a panic of its own: that of a backend was noted within the call.
    fn note_of_strategy(&self, plugin: &str, error: &PluginError) {
        if error.kind == ErrorKind::Panic && !self.list().iter().any(|it| it.message == error.message) {
            self.add(PluginPanic { plugin: plugin.to_owned(), message: error.message.clone() });
        }
    }

    fn add(&self, panic: PluginPanic) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains(&panic) {
            all.push(panic);
        }
    }

    /// All so far.
    pub fn list(&self) -> Vec<PluginPanic> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A drafter whose panics are noted. Its calls are those of [`DrafterClient`].
pub(crate) struct WatchedDrafter {
    client: DrafterClient,
    panics: Panics,
}

impl WatchedDrafter {
    pub fn new(client: DrafterClient, panics: Panics) -> Self {
        Self { client, panics }
    }

    fn watched<T>(&mut self, call: impl FnOnce(&mut DrafterClient) -> PluginResult<T>) -> PluginResult<T> {
        let result = call(&mut self.client);
        self.noted(result)
    }

    fn noted<T>(&self, result: PluginResult<T>) -> PluginResult<T> {
        result.inspect_err(|error| self.panics.note_of_strategy(self.client.plugin(), error))
    }

    pub fn plugin(&self) -> &str {
        self.client.plugin()
    }

    pub fn info(&self) -> DrafterInfo {
        self.client.info()
    }

    pub fn begin(&mut self, sequence: u32) -> PluginResult<()> {
        self.watched(|client| client.begin(sequence))
    }

    pub fn observe(
        &mut self,
        session: &mut dyn Session,
        sequence: u32,
        position: u32,
        tokens: &[u32],
    ) -> PluginResult<()> {
        self.watched(|client| client.observe(session, sequence, position, tokens))
    }

    pub fn propose(
        &mut self,
        session: &mut dyn Session,
        request: Request,
        tokens: &mut [u32],
        confidence: &mut [f32],
        distributions: Option<&mut [f32]>,
    ) -> PluginResult<usize> {
        self.watched(|client| client.propose(session, request, tokens, confidence, distributions))
    }

    pub fn resolve(&mut self, outcome: Outcome) -> PluginResult<()> {
        self.watched(|client| client.resolve(outcome))
    }

    pub fn truncate(&mut self, sequence: u32, length: u32) -> PluginResult<()> {
        self.watched(|client| client.truncate(sequence, length))
    }

    pub fn save(&self, sequence: u32) -> PluginResult<Option<Vec<u8>>> {
        self.noted(self.client.save(sequence))
    }

    pub fn restore(&mut self, sequence: u32, tokens: &[u32], saved: &[u8]) -> PluginResult<()> {
        self.watched(|client| client.restore(sequence, tokens, saved))
    }

    pub fn explain(&self) -> PluginResult<String> {
        self.noted(self.client.explain())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_backend(kind: ErrorKind, message: &str) -> EngineError {
        EngineError::backend("device", "running a step")(PluginError::new(kind, message))
    }

    #[test]
    fn a_panic_is_of_the_plugin_whose_code_it_was() {
        let panics = Panics::default();
        panics.note(&of_backend(ErrorKind::DeviceLost, "gone"));
        panics.note_of_strategy("guess", &PluginError::unsupported("no"));
        assert!(panics.list().is_empty());
        // What a strategy reports of a program that it ran was the backend's.
        panics.note(&of_backend(ErrorKind::Panic, "a"));
        panics.note_of_strategy("guess", &PluginError::new(ErrorKind::Panic, "a"));
        panics.note_of_strategy("guess", &PluginError::new(ErrorKind::Panic, "b"));
        panics.note_of_strategy("guess", &PluginError::new(ErrorKind::Panic, "b"));
        let found = panics.list();
        let found: Vec<_> = found.iter().map(|it| (it.plugin.as_str(), it.message.as_str())).collect();
        assert_eq!(found, [("device", "a"), ("guess", "b")]);
    }
}
