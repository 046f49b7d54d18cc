//! `tokenize`: text to token ids.

use std::io::Read;

use paceline_text::EncodeOptions;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::TokenizeArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model_source::ModelSource;
use crate::{text, tokenizer};

/// Runs the command.
pub fn run(args: &TokenizeArgs, app: &mut App) -> Result<Exit, Failure> {
    let source = ModelSource::resolve(&args.model.model)?;
    let tokenizer = tokenizer::open(&source, app)?;
    let typed = match &args.text {
        Some(text) => text.clone(),
        None => read_text()?,
    };
    let options = EncodeOptions { parse_special: args.special, ..EncodeOptions::default() };
    let ids = tokenizer
        .encode(&typed, options)
        .map_err(|error| Failure::new(Exit::Failed, format!("the text cannot be encoded: {error}")))?;
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

/// Standard input as it is, line break at the end included.
fn read_text() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::new(Exit::Failed, "cannot read standard input").caused_by(&error))?;
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        Failure::new(Exit::Failed, format!("standard input is not UTF-8 text at byte {offset}"))
            .hint("convert it to UTF-8 first")
    })
}
