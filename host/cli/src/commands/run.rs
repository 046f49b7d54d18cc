//! `run`: continues a text.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use paceline_engine::{
    Engine, EngineError, GenerationOptions, GenerationReport, RunCounts, Sampler, SequenceId,
};
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
    let options = sampling::options(&args.sampling);
    let sampler = Sampler::new(options.clone(), setup.model.shape().vocabulary as usize)?;
    let prompt = input::prompt(&args.prompt)?;
    let prompt_ids = tokenizer::encode(&setup.tokenizer, &prompt, args.special)?;
    setup.check(&prompt_ids, context.positions())?;

    let start = Instant::now();
    let mut engine = setup.engine(&mut context, None, app)?;
    let load_time = start.elapsed();
    let sequence = engine.new_sequence()?;
    let (interrupt, tokenizer) = (Interrupt::watch()?, Arc::clone(&setup.tokenizer));
    let mut generation = Generation::new(args, sampler, &prompt, prompt_ids, &tokenizer, &interrupt);
    let (report, before) = loop {
        let before = Before::of(&engine);
        match generation.go_on(&mut engine, sequence, &mut app.printer)? {
            Ok(report) => break (generation.whole(report), before),
            Err(error) => engine = setup.recover(&mut context, engine, error, app)?,
        }
        // A sampler that saw what the sequence holds goes on as the one before would have.
        generation.sampler = Sampler::new(options.clone(), setup.model.shape().vocabulary as usize)?;
        generation.held(engine.sequence_length(sequence));
    };
    setup.remember_panics(&engine);
    generation.continuation.finish(&mut app.printer)?;
    let outcome = generation.outcome(report, load_time, before, &engine);
    if args.output.json {
        app.printer.json(&outcome.as_json(&setup, &context, &engine))?;
    } else {
        app.printer.stream_end()?;
        outcome.show(&app.printer);
    }
    Ok(if outcome.ending == Ending::Interrupted { Exit::Interrupted } else { Exit::Ok })
}

/// What an engine had done before a generation.
struct Before {
    counters: Option<Counters>,
    runs: RunCounts,
}

impl Before {
    fn of(engine: &Engine) -> Self {
        Self { counters: engine.counters().ok(), runs: engine.run_counts() }
    }
}

/// A text that is being generated, whatever becomes of engines.
struct Generation<'a> {
    args: &'a RunArgs,
    sampler: Sampler,
    interrupt: &'a Interrupt,
    /// The prompt, until it is shown.
    prompt_to_show: Option<&'a str>,
    prompt_ids: Vec<u32>,
    end_tokens: &'a [u32],
    continuation: Continuation<'a>,
    /// Tokens of prompt and continuation that the sequence holds.
    held: usize,
    start: Instant,
    first_token: Option<Instant>,
}

impl<'a> Generation<'a> {
    fn new(
        args: &'a RunArgs,
        sampler: Sampler,
        prompt: &'a str,
        prompt_ids: Vec<u32>,
        tokenizer: &'a Tokenizer,
        interrupt: &'a Interrupt,
    ) -> Self {
        Self {
            args,
            sampler,
            interrupt,
            prompt_to_show: Some(prompt).filter(|_| !args.output.json),
            prompt_ids,
            end_tokens: if args.ignore_eos { &[] } else { tokenizer.end_of_generation() },
            continuation: Continuation::new(tokenizer, args),
            held: 0,
            start: Instant::now(),
            first_token: None,
        }
    }

    /// Reads what is not read yet and generates what is missing. The inner error is the engine's.
    fn go_on(
        &mut self,
        engine: &mut Engine,
        sequence: SequenceId,
        printer: &mut Printer,
    ) -> Result<Result<GenerationReport, EngineError>, Failure> {
        let text = [&self.prompt_ids[..], &self.continuation.ids].concat();
        let (held, unread) = text.split_at(self.held);
        held.iter().for_each(|&token| self.sampler.observe(token));
        let total = unread.len() as u64;
        // A prompt of one run has nothing to show in between.
        let several_runs = unread.len() > engine.microbatch();
        if !several_runs {
            self.prompt_to_show.take().into_iter().for_each(|prompt| printer.prompt(prompt));
        }
        let progress = several_runs.then(|| printer.progress("reading the prompt", Unit::Tokens));
        let progress = RefCell::new(progress);
        let Self { args, interrupt, prompt_to_show, continuation, first_token, .. } = self;
        let tokens = args.tokens - continuation.ids.len();
        let mut failed = None;
        let report = engine.generate(
            sequence,
            unread,
            &mut self.sampler,
            GenerationOptions { tokens, end_tokens: self.end_tokens },
            &mut |done| {
                if let Some(progress) = progress.borrow_mut().as_mut() {
                    progress.at(done as u64, total);
                }
            },
            &mut |token| {
                first_token.get_or_insert_with(Instant::now);
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
        failed.map_or(Ok(report), Err)
    }

    /// Another engine holds so many tokens of the text.
    fn held(&mut self, tokens: usize) {
        self.held = tokens;
    }

    /// The report on the whole text, where the engine's is only about what it did itself.
    fn whole(&self, report: GenerationReport) -> GenerationReport {
        if report.prompt_tokens == self.prompt_ids.len()
            && report.generated_tokens == self.continuation.ids.len()
        {
            return report;
        }
        let first_token = self.first_token.unwrap_or(self.start);
        GenerationReport {
            prompt_tokens: self.prompt_ids.len(),
            prompt_time: first_token - self.start,
            generated_tokens: self.continuation.ids.len(),
            generation_time: first_token.elapsed(),
            stop: report.stop,
        }
    }

    fn outcome(
        self,
        report: GenerationReport,
        load_time: Duration,
        before: Before,
        engine: &Engine,
    ) -> Outcome {
        let continuation = self.continuation;
        // Text that was held back may turn out to be a stop text at the end.
        let ending = continuation.stop.map_or_else(|| report.stop.into(), Ending::StopText);
        Outcome {
            prompt_ids: self.prompt_ids,
            ids: continuation.ids,
            text: continuation.text,
            ending,
            report,
            load_time,
            sampler: self.sampler.options().clone(),
            counted_before: before.counters,
            speculation: Speculation::of(engine, before.runs),
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
