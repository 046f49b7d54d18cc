//! `plugins test` on a strategy: its side of the contract, without a model.
//!
//! What it guesses, and whether a text stays the same with it, only a model shows; `bench` does.

use paceline_plugin_api::client::{DrafterClient, DrafterPluginClient, RollbackPluginClient};
use paceline_plugin_api::graph::step::{ContextShape, Tap};
use paceline_plugin_api::graph::{DType, Graph};
use paceline_plugin_api::strategy::{
    DeltaNetShape, Facts, GroupRows, ProgramId, Request, Session, Source, TensorFacts,
};
use paceline_plugin_api::{Error, ErrorKind, Result};
use paceline_registry::{DeclaredType, Plugin};

/// Tokens of the vocabulary of a context that nothing is known of.
const VOCABULARY: u32 = 1000;
/// A setting that no strategy has.
const NO_SETTING: &str = "no-such-setting";
/// A value that no number and no switch can have.
const NO_VALUE: &str = "no such value";

/// What came of a check.
pub enum Verdict {
    /// As it must be.
    Passed,
    /// Wrong, and how.
    Failed(String),
    /// It could not be checked, and why.
    Skipped(String),
}

/// One check.
pub struct Check {
    /// What is checked.
    pub name: String,
    /// What came of it.
    pub verdict: Verdict,
}

/// Runs all checks; `settings` are given to the plugin where it shall work.
pub fn run(plugin: &Plugin, settings: &[(String, String)]) -> Vec<Check> {
    let mut checks = Checks::default();
    let drafters = checks.table("the table of drafters", plugin.client.drafters());
    let rollbacks = checks.table("the table of rollback strategies", plugin.client.rollbacks());
    if drafters.is_none() && rollbacks.is_none() && checks.0.is_empty() {
        checks.add("an interface", Verdict::Failed("it neither drafts nor rolls back".to_owned()));
    }
    if let Some(drafters) = drafters {
        let create = |given: &[(String, String)]| drafters.create(&facts(), given, &mut Nothing).map(|_| ());
        checks.settings(plugin, &create);
        checks.drafts(&drafters, settings);
    }
    if let Some(rollbacks) = rollbacks {
        let create = |given: &[(String, String)]| rollbacks.create(&facts(), given, &mut Nothing).map(|_| ());
        checks.settings(plugin, &create);
        checks.rolls_back(&rollbacks, settings);
    }
    checks.0
}

/// Makes a strategy with some settings, and drops it.
type Create<'a> = dyn Fn(&[(String, String)]) -> Result<()> + 'a;

#[derive(Default)]
struct Checks(Vec<Check>);

impl Checks {
    fn add(&mut self, name: impl Into<String>, verdict: Verdict) {
        self.0.push(Check { name: name.into(), verdict });
    }

    fn table<T>(&mut self, name: &str, table: Result<Option<T>>) -> Option<T> {
        match table {
            Ok(None) => None,
            Ok(Some(table)) => {
                self.add(name, Verdict::Passed);
                Some(table)
            }
            Err(error) => {
                self.add(name, Verdict::Failed(error.to_string()));
                None
            }
        }
    }

    /// What is wrong must be refused, also where the strategy cannot work.
    fn settings(&mut self, plugin: &Plugin, create: &Create<'_>) {
        let one = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
        self.add("an unknown setting is refused", must_be_refused(create(&one(NO_SETTING, "1"))));
        for setting in plugin.descriptor().iter().flat_map(|descriptor| &descriptor.settings) {
            let key = &setting.key;
            self.add(
                format!("a wrong value of `{key}` is refused"),
                must_be_refused(create(&one(key, NO_VALUE))),
            );
            let default = match &setting.kind {
                DeclaredType::Bool { default } => (if *default { "on" } else { "off" }).to_owned(),
                DeclaredType::Integer { default, .. } => default.to_string(),
                DeclaredType::Float { default, .. } => default.to_string(),
                DeclaredType::Choice { default, .. } => default.clone(),
            };
            let verdict = match create(&one(key, &default)) {
                Err(error) if error.kind == ErrorKind::Invalid => Verdict::Failed(error.to_string()),
                _ => Verdict::Passed,
            };
            self.add(format!("the default of `{key}` is taken"), verdict);
        }
    }

    /// A drafter that needs no model is made, told a text and asked.
    fn drafts(&mut self, drafters: &DrafterPluginClient, settings: &[(String, String)]) {
        const NAME: &str = "a text is followed";
        match drafters.create(&facts(), settings, &mut Nothing) {
            Ok(drafter) => match follow(drafter) {
                Ok(()) => self.add(NAME, Verdict::Passed),
                Err(problem) => self.add(NAME, Verdict::Failed(problem)),
            },
            Err(error) => self.add(NAME, without_model(&error)),
        }
    }

