//! Files of prompts: JSON Lines, each an object with `kind`, `name` and `text`.

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;

use super::summary::ALL_KINDS;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::input;

const BUILT_IN: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/bench/prompts/code.jsonl"));
const KEYS: [&str; 3] = ["kind", "name", "text"];

/// A text to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The class under which results are put together.
    pub kind: String,
    /// Tells prompts of a kind apart.
    pub name: String,
    /// What is continued, not empty.
    pub text: String,
}

/// The prompts of some files, in order; at least one, and at most `limit` of each file.
pub fn read(files: &[impl AsRef<Path>], limit: usize) -> Result<Vec<Prompt>, Failure> {
    let mut prompts = Vec::new();
    let mut names = HashSet::new();
    for file in files {
        let file = file.as_ref();
        let refuse = |problem: String| {
            Failure::new(Exit::Usage, format!("{}: {problem}", file.display()))
                .hint("each line is an object such as {\"kind\": \"code\", \"name\": \"stack\", \"text\": \"fn pop\"}")
        };
        let of_file = parse(&input::file_text(file)?).map_err(refuse)?;
        for prompt in of_file.into_iter().take(limit) {
            if !names.insert((prompt.kind.clone(), prompt.name.clone())) {
                let twice = format!("prompt `{}` of kind `{}` comes twice", prompt.name, prompt.kind);
                return Err(refuse(twice));
            }
            prompts.push(prompt);
        }
    }
    Ok(prompts)
}

/// At most `limit` of the prompts in this program: beginnings of source code.
pub fn built_in(limit: usize) -> Vec<Prompt> {
    // That they can be read, a test makes sure.
    let mut prompts = parse(BUILT_IN).unwrap_or_default();
    prompts.truncate(limit);
    prompts
}

/// The prompts of a text in this format; at least one. An error names the line and what is wrong with it.
pub fn parse(text: &str) -> Result<Vec<Prompt>, String> {
    let mut prompts = Vec::new();
    // Some editors put a byte order mark before a text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in (1..).zip(text.lines()) {
        if !line.trim().is_empty() {
            prompts.push(prompt(line).map_err(|problem| format!("line {number}: {problem}"))?);
        }
    }
    if prompts.is_empty() {
        return Err("there are no prompts in it".to_owned());
    }
    Ok(prompts)
}

fn prompt(line: &str) -> Result<Prompt, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| {
        // The error counts lines too, and has one only.
        let column = error.column();
        let error = error.to_string();
        let what = error.split(" at line ").next().unwrap_or_default();
        format!("no JSON at column {column}: {what}")
    })?;
    let Value::Object(mut object) = value else {
        return Err("it is no object".to_owned());
    };
    if let Some(key) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!(
            "unknown key `{key}`; known are {}",
            KEYS.map(|key| format!("`{key}`")).join(", ")
        ));
    }
    let mut take = |key: &str| match object.remove(key) {
        None => Err(format!("the key `{key}` is missing")),
        Some(Value::String(text)) if text.is_empty() => Err(format!("`{key}` is empty")),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("`{key}` is no text")),
    };
    let prompt = Prompt { kind: take("kind")?, name: take("name")?, text: take("text")? };
    if prompt.kind == ALL_KINDS {
        return Err(format!(
            "the kind `{ALL_KINDS}` stands for all kinds in reports; call it something else"
        ));
    }
    Ok(prompt)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn prompts_are_lines() {
        let text = "{\"kind\": \"code\", \"name\": \"a\", \"text\": \"fn main() {\\n\"}\r\n\n{\"text\":\" \",\"name\":\"b\",\"kind\":\"edge\"}";
        let prompts = parse(text).unwrap();
        assert_eq!(prompts.len(), 2);
        assert_eq!(
            prompts[0],
            Prompt { kind: "code".to_owned(), name: "a".to_owned(), text: "fn main() {\n".to_owned() }
        );
        assert_eq!(prompts[1].text, " ");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let good = r#"{"kind": "code", "name": "a", "text": "x"}"#;
        for (line, problem) in [
            ("text", "line 2: no JSON at column 2: expected ident"),
            (r#"{"kind": "code""#, "line 2: no JSON at column 15: EOF while parsing an object"),
            ("[]", "line 2: it is no object"),
            (r#"{"kind": "code", "name": "a"}"#, "line 2: the key `text` is missing"),
            (r#"{"kind": 1, "name": "a", "text": "x"}"#, "line 2: `kind` is no text"),
            (r#"{"kind": "code", "name": "a", "text": ""}"#, "line 2: `text` is empty"),
            (
                r#"{"kind": "all", "name": "a", "text": "x"}"#,
                "line 2: the kind `all` stands for all kinds in reports; call it something else",
            ),
            (
                r#"{"kind": "code", "name": "a", "prompt": "x"}"#,
                "line 2: unknown key `prompt`; known are `kind`, `name`, `text`",
            ),
        ] {
            assert_eq!(parse(&format!("{good}\n{line}")).unwrap_err(), problem);
        }
        assert_eq!(parse("\n").unwrap_err(), "there are no prompts in it");
    }

    #[test]
    fn a_prompt_comes_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prompts.jsonl");
        fs::write(&file, "{\"kind\":\"code\",\"name\":\"a\",\"text\":\"x\"}\n".repeat(2)).unwrap();
        let failure = read(&[&file], 9).unwrap_err();
        let message = failure.lines().next().unwrap().1.to_owned();
        assert!(message.ends_with("prompts.jsonl: prompt `a` of kind `code` comes twice"), "{message}");
        assert!(read(&[folder.path().join("missing.jsonl")], 9).is_err());
    }

    /// The files that come with the benchmark.
    fn shipped() -> Vec<PathBuf> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/bench/prompts");
        ["code", "prose", "json", "copy-edit", "edge"]
            .map(|kind| format!("{folder}/{kind}.jsonl").into())
            .into()
    }

    #[test]
    fn prompts_are_part_of_the_program() {
        assert_eq!(built_in(3), read(&shipped()[..1], 3).unwrap());
    }

    #[test]
    fn the_shipped_prompts_can_be_read() {
        let prompts = read(&shipped(), usize::MAX).unwrap();
        for kind in ["code", "prose", "json", "copy-edit", "edge"] {
            assert!(prompts.iter().filter(|prompt| prompt.kind == kind).count() >= 10, "{kind}");
        }
    }

    #[cfg(feature = "demo-model")]
    #[test]
    fn the_shipped_prompts_have_the_lengths_that_are_promised() {
        let model = crate::model_source::ModelSource::Demo;
        let tokenizer = crate::tokenizer::build(&model.open().unwrap(), &model).unwrap();
        for prompt in read(&shipped(), usize::MAX).unwrap().iter().filter(|prompt| prompt.kind != "edge") {
            let tokens = crate::tokenizer::encode(&tokenizer, &prompt.text, false).unwrap().len();
            assert!((60..=500).contains(&tokens), "{} has {tokens} tokens", prompt.name);
        }
    }
}
