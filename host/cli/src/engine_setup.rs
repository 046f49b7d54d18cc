//! Puts a model on a backend, for commands that run it.

mod recovery;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use paceline_engine::{Engine, EngineError, EngineOptions, MemoryPlan, Model};
use paceline_gguf::Gguf;
use paceline_plugin_api::ErrorKind;
use paceline_plugin_api::client::BackendClient;
use paceline_registry::settings::{Given, Offer, PluginSet, Schema, Strategy};
use paceline_registry::{Candidates, Registry};
use paceline_text::Tokenizer;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::args::{EngineArgs, ModelArg, SettingArg, StrategyArgs, StrategyChoice};
use crate::backends::{self, Chosen};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model_source::ModelSource;
use crate::printer::Unit;
use crate::resolution::{CONTEXT, Resolved, Sources, Subject, drafter_facts, model_facts, offer};
use crate::strategies::{self, Strategies};
use crate::{text, tokenizer};

pub use recovery::Recovery;

/// Outputs of a run when every row has one: more is faster, and takes memory for as many rows of logits.
pub const EVAL_OUTPUTS: u32 = 64;

/// A model that is open, and what it will run on. Nothing of it is in the device's memory yet.
pub struct Setup {
    /// The model, as the user named it.
    pub source: ModelSource,
    /// The model.
    pub model: Model,
    /// Its tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Backends that run nothing, and why.
    pub not_used: Vec<(String, String)>,
    /// What the command line sets.
    pub given: Vec<Given>,
    /// Devices that failed while the model ran, and what went on in their places.
    pub recoveries: Vec<Recovery>,
    registry: Registry,
    candidates: Candidates,
    sources: Sources,
    backend: BackendClient,
    device: Device,
    /// Backends to which the run may go when this one fails.
    fallback: Vec<String>,
    /// Rollback strategies that are preferred, in order.
    rollbacks: Vec<String>,
    /// The backend was asked for on the command line, so that no other one takes its place.
    is_asked_for: bool,
    /// Backends that failed while the model ran.
    failed: BTreeSet<String>,
    /// Tokens that sequences held each time a device was opened again.
    reopened: Vec<usize>,
    /// Plugins that are remembered as they panicked.
    panicked: RefCell<BTreeSet<String>>,
    /// Warnings that were written: engines of one command share most of them.
    warned: RefCell<BTreeSet<String>>,
}

/// One context: its strategies, its settings and where they come from.
#[derive(Clone)]
pub struct Context {
    /// What guesses ahead.
    pub strategies: Strategies,
    /// The settings.
    pub resolved: Resolved,
    given: Vec<Given>,
    options: EngineOptions,
}

/// The device that runs all layers.
struct Device {
    index: u32,
    /// Name for people.
    name: String,
    units: u32,
    offer: Offer,
}

impl Setup {
    /// Opens a model and chooses a backend.
    pub fn new(
        model: &ModelArg,
        args: &EngineArgs,
        context: Option<u32>,
        app: &App,
    ) -> Result<Self, Failure> {
        Self::for_choices(model, args, context, &[], None, app)
    }

    /// Opens a model and chooses a backend and strategies.
    pub fn with_strategies(
        model: &ModelArg,
        args: &EngineArgs,
        wanted: &StrategyArgs,
        context: Option<u32>,
        app: &App,
    ) -> Result<(Self, Context), Failure> {
        let draft = wanted.draft.as_deref();
        let choice = match &wanted.strategy {
            Some(choice) => choice.clone(),
            None => match &app.config()?.plugins.strategy {
                Strategy::Auto => StrategyChoice::Auto,
                Strategy::Named(ids) => StrategyChoice::Named(ids.clone()),
            },
        };
        let setup = Self::for_choices(model, args, context, std::slice::from_ref(&choice), draft, app)?;
        let strategies = setup.choose(&choice, open_draft(draft)?.as_ref())?;
        let context = setup.context(strategies, setup.given.clone())?;
        for (id, reason) in &context.strategies.left_out {
            app.printer.detail(format_args!("strategy `{id}` is left out: {reason}"));
        }
        Ok((setup, context))
    }

