//! Chat templates: messages to the text that a model is prompted with.
//!
//! The template of a file is a program from a stranger, in the language of Jinja2. It is run so
//! that it can read what it is given and nothing else, and so that it comes to an end: work,
//! output, size and nesting of values, and time are bounded.

mod environment;
mod error;
mod json;
mod message;
mod python;
mod scan;
mod strftime;
mod tags;
mod values;
mod worker;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use minijinja::value::Serde;
use minijinja::{Environment, Value};
use serde_json::Value as Json;

pub use error::TemplateError;
pub use message::{Message, RenderLimits, RenderOptions};
pub use strftime::LocalTime;
use worker::Worker;

/// Longer than any known template by a factor of ten.
const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Lists and maps within each other in messages, tools and variables. Requests from JSON rarely
/// have ten.
const MAX_INPUT_DEPTH: usize = 48;
/// Variables that only the renderer sets.
const RESERVED: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

/// A compiled chat template (`tokenizer.chat_template`).
///
/// It is meant to be what `apply_chat_template` of Hugging Face transformers makes of the same
/// template and messages, within what these limits allow:
///
/// * Recursive `for` loops, `break` out of anything but an `if`, products of lists, and templates
///   that include or extend others are refused.
/// * A value may have 64 lists and maps within each other, and a namespace cannot be stored in
///   another value.
/// * `'%s' % value` is not supported; `'%s' | format(value)` and `'{}'.format(value)` are.
///
/// Rendering happens on a thread of its own, which the caller waits for: call it where waiting is
/// allowed.
pub struct ChatTemplate {
    source: String,
    environment: Arc<Environment<'static>>,
    worker: Worker,
}

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    ///
    /// When the template is too long, is not valid, or uses what is not supported.
    pub fn new(source: &str) -> Result<ChatTemplate, TemplateError> {
        if source.len() > MAX_SOURCE_BYTES {
            let (length, limit) = (source.len(), MAX_SOURCE_BYTES);
            return Err(TemplateError::SourceTooLong { length, limit });
        }
        let prepared = scan::prepared(source)?;
        let worker = Worker::default();
        let time = RenderLimits::default().time;
        let environment = worker.run(time, move || environment::with_template(prepared))??;
        Ok(ChatTemplate { source: source.into(), environment: Arc::new(environment), worker })
    }

    /// The template of a file: `None` where the key is absent or blank. Such a model continues
    /// text and has no notion of turns.
    ///
    /// # Errors
    ///
    /// As [`ChatTemplate::new`].
    pub fn from_metadata(chat_template: Option<&str>) -> Result<Option<ChatTemplate>, TemplateError> {
        chat_template.filter(|source| !source.trim().is_empty()).map(ChatTemplate::new).transpose()
    }

    /// The template as the file has it.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The prompt for these messages.
    ///
    /// Encode it with [`EncodeOptions::parse_special`](crate::EncodeOptions::parse_special). A
    /// beginning-of-text token that the template writes is not added a second time.
    ///
    /// # Errors
    ///
    /// When the template refuses the messages, fails, or goes beyond a limit, and when a variable
    /// has the name of one that is set here.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, TemplateError> {
        let context = context(messages, options)?;
        let environment = Arc::clone(&self.environment);
        let limits = options.limits;
        self.worker.run(limits.time, move || render(&environment, context, limits))?
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("bytes", &self.source.len()).finish_non_exhaustive()
    }
}

/// The variables that a template sees.
fn context(messages: &[Message], options: &RenderOptions) -> Result<Value, TemplateError> {
    if let Some(name) = RESERVED.iter().find(|name| options.kwargs.contains_key(**name)) {
        return Err(TemplateError::ReservedVariable { name });
    }
    let nested = messages.iter().any(|message| message.is_deeper_than(MAX_INPUT_DEPTH))
        || options
            .tools
            .iter()
            .chain(options.kwargs.values())
            .any(|json| is_deeper_than(json, MAX_INPUT_DEPTH));
    if nested {
        return Err(TemplateError::InputTooDeep { limit: MAX_INPUT_DEPTH });
    }
    let messages: Vec<Json> = messages.iter().map(Message::to_json).collect();
    let mut variables: BTreeMap<&str, Value> = BTreeMap::new();
    for (name, token) in [("bos_token", &options.bos_token), ("eos_token", &options.eos_token)] {
        if let Some(token) = token {
            variables.insert(name, Value::from(token.as_str()));
        }
    }
    // Templates ask whether it is `none`, not whether it is there.
    variables.insert("documents", Value::from(()));
    variables.extend(options.kwargs.iter().map(|(name, json)| (name.as_str(), Value::from(Serde(json)))));
    variables.insert("messages", Value::from(Serde(&messages)));
    variables.insert("tools", Value::from(Serde(&options.tools)));
    variables.insert("add_generation_prompt", Value::from(options.add_generation_prompt));
    let now = options.now.unwrap_or_else(LocalTime::now_utc);
    variables.insert("strftime_now", environment::strftime_now(now));
    Ok(Value::from_pairs(variables))
}

fn is_deeper_than(json: &Json, limit: usize) -> bool {
    let deeper = |inner: &Json| limit == 0 || is_deeper_than(inner, limit - 1);
    match json {
        Json::Array(items) => limit == 0 || items.iter().any(deeper),
        Json::Object(fields) => limit == 0 || fields.values().any(deeper),
        _ => false,
    }
}

fn render(
    environment: &Environment<'static>,
    context: Value,
    limits: RenderLimits,
) -> Result<String, TemplateError> {
    let mut environment = environment.clone();
    environment.set_fuel(Some(limits.work));
    let mut output = BoundedOutput { bytes: Vec::new(), limit: limits.output_bytes, is_full: false };
    let result = environment
        .get_template(environment::TEMPLATE_NAME)
        .and_then(|template| template.render_captured_to(context, &mut output).map(drop));
    if output.is_full {
        return Err(TemplateError::OutputTooLong { limit: limits.output_bytes });
    }
    result.map_err(|error| TemplateError::from_engine(&error, limits))?;
    String::from_utf8(output.bytes)
        .map_err(|error| TemplateError::Render { line: None, reason: error.to_string() })
}

/// Collects output up to a limit.
struct BoundedOutput {
    bytes: Vec<u8>,
    limit: usize,
    is_full: bool,
}

impl io::Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit.saturating_sub(self.bytes.len()) {
            self.is_full = true;
            return Err(io::Error::other("the output is full"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
