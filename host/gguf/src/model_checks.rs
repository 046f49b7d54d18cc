//! Faults of well-formed files: metadata that no model can have.
//!
//! These would make a loader read past its tables, so `verify` lists them. Which keys a model must
//! have is known to the engine alone and is not asked here.

use crate::fault_log::FaultLog;
use crate::{Array, Error, Fault, Gguf, Result, Strings, ValueRef, ValueType};

const TOKENS_KEY: &str = "tokenizer.ggml.tokens";
const MERGES_KEY: &str = "tokenizer.ggml.merges";
const MAX_BLOCKS: i128 = 512;

pub(crate) fn check_model(model: &Gguf, log: &mut FaultLog) -> Result<()> {
    let mut checks = Checks { model, log };
    checks.architecture()?;
    checks.tokenizer()?;
    checks.special_tokens()
}

struct Checks<'a> {
    model: &'a Gguf,
    log: &'a mut FaultLog,
}

impl Checks<'_> {
    fn report(&mut self, fault: Fault) -> Result<()> {
        self.log.admit_error(Error::new(self.model.origin(), fault))
    }

    fn problem(&mut self, key: &str, problem: impl Into<String>) -> Result<()> {
        self.report(Fault::Model { key: key.to_owned(), problem: problem.into() })
    }

    fn architecture(&mut self) -> Result<()> {
        let key = "general.architecture";
        // Other kinds of file, such as importance matrices, need not name one.
        let is_model = matches!(self.model.value("general.type"), None | Some(ValueRef::Str(b"model")));
        let architecture = match self.model.get_str(key) {
            Ok(Some(architecture)) => architecture,
            Ok(None) if is_model => {
                return self.report(Fault::MissingKey { key: key.to_owned(), expected: "string" });
            }
            Ok(None) => return Ok(()),
            Err(error) => return self.problem(key, format!("unusable: {}", error.fault())),
        };
        let [blocks, width, heads, head_width] =
            ["block_count", "embedding_length", "attention.head_count", "attention.key_length"]
                .map(|name| format!("{architecture}.{name}"));
        let integer = |key: &str| self.model.value(key).and_then(|value| value.as_integer());
        let (block_count, embedding, head_count) = (integer(&blocks), integer(&width), integer(&heads));

        if let Some(count) = block_count
            && !(1..=MAX_BLOCKS).contains(&count)
        {
            self.problem(&blocks, format!("{count} blocks; 1 to {MAX_BLOCKS} are possible"))?;
        }
        for (key, value) in [(&width, embedding), (&heads, head_count)] {
            if let Some(value) = value
                && value <= 0
            {
                self.problem(key, format!("{value} is not a possible size"))?;
            }
        }
        if let (Some(embedding), Some(head_count)) = (embedding, head_count)
            && head_count > 0
            && embedding % head_count != 0
            && self.model.value(&head_width).is_none()
        {
            let problem = format!("{head_count} heads do not divide the embedding length {embedding}");
            self.problem(&heads, problem)?;
        }
        Ok(())
    }

    fn tokenizer(&mut self) -> Result<()> {
        for key in [TOKENS_KEY, MERGES_KEY] {
            if let Err(error) = self.model.get::<Strings<'_>>(key) {
                let problem = format!("unusable: {}", error.fault());
                self.problem(key, problem)?;
            }
        }
        let token_count = self.token_count();
        // The types other loaders rely on without asking.
        let token_types = [ValueType::I32, ValueType::U32];
        for (key, expected) in
            [("tokenizer.ggml.token_type", &token_types[..]), ("tokenizer.ggml.scores", &[ValueType::F32])]
        {
            let Some(value) = self.model.value(key) else { continue };
            let ValueRef::Array(array) = value else {
                self.problem(key, format!("{} where an array is expected", value.describe_type()))?;
                continue;
            };
            if !expected.contains(&array.element_type()) {
                let found = value.describe_type();
                self.problem(key, format!("{found} where {} elements are expected", expected[0]))?;
            }
            if let Some(count) = token_count
                && array.len() != count
            {
                self.problem(key, format!("{} elements for {count} tokens", array.len()))?;
            }
        }
        Ok(())
    }

    fn token_count(&self) -> Option<usize> {
        match self.model.value(TOKENS_KEY) {
            Some(ValueRef::Array(tokens)) => Some(tokens.len()),
            _ => None,
        }
    }

    fn special_tokens(&mut self) -> Result<()> {
        let model = self.model;
        let count = self.token_count();
        for (key, value) in model.entries().filter(|(key, _)| key.starts_with("tokenizer.ggml.")) {
            match value {
                ValueRef::Array(ids) if key.ends_with("_token_ids") => self.token_ids(key, &ids, count)?,
                id if key.ends_with("_token_id") => self.token_id(key, &id, count)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Reports the first bad id only: one line per key says enough.
    fn token_ids(&mut self, key: &str, ids: &Array<'_>, count: Option<usize>) -> Result<()> {
        let is_bad = |id: &ValueRef<'_>| id.as_integer().is_none_or(|id| !is_token(id, count));
        match ids.iter().find(is_bad) {
            Some(id) => self.token_id(key, &id, count),
            None => Ok(()),
        }
    }

    fn token_id(&mut self, key: &str, id: &ValueRef<'_>, count: Option<usize>) -> Result<()> {
        match (id.as_integer(), count) {
            (None, _) => self.problem(key, format!("{} where a token id is expected", id.describe_type())),
            (Some(id), Some(count)) if !is_token(id, Some(count)) => {
                self.problem(key, format!("token id {id} is out of range, there are {count} tokens"))
            }
            (Some(id), None) if !is_token(id, None) => {
                self.problem(key, format!("token id {id} is out of range"))
            }
            _ => Ok(()),
        }
    }
}

/// Without a token list, any id that fits the 32 bits of token ids may be right.
fn is_token(id: i128, count: Option<usize>) -> bool {
    (0..count.map_or(i128::from(i32::MAX) + 1, |count| count as i128)).contains(&id)
}
