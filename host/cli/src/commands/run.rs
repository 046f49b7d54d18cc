//! `run`: continues a text.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use paceline_engine::{Engine, GenerationOptions, GenerationReport, Sampler, SequenceId};
use paceline_plugin_api::backend::Counters;
use paceline_text::{StopMatcher, TextDelta, TextStream, Tokenizer};

use crate::app::App;
use crate::args::RunArgs;
use crate::commands::run_report::{Ending, Outcome};
use crate::commands::speculation_report::Speculation;
use crate::engine_setup::Setup;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::printer::{Printer, Unit};
use crate::{input, sampling, tokenizer};

/// Runs the command.
pub fn run(args: &RunArgs, app: &mut App) -> Result<Exit, Failure> {
    let (mut setup, mut context) =
        Setup::with_strategies(&args.model, &args.engine, &args.strategies, args.ctx, app)?;
    let sampler = Sampler::new(sampling::options(&args.sampling), setup.model.shape().vocabulary as usize)?;
    let prompt = input::prompt(&args.prompt)?;
    let prompt_ids = tokenizer::encode(&setup.tokenizer, &prompt, args.special)?;
    setup.check(&prompt_ids, context.positions())?;

    let start = Instant::now();
    let mut engine = setup.engine(&mut context, None, app)?;
    let load_time = start.elapsed();
    let sequence = engine.new_sequence()?;
    let generation = Generation { setup: &setup, args, sampler, prompt: &prompt, prompt_ids };
    let mut outcome = generation.run(&mut engine, sequence, &mut app.printer)?;
    outcome.load_time = load_time;
    if args.output.json {
        app.printer.json(&outcome.as_json(&setup, &context, &engine))?;
    } else {
        app.printer.stream_end()?;
        outcome.show(&app.printer);
    }
    Ok(if outcome.ending == Ending::Interrupted { Exit::Interrupted } else { Exit::Ok })
}

/// Everything that a generation needs but the engine.
struct Generation<'a> {
    setup: &'a Setup,
    args: &'a RunArgs,
    sampler: Sampler,
    prompt: &'a str,
    prompt_ids: Vec<u32>,
}

impl Generation<'_> {
    fn run(
        mut self,
        engine: &mut Engine,
        sequence: SequenceId,
        printer: &mut Printer,
    ) -> Result<Outcome, Failure> {
        let tokenizer = &self.setup.tokenizer;
        let mut continuation = Continuation::new(tokenizer, self.args);
        let end_tokens = if self.args.ignore_eos { &[] } else { tokenizer.end_of_generation() };
        let interrupt = Interrupt::watch()?;
        let counted_before = engine.counters().ok();
        let runs_before = engine.run_counts();

        let total = self.prompt_ids.len() as u64;
        // A prompt of one run has nothing to show in between.
        let several_runs = self.prompt_ids.len() > engine.microbatch();
        let mut prompt_to_show = Some(self.prompt).filter(|_| !self.args.output.json);
        if !several_runs {
            prompt_to_show.take().into_iter().for_each(|prompt| printer.prompt(prompt));
        }
        let progress = several_runs.then(|| printer.progress("reading the prompt", Unit::Tokens));
        let progress = RefCell::new(progress);
        let mut failed = None;
        let report = engine.generate(
            sequence,
            &self.prompt_ids,
            &mut self.sampler,
            GenerationOptions { tokens: self.args.tokens, end_tokens },
            &mut |done| {
                if let Some(progress) = progress.borrow_mut().as_mut() {
                    progress.at(done as u64, total);
                }
            },
            &mut |token| {
                // The prompt can only be shown where no progress overwrites it.
                *progress.borrow_mut() = None;
                prompt_to_show.take().into_iter().for_each(|prompt| printer.prompt(prompt));
                interrupt.heed();
                if let Err(failure) = continuation.push(token, printer) {
                    failed = Some(failure);
                }
                if failed.is_some() || continuation.stop.is_some() || interrupt.requested() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
        drop(progress);
        let report = report.map_err(|error| self.setup.failure(error))?;
        if let Some(failure) = failed {
            return Err(failure);
        }
        continuation.finish(printer)?;
        let speculation = Speculation::of(engine, runs_before);
        Ok(self.outcome(report, continuation, counted_before, speculation))
    }

    fn outcome(
        &self,
        report: GenerationReport,
        continuation: Continuation<'_>,
        counted_before: Option<Counters>,
        speculation: Option<Speculation>,
    ) -> Outcome {
        // Text that was held back may turn out to be a stop text at the end.
        let ending = continuation.stop.map_or_else(|| report.stop.into(), Ending::StopText);
        Outcome {
            prompt_ids: self.prompt_ids.clone(),
            ids: continuation.ids,
            text: continuation.text,
            ending,
            report,
            load_time: Duration::ZERO,
            sampler: self.sampler.options().clone(),
            counted_before,
            speculation,
        }
    }
}

/// The text that is generated: shown as it comes, or kept for JSON.
struct Continuation<'a> {
    tokenizer: &'a Tokenizer,
    with_control: bool,
    shown: bool,
    stream: TextStream,
    ids: Vec<u32>,
    text: String,
    /// The stop text that ended it.
    stop: Option<String>,
}

impl<'a> Continuation<'a> {
    fn new(tokenizer: &'a Tokenizer, args: &RunArgs) -> Self {
        Self {
            tokenizer,
            with_control: args.special,
            shown: !args.output.json,
            stream: TextStream::new(StopMatcher::new(args.stop.iter().cloned())),
            ids: Vec::new(),
            text: String::new(),
            stop: None,
        }
    }

    fn push(&mut self, token: u32, printer: &mut Printer) -> Result<(), Failure> {
        self.ids.push(token);
        let bytes = if self.with_control {
            self.tokenizer.token_bytes_with_control(token)
        } else {
            self.tokenizer.token_bytes(token)
        };
        let TextDelta { text, stop } = self.stream.push(bytes);
        self.stop = stop.map(str::to_owned);
        self.text.push_str(text);
        if self.shown { printer.stream(text) } else { Ok(()) }
    }

    /// Gives out what was held back, as it might have become a stop text or the rest of a character.
    fn finish(&mut self, printer: &mut Printer) -> Result<(), Failure> {
        let TextDelta { text, stop } = self.stream.finish();
        self.stop = stop.map(str::to_owned).or(self.stop.take());
        self.text.push_str(text);
        if self.shown { printer.stream(text) } else { Ok(()) }
    }
}
