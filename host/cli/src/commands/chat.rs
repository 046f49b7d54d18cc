//! `chat`: talks with a model.

use std::cell::RefCell;
use std::ops::ControlFlow;

use paceline_engine::{
    Engine, GenerationOptions, GenerationReport, Sampler, SamplerOptions, SequenceId, StopReason,
};
use paceline_text::{StopMatcher, TextStream};
use serde_json::json;

use crate::app::App;
use crate::args::ChatArgs;
use crate::commands::run_report::{Ending, statistics};
use crate::commands::speculation_report::Speculation;
use crate::conversation::Conversation;
use crate::engine_setup::Setup;
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
        Chat { setup: &setup, args, engine, sequence, held: Vec::new(), sampler_options, sampler, interrupt };

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
                let prompt = tokenizer::encode(&setup.tokenizer, &conversation.render()?, true)?;
                if let Some(failure) = chat.too_long(&prompt) {
                    app.printer.failure(&failure);
                    exit = failure.exit();
                    conversation.remove_last();
                    continue;
                }
                let reply = chat.reply(&prompt, &mut app.printer)?;
                // Templates write the space before a reply themselves.
                conversation.add("assistant", reply.trim_start());
            }
        }
    }
    Ok(exit)
}

/// The model, and what it has read of the conversation.
struct Chat<'a> {
    setup: &'a Setup,
    args: &'a ChatArgs,
    engine: Engine,
    sequence: SequenceId,
    /// The tokens of the sequence.
    held: Vec<u32>,
    sampler_options: SamplerOptions,
    sampler: Sampler,
    interrupt: Interrupt,
}

impl Chat<'_> {
    /// What is wrong if the conversation does not fit the context.
    fn too_long(&self, prompt: &[u32]) -> Option<Failure> {
        let (tokens, context) = (prompt.len(), self.engine.context_length());
        let message = format!("the conversation has {tokens} tokens, the context holds {context}");
        (tokens > context).then(|| Failure::new(Exit::Usage, message).hint(FULL_HINT))
    }

    /// Generates the reply to a prompt, shows it and returns its text.
    fn reply(&mut self, prompt: &[u32], printer: &mut Printer) -> Result<String, Failure> {
        self.setup.check(prompt, None)?;
        // The rendered text may have changed in the middle, and at least one token must be left to read.
        if self.held.len() >= prompt.len() || !prompt.starts_with(&self.held) {
            self.engine.clear_sequence(self.sequence);
            self.held.clear();
            self.sampler =
                Sampler::new(self.sampler_options.clone(), self.setup.model.shape().vocabulary as usize)?;
        }
        self.engine.clear_speculation_report();
        let runs_before = self.engine.run_counts();
        let (text, report) = self.generate(prompt, printer)?;
        let speculation = Speculation::of(&self.engine, runs_before);
        let ending = Ending::from(report.stop);
        if self.args.output.json {
            printer.json_line(&json!({
                "text": text,
                "prompt_tokens_total": prompt.len(),
                "prompt_tokens_processed": report.prompt_tokens,
                "generated": report.generated_tokens,
                "stop": ending.code(),
                "speculation": speculation.as_ref().map(Speculation::as_json),
            }))?;
        } else {
            printer.line("")?;
        }
        printer.flush()?;
        if report.stop == StopReason::ContextFull {
            let context = self.engine.context_length();
            let message = format!("the reply was cut off, as the context of {context} positions is full");
            printer.warning(format_args!("{message}; {FULL_HINT}"));
        }
        printer.detail(statistics(&report, &ending, &self.sampler_options));
        if let Some(speculation) = speculation {
            printer.detail(speculation.line());
            speculation.details().into_iter().for_each(|line| printer.detail(line));
        }
        Ok(text)
    }

    /// Reads what is new of a prompt and generates a reply.
    fn generate(
        &mut self,
        prompt: &[u32],
        printer: &mut Printer,
    ) -> Result<(String, GenerationReport), Failure> {
        let tokenizer = &self.setup.tokenizer;
        let interrupt = &self.interrupt;
        let new = &prompt[self.held.len()..];
        let several_runs = new.len() > self.engine.microbatch();
        let progress = several_runs.then(|| printer.progress("reading the conversation", Unit::Tokens));
        let progress = RefCell::new(progress);
        let shown = !self.args.output.json;
        let mut stream = TextStream::new(StopMatcher::new(std::iter::empty::<String>()));
        let mut text = String::new();
        let mut ids = Vec::new();
        let mut show = |piece: &str, printer: &mut Printer| {
            text.push_str(piece);
            if shown { printer.stream(piece) } else { Ok(()) }
        };
        let mut failed = None;
        interrupt.heed();
        let report = self.engine.generate(
            self.sequence,
            new,
            &mut self.sampler,
            GenerationOptions {
                tokens: self.args.tokens.map_or(usize::MAX, |tokens| tokens as usize),
                end_tokens: tokenizer.end_of_generation(),
            },
            &mut |done| {
                if let Some(progress) = progress.borrow_mut().as_mut() {
                    progress.at(done as u64, new.len() as u64);
                }
            },
            &mut |token| {
                *progress.borrow_mut() = None;
                ids.push(token);
                failed = show(stream.push(tokenizer.token_bytes(token)).text, printer).err();
                if failed.is_some() || interrupt.requested() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
        interrupt.disregard();
        drop(progress);
        let report = report.map_err(|error| self.setup.failure(error))?;
        if let Some(failure) = failed {
            return Err(failure);
        }
        show(stream.finish().text, printer)?;
        // The last token of a reply that was cut off is not part of the sequence yet.
        self.held = prompt.iter().copied().chain(ids).collect();
        self.held.truncate(self.engine.sequence_length(self.sequence));
        Ok((text, report))
    }
}
