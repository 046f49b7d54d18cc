//! The one way to write. Data goes to standard output, everything else to standard error.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;
use crate::text;

const BOLD_RED: &str = "\x1b[1;31m";
const BOLD_YELLOW: &str = "\x1b[1;33m";
const BOLD_CYAN: &str = "\x1b[1;36m";
const RESET: &str = "\x1b[0m";

/// Writes for all commands.
pub struct Printer {
    quiet: bool,
    progress: bool,
    colour: bool,
    stdout: BufWriter<Stdout>,
    stdout_is_terminal: bool,
}

/// Whether standard error may be coloured: it is a terminal, and `NO_COLOR` is not set.
pub fn stderr_colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl Printer {
    /// `quiet` leaves out status; `progress` allows progress, which only a terminal shows.
    pub fn new(quiet: bool, progress: bool) -> Self {
        let stdout = io::stdout();
        Self {
            quiet,
            progress: progress && !quiet && io::stderr().is_terminal(),
            colour: stderr_colours(),
            stdout_is_terminal: stdout.is_terminal(),
            stdout: BufWriter::new(stdout),
        }
    }

    /// Writes a line of data.
    pub fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        writeln!(self.stdout, "{line}").map_err(Failure::output)
    }

    /// Writes text that comes from a model or a file, exactly as it is. A terminal gets control characters in
    /// visible form, so that such text cannot steer it, and a line break at the end.
    pub fn foreign_text(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let bytes = if self.stdout_is_terminal {
            let mut shown = text::without_control(&String::from_utf8_lossy(bytes)).into_owned();
            if !shown.ends_with('\n') {
                shown.push('\n');
            }
            Cow::Owned(shown.into_bytes())
        } else {
            Cow::Borrowed(bytes)
        };
        self.stdout.write_all(&bytes).map_err(Failure::output)
    }

    /// Writes a JSON document.
    pub fn json(&mut self, value: &serde_json::Value) -> Result<(), Failure> {
        self.line(format_args!("{value:#}"))
    }

    /// Writes out what is still in the buffer.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.stdout.flush().map_err(Failure::output)
    }

    /// Says something that is no data and no problem.
    pub fn status(&self, text: impl Display) {
        if !self.quiet {
            to_stderr(format_args!("{text}"));
        }
    }

    /// Says that something is not as it should be, while the command goes on.
    pub fn warning(&self, text: impl Display) {
        self.labelled("warning", &text);
    }

    /// Says why the command failed.
    pub fn failure(&self, failure: &Failure) {
        for (label, text) in failure.lines() {
            self.labelled(label, &text);
        }
    }

    /// Shows that something takes a while, until the returned value is dropped.
    pub fn working(&self, what: impl Display) -> Working {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if self.progress {
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                bar.set_style(style);
            }
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.set_message(what.to_string());
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Working(bar)
    }

    fn labelled(&self, label: &str, text: &dyn Display) {
        let colour = match label {
            "error" => BOLD_RED,
            "warning" => BOLD_YELLOW,
            _ => BOLD_CYAN,
        };
        if self.colour {
            to_stderr(format_args!("{colour}{label}{RESET}: {text}"));
        } else {
            to_stderr(format_args!("{label}: {text}"));
        }
    }
}

/// A sign of work in progress, which goes away when this is dropped.
pub struct Working(ProgressBar);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// There is nowhere to report that standard error is gone.
fn to_stderr(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}
