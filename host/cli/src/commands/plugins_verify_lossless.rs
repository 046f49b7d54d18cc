//! The part of `plugins verify` that runs a strategy on a model: in a process of its own, which may crash or hang, and what
//! is said about it.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use paceline_registry::Registry;
use serde_json::{Value, json};

use super::lossless::{self, Subject};
use crate::app::App;
use crate::args::PluginsVerifyArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::table::Columns;
use crate::text;

/// The option that makes this program compare the texts itself.
const IN_THIS_PROCESS: &str = "--in-this-process";
/// How often a process that runs a plugin is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long its output is waited for when it has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Bytes of its output that are kept.
const LONGEST_OUTPUT: u64 = 1 << 20;
/// Characters of the last line of a process that ended badly.
const LONGEST_LINE: usize = 200;

/// Compares the texts here, and writes what came of it.
pub fn compare_here(file: &Path, args: &PluginsVerifyArgs, app: &mut App) -> Result<Exit, Failure> {
    let mut registry = Registry::new()?;
    let plugin = registry.load_file(file)?.clone();
    let id = plugin.id();
    let settings = args.set.iter().filter(|setting| setting.plugin == id);
    let settings: Vec<_> = settings.map(|it| (it.key.clone(), it.value.clone())).collect();
    let subject =
        Subject { plugin: &plugin, settings: &settings, model: &args.model, draft: args.draft.as_deref() };
    let outcome = lossless::compare(&subject, &registry)?;
    app.printer.json_line(&outcome)?;
    app.printer.flush()?;
    Ok(Exit::Ok)
}

/// Has the texts compared in another process. What ends that process badly is a fault of the strategy.
pub fn compare(file: &Path, args: &PluginsVerifyArgs) -> Result<Value, Failure> {
    let cannot = |error| Failure::new(Exit::Failed, "the strategy cannot be tried").caused_by(&error);
    let program = std::env::current_exe().map_err(cannot)?;
    let mut child = Command::new(program)
        .args(arguments(file, args))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let status = wait(&mut child, Duration::from_secs(args.time_limit)).map_err(cannot)?;
    let (stdout, stderr) = (read(stdout), read(stderr));
    let stderr = String::from_utf8_lossy(&stderr);
    let Some(status) = status else {
        return Ok(only_fault(format!("it was not done after {} s", args.time_limit)));
    };
    // The plugin may have written something before.
    let answer = stdout.split(|&byte| byte == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
    match serde_json::from_slice::<Value>(answer) {
        Ok(outcome) if status.success() && is_complete(&outcome) => Ok(outcome),
        // A failure of the command itself: a model that is not there, say.
        _ if status.code().is_some_and(|code| code != 101) && stderr.contains("error: ") => {
            Err(passed_on(&status, &stderr))
        }
        _ => {
            let last = stderr.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
            let last: String = last.chars().take(LONGEST_LINE).collect();
            let last = if last.is_empty() { last } else { format!("; the last that it wrote is {last:?}") };
            Ok(only_fault(format!("it ends its process ({status}){last}")))
        }
    }
}

fn only_fault(fault: String) -> Value {
    json!({ "texts": [], "faults": [fault] })
}

fn arguments(file: &Path, args: &PluginsVerifyArgs) -> Vec<OsString> {
    let mut all: Vec<OsString> = ["plugins", "verify", IN_THIS_PROCESS].map(OsString::from).to_vec();
    all.extend([file.into(), "--model".into(), args.model.clone().into()]);
    if let Some(draft) = &args.draft {
        all.extend(["--draft".into(), draft.into()]);
    }
    for setting in &args.set {
        all.extend(["--set".into(), format!("{}={}", setting.name(), setting.value).into()]);
    }
    all
}

/// True if the comparison came to an end, whatever it found.
fn is_complete(outcome: &Value) -> bool {
    let holds = |key: &str| outcome[key].as_array().is_some_and(|list| !list.is_empty());
    holds("texts") || holds("faults") || outcome["skipped"].is_string()
}

/// Reads all that a process writes, so that it never waits for a reader, and keeps the first part.
fn reader(stream: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let Some(mut stream) = stream else { return };
        let mut bytes = Vec::new();
        // What could be read is told in any case, also to somebody who does not wait any more.
        let _ = stream.by_ref().take(LONGEST_OUTPUT).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
        let _ = sender.send(bytes);
    });
    receiver
}

