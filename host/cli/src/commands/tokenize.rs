//! `tokenize`: text to token ids.

use serde_json::{Value, json};

use crate::app::App;
use crate::args::TokenizeArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model_source::ModelSource;
use crate::{input, text, tokenizer};

/// Runs the command.
pub fn run(args: &TokenizeArgs, app: &mut App) -> Result<Exit, Failure> {
    let source = ModelSource::resolve(&args.model.model)?;
    let tokenizer = tokenizer::open(&source, app)?;
    let typed = match &args.text {
        Some(text) => text.clone(),
        None => input::stdin_text()?,
    };
    let ids = tokenizer::encode(&tokenizer, &typed, args.special)?;
    if args.output.json {
        let tokens: Vec<Value> = ids
            .iter()
            .map(|&id| json!({ "id": id, "text": String::from_utf8_lossy(tokenizer.token_bytes_with_control(id)) }))
            .collect();
        app.printer.json(&json!({ "model": source.to_string(), "count": ids.len(), "tokens": tokens }))?;
    } else {
        let line: Vec<String> = ids.iter().map(u32::to_string).collect();
        app.printer.line(line.join(" "))?;
        app.printer.status(text::counted(ids.len() as u64, "token"));
    }
    Ok(Exit::Ok)
}
