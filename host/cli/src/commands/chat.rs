//! `chat`: talks with a model.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use paceline_engine::{
    Engine, EngineError, GenerationOptions, GenerationReport, RunCounts, Sampler, SamplerOptions, SequenceId,
    StopReason,
};
use paceline_text::{StopMatcher, TextStream, Tokenizer};
use serde_json::json;

use crate::app::App;
use crate::args::ChatArgs;
use crate::commands::run_report::{Ending, statistics};
use crate::commands::speculation_report::Speculation;
use crate::conversation::Conversation;
use crate::engine_setup::{Context, Recovery, Setup};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::printer::{Printer, Unit};
use crate::{input, sampling, tokenizer};

const FULL_HINT: &str = "type `/clear` to start over, or give a larger `--ctx`";

/// Runs the command.
pub fn run(args: &ChatArgs, app: &mut App) -> Result<Exit, Failure> {
    let (mut setup, mut context) =
        Setup::with_strategies(&args.model, &args.engine, &args.strategies, args.ctx, app)?;
    let sampler_options = sampling::options(&args.sampling);
    let sampler = Sampler::new(sampler_options.clone(), setup.model.shape().vocabulary as usize)?;
    let mut conversation = Conversation::new(&setup, args.template.as_deref(), args.system.as_deref())?;
    let mut engine = setup.engine(&mut context, None, app)?;
    let sequence = engine.new_sequence()?;
    let interrupt = Interrupt::watch()?;
    let mut chat =
        Chat { setup, context, args, sequence, held: Vec::new(), sampler_options, sampler, interrupt };

    let mut exit = Exit::Ok;
    loop {
        let Some(message) = input::message(|| app.printer.ask())? else {
            app.printer.asked_in_vain();
            break;
        };
        match message.trim() {
            "" => {}
            "/quit" => break,
            "/clear" => conversation.clear(),
            _ => {
                conversation.add("user", &message);
                let prompt = tokenizer::encode(&chat.setup.tokenizer, &conversation.render()?, true)?;
                if let Some(failure) = too_long(&engine, &prompt) {
                    app.printer.failure(&failure);
                    exit = failure.exit();
                    conversation.remove_last();
                    continue;
                }
                let reply;
                (reply, engine) = chat.reply(&prompt, engine, app)?;
                // Templates write the space before a reply themselves.
                conversation.add("assistant", reply.trim_start());
            }
        }
    }
    Ok(exit)
}

/// The model, and what it has read of the conversation.
struct Chat<'a> {
    setup: Setup,
    context: Context,
    args: &'a ChatArgs,
    sequence: SequenceId,
    /// The tokens of the sequence.
    held: Vec<u32>,
    sampler_options: SamplerOptions,
    sampler: Sampler,
    interrupt: Interrupt,
}

/// What is wrong if the conversation does not fit the context.
fn too_long(engine: &Engine, prompt: &[u32]) -> Option<Failure> {
    let (tokens, context) = (prompt.len(), engine.context_length());
    let message = format!("the conversation has {tokens} tokens, the context holds {context}");
    (tokens > context).then(|| Failure::new(Exit::Usage, message).hint(FULL_HINT))
}

