//! A process that has an engine with a loaded model and measures on request.

use bench_measure::{Job, Measurement, Result};
use std::env::consts::EXE_SUFFIX;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub struct EngineProcess {
    program: String,
    child: Child,
    // `None` once it is to end: it does at the end of its input.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// Path of a program that lies beside this one.
pub fn path_beside(program: &str) -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(format!("{program}{EXE_SUFFIX}")))
}

impl EngineProcess {
    /// Starts a program that lies beside this one.
    pub fn start(program: &str, job: &Job) -> Result<Self> {
        let path = path_beside(program)?;
        let mut child = Command::new(&path)
            .args(job.to_arguments_on_request())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", path.display()))?;
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().ok_or("the process has no output")?);
        Ok(Self { program: program.into(), child, requests, answers })
    }

    /// One repetition.
    pub fn measure(&mut self) -> Result<Measurement> {
        if let Some(requests) = &mut self.requests {
            writeln!(requests)?;
        }
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(format!("{} ended early; its message is above", self.program).into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        drop(self.requests.take());
        // It has its own way of telling why it failed.
        let _ = self.child.wait();
    }
}
