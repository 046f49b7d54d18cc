//! `eval perplexity`: how well a model predicts a text.

use std::time::{Duration, Instant};

use paceline_engine::{Engine, EngineError, Rows, SequenceId, Want};
use paceline_registry::settings::Given;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::PerplexityArgs;
use crate::engine_setup::{EVAL_OUTPUTS, Setup};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::printer::Unit;
use crate::resolution::CONTEXT;
use crate::strategies::Strategies;
use crate::{input, text, tokenizer};

/// Tokens of a window when none are asked for.
const DEFAULT_WINDOW: u32 = 512;

/// Runs the command.
pub fn run(args: &PerplexityArgs, app: &mut App) -> Result<Exit, Failure> {
    let mut setup = Setup::new(&args.model, &args.engine, args.ctx, app)?;
    let typed = input::file_or_stdin(args.file.as_deref())?;
    let mut ids = tokenizer::encode(&setup.tokenizer, &typed, false)?;
    ids.truncate(args.tokens.unwrap_or(usize::MAX));
    if ids.len() < 2 {
        let count = text::counted(ids.len() as u64, "token");
        return Err(Failure::new(Exit::Usage, format!("the text has {count}; there is nothing to predict"))
            .hint("give a text of at least 2 tokens"));
    }
    setup.check(&ids, None)?;
    let mut given = setup.given.clone();
    // A context that suits runs is no measure: what files and the environment say about it is for those.
    if !given.iter().any(|given| given.key == CONTEXT) {
        let window = DEFAULT_WINDOW.min(setup.model.shape().context);
        given.push(Given::option("the default window", CONTEXT, &window.to_string()));
    }
    let mut context = setup.context(Strategies::default(), given)?;
    let window = context.positions().unwrap_or(DEFAULT_WINDOW);
    let mut engine = setup.engine(&mut context, Some(EVAL_OUTPUTS), app)?;

    let start = Instant::now();
    let score = score(&mut engine, &ids, window as usize, app).map_err(|error| setup.failure(error))?;
    let time = start.elapsed();
    if args.output.json {
        let mut object = setup.as_json(&context, &engine);
        object.extend(as_json(&score, ids.len(), window, time));
        app.printer.json(&Value::Object(object))?;
    } else {
        app.printer.line(format_args!(
            "perplexity {:.4} ± {:.4}, {} scored",
            score.perplexity(),
            score.standard_error(),
            text::counted(score.count, "token")
        ))?;
        app.printer.flush()?;
        app.printer.status(format_args!(
            "{} of the text in windows of {window}; {}, {}",
            text::counted(ids.len() as u64, "token"),
            text::duration(time),
            text::rate(per_second(score.count, time), "tokens")
        ));
    }
    Ok(Exit::Ok)
}

/// Negative log-likelihoods of tokens, added up in the order of the text.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    count: u64,
    sum: f64,
    sum_of_squares: f64,
}

impl Score {
    fn add(&mut self, negative_log_likelihood: f64) {
        self.count += 1;
        self.sum += negative_log_likelihood;
        self.sum_of_squares += negative_log_likelihood * negative_log_likelihood;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// That of the mean, carried through the exponential.
    fn standard_error(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let count = self.count as f64;
        let variance = (self.sum_of_squares / count - self.mean() * self.mean()).max(0.0);
        self.perplexity() * (variance / (count - 1.0)).sqrt()
    }
}

/// Scores a text.
fn score(engine: &mut Engine, ids: &[u32], window: usize, app: &App) -> paceline_engine::Result<Score> {
    let mut progress = app.printer.progress("computing the perplexity", Unit::Tokens);
    let sequence = engine.new_sequence()?;
    let mut score = Score::default();
    for (number, tokens) in ids.chunks(window).enumerate() {
        engine.clear_sequence(sequence);
        let begin = number * window;
        score_window(engine, sequence, tokens, &mut |done, negative_log_likelihoods| {
            negative_log_likelihoods.iter().for_each(|&it| score.add(it));
            progress.at((begin + done) as u64, ids.len() as u64);
            progress.say(format_args!("perplexity {:.4}", score.perplexity()));
        })?;
    }
    Ok(score)
}

/// Gives out the negative log-likelihoods of all tokens but the first, after each run, with the tokens done.
fn score_window(
    engine: &mut Engine,
    sequence: SequenceId,
    tokens: &[u32],
    on_run: &mut dyn FnMut(usize, &[f64]),
) -> paceline_engine::Result<()> {
    // Nothing follows the last token.
    let rows = &tokens[..tokens.len().saturating_sub(1)];
    let mut done = 0;
    for tokens_of_run in rows.chunks(engine.most_outputs()) {
        let rows = Rows { sequence, tokens: tokens_of_run, outputs: tokens_of_run.len() };
        let outputs = engine.run(&[rows], Want::Logits)?;
        let mut negative_log_likelihoods = Vec::with_capacity(outputs.len());
        for index in 0..outputs.len() {
            let position = done + index;
            let found = outputs.logits(index).and_then(|logits| surprise(logits, tokens[position + 1]));
            negative_log_likelihoods.push(found.ok_or(EngineError::NotFinite { position })?);
        }
        done += tokens_of_run.len();
        on_run(done + 1, &negative_log_likelihoods);
    }
    Ok(())
}

/// The negative log-likelihood of a token; `None` if the logits are not numbers.
fn surprise(logits: &[f32], token: u32) -> Option<f64> {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
    let surprise = largest + sum.ln() - f64::from(*logits.get(token as usize)?);
    (!surprise.is_nan()).then_some(surprise)
}

/// Every scored token is predicted from one that the model processed.
fn per_second(tokens: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
}

/// Numbers that JSON cannot write are null.
fn as_json(score: &Score, tokens: usize, window: u32, time: Duration) -> [(String, Value); 8] {
    [
        ("perplexity", json!(score.perplexity())),
        ("standard_error", json!(score.standard_error())),
        ("mean_negative_log_likelihood", json!(score.mean())),
        ("scored_tokens", json!(score.count)),
        ("text_tokens", json!(tokens)),
        ("window", json!(window)),
        ("ms", json!(time.as_secs_f64() * 1e3)),
        ("tokens_per_second", json!(per_second(score.count, time))),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surprise_is_the_negative_logarithm_of_the_probability() {
        let logits = [2.0f32.ln(), 1.0f32.ln(), 5.0f32.ln()];
        assert!((surprise(&logits, 0).unwrap() - 4.0f64.ln()).abs() < 1e-6);
        // Too large for exp, were nothing subtracted.
        assert!((surprise(&[1e4, 1e4], 1).unwrap() - 2.0f64.ln()).abs() < 1e-9);
        assert_eq!(surprise(&[f32::NAN, 0.0], 1), None);
        assert_eq!(surprise(&[0.0], 7), None);
    }

    #[test]
    fn the_standard_error_is_that_of_the_mean() {
        let mut score = Score::default();
        [1.0, 2.0, 3.0].into_iter().for_each(|it| score.add(it));
        assert!((score.perplexity() - 2.0f64.exp()).abs() < 1e-9);
        // Standard deviation 1 of three numbers.
        assert!((score.standard_error() - 2.0f64.exp() / 3.0f64.sqrt()).abs() < 1e-9);
    }
}
