//! Puts a model on a backend, for commands that run it.

use std::path::Path;
use std::sync::Arc;

use paceline_engine::{Engine, EngineError, EngineOptions, MemoryPlan, Model};
use paceline_gguf::Gguf;
use paceline_plugin_api::ErrorKind;
use paceline_plugin_api::client::BackendClient;
use paceline_registry::Registry;
use paceline_text::Tokenizer;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::args::{EngineArgs, ModelArg, SettingArg, StrategyArgs, StrategyChoice};
use crate::backends;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model_source::ModelSource;
use crate::printer::Unit;
use crate::strategies::{self, Strategies};
use crate::{text, tokenizer};

/// Outputs of a run when every row has one: more is faster, and takes memory for as many rows of logits.
pub const EVAL_OUTPUTS: u32 = 64;
/// Index of the backend's device.
const DEVICE: u32 = 0;

/// A model that is open, and what it will run on. Nothing of it is in the device's memory yet.
pub struct Setup {
    /// The model, as the user named it.
    pub source: ModelSource,
    /// The model.
    pub model: Model,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// What guesses ahead; nothing unless the command takes strategies.
    pub strategies: Strategies,
    registry: Registry,
    backend: BackendClient,
    /// Settings and types of the context.
    options: EngineOptions,
    /// The plugin, for JSON.
    plugin: Value,
}

impl Setup {
    /// Opens a model and chooses a backend.
    pub fn new(model: &ModelArg, args: &EngineArgs, app: &App) -> Result<Self, Failure> {
        let source = ModelSource::resolve(&model.model)?;
        let registry = app.registry(args.backend.backend.as_deref())?;
        let (backend, settings) = backends::choose(&registry, args)?;
        Self::open(source, registry, backend, settings, args, app)
    }

    /// Opens a model and chooses a backend and strategies.
    pub fn with_strategies(
        model: &ModelArg,
        args: &EngineArgs,
        wanted: &StrategyArgs,
        app: &App,
    ) -> Result<Self, Failure> {
        let draft = wanted.draft.as_deref();
        let mut setup = Self::for_choices(model, args, std::slice::from_ref(&wanted.strategy), draft, app)?;
        let draft = open_draft(draft)?;
        setup.strategies = setup.choose(&wanted.strategy, &args.backend.set, draft.as_ref())?;
        setup.check_settings(&args.backend.set, setup.strategies.settings_in_use())?;
        for (id, reason) in &setup.strategies.left_out {
            app.printer.detail(format_args!("strategy `{id}` is left out: {reason}"));
        }
        Ok(setup)
    }

    /// Opens a model for engines with several choices of strategies, of which none is made yet. Whether the settings of
    /// strategies are for one that is used, the caller checks.
    pub fn for_choices(
        model: &ModelArg,
        args: &EngineArgs,
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
        let registry = app.registry_with(args.backend.backend.as_deref(), |registry, candidates| {
            choices.iter().try_for_each(|choice| strategies::load(registry, candidates, choice))
        })?;
        let backend = registry.backend(args.backend.backend.as_deref())?;
        let settings = backends::settings(&backend, args)?;
        Self::open(source, registry, backend, settings, args, app)
    }

    fn open(
        source: ModelSource,
        registry: Registry,
        backend: BackendClient,
        settings: Vec<(String, String)>,
        args: &EngineArgs,
        app: &App,
    ) -> Result<Self, Failure> {
        let plugin = registry.find(backend.plugin())?;
        let weight_types = plugin.weight_types().to_vec();
        let plugin = json!({
            "id": plugin.id(),
            "version": plugin.client.version(),
            "file": plugin.origin.path(),
        });
        let options =
            EngineOptions { device: DEVICE, settings, kv_types: args.kv_type.0, ..EngineOptions::default() };
        let _working = app.printer.working(format_args!("reading {source}"));
        let gguf = source.open()?;
        let tokenizer = tokenizer::build(&gguf, &source)?;
        let model = Model::new(Arc::new(gguf))?.with_weight_types(&weight_types);
        let strategies = Strategies::default();
        Ok(Self { source, model, tokenizer, strategies, registry, backend, options, plugin })
    }

    /// Chooses strategies for the model.
    pub fn choose(
        &self,
        choice: &StrategyChoice,
        settings: &[SettingArg],
        draft: Option<&Arc<Gguf>>,
    ) -> Result<Strategies, Failure> {
        strategies::choose(&self.registry, choice, settings, draft, &self.model)
    }

