//! `eval top`: the most likely tokens after each token of a text.

use std::cmp::Ordering;

use paceline_engine::{Engine, EngineError, Rows, Want};
use paceline_text::Tokenizer;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::TopArgs;
use crate::engine_setup::{EVAL_OUTPUTS, Setup};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::printer::Unit;
use crate::strategies::Strategies;
use crate::table::Columns;
use crate::{input, text, tokenizer};

/// The tokens with the largest logits after one position, largest first.
type Top = Vec<(u32, f32)>;

/// Runs the command.
pub fn run(args: &TopArgs, app: &mut App) -> Result<Exit, Failure> {
    let mut setup = Setup::new(&args.model, &args.engine, args.ctx, app)?;
    let mut context = setup.context(Strategies::default(), setup.given.clone())?;
    let ids = if args.ids.is_empty() {
        tokenizer::encode(&setup.tokenizer, &input::prompt(&args.prompt)?, args.special)?
    } else {
        args.ids.clone()
    };
    setup.check(&ids, context.positions())?;
    let mut engine = setup.engine(&mut context, Some(EVAL_OUTPUTS), app)?;
    if ids.len() > engine.context_length() {
        let error = EngineError::PromptTooLong { tokens: ids.len(), context: engine.context_length() };
        return Err(setup.failure(error));
    }
    let tops = {
        let mut progress = app.printer.progress("computing logits", Unit::Tokens);
        let progress = &mut |done| progress.at(done as u64, ids.len() as u64);
        tops(&mut engine, &ids, args.top as usize, progress).map_err(|error| setup.failure(error))?
    };
    if args.output.json {
        let positions: Vec<Value> = (0..)
            .zip(ids.iter().zip(&tops))
            .map(|(position, (&id, top))| position_json(position, id, top, &setup.tokenizer))
            .collect();
        let mut object = setup.as_json(&context, &engine);
        object.insert("positions".to_owned(), json!(positions));
        app.printer.json(&Value::Object(object))?;
    } else {
        print(&ids, &tops, &setup.tokenizer, app)?;
    }
    Ok(Exit::Ok)
}

fn tops(
    engine: &mut Engine,
    ids: &[u32],
    count: usize,
    progress: &mut dyn FnMut(usize),
) -> paceline_engine::Result<Vec<Top>> {
    let sequence = engine.new_sequence()?;
    let mut tops = Vec::with_capacity(ids.len());
    let mut candidates = Vec::new();
    for tokens in ids.chunks(engine.most_outputs()) {
        let outputs = engine.run(&[Rows { sequence, tokens, outputs: tokens.len() }], Want::Logits)?;
        for index in 0..outputs.len() {
            let logits = outputs.logits(index).unwrap_or_default();
            if logits.iter().any(|logit| logit.is_nan()) {
                return Err(EngineError::NotFinite { position: tops.len() });
            }
            tops.push(largest(logits, count, &mut candidates));
        }
        progress(tops.len());
    }
    Ok(tops)
}

/// The largest logits; of equal ones, those of lower ids.
fn largest(logits: &[f32], count: usize, candidates: &mut Top) -> Top {
    let order = |a: &(u32, f32), b: &(u32, f32)| -> Ordering { b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)) };
    candidates.clear();
    candidates.extend((0..).zip(logits.iter().copied()));
    let count = count.min(candidates.len());
    if (1..candidates.len()).contains(&count) {
        candidates.select_nth_unstable_by(count - 1, order);
    }
    let mut largest = candidates[..count].to_vec();
    largest.sort_unstable_by(order);
    largest
}

fn position_json(position: usize, id: u32, top: &Top, tokenizer: &Tokenizer) -> Value {
    let text = |id| String::from_utf8_lossy(tokenizer.token_bytes_with_control(id));
    let top: Vec<Value> = top
        .iter()
        .map(|&(id, logit)| json!({ "id": id, "logit": text::decimal(logit), "text": text(id) }))
        .collect();
    json!({ "position": position, "id": id, "text": text(id), "top": top })
}

fn print(ids: &[u32], tops: &[Top], tokenizer: &Tokenizer, app: &mut App) -> Result<(), Failure> {
    // Quotes show where spaces are.
    let shown = |id| format!("{:?}", String::from_utf8_lossy(tokenizer.token_bytes_with_control(id)));
    let mut columns = Columns::new(&["position", "token", "next", "logit", "text"], &[0, 2, 3]);
    for (position, (&id, top)) in ids.iter().zip(tops).enumerate() {
        for (rank, &(candidate, logit)) in top.iter().enumerate() {
            let (position, token) =
                if rank == 0 { (position.to_string(), shown(id)) } else { (String::new(), String::new()) };
            columns.row([position, token, candidate.to_string(), format!("{logit:.4}"), shown(candidate)]);
        }
    }
    columns.print(&mut app.printer, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_ids_win_ties() {
        let logits = [1.0, 3.0, 2.0, 3.0, 2.0];
        let ids = |count| -> Vec<u32> {
            largest(&logits, count, &mut Vec::new()).into_iter().map(|(id, _)| id).collect()
        };
        assert_eq!(ids(3), [1, 3, 2]);
        assert_eq!(ids(99), [1, 3, 2, 4, 0]);
    }
}
