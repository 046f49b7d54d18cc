//! Lets our engine and llama.cpp take turns, and compares them.
//!
//! Each engine is a process of its own that keeps the model loaded. One measures while the other waits: ours and
//! llama.cpp in even rounds, llama.cpp and ours in odd ones, so that what else the machine does meets both alike.

mod engine_process;
mod perplexity;
mod report;
mod statistics;

use bench_measure::{Job, Measurement, Result};
use clap::Parser;
use engine_process::EngineProcess;
use report::{Report, Row};
use std::path::PathBuf;

/// Compares our engine with llama.cpp: a markdown table on standard output, all samples as JSON on request.
#[derive(Debug, Parser)]
struct Arguments {
    /// GGUF files.
    #[arg(required = true)]
    models: Vec<PathBuf>,
    /// Numbers of threads.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    threads: Vec<u32>,
    /// Measured rounds, after one that does not count.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Tokens of the prompt.
    #[arg(long, default_value_t = 512)]
    prompt: usize,
    /// Tokens to generate.
    #[arg(long, default_value_t = 96)]
    generate: usize,
    /// Compares how well both predict the text whose token ids this file has, as `paceline tokenize` writes them, instead
    /// of speed, in windows of `--prompt` tokens.
    #[arg(long, conflicts_with_all = ["json", "rounds", "generate"])]
    perplexity: Option<PathBuf>,
    /// Writes all samples to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(ids) = &arguments.perplexity {
        let job = |model: &PathBuf| Job {
            model: model.clone(),
            threads: arguments.threads[0],
            prompt: arguments.prompt,
            generate: 2,
            repetitions: 0,
            on_request: false,
            perplexity: None,
        };
        let jobs: Vec<Job> = arguments.models.iter().map(job).collect();
        return perplexity::compare(&jobs, ids);
    }
    let mut report = Report::begin();
    for model in &arguments.models {
        for &threads in &arguments.threads {
            let job = Job {
                model: model.clone(),
                threads,
                prompt: arguments.prompt,
                generate: arguments.generate,
                repetitions: 0,
                on_request: true,
                perplexity: None,
            };
            eprintln!("{} with {threads} threads", model.display());
            report.rows.push(take_turns(&job, arguments.rounds)?);
        }
    }
    print!("{}", report.to_markdown());
    if let Some(path) = arguments.json {
        std::fs::write(path, report.to_json()?)?;
    }
    Ok(())
}

fn take_turns(job: &Job, rounds: usize) -> Result<Row> {
    let mut ours = EngineProcess::start("ours-bench", job)?;
    let mut peer = EngineProcess::start("llama-peer", job)?;
    // The first repetition of a process touches memory for the first time.
    ours.measure()?;
    peer.measure()?;
    let load_average_before = report::load_average();
    let (mut our_samples, mut peer_samples) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut turn = |ours_turn: bool| -> Result<()> {
            let (engine, samples): (_, &mut Vec<Measurement>) =
                if ours_turn { (&mut ours, &mut our_samples) } else { (&mut peer, &mut peer_samples) };
            samples.push(engine.measure()?);
            Ok(())
        };
        let ours_first = round % 2 == 0;
        turn(ours_first)?;
        turn(!ours_first)?;
    }
    Ok(Row {
        load_average: [load_average_before, report::load_average()],
        ours: our_samples,
        peer: peer_samples,
    })
}
