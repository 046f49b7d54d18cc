//! What a template is given.

use std::time::Duration;

use serde_json::{Map, Value as Json};

use super::error::TemplateError;
use super::is_deeper_than;
use super::strftime::LocalTime;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool` in most templates.
    pub role: String,
    /// What is said: text, or a list of parts. `None` leaves the key out, as messages that only
    /// call tools do.
    pub content: Option<Json>,
    /// Everything else, such as `tool_calls`, `name` or `reasoning_content`.
    pub extra: Map<String, Json>,
}

impl Message {
    /// A message that is only text.
    pub fn new(role: impl Into<String>, text: impl Into<String>) -> Message {
        Message { role: role.into(), content: Some(Json::String(text.into())), extra: Map::new() }
    }

    pub(crate) fn to_json(&self) -> Json {
        let own = [("role", Some(Json::String(self.role.clone()))), ("content", self.content.clone())];
        let own = own.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let extra = self.extra.iter().filter(|(key, _)| !matches!(key.as_str(), "role" | "content"));
        Json::Object(own.chain(extra.map(|(key, value)| (key.clone(), value.clone()))).collect())
    }

    pub(crate) fn is_deeper_than(&self, limit: usize) -> bool {
        self.content.iter().chain(self.extra.values()).any(|json| is_deeper_than(json, limit))
    }
}

impl TryFrom<Json> for Message {
    type Error = TemplateError;

    /// # Errors
    ///
    /// When the value is not an object with a `role` that is text.
    fn try_from(json: Json) -> Result<Message, TemplateError> {
        let Json::Object(mut extra) = json else { return Err(TemplateError::MalformedMessage) };
        let Some(Json::String(role)) = extra.shift_remove("role") else {
            return Err(TemplateError::MalformedMessage);
        };
        Ok(Message { role, content: extra.shift_remove("content"), extra })
    }
}

/// How to render, with the variables that templates know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RenderOptions {
    /// Whether the text ends with the beginning of a reply.
    pub add_generation_prompt: bool,
    /// The tools that the model may call, in the form of the `tools` of a chat request.
    pub tools: Option<Json>,
    /// The text of the beginning-of-text token. `None` leaves the variable undefined.
    pub bos_token: Option<String>,
    /// The text of the end-of-text token. `None` leaves the variable undefined.
    pub eos_token: Option<String>,
    /// More variables, such as `enable_thinking`. They may replace the two tokens.
    pub kwargs: Map<String, Json>,
    /// The time that `strftime_now` tells; `None` for the present in UTC.
    pub now: Option<LocalTime>,
    /// How far the template may go.
    pub limits: RenderLimits,
}

/// How far a template may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenderLimits {
    /// Steps, where 64 bytes of a new text are one step.
    pub work: u64,
    /// Bytes of the rendered text.
    pub output_bytes: usize,
    /// Time. A template that gets here has found work that the other limits do not count.
    pub time: Duration,
}

impl Default for RenderLimits {
    /// Four million steps, which take some tenths of a second, 16 MiB and 5 seconds. A conversation
    /// of a megabyte needs about two hundred thousand steps.
    fn default() -> RenderLimits {
        RenderLimits { work: 4_000_000, output_bytes: 16 << 20, time: Duration::from_secs(5) }
    }
}
