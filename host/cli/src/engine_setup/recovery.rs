//! When a device fails while a model runs: its plugin is remembered if it panicked, and the sequences go on in another
//! engine, on the same device or on another backend if the files of settings say so.

use std::error::Error;

use paceline_engine::{Engine, EngineError, PluginPanic, Texts};
use paceline_registry::settings::Source;
use serde_json::{Value, json};

use super::{Context, Setup};
use crate::app::App;
use crate::failure::Failure;
use crate::printer::Unit;
use crate::text;

/// How often devices are opened again for one command. One that fails more often is not worth waiting for.
const MOST_REOPENED: usize = 3;

/// A device failed, and this went on in its place.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// What failed, such as `sim:0`.
    pub from: String,
    /// What took its place, which may be the same, opened again.
    pub to: String,
    /// What happened.
    pub reason: String,
    /// Tokens of all sequences that were processed again.
    pub tokens: usize,
}

impl Recovery {
    /// For JSON.
    pub fn as_json(&self) -> Value {
        json!({ "from": self.from, "to": self.to, "reason": self.reason, "tokens_read_again": self.tokens })
    }
}

impl Setup {
    /// Goes on after an error of a run: on the same device, opened again, or on a backend that `[select] fallback` names,
    /// with the same sequences and all tokens that they held. The engine that failed is dropped first.
    ///
    /// # Errors
    /// An error that is no failure of a device; one after which nothing could go on, with all that was tried.
    pub fn recover(
        &mut self,
        context: &mut Context,
        engine: Engine,
        error: EngineError,
        app: &App,
    ) -> Result<Engine, Failure> {
        self.remember_panics(&engine);
        if !error.is_device_fault() {
            return Err(self.failure(error));
        }
        let (texts, reason) = (engine.texts(), with_sources(&error));
        // A panic may have reached a strategy first, and the request only what it left behind.
        error.panic().iter().for_each(|panic| self.remember(panic));
        let is_trusted = !self.panicked.borrow().contains(self.backend.plugin());
        // Whatever it still holds, the next one needs.
        drop(engine);
        let mut failure = self.not_loaded(error, &context.strategies, app);
        let from = self.device.offer.label.clone();
        if is_trusted && self.may_reopen(texts.tokens()) {
            self.reopened.push(texts.tokens());
            match self.resumed(context, &texts, app) {
                Ok(engine) => {
                    let read = text::counted(texts.tokens() as u64, "token");
                    tracing::warn!("device {from} failed and was opened again ({read} read again): {reason}");
                    let to = from.clone();
                    self.recoveries.push(Recovery { from, to, reason, tokens: texts.tokens() });
                    return Ok(engine);
                }
                Err(again) => failure = failure.detail("opened again", again.in_one_line()),
            }
        }
        let failed = self.backend.plugin().to_owned();
        self.failed.insert(failed.clone());
        for id in self.fallback() {
            match self.move_to(&id, context).and_then(|()| self.resumed(context, &texts, app)) {
                Ok(engine) => {
                    let (to, read) =
                        (self.device.offer.label.clone(), text::counted(texts.tokens() as u64, "token"));
                    tracing::warn!(
                        "backend `{id}` ({to}) takes the place of `{failed}` ({from}), which failed ({read} read again): \
                         {reason}"
                    );
                    self.not_used.retain(|(other, _)| *other != id);
                    self.not_used.push((failed, reason.clone()));
                    self.recoveries.push(Recovery { from, to, reason, tokens: texts.tokens() });
                    return Ok(engine);
                }
                Err(other) => {
                    failure = failure.detail("fallback", format!("`{id}`: {}", other.in_one_line()));
                    self.failed.insert(id);
                }
            }
        }
        if !self.fallback.is_empty() {
            return Err(failure);
        }
        Err(failure.hint(if self.is_asked_for {
            "no other backend takes its place, as it was asked for with `--backend` or `--device`"
        } else {
            "no other backend may take its place: `fallback = [\"cpu\"]` in the section `select` of registry.toml lets one"
        }))
    }

    /// Whether a device may be opened again: not too often, and not where that did not help.
    fn may_reopen(&self, tokens: usize) -> bool {
        self.reopened.len() < MOST_REOPENED && self.reopened.last() != Some(&tokens)
    }

    /// An engine whose sequences hold these texts.
    fn resumed(&self, context: &mut Context, texts: &Texts, app: &App) -> Result<Engine, Failure> {
        let panicked = self.panicked.borrow().clone();
        let mut is_changed = false;
        for id in &panicked {
            is_changed |= context.strategies.give_up(id, "it panicked");
        }
        if is_changed {
            *context = self.context(context.strategies.clone(), context.given.clone())?;
        }
        let mut engine = self.load(context, None, app)?;
        let mut progress = app.printer.progress("reading the text again", Unit::Tokens);
        let resumed = engine.resume(texts, &mut |done| progress.at(done as u64, texts.tokens() as u64));
        match resumed {
            Ok(()) => Ok(engine),
            Err(error) => {
                self.remember_panics(&engine);
                Err(self.failure(error))
            }
        }
    }

    /// Remembers plugins from files whose code panicked, also where no request failed by it.
    pub fn remember_panics(&self, engine: &Engine) {
        engine.panics().iter().for_each(|panic| self.remember(panic));
    }

    /// Remembers a plugin from a file that panicked, so that it is not used at the next start.
    pub(super) fn remember(&self, PluginPanic { plugin: id, message }: &PluginPanic) {
        let Ok(plugin) = self.registry.find(id) else { return };
        let Some(path) = plugin.origin.path() else { return };
        if !self.panicked.borrow_mut().insert(id.clone()) || !self.candidates.distrust(plugin, message) {
            return;
        }
        tracing::warn!(
            "plugin `{id}` panicked and will not be used again (`paceline plugins enable {id}` trusts it again): {}",
            path.display()
        );
    }

    /// Hands the settings that the command line gives for one backend to the one in its place: an option that any backend
    /// may have stays, and what was meant for this very plugin goes.
    pub(super) fn hand_over(&mut self, context: &mut Context, from: &str, to: &str) {
        let is_known = |key: &str| self.sources.schema.get(key).is_ok();
        for given in [&mut context.given, &mut self.given] {
            given.retain_mut(|given| {
                let Some(key) = given.key.strip_prefix(from).and_then(|rest| rest.strip_prefix('.')) else {
                    return true;
                };
                let is_option = matches!(&given.source, Source::CommandLine { option } if option != "--set");
                let own = format!("{to}.{key}");
                if is_option && is_known(&own) {
                    given.key = own;
                    return true;
                }
                let warning = format!("`{}` by {} has no effect on `{to}`", given.key, given.source);
                if self.warned.borrow_mut().insert(warning.clone()) {
                    tracing::warn!("{warning}");
                }
                false
            });
        }
    }
}

/// An error with all that caused it.
fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