    /// Opens a model for engines with several choices of strategies, of which none is made yet. `context` is what
    /// `--ctx` says.
    pub fn for_choices(
        model: &ModelArg,
        args: &EngineArgs,
        context: Option<u32>,
        choices: &[StrategyChoice],
        draft: Option<&Path>,
        app: &App,
    ) -> Result<Self, Failure> {
        let none = StrategyChoice::Named(Vec::new());
        if draft.is_some() && choices.iter().all(|choice| *choice == none) {
            return Err(Failure::new(Exit::Usage, "`--draft` has no effect: no strategy is used")
                .hint("leave it out, or give `--strategy dflash`"));
        }
        let source = ModelSource::resolve(&model.model)?;
        let (mut registry, mut candidates) = app.plugins()?;
        let config = app.config()?;
        let wanted = wanted_backend(args)?;
        let Chosen { backend, not_used } =
            backends::choose(&mut registry, &mut candidates, wanted, &config.plugins)?;
        let preferred = &config.plugins.rollbacks;
        choices
            .iter()
            .try_for_each(|choice| strategies::load(&mut registry, &candidates, choice, preferred))?;
        let sources = Sources::new(config, &registry, &candidates)?;
        let given = given(args, context, backend.plugin());
        // What is typed wrong is said before a large file is read.
        sources.resolver(&given)?;
        let index = args.device.as_ref().map_or(0, |device| device.index);
        let device = device(&registry, &backend, index)?;
        let fallback = if wanted.is_some() { Vec::new() } else { config.plugins.fallback.clone() };
        let _working = app.printer.working(format_args!("reading {source}"));
        let gguf = source.open()?;
        let tokenizer = tokenizer::build(&gguf, &source)?;
        let weight_types = registry.find(backend.plugin())?.weight_types().to_vec();
        let model = Model::new(Arc::new(gguf))?.with_weight_types(&weight_types);
        Ok(Self {
            source,
            model,
            tokenizer: Arc::new(tokenizer),
            not_used,
            given,
            recoveries: Vec::new(),
            registry,
            candidates,
            sources,
            backend,
            device,
            fallback,
            rollbacks: config.plugins.rollbacks.clone(),
            is_asked_for: wanted.is_some(),
            failed: BTreeSet::new(),
            reopened: Vec::new(),
            panicked: RefCell::default(),
            warned: RefCell::default(),
        })
    }

    /// Chooses strategies for the model.
    pub fn choose(&self, choice: &StrategyChoice, draft: Option<&Arc<Gguf>>) -> Result<Strategies, Failure> {
        let is_set = |id: &str| {
            let own = |key: &str| key.strip_prefix(id).is_some_and(|rest| rest.starts_with('.'));
            self.given.iter().any(|given| own(&given.key))
        };
        strategies::choose(&self.registry, choice, &is_set, draft, &self.model, &self.rollbacks)
    }

    /// Finds the settings of a context with these strategies and what the command line gives for it.
    pub fn context(&self, mut strategies: Strategies, mut given: Vec<Given>) -> Result<Context, Failure> {
        strategies.add_given(&mut given);
        let possible = strategies.possible();
        let subject = Subject {
            model: model_facts(&self.model, strategies.with_model(), strategies.rollback_in_sight()),
            trained: self.model.shape().context,
            strategies: &possible,
            drafter: strategies.with_file().map(|(id, gguf)| (id.to_owned(), drafter_facts(gguf, id))),
        };
        let mut resolved = self.sources.resolve(&given, subject, &self.device.offer)?;
        for (key, because) in &strategies.refused {
            resolved.refuse(key, because)?;
        }
        strategies.configure(&self.registry, &mut resolved)?;
        let defaults = EngineOptions::default();
        let seconds = resolved.number("launch_timeout").map(|it| Duration::from_secs(it.into()));
        let options = EngineOptions {
            device: self.device.index,
            settings: resolved.settings_of(self.backend.plugin()),
            context: resolved.number(CONTEXT),
            sequences: resolved.number("sequences").unwrap_or(defaults.sequences),
            microbatch: resolved.number("microbatch").unwrap_or(defaults.microbatch),
            outputs: defaults.outputs,
            kv_types: resolved.kv_types(),
            launch_timeout: seconds.unwrap_or(defaults.launch_timeout),
        };
        Ok(Context { strategies, resolved, given, options })
    }

    /// Leaves out what an engine could not be made with, if nobody asked for it: settings by rules, then strategies; and finds
    /// the settings anew. False if nothing can be left out, so that the error is the user's.
    fn leave_out(&self, context: &mut Context, error: &EngineError) -> Result<bool, Failure> {
        error.panic().iter().for_each(|panic| self.remember(panic));
        // What only rules say gives way before the plugin does.
        let refused = context.strategies.refuse_rules(error, &context.resolved);
        if !refused && !context.strategies.leave_out(error) {
            return Ok(false);
        }
        *context = self.context(context.strategies.clone(), context.given.clone())?;
        Ok(true)
    }

