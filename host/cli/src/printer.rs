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
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";
/// Characters of a prompt that are shown: its end, which is what the continuation follows.
const SHOWN_PROMPT: usize = 2000;

/// Writes for all commands.
pub struct Printer {
    quiet: bool,
    verbose: bool,
    progress: bool,
    colour: bool,
    stdout: BufWriter<Stdout>,
    stdout_is_terminal: bool,
    stdin_is_terminal: bool,
    /// Whether a streamed text stopped within a line.
    mid_line: bool,
}

/// What progress counts.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Tokens.
    Tokens,
    /// Runs of a benchmark.
    Runs,
}

/// Whether standard error may be coloured: it is a terminal, and `NO_COLOR` is not set.
pub fn stderr_colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl Printer {
    /// `quiet` leaves out status, `verbose` lets details through; `progress` allows progress, which only a terminal
    /// shows.
    pub fn new(quiet: bool, verbose: bool, progress: bool) -> Self {
        let stdout = io::stdout();
        Self {
            quiet,
            verbose,
            progress: progress && !quiet && io::stderr().is_terminal(),
            colour: stderr_colours(),
            stdout_is_terminal: stdout.is_terminal(),
            stdin_is_terminal: io::stdin().is_terminal(),
            stdout: BufWriter::new(stdout),
            mid_line: false,
        }
    }

    /// Writes a line of data.
    pub fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        writeln!(self.stdout, "{line}").map_err(Failure::output)
    }

    /// Writes a text of this program's own that has its line breaks.
    pub fn own_text(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stdout.write_all(bytes).map_err(Failure::output)
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

    /// Writes a piece of a text that comes from a model, at once. A terminal gets control characters in visible form.
    pub fn stream(&mut self, piece: &str) -> Result<(), Failure> {
        if piece.is_empty() {
            return Ok(());
        }
        let shown = if self.stdout_is_terminal { text::without_control(piece) } else { Cow::Borrowed(piece) };
        self.mid_line = !piece.ends_with('\n');
        self.stdout.write_all(shown.as_bytes()).map_err(Failure::output)?;
        self.flush()
    }

    /// Ends a streamed text. On a terminal, what follows begins on a new line.
    pub fn stream_end(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.mid_line) && self.stdout_is_terminal {
            self.line("")?;
        }
        self.flush()
    }

    /// Shows the prompt that a streamed text continues, to someone who reads the text on a terminal.
    pub fn prompt(&self, prompt: &str) {
        if self.quiet || !self.stdout_is_terminal || !io::stderr().is_terminal() {
            return;
        }
        let start = prompt.char_indices().rev().nth(SHOWN_PROMPT - 1).map_or(0, |(start, _)| start);
        let mark = if start > 0 { "…" } else { "" };
        let shown = text::without_control(&prompt[start..]);
        let (dim, reset) = if self.colour { (DIM, RESET) } else { ("", "") };
        let _ = write!(io::stderr(), "{dim}{mark}{shown}{reset}");
    }

    /// Writes a JSON document, keys in alphabetical order.
    pub fn json(&mut self, value: &serde_json::Value) -> Result<(), Failure> {
        // Any crate of a build can make objects keep the order of insertion; then two builds would differ.
        let mut value = value.clone();
        value.sort_all_objects();
        self.line(format_args!("{value:#}"))
    }

    /// Writes a JSON document as one line, keys in alphabetical order.
    pub fn json_line(&mut self, value: &serde_json::Value) -> Result<(), Failure> {
        let mut value = value.clone();
        value.sort_all_objects();
        self.line(value)
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

    /// Says something that only `--verbose` asks for.
    pub fn detail(&self, text: impl Display) {
        if self.verbose {
            self.status(text);
        }
    }

    /// Shows that a line can be typed now, if someone types at a terminal.
    pub fn ask(&self) {
        self.to_typist("> ");
    }

    /// Ends the line of [`Printer::ask`] if nothing was typed.
    pub fn asked_in_vain(&self) {
        self.to_typist("\n");
    }

    fn to_typist(&self, text: &str) {
        if self.stdin_is_terminal && io::stderr().is_terminal() {
            let _ = write!(io::stderr(), "{text}");
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

    /// Shows how far something is, until the returned value is dropped.
    pub fn progress(&self, what: impl Display, unit: Unit) -> Progress {
        let template = match unit {
            Unit::Bytes => "{spinner} {msg} {bar:24} {bytes} of {total_bytes} ({elapsed})",
            Unit::Tokens => "{spinner} {msg} {bar:24} {pos} of {len} tokens ({elapsed})",
            Unit::Runs => "{spinner} {bar:24} {pos} of {len} runs ({elapsed}) {msg}",
        };
        Progress { bar: self.working(what), style: ProgressStyle::with_template(template).ok() }
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

/// How far something is. Its length is known with the first call of [`Progress::at`].
pub struct Progress {
    bar: Working,
    style: Option<ProgressStyle>,
}

impl Progress {
    /// So much is done, of so much.
    pub fn at(&mut self, done: u64, total: u64) {
        let Working(bar) = &self.bar;
        if let Some(style) = self.style.take() {
            bar.set_style(style);
        }
        bar.set_length(total);
        bar.set_position(done);
    }

    /// What is being done, anew.
    pub fn say(&self, what: impl Display) {
        // Nobody sees a hidden bar's message.
        if !self.bar.0.is_hidden() {
            self.bar.0.set_message(what.to_string());
        }
    }
}

/// There is nowhere to report that standard error is gone.
fn to_stderr(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}
