//! How well both engines predict a text.

use crate::engine_process::path_beside;
use bench_measure::{Job, Perplexity, Result};
use std::path::Path;
use std::process::{Command, Stdio};

/// Prints a table with a row for each model.
pub fn compare(jobs: &[Job], ids: &Path) -> Result<()> {
    println!("| model | tokens | ours | llama.cpp | difference | of each token, on average |");
    println!("|---|---|---|---|---|---|");
    for job in jobs {
        let (ours, peer) = (measure("ours-bench", job, ids)?, measure("llama-peer", job, ids)?);
        let model = job.model.file_name().unwrap_or_default().to_string_lossy();
        let differences = ours.surprises.iter().zip(&peer.surprises).map(|(ours, peer)| (ours - peer).abs());
        println!(
            "| {model} | {} | {:.4} | {:.4} | {:+.3} % | {:.5} |",
            ours.surprises.len(),
            ours.perplexity,
            peer.perplexity,
            (ours.perplexity / peer.perplexity - 1.0) * 100.0,
            differences.sum::<f64>() / ours.surprises.len() as f64,
        );
    }
    Ok(())
}

fn measure(program: &str, job: &Job, ids: &Path) -> Result<Perplexity> {
    let path = path_beside(program)?;
    let output = Command::new(&path)
        .args(job.to_arguments_for_perplexity(ids))
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start {}: {error}", path.display()))?;
    if !output.status.success() {
        return Err(format!("{program} failed; its message is above").into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