    fn rolls_back(&mut self, rollbacks: &RollbackPluginClient, settings: &[(String, String)]) {
        const NAME: &str = "a recurrent layer gets its graph";
        let graph = rollbacks
            .create(&facts(), settings, &mut Nothing)
            .and_then(|rollback| rollback.delta_net(&delta_net()));
        match graph {
            Ok(_) => self.add(NAME, Verdict::Passed),
            Err(error) => self.add(NAME, without_model(&error)),
        }
    }
}

fn must_be_refused(made: Result<()>) -> Verdict {
    match made {
        Ok(()) => Verdict::Failed("it is taken".to_owned()),
        Err(error) if error.kind == ErrorKind::Invalid => Verdict::Passed,
        Err(error) => Verdict::Skipped(format!("it was refused for another reason first: {error}")),
    }
}

/// A refusal is no fault: there is no model here. One that says nothing is.
fn without_model(error: &Error) -> Verdict {
    match error.kind {
        ErrorKind::Unsupported if !error.message.is_empty() => {
            Verdict::Skipped(format!("it needs a model: {}", error.message))
        }
        _ => Verdict::Failed(error.to_string()),
    }
}

/// Tells a drafter a text that repeats itself, asks it, takes some back and asks again.
fn follow(mut drafter: DrafterClient) -> Result<(), String> {
    let text: Vec<u32> = (0..64).map(|position| position % 8).collect();
    let failed = |doing: &'static str| move |error: Error| format!("{doing}: {error}");
    drafter.begin(0).map_err(failed("a sequence begins"))?;
    drafter.observe(&mut Nothing, 0, 0, &text).map_err(failed("a text is observed"))?;
    ask(&mut drafter, 64)?;
    drafter.truncate(0, 32).map_err(failed("positions are taken back"))?;
    ask(&mut drafter, 32)?;
    drafter.begin(0).map_err(failed("the sequence begins anew"))?;
    Ok(())
}

fn ask(drafter: &mut DrafterClient, frontier: u32) -> Result<(), String> {
    const MOST: usize = 8;
    let (mut tokens, mut confidence) = ([0; MOST], [0.0; MOST]);
    let request = Request { sequence: 0, frontier, anchor: frontier % 8, most: MOST as u32 };
    let count = drafter
        .propose(&mut Nothing, request, &mut tokens, &mut confidence, None)
        .map_err(|error| format!("it is asked: {error}"))?;
    match tokens[..count].iter().find(|&&token| token >= VOCABULARY) {
        Some(token) => Err(format!("it guessed token {token} of {VOCABULARY}")),
        None => Ok(()),
    }
}

/// A context that nothing is known of.
fn facts() -> Facts {
    let context = ContextShape {
        sequences: 1,
        positions: 1024,
        blocks_per_sequence: 4,
        kv_types: [DType::F16; 2],
        staged_rows: 576,
        rollback_depth: 15,
    };
    Facts {
        vocabulary: VOCABULARY,
        hidden: 64,
        layers: 4,
        context,
        microbatch: 512,
        backend: "none".to_owned(),
        architecture: "none".to_owned(),
    }
}

fn delta_net() -> DeltaNetShape {
    DeltaNetShape {
        rows: 16,
        sequences: 1,
        slots: 1,
        depth: 15,
        value_heads: 4,
        key_heads: 2,
        key_width: 16,
        value_width: 16,
        scale: 0.25,
    }
}

/// A session of a host that has no model.
struct Nothing;

impl Session for Nothing {
    fn integer_at(&self, _: Source, _: &str, _: u32) -> Option<i64> {
        None
    }

    fn number(&self, _: Source, _: &str) -> Option<f64> {
        None
    }

    fn text(&self, _: Source, _: &str) -> Option<String> {
        None
    }

    fn tensor(&self, _: Source, _: &str) -> Option<TensorFacts> {
        None
    }

    fn has_fragment(&self, _: &str) -> bool {
        false
    }

    fn declare_tap(&mut self, _: Tap) -> Result<()> {
        Err(Error::unsupported("there is no model to tap"))
    }

    fn declare_ring(&mut self, _: u32) -> Result<()> {
        Err(Error::unsupported("there is no model to keep a ring for"))
    }

    fn declare_program(&mut self, _: &str, _: &Graph) -> Result<ProgramId> {
        Err(Error::unsupported("there is no model to run programs on"))
    }

    fn run(&mut self, _: ProgramId, _: u32, _: &[GroupRows<'_>]) -> Result<&[u8]> {
        Err(Error::unsupported("there is no model to run programs on"))
    }
}