    /// The settings that have an effect in a context with these strategies, of all that the command line gives.
    pub fn effective(&self, strategies: &Strategies) -> Vec<Given> {
        let possible = strategies.possible();
        let has_effect = |given: &&Given| match given.key.split_once('.') {
            None => true,
            Some((strategies::HOST, _)) => !possible.is_empty(),
            Some((id, _)) => id == self.backend.plugin() || possible.contains(id),
        };
        self.given.iter().filter(has_effect).cloned().collect()
    }

    /// Backends that may take the place of the one in use, in order.
    pub fn fallback(&self) -> Vec<String> {
        let others = self.fallback.iter().filter(|id| *id != self.backend.plugin());
        others.filter(|id| !self.failed.contains(*id)).cloned().collect()
    }

    /// All settings that there are.
    pub fn schema(&self) -> &Schema {
        &self.sources.schema
    }

    /// The plugins of this process, and the files that were looked at.
    pub fn plugins(&self) -> (&Registry, &Candidates) {
        (&self.registry, &self.candidates)
    }

    /// Makes sure that these tokens are the model's and fit a context that was asked for, before weights are loaded.
    pub fn check(&self, ids: &[u32], context: Option<u32>) -> Result<(), Failure> {
        let vocabulary = self.model.shape().vocabulary;
        if let Some(id) = ids.iter().find(|&&id| id >= vocabulary) {
            let count = text::counted(vocabulary.into(), "token");
            let message = format!("token {id} does not exist: {} has {count}", self.source);
            return Err(Failure::new(Exit::Usage, message)
                .hint(format!("ids go from 0 to {}", vocabulary.saturating_sub(1))));
        }
        match context.map(|context| context as usize) {
            // That no context can be empty, the engine says.
            Some(context) if context > 0 && ids.len() > context => {
                Err(self.failure(EngineError::PromptTooLong { tokens: ids.len(), context }))
            }
            _ => Ok(()),
        }
    }

    /// Loads the model. Strategies that nobody named are left out if they cannot work here; another backend is taken only
    /// where the files of settings say so.
    pub fn engine(
        &mut self,
        context: &mut Context,
        outputs: Option<u32>,
        app: &App,
    ) -> Result<Engine, Failure> {
        self.with_fallback(context, app, |setup, context| setup.load(context, outputs, app))
    }

    /// The memory that [`Setup::engine`] would take, with the same changes to the context. Loads nothing.
    pub fn plan(&mut self, context: &mut Context, app: &App) -> Result<MemoryPlan, Failure> {
        self.with_fallback(context, app, |setup, context| {
            let planned = setup.settle(context)?;
            planned.map_err(|error| setup.not_loaded(error, &context.strategies, app))
        })
    }

    fn with_fallback<T>(
        &mut self,
        context: &mut Context,
        app: &App,
        attempt: impl Fn(&Self, &mut Context) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut outcome = attempt(self, context);
        for id in self.fallback.clone() {
            let failure = match outcome {
                // Another backend may do what this one cannot, and helps against no other failure.
                Err(failure) if matches!(failure.exit(), Exit::Plugin | Exit::Memory | Exit::Model) => {
                    failure
                }
                outcome => return outcome,
            };
            let failed = self.backend.plugin().to_owned();
            if id == failed {
                outcome = Err(failure);
                continue;
            }
            let reason = failure.lines().map(|(_, text)| text).collect::<Vec<_>>().join(": ");
            app.printer.warning(format_args!("`{id}` takes the place of backend `{failed}`: {reason}"));
            outcome = self.move_to(&id, context).and_then(|()| attempt(self, context));
            self.not_used.retain(|(other, _)| *other != id);
            self.not_used.push((failed, reason));
        }
        outcome
    }

    /// Puts the model on the first device of another backend.
    fn move_to(&mut self, id: &str, context: &mut Context) -> Result<(), Failure> {
        let Chosen { backend, .. } =
            backends::choose(&mut self.registry, &mut self.candidates, Some(id), &PluginSet::default())?;
        let failed = self.backend.plugin().to_owned();
        self.device = device(&self.registry, &backend, 0)?;
        self.backend = backend;
        self.hand_over(context, &failed, id);
        let weight_types = self.registry.find(id)?.weight_types().to_vec();
        self.model = self.model.clone().with_weight_types(&weight_types);
        *context = self.context(context.strategies.clone(), context.given.clone())?;
        Ok(())
    }