    /// Makes sure that settings are for the backend or for what is `used`: others would have no effect.
    pub fn check_settings(&self, settings: &[SettingArg], mut used: Vec<String>) -> Result<(), Failure> {
        used.push(self.backend.plugin().to_owned());
        backends::check_settings(&self.registry, settings, &used)
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

    /// Loads the model. The context is the engine's default if none is given, and so are the outputs of a run.
    /// Strategies that nobody named are left out if they cannot work here.
    pub fn engine(
        &mut self,
        context: Option<u32>,
        outputs: Option<u32>,
        app: &App,
    ) -> Result<Engine, Failure> {
        let mut strategies = std::mem::take(&mut self.strategies);
        let engine = self.engine_with(&mut strategies, &[], context, outputs, app);
        self.strategies = strategies;
        engine
    }

    /// As [`Setup::engine`], with these strategies and further settings of the backend.
    pub fn engine_with(
        &self,
        strategies: &mut Strategies,
        settings: &[(String, String)],
        context: Option<u32>,
        outputs: Option<u32>,
        app: &App,
    ) -> Result<Engine, Failure> {
        let mut progress = app.printer.progress(format_args!("loading {}", self.source), Unit::Bytes);
        let mut options = EngineOptions { context, ..self.options.clone() };
        options.outputs = outputs.unwrap_or(options.outputs);
        options.settings.extend(settings.iter().cloned());
        loop {
            let made = Engine::with_strategies(
                self.model.clone(),
                &self.backend,
                options.clone(),
                &strategies.options,
                &mut |done, total| progress.at(done, total),
            );
            let known = strategies.left_out.len();
            match made {
                Ok(engine) => return Ok(engine),
                Err(error) if strategies.leave_out(&error) => {
                    for (id, reason) in &strategies.left_out[known..] {
                        app.printer.detail(format_args!("strategy `{id}` is left out: {reason}"));
                    }
                }
                Err(error) => return Err(self.not_loaded(error, strategies, app)),
            }
        }
    }

    /// The memory that an engine with these strategies would take.
    pub fn plan(&self, strategies: &Strategies, context: Option<u32>) -> Result<MemoryPlan, EngineError> {
        let options = EngineOptions { context, ..self.options.clone() };
        Engine::plan(&self.model, &self.backend, options, &strategies.options)
    }

    /// Id of the backend.
    pub fn backend(&self) -> &str {
        self.backend.plugin()
    }

    /// Name of the device, and how many threads or units of it compute.
    pub fn device(&self) -> Option<(String, u32)> {
        let devices = self.backend.devices().ok()?;
        let info = devices.into_iter().nth(DEVICE as usize)?;
        let threads = self.options.settings.iter().find(|(key, _)| key == "threads");
        let threads = threads.and_then(|(_, value)| value.parse().ok()).filter(|&threads| threads > 0);
        Some((info.name, threads.unwrap_or(info.units)))
    }

    /// An error of making an engine.
    fn not_loaded(&self, error: EngineError, strategies: &Strategies, app: &App) -> Failure {
        match &error {
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
        }
    }

    /// An error of the engine, with what to do about it in terms of this program's options.
    pub fn failure(&self, error: EngineError) -> Failure {
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
    pub fn as_json(&self, engine: &Engine) -> Map<String, Value> {
        let device = self.backend.devices().ok().and_then(|devices| devices.into_iter().nth(DEVICE as usize));
        let settings: Map<String, Value> =
            self.options.settings.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        let device = json!({
            "id": format!("{}:{DEVICE}", self.backend.plugin()),
            "name": device.map(|device| device.name),
        });
        Map::from_iter([
            ("model".to_owned(), json!(self.source.to_string())),
            ("backend".to_owned(), self.plugin.clone()),
            ("device".to_owned(), device),
            ("settings".to_owned(), Value::Object(settings)),
            ("strategies".to_owned(), self.strategies.as_json()),
            ("context".to_owned(), json!(engine.context_length())),
            ("kv_types".to_owned(), json!(self.options.kv_types.map(|kv_type| kv_type.to_string()))),
        ])
    }
}

/// Opens the file of a drafter, if there is one.
pub fn open_draft(path: Option<&Path>) -> Result<Option<Arc<Gguf>>, Failure> {
    path.map(|path| Ok(Arc::new(ModelSource::resolve(path)?.open()?))).transpose()
}
