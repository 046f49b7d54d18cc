//! Runs all arms in turns.

use std::ops::ControlFlow;

use paceline_engine::{GenerationOptions, Sampler, SamplerOptions, SpeculationReport};

use super::lanes::Lane;
use super::model::{Position, Report, Run, SplitSeconds};
use super::prompts::Prompt;
use crate::app::App;
use crate::args::BenchArgs;
use crate::engine_setup::Setup;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::printer::Unit;
use crate::tokenizer;

/// A prompt and its tokens.
pub struct Task<'a> {
    /// The prompt.
    pub prompt: &'a Prompt,
    /// Its tokens, at least one.
    pub ids: Vec<u32>,
}

impl<'a> Task<'a> {
    /// The tokens of a prompt for a model.
    pub fn new(prompt: &'a Prompt, setup: &Setup) -> Result<Self, Failure> {
        let ids = tokenizer::encode(&setup.tokenizer, &prompt.text, false)?;
        setup.check(&ids, None)?;
        if ids.is_empty() {
            return Err(Failure::new(Exit::Usage, format!("prompt `{}` has no tokens", prompt.name)));
        }
        Ok(Self { prompt, ids })
    }
}

/// Adds all runs to the report. False if Ctrl-C ended it before.
pub fn measure(
    args: &BenchArgs,
    setup: &Setup,
    tasks: &[Task<'_>],
    lanes: &mut [Lane],
    interrupt: &Interrupt,
    report: &mut Report,
    app: &App,
) -> Result<bool, Failure> {
    let bench = Bench { args, setup, interrupt };
    let total = (lanes.len() * (1 + tasks.len() * args.repetitions as usize)) as u64;
    let mut progress = app.printer.progress("warming up", Unit::Runs);
    progress.at(0, total);
    let mut done = 0;
    for lane in lanes.iter_mut() {
        // What is loaded, bound and learned on the first run is not what is measured.
        let Some(first) = tasks.first() else { return Ok(true) };
        if bench.run(lane, first, 0)?.is_none() {
            return Ok(false);
        }
        done += 1;
        progress.at(done, total);
    }
    for repetition in 0..args.repetitions {
        for (number, task) in tasks.iter().enumerate() {
            let mut texts: Vec<Option<Vec<u32>>> = vec![None; lanes.len()];
            let begin = report.runs.len();
            let first = (number + repetition as usize) % lanes.len();
            for index in (first..lanes.len()).chain(0..first) {
                let lane = &mut lanes[index];
                progress.say(format_args!("{} on {}", lane.name, task.prompt.name));
                let Some((run, text)) = bench.run(lane, task, repetition)? else { return Ok(false) };
                report.runs.push(run);
                texts[index] = Some(text);
                done += 1;
                progress.at(done, total);
            }
            bench.compare(&mut report.runs[begin..], lanes, &texts);
        }
    }
    Ok(true)
}

struct Bench<'a> {
    args: &'a BenchArgs,
    setup: &'a Setup,
    interrupt: &'a Interrupt,
}

impl Bench<'_> {
    /// Generates one text; `None` if Ctrl-C ended it.
    fn run(
        &self,
        lane: &mut Lane,
        task: &Task<'_>,
        repetition: u32,
    ) -> Result<Option<(Run, Vec<u32>)>, Failure> {
        let options = SamplerOptions {
            temperature: self.args.temperature,
            seed: self.args.seed.wrapping_add(repetition.into()),
            ..SamplerOptions::default()
        };
        let mut sampler = Sampler::new(options, self.setup.model.shape().vocabulary as usize)?;
        let engine = &mut lane.engine;
        engine.clear_sequence(lane.sequence);
        engine.clear_speculation_report();
        let before = engine.run_counts();
        let mut text = Vec::with_capacity(self.args.tokens as usize);
        let generated = engine.generate(
            lane.sequence,
            &task.ids,
            &mut sampler,
            GenerationOptions { tokens: self.args.tokens as usize, end_tokens: &[] },
            &mut |_| {},
            &mut |token| {
                text.push(token);
                if self.interrupt.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        let generated = generated.map_err(|error| self.setup.failure(error))?;
        if self.interrupt.requested() {
            return Ok(None);
        }
        let after = engine.run_counts();
        let speculation = engine.speculation_report();
        // A run for each microbatch of the prompt, which belongs to no round.
        let of_prompt = task.ids.len().div_ceil(engine.microbatch()) as u64;
        let since = |after: u64, before: u64| after.saturating_sub(before).saturating_sub(of_prompt);
        let time = &speculation.time;
        let run = Run {
            arm: lane.name.clone(),
            kind: task.prompt.kind.clone(),
            prompt: task.prompt.name.clone(),
            repetition,
            temperature: self.args.temperature,
            generated_tokens: generated.generated_tokens as u64,
            prompt_tokens: generated.prompt_tokens as u64,
            prompt_seconds: generated.prompt_time.as_secs_f64(),
            generation_seconds: generated.generation_time.as_secs_f64(),
            rounds: speculation.rounds,
            drafted: speculation.drafted(),
            verified: speculation.verified(),
            accepted: speculation.accepted(),
            positions: positions(&speculation),
            split: SplitSeconds {
                draft: time.draft.as_secs_f64(),
                verify: time.verify.as_secs_f64(),
                commit: time.commit.as_secs_f64(),
                host: time.host.as_secs_f64(),
            },
            identical: None,
            strategy_bytes: lane.strategy_bytes,
            uploads: since(after.uploads, before.uploads),
            waits: since(after.waits, before.waits),
            launches: since(after.launches, before.launches),
        };
        Ok(Some((run, text)))
    }

    /// Compares the texts of a prompt with that of the first arm, which is not compared itself.
    fn compare(&self, runs: &mut [Run], lanes: &[Lane], texts: &[Option<Vec<u32>>]) {
        let is_drawn = self.args.temperature > 0.0;
        // A text that another distribution may choose from cannot be expected to be the same.
        let comparable = |lane: &Lane| !(is_drawn && lane.accepts_others);
        let Some((first, others)) = lanes.split_first() else { return };
        for (lane, text) in others.iter().zip(&texts[1..]) {
            let run = runs.iter_mut().find(|run| run.arm == lane.name);
            if let Some(run) = run.filter(|_| comparable(first) && comparable(lane)) {
                run.identical = Some(*text == texts[0]);
            }
        }
    }
}

/// By place of a draft, of all drafters together.
fn positions(report: &SpeculationReport) -> Vec<Position> {
    let places = report.drafters.iter().map(|drafter| drafter.positions.len()).max().unwrap_or(0);
    let at = |place: usize| {
        let counts = report.drafters.iter().filter_map(|drafter| drafter.positions.get(place));
        counts.fold(Position::default(), |sum, [verified, accepted]| Position {
            drafted: sum.drafted + verified,
            accepted: sum.accepted + accepted,
        })
    };
    (0..places).map(at).take_while(|position| position.drafted > 0).collect()
}
