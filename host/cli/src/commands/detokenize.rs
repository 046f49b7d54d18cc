//! `detokenize`: token ids to text.

use std::io::Read;

use paceline_text::Tokenizer;
use serde_json::json;

use crate::app::App;
use crate::args::{DetokenizeArgs, token_id};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model_source::ModelSource;
use crate::{text, tokenizer};

/// Runs the command.
pub fn run(args: &DetokenizeArgs, app: &mut App) -> Result<Exit, Failure> {
    let source = ModelSource::resolve(&args.model.model)?;
    let tokenizer = tokenizer::open(&source, app)?;
    let ids = if args.ids.is_empty() { read_ids()? } else { args.ids.clone() };
    check(&ids, &tokenizer, &source)?;
    let bytes = if args.special { tokenizer.decode_with_control(&ids) } else { tokenizer.decode(&ids) };
    if args.output.json {
        app.printer.json(&json!({
            "model": source.to_string(),
            "ids": ids,
            "text": String::from_utf8_lossy(&bytes),
            "valid_utf8": std::str::from_utf8(&bytes).is_ok(),
        }))?;
    } else {
        app.printer.foreign_text(&bytes)?;
    }
    Ok(Exit::Ok)
}

fn check(ids: &[u32], tokenizer: &Tokenizer, source: &ModelSource) -> Result<(), Failure> {
    let size = tokenizer.vocab_size();
    match ids.iter().find(|&&id| id as usize >= size) {
        Some(id) => Err(Failure::new(
            Exit::Usage,
            format!("token {id} does not exist: {source} has {}", text::counted(size as u64, "token")),
        )
        .hint(format!("ids go from 0 to {}", size.saturating_sub(1)))),
        None => Ok(()),
    }
}

fn read_ids() -> Result<Vec<u32>, Failure> {
    let mut typed = String::new();
    std::io::stdin()
        .read_to_string(&mut typed)
        .map_err(|error| Failure::new(Exit::Failed, "cannot read standard input").caused_by(&error))?;
    typed
        .split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !word.is_empty())
        .map(|word| {
            token_id(word).map_err(|problem| {
                let shown = text::shortened(word, 32);
                let message = format!("`{}` on standard input: {problem}", text::name(&shown));
                Failure::new(Exit::Usage, message).hint("put white space or commas between ids")
            })
        })
        .collect()
}
