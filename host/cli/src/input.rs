//! Reads texts that are given to commands.

use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Read};
use std::path::Path;

use crate::args::PromptArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

/// Most bytes of a text, so that an endless file is an error and not the end of memory.
const MOST_BYTES: u64 = 256 << 20;

/// The text that a prompt's options name. It is not empty.
pub fn prompt(args: &PromptArgs) -> Result<String, Failure> {
    let text = match (&args.prompt, &args.file) {
        (Some(text), _) => text.clone(),
        (None, Some(file)) => file_text(file)?,
        (None, None) if io::stdin().is_terminal() => {
            return Err(Failure::new(Exit::Usage, "there is no prompt")
                .hint("give it with `--prompt TEXT` or `--file FILE`, or on standard input"));
        }
        (None, None) => stdin_text()?,
    };
    if text.is_empty() {
        return Err(Failure::new(Exit::Usage, "the prompt is empty")
            .hint("give some text with `--prompt TEXT` or `--file FILE`, or on standard input"));
    }
    Ok(text)
}

/// The text of a file, or of standard input if none is named.
pub fn file_or_stdin(file: Option<&Path>) -> Result<String, Failure> {
    match file {
        Some(file) => file_text(file),
        None if io::stdin().is_terminal() => Err(Failure::new(Exit::Usage, "there is no text")
            .hint("give it with `--file FILE`, or on standard input")),
        None => stdin_text(),
    }
}

/// Standard input as it is, line break at the end included.
pub fn stdin_text() -> Result<String, Failure> {
    read(io::stdin(), "standard input")
}

/// The text of a file.
pub fn file_text(path: &Path) -> Result<String, Failure> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| unreadable(&name, &error))?;
    read(file, &name)
}

/// The next message from standard input; `None` at its end. A line that ends with a backslash goes on with the next.
/// `ask` is called before each line.
pub fn message(ask: impl Fn()) -> Result<Option<String>, Failure> {
    let mut message = String::new();
    loop {
        ask();
        let room = MOST_BYTES.saturating_sub(message.len() as u64);
        let mut bytes = Vec::new();
        let line = io::stdin().lock().take(room + 1).read_until(b'\n', &mut bytes);
        line.map_err(|error| unreadable("standard input", &error))?;
        if bytes.is_empty() {
            return Ok(Some(message).filter(|message| !message.is_empty()));
        }
        if bytes.len() as u64 > room {
            return Err(too_long("a message"));
        }
        let line = utf8(bytes, "a message")?;
        let line = line.trim_end_matches(['\n', '\r']);
        match line.strip_suffix('\\') {
            Some(line) => message.extend([line, "\n"]),
            None => return Ok(Some(message + line)),
        }
    }
}

fn read(source: impl Read, name: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    source.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(too_long(name));
    }
    utf8(bytes, name)
}

fn too_long(name: &str) -> Failure {
    let most = text::bytes(MOST_BYTES);
    Failure::new(Exit::Failed, format!("{name} has more than {most}, the most that a text may have"))
        .hint("give a part of it")
}

fn utf8(bytes: Vec<u8>, name: &str) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        Failure::new(Exit::Failed, format!("{name} is not UTF-8 text at byte {offset}"))
            .hint("convert it to UTF-8 first")
    })
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot read {name}")).caused_by(error)
}