    /// Loads the model for one of several contexts.
    pub fn load(&self, context: &mut Context, outputs: Option<u32>, app: &App) -> Result<Engine, Failure> {
        let mut progress = app.printer.progress(format_args!("loading {}", self.source), Unit::Bytes);
        loop {
            self.warn(&context.resolved);
            let mut options = context.options.clone();
            options.outputs = outputs.unwrap_or(options.outputs);
            let made = Engine::with_strategies(
                self.model.clone(),
                &self.backend,
                options,
                &context.strategies.options,
                &mut |done, total| progress.at(done, total),
            );
            let known = context.strategies.left_out.len();
            match made {
                Ok(engine) => return Ok(engine),
                Err(error) if self.leave_out(context, &error)? => {
                    for (id, reason) in &context.strategies.left_out[known..] {
                        app.printer.detail(format_args!("strategy `{id}` is left out: {reason}"));
                    }
                }
                Err(error) => return Err(self.not_loaded(error, &context.strategies, app)),
            }
        }
    }

    /// Logs what was asked for in vain, each thing once.
    pub fn warn(&self, resolved: &Resolved) {
        for warning in resolved.warnings() {
            if self.warned.borrow_mut().insert(warning.clone()) {
                tracing::warn!("{warning}");
            }
        }
    }

    /// The memory that an engine would take, with strategies left out as by [`Setup::load`]. Loads nothing.
    pub fn settle(&self, context: &mut Context) -> Result<Result<MemoryPlan, EngineError>, Failure> {
        loop {
            let strategies = &context.strategies.options;
            match Engine::plan(&self.model, &self.backend, context.options.clone(), strategies) {
                Err(error) if self.leave_out(context, &error)? => {}
                planned => return Ok(planned),
            }
        }
    }

    /// The memory that the context would take without strategies.
    pub fn plain_plan(&self, context: &Context) -> Result<MemoryPlan, Failure> {
        let options = context.options.clone();
        Engine::plan(&self.model, &self.backend, options, &Strategies::default().options)
            .map_err(|error| self.failure(error))
    }

    /// Name of the device, and how many threads or units of it compute.
    pub fn device(&self, settings: &[(String, String)]) -> (String, u32) {
        let threads = settings.iter().find(|(key, _)| key == "threads");
        let threads = threads.and_then(|(_, value)| value.parse().ok()).filter(|&threads| threads > 0);
        (self.device.name.clone(), threads.unwrap_or(self.device.units))
    }

    /// An error of making an engine, with the file of the plugin that it is about.
    fn not_loaded(&self, error: EngineError, strategies: &Strategies, app: &App) -> Failure {
        error.panic().iter().for_each(|panic| self.remember(panic));
        let plugin = match &error {
            EngineError::StrategyRefused { plugin, .. } | EngineError::Strategy { plugin, .. } => plugin,
            _ => self.backend.plugin(),
        };
        let file = self.registry.find(plugin).ok().and_then(|plugin| plugin.origin.path());
        let file = file.map(Path::to_owned);
        let failure = match &error {
            EngineError::StrategyRefused { plugin, source } => {
                let hint = if source.kind == ErrorKind::Invalid {
                    format!("`paceline plugins inspect {plugin}` shows its settings")
                } else if strategies.options.draft.is_some() {
                    "leave it out, or give another drafter; `paceline models pair` looks at a model and a drafter"
                        .to_owned()
                } else {
                    "leave it out; `--strategy auto` takes those that work with the model".to_owned()
                };
                Failure::from(error).hint(hint)
            }
            // What a caller can have wrong here are the user's settings.
            EngineError::Backend { plugin, source, .. } if source.kind == ErrorKind::Invalid => {
                Failure::device_open(plugin, source)
            }
            &EngineError::WeightType { id, .. } => {
                Failure::from(error).hint(backends::hint_for_weight_type(id, app))
            }
            _ => self.failure(error),
        };
        match file {
            Some(file) if matches!(failure.exit(), Exit::Plugin | Exit::Model) => {
                failure.of_plugin_file(&file)
            }
            _ => failure,
        }
    }

