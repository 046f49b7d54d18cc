//! A conversation, and the prompt that a chat template makes of it.

use std::path::Path;

use paceline_text::{ChatTemplate, Message, RenderOptions, TemplateError, Tokenizer};

use crate::engine_setup::Setup;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::input;

/// Where a model file has its chat template.
pub const TEMPLATE_KEY: &str = "tokenizer.chat_template";

/// Messages, and the template that they are rendered with.
pub struct Conversation {
    template: ChatTemplate,
    /// The template's file, and the exit code if it cannot be used.
    origin: (String, Exit),
    options: RenderOptions,
    system: Option<Message>,
    messages: Vec<Message>,
}

impl Conversation {
    /// An empty conversation, with the template of `file`, or the model's own. A template that cannot render even one
    /// message is an error.
    pub fn new(setup: &Setup, file: Option<&Path>, system: Option<&str>) -> Result<Self, Failure> {
        let (source, origin) = match file {
            Some(file) => (Some(input::file_text(file)?), (file.display().to_string(), Exit::Usage)),
            None => {
                let source = setup.model.gguf().get_str(TEMPLATE_KEY)?;
                (source.map(str::to_owned), (setup.source.to_string(), Exit::Model))
            }
        };
        let template = ChatTemplate::from_metadata(source.as_deref())
            .map_err(|error| unusable(&origin, &error))?
            .ok_or_else(|| missing(&origin))?;
        let mut conversation = Self {
            template,
            origin,
            options: render_options(&setup.tokenizer),
            system: system.map(|text| Message::new("system", text)),
            messages: Vec::new(),
        };
        conversation.clear();
        conversation.add("user", "Hello");
        conversation.render()?;
        conversation.clear();
        Ok(conversation)
    }

    /// Forgets all messages but the system's.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.messages.extend(self.system.clone());
    }

    /// Adds a message at the end.
    pub fn add(&mut self, role: &str, text: &str) {
        self.messages.push(Message::new(role, text));
    }

    /// Takes the last message away.
    pub fn remove_last(&mut self) {
        self.messages.pop();
    }

    /// The prompt for a reply to the last message.
    pub fn render(&self) -> Result<String, Failure> {
        self.template.render(&self.messages, &self.options).map_err(|error| unusable(&self.origin, &error))
    }
}

fn render_options(tokenizer: &Tokenizer) -> RenderOptions {
    let text = |token: Option<u32>| token.and_then(|id| tokenizer.token_text(id)).map(str::to_owned);
    RenderOptions {
        add_generation_prompt: true,
        bos_token: text(tokenizer.bos()),
        eos_token: text(tokenizer.eos()),
        ..RenderOptions::default()
    }
}

fn missing((name, exit): &(String, Exit)) -> Failure {
    let hint = "use `paceline run` to continue a text, or give a template with `--template FILE`";
    match exit {
        Exit::Usage => Failure::new(*exit, format!("{name} is empty; a chat template is needed")),
        _ => Failure::new(*exit, format!("{name} has no chat template")).hint(hint),
    }
}

fn unusable((name, exit): &(String, Exit), error: &TemplateError) -> Failure {
    Failure::new(*exit, format!("{name}: {error}"))
}