/// What was read; nothing if processes that outlive the one that was waited for keep the stream open.
fn read(reader: mpsc::Receiver<Vec<u8>>) -> Vec<u8> {
    reader.recv_timeout(LAST_WORDS).unwrap_or_default()
}

/// Waits for a process; `None` if it had to be ended.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}

/// The error that the other process wrote.
fn passed_on(status: &ExitStatus, stderr: &str) -> Failure {
    let exits = [Exit::Usage, Exit::Model, Exit::Memory, Exit::Plugin];
    let exit = exits.into_iter().find(|exit| status.code() == Some(*exit as i32)).unwrap_or(Exit::Failed);
    let after = |label: &str| stderr.lines().find_map(|line| line.strip_prefix(label)).map(str::to_owned);
    let failure = Failure::new(exit, after("error: ").unwrap_or_default());
    let causes = stderr.lines().filter_map(|line| line.strip_prefix("cause: "));
    let failure = causes.fold(failure, |failure, cause| failure.detail("cause", cause));
    match after("hint: ") {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Whether anything is wrong with what came of comparing.
pub fn is_faultless(outcome: &Value) -> bool {
    outcome["faults"].as_array().is_none_or(Vec::is_empty)
}

/// Shows what came of comparing.
///
/// # Errors
/// All that is wrong with the strategy.
pub fn show(file: &str, outcome: &Value, is_json: bool, app: &mut App) -> Result<(), Failure> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(reason) = outcome["skipped"].as_str() {
        let line = format!("what it does to a text was not tried: {reason}");
        app.printer.status(text::name(&line));
        return Ok(());
    }
    let texts = outcome["texts"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !texts.is_empty() && !is_json {
        let names = ["text", "temperature", "guesses", "accepted", "tokens", "logits", "without it"];
        let mut columns = Columns::new(&names, &[1, 2, 3]);
        for it in texts {
            let verdict = match it["differs_from"].as_u64() {
                Some(token) => format!("differs from token {token} on"),
                None => "the same".to_owned(),
            };
            columns.row([
                word(&it["text"]),
                word(&it["temperature"]),
                it["guessed"].to_string(),
                it["accepted"].to_string(),
                word(&it["tokens_hash"]),
                word(&it["logits_hash"]),
                verdict,
            ]);
        }
        columns.print(&mut app.printer, "")?;
        app.printer.flush()?;
    }
    let mut faults = outcome["faults"].as_array().into_iter().flatten().map(word);
    if let Some(first) = faults.next() {
        let message = format!("plugin file {}: {first}", text::name(file));
        let failure = faults.fold(Failure::new(Exit::Plugin, message), |failure, fault| {
            failure.detail("error", text::name(&fault).into_owned())
        });
        return Err(failure.hint(
            "a strategy may change how long a text takes, and nothing else; this one must be corrected",
        ));
    }
    if let Some(idle) = outcome["idle"].as_str() {
        app.printer.warning(format_args!("{idle}: that shows nothing about the texts"));
    } else {
        let (count, tokens) = (texts.len(), &outcome["tokens"]);
        let (model, backend) = (word(&outcome["model"]), word(&outcome["backend"]));
        app.printer.status(format_args!(
            "{count} texts of {tokens} tokens from {model} on `{backend}` are the same with and without it, and so are their \
             logits, to the bit"
        ));
    }
    Ok(())
}