impl Chat<'_> {
    /// Generates the reply to a prompt, shows it and returns its text, and the engine for the next one.
    fn reply(
        &mut self,
        prompt: &[u32],
        mut engine: Engine,
        app: &mut App,
    ) -> Result<(String, Engine), Failure> {
        self.setup.check(prompt, None)?;
        // The rendered text may have changed in the middle, and at least one token must be left to read.
        if self.held.len() >= prompt.len() || !prompt.starts_with(&self.held) {
            engine.clear_sequence(self.sequence);
            self.held.clear();
            self.sampler = self.new_sampler()?;
        }
        engine.clear_speculation_report();
        let recovered_before = self.setup.recoveries.len();
        let Generated { text, report, runs_before, engine } = self.generate(prompt, engine, app)?;
        self.setup.remember_panics(&engine);
        let speculation = Speculation::of(&engine, runs_before);
        let recoveries = &self.setup.recoveries[recovered_before..];
        let printer = &mut app.printer;
        let ending = Ending::from(report.stop);
        if self.args.output.json {
            printer.json_line(&json!({
                "text": text,
                "prompt_tokens_total": prompt.len(),
                "prompt_tokens_processed": report.prompt_tokens,
                "generated": report.generated_tokens,
                "stop": ending.code(),
                "speculation": speculation.as_ref().map(Speculation::as_json),
                "recoveries": recoveries.iter().map(Recovery::as_json).collect::<Vec<_>>(),
            }))?;
        } else {
            printer.line("")?;
        }
        printer.flush()?;
        if report.stop == StopReason::ContextFull {
            let context = engine.context_length();
            let message = format!("the reply was cut off, as the context of {context} positions is full");
            printer.warning(format_args!("{message}; {FULL_HINT}"));
        }
        printer.detail(statistics(&report, &ending, &self.sampler_options));
        if let Some(speculation) = speculation {
            printer.detail(speculation.line());
            speculation.details().into_iter().for_each(|line| printer.detail(line));
        }
        Ok((text, engine))
    }

    /// Reads what is new of a prompt and generates a reply.
    fn generate(&mut self, prompt: &[u32], mut engine: Engine, app: &mut App) -> Result<Generated, Failure> {
        let tokenizer = Arc::clone(&self.setup.tokenizer);
        let mut reply = Reply::new(&tokenizer, !self.args.output.json);
        let new = prompt.len() - self.held.len();
        let mut held = self.held.len();
        self.interrupt.heed();
        let (mut report, runs_before) = loop {
            let runs_before = engine.run_counts();
            let text = [prompt, &reply.ids].concat();
            match self.go_on(&mut engine, &text[held..], &mut reply, &mut app.printer)? {
                Ok(report) => break (report, runs_before),
                Err(error) => engine = self.setup.recover(&mut self.context, engine, error, app)?,
            }
            held = engine.sequence_length(self.sequence);
            // A sampler that saw what the sequence holds goes on as the one before would have.
            let text = [prompt, &reply.ids].concat();
            self.sampler = self.new_sampler()?;
            text[..held].iter().for_each(|&token| self.sampler.observe(token));
        };
        self.interrupt.disregard();
        reply.finish(&mut app.printer)?;
        report.generated_tokens = reply.ids.len();
        report.prompt_tokens = new;
        // The last token of a reply that was cut off is not part of the sequence yet.
        self.held = [prompt, &reply.ids].concat();
        self.held.truncate(engine.sequence_length(self.sequence));
        Ok(Generated { text: reply.text, report, runs_before, engine })
    }

    /// Reads tokens and generates what is missing of a reply. The inner error is the engine's.
    fn go_on(
        &mut self,
        engine: &mut Engine,
        tokens: &[u32],
        reply: &mut Reply<'_>,
        printer: &mut Printer,
    ) -> Result<Result<GenerationReport, EngineError>, Failure> {
        let several_runs = tokens.len() > engine.microbatch();
        let progress = several_runs.then(|| printer.progress("reading the conversation", Unit::Tokens));
        let progress = RefCell::new(progress);
        let interrupt = &self.interrupt;
        let most = self.args.tokens.map_or(usize::MAX, |tokens| tokens as usize - reply.ids.len());
        let mut failed = None;
        let report = engine.generate(
            self.sequence,
            tokens,
            &mut self.sampler,
            GenerationOptions { tokens: most, end_tokens: reply.tokenizer.end_of_generation() },
            &mut |done| {
                if let Some(progress) = progress.borrow_mut().as_mut() {
                    progress.at(done as u64, tokens.len() as u64);
                }
            },
            &mut |token| {
                *progress.borrow_mut() = None;
                failed = reply.push(token, printer).err();
                if failed.is_some() || interrupt.requested() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
        drop(progress);
        failed.map_or(Ok(report), Err)
    }

    fn new_sampler(&self) -> Result<Sampler, Failure> {
        Ok(Sampler::new(self.sampler_options.clone(), self.setup.model.shape().vocabulary as usize)?)
    }
}

/// A reply that is complete.
struct Generated {
    text: String,
    report: GenerationReport,
    /// What the engine had done before it, which need not be the one that began it.
    runs_before: RunCounts,
    engine: Engine,
}

/// A reply that is being generated, whatever becomes of engines.
struct Reply<'a> {
    tokenizer: &'a Tokenizer,
    shown: bool,
    stream: TextStream,
    text: String,
    ids: Vec<u32>,
}

impl<'a> Reply<'a> {
    fn new(tokenizer: &'a Tokenizer, shown: bool) -> Self {
        let stream = TextStream::new(StopMatcher::new(std::iter::empty::<String>()));
        Self { tokenizer, shown, stream, text: String::new(), ids: Vec::new() }
    }

    fn push(&mut self, token: u32, printer: &mut Printer) -> Result<(), Failure> {
        self.ids.push(token);
        let piece = self.stream.push(self.tokenizer.token_bytes(token)).text;
        self.text.push_str(piece);
        if self.shown { printer.stream(piece) } else { Ok(()) }
    }

    /// Gives out what was held back, as it might have been the beginning of a character.
    fn finish(&mut self, printer: &mut Printer) -> Result<(), Failure> {
        let piece = self.stream.finish().text;
        self.text.push_str(piece);
        if self.shown { printer.stream(piece) } else { Ok(()) }
    }
}
