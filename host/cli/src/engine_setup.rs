//! Puts a model on a backend, for commands that run it.

use std::sync::Arc;

use paceline_engine::{Engine, EngineError, EngineOptions, Model};
use paceline_plugin_api::ErrorKind;
use paceline_plugin_api::client::BackendClient;
use paceline_text::Tokenizer;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::args::{EngineArgs, ModelArg};
use crate::backends;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model_source::ModelSource;
use crate::printer::Unit;
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
        Ok(Self { source, model, tokenizer, backend, options, plugin })
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
    pub fn engine(&self, context: Option<u32>, outputs: Option<u32>, app: &App) -> Result<Engine, Failure> {
        let mut progress = app.printer.progress(format_args!("loading {}", self.source), Unit::Bytes);
        let mut options = EngineOptions { context, ..self.options.clone() };
        options.outputs = outputs.unwrap_or(options.outputs);
        Engine::new(self.model.clone(), &self.backend, options, &mut |done, total| progress.at(done, total))
            .map_err(|error| match &error {
                // What a caller can have wrong here are the user's settings.
                EngineError::Backend { plugin, source, .. } if source.kind == ErrorKind::Invalid => {
                    Failure::device_open(plugin, source)
                }
                &EngineError::WeightType { id, .. } => {
                    Failure::from(error).hint(backends::hint_for_weight_type(id, app))
                }
                _ => self.failure(error),
            })
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
            ("context".to_owned(), json!(engine.context_length())),
            ("kv_types".to_owned(), json!(self.options.kv_types.map(|kv_type| kv_type.to_string()))),
        ])
    }
}