    /// An error of the engine, with what to do about it in terms of this program's options.
    pub fn failure(&self, error: EngineError) -> Failure {
        error.panic().iter().for_each(|panic| self.remember(panic));
        let trained = self.model.shape().context as usize;
        let hint = match &error {
            &EngineError::PromptTooLong { tokens, context } if context < trained && tokens < trained => {
                format!("give `--ctx N` with more than {tokens}; the model was trained for up to {trained}")
            }
            EngineError::PromptTooLong { .. } => {
                format!("give a shorter text; the model was trained for up to {trained} tokens")
            }
            EngineError::Memory(shortage) => match shortage.fitting_context {
                Some(context) => format!("give `--ctx {}` or less", context.min(trained as u64)),
                None => {
                    "use a model that is smaller or quantised to fewer bits, or free some memory".to_owned()
                }
            },
            _ => return Failure::from(error),
        };
        Failure::from(error).hint(hint)
    }

    /// What runs and what it runs on, as the first entries of a JSON object.
    pub fn as_json(&self, context: &Context, engine: &Engine) -> Map<String, Value> {
        let settings: Map<String, Value> =
            context.options.settings.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        let device = json!({ "id": self.device.offer.label, "name": self.device.name });
        let file = self.registry.find(self.backend.plugin()).ok().and_then(|it| it.origin.path());
        let plugin = json!({
            "id": self.backend.plugin(),
            "version": self.device.offer.version.to_string(),
            "file": file,
        });
        Map::from_iter([
            ("model".to_owned(), json!(self.source.to_string())),
            ("backend".to_owned(), plugin),
            ("device".to_owned(), device),
            ("settings".to_owned(), Value::Object(settings)),
            ("strategies".to_owned(), context.strategies.as_json()),
            ("context".to_owned(), json!(engine.context_length())),
            ("kv_types".to_owned(), json!(context.options.kv_types.map(|kv_type| kv_type.to_string()))),
        ])
    }
}

impl Context {
    /// Positions that were asked for, whoever did.
    pub fn positions(&self) -> Option<u32> {
        self.options.context
    }

    /// The settings that the backend gets.
    pub fn of_backend(&self) -> &[(String, String)] {
        &self.options.settings
    }
}

/// The backend that the command line asks for, by its name or that of a device.
fn wanted_backend(args: &EngineArgs) -> Result<Option<&str>, Failure> {
    let of_device = args.device.as_ref().and_then(|device| device.backend.as_deref());
    match (args.backend.backend.as_deref(), of_device) {
        (Some(backend), Some(other)) if backend != other => {
            let message = format!("`--backend {backend}` and `--device {other}:…` ask for two backends");
            Err(Failure::new(Exit::Usage, message).hint("leave one of them out"))
        }
        (backend, other) => Ok(backend.or(other)),
    }
}

/// What the command line sets.
fn given(args: &EngineArgs, context: Option<u32>, backend: &str) -> Vec<Given> {
    let sets = args.backend.set.iter().map(|it: &SettingArg| Given::set(&it.name(), &it.value));
    let option =
        |option, key: &str, value: Option<String>| value.map(|value| Given::option(option, key, &value));
    sets.chain(option("--ctx", CONTEXT, context.map(|it| it.to_string())))
        .chain(option("--kv-type", "kv_types", args.kv_type.map(|it| it.to_string())))
        .chain(option("--threads", &format!("{backend}.threads"), args.threads.map(|it| it.to_string())))
        .collect()
}

/// The device with that number.
fn device(registry: &Registry, backend: &BackendClient, index: u32) -> Result<Device, Failure> {
    let id = backend.plugin();
    let devices = backend.devices().map_err(|error| Failure::plugin_call(id, &error))?;
    let count = devices.len();
    let Some(info) = devices.into_iter().nth(index as usize) else {
        let origin = &registry.find(id)?.origin;
        let message = match count {
            0 => format!("backend `{id}` ({origin}) has no device"),
            _ => format!("backend `{id}` has no device {index}: they are numbered from 0 to {}", count - 1),
        };
        let exit = if count == 0 { Exit::Plugin } else { Exit::Usage };
        return Err(Failure::new(exit, message).hint("`paceline devices` lists what models can run on"));
    };
    let version = registry.find(id)?.client.version();
    let offer = offer(id, &version, index, &info)?;
    Ok(Device { index, name: info.name, units: info.units, offer })
}

/// Opens the file of a drafter, if there is one.
pub fn open_draft(path: Option<&Path>) -> Result<Option<Arc<Gguf>>, Failure> {
    path.map(|path| Ok(Arc::new(ModelSource::resolve(path)?.open()?))).transpose()
}
