//! `chat`: what it answers, and what can be wrong with a template.

#![cfg(all(feature = "demo-model", feature = "backend-cpu", feature = "strategies"))]

mod support;

use insta::assert_snapshot;
use serde_json::Value;
use support::{Folder, output_with_input, run, shown, without_numbers};

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:";

/// Sends messages to the demo model, which has the template as `chat.jinja` in the folder.
fn chat(folder: &Folder, options: &[&str], input: &str) -> std::process::Output {
    let template = folder.write("chat.jinja", TEMPLATE);
    let arguments = ["chat", "demo", "--template", &template, "--temp", "0"];
    output_with_input(&[&arguments, options].concat(), input)
}

fn replies(options: &[&str], input: &str) -> Vec<Value> {
    let output = chat(&Folder::new(), &[&["--json", "-n", "12"], options].concat(), input);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", shown(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    let reply = |line| {
        let mut reply: Value = serde_json::from_str(line).unwrap();
        // It has times.
        let speculation = reply.as_object_mut().unwrap().remove("speculation").unwrap();
        assert_eq!(speculation["emitted"].as_u64().unwrap() + 1, number(&reply, "generated"));
        reply
    };
    lines.lines().map(reply).collect()
}

fn number(reply: &Value, key: &str) -> u64 {
    reply[key].as_u64().unwrap()
}

/// Runs `chat` with a template, with no message.
fn with_template(template: &str) -> String {
    let folder = Folder::new();
    let file = folder.write("chat.jinja", template);
    folder.run(&["chat", "demo", "--template", &file])
}

#[test]
fn a_second_message_reads_only_what_is_new() {
    let answers = replies(&[], "hello there\nfn main() {\n");
    assert_eq!(answers.len(), 2);
    for reply in &answers {
        assert!(!reply["text"].as_str().unwrap().trim().is_empty(), "{reply}");
        assert_eq!((&reply["generated"], &reply["stop"]), (&12.into(), &"length".into()));
    }
    let [first, second] = [&answers[0], &answers[1]];
    let (total, processed) = ("prompt_tokens_total", "prompt_tokens_processed");
    assert_eq!(number(first, total), number(first, processed));
    assert!(number(second, total) > number(first, total) + number(first, "generated"), "{second}");
    // The last token of the first reply was not read yet.
    let held = number(first, total) + number(first, "generated") - 1;
    assert_eq!(number(second, processed), number(second, total) - held);
    assert_eq!(replies(&[], "hello there\nfn main() {\n"), answers);
}

/// What is continued gives what the whole conversation gives.
#[test]
fn a_continued_conversation_is_that_of_its_whole_text() {
    let answers = replies(&[], "hello there\nfn main() {\n");
    let (first, second) = (answers[0]["text"].as_str().unwrap(), answers[1]["text"].as_str().unwrap());
    let prompt = format!("user: hello there\nassistant:{first}\nuser: fn main() {{\nassistant:");
    let text = output_with_input(&["run", "demo", "--temp", "0", "-n", "12", "-q"], prompt);
    assert_eq!(String::from_utf8(text.stdout).unwrap(), second);
}

#[test]
fn clear_forgets_all_but_the_system() {
    for options in [&[][..], &["--system", "Answer in Rust."]] {
        let answers = replies(options, "hello there\nfn main() {\n/clear\nhello there\n");
        assert_eq!(answers.len(), 3);
        assert_eq!(answers[0], answers[2]);
    }
}

#[test]
fn the_system_has_the_first_message() {
    let tokens = |options: &[&str]| number(&replies(options, "hello")[0], "prompt_tokens_total");
    assert!(tokens(&["--system", "Answer in Rust."]) > tokens(&[]));
}

#[test]
fn a_backslash_continues_a_line_and_quit_ends_it() {
    let answers = replies(&[], "\nhello\\\nthere\n/quit\nhello\n");
    assert_eq!(answers.len(), 1);
    let one_line = replies(&[], "hello");
    assert!(number(&answers[0], "prompt_tokens_total") > number(&one_line[0], "prompt_tokens_total"));
}

#[test]
fn replies_are_lines_and_statistics_are_for_verbose() {
    let folder = Folder::new();
    let options = ["-n", "4"];
    assert_snapshot!(shown(&chat(&folder, &options, "hello there\nhello there\n")), @r"
    exit 0
    --- stdout
     hello there

     hello there

    --- stderr
    ");
    let verbose = ["-v", "--strategy", "ngram-adaptive"];
    let verbose = chat(&folder, &[&options[..], &verbose].concat(), "hello there\n");
    let statistics = String::from_utf8(verbose.stderr).unwrap();
    assert_snapshot!(without_numbers(&statistics), @r"
    prompt [n] tokens in [n] ms, [n] tokens/s; generated [n] tokens in [n] ms, [n] tokens/s; stopped at the length
    ngram-adaptive: guessed nothing
    `ngram-adaptive`: [n] drafts with [n] tokens guessed, [n] verified, [n] accepted; drafts may now have [n] tokens
    rounds [n]: [n] with a guess, [n] in which the controller did not ask
    time of rounds: guessing [n] ms, verifying [n] ms, keeping [n] ms, host [n] ms
    verifying: [n] launches, [n] uploads, [n] waits; [n] B to the device, [n] B from it
    guessing: [n] launches, [n] uploads, [n] waits; [n] B to the device, [n] B from it
    prompt and keeping: [n] launch, [n] upload, [n] wait; [n] B to the device, [n] B from it
    ");
}

#[test]
fn a_full_context() {
    let output = chat(&Folder::new(), &["--ctx", "16"], "hello there\nmore\n/clear\nhello there\n");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let half = &text[..text.len() / 2];
    assert_eq!(text, half.repeat(2));
    assert_snapshot!(shown(&output).replace(half, "[reply]\n"), @r"
    exit 2
    --- stdout
    [reply]
    [reply]
    --- stderr
    warning: the reply was cut off, as the context of 16 positions is full; type `/clear` to start over, or give a larger `--ctx`
    error: the conversation has 25 tokens, the context holds 16
    hint: type `/clear` to start over, or give a larger `--ctx`
    warning: the reply was cut off, as the context of 16 positions is full; type `/clear` to start over, or give a larger `--ctx`
    ");
}

#[test]
fn a_model_without_a_template() {
    assert_snapshot!(run(&["chat", "demo"]), @r"
    exit 3
    --- stdout
    --- stderr
    error: demo has no chat template
    hint: use `paceline run` to continue a text, or give a template with `--template FILE`
    ");
}

/// The demo model with a template. What is put in has a length that moves nothing out of its alignment.
#[test]
fn the_template_of_the_model() {
    const KEY: &str = "tokenizer.chat_template";
    const KEY_COUNT: std::ops::Range<usize> = 16..24;
    const STRING_TYPE: u32 = 8;

    let demo =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/demo-qwen35-Q8_0.gguf"));
    let mut model = demo.unwrap();
    let with_template = |template: &str| {
        let string = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
        [string(KEY), STRING_TYPE.to_le_bytes().to_vec(), string(template)].concat()
    };
    let commented = |padding: usize| format!("{{#{}#}}{TEMPLATE}", " ".repeat(padding));
    let padding = (0..64).find(|&padding| with_template(&commented(padding)).len() % 64 == 0).unwrap();
    let keys = u64::from_le_bytes(model[KEY_COUNT].try_into().unwrap());
    model[KEY_COUNT].copy_from_slice(&(keys + 1).to_le_bytes());
    model.splice(KEY_COUNT.end..KEY_COUNT.end, with_template(&commented(padding)));

    let folder = Folder::new();
    let file = folder.write("model.gguf", model);
    let own = output_with_input(&["chat", &file, "--temp", "0", "-n", "4"], "hello there\n");
    assert_eq!(shown(&own), shown(&chat(&folder, &["-n", "4"], "hello there\n")));
}

#[test]
fn a_template_with_an_error() {
    assert_snapshot!(with_template("a\n{% for %}"), @r"
    exit 2
    --- stdout
    --- stderr
    error: [folder]/chat.jinja: the chat template cannot be read (line 2): syntax error: unexpected end of block, expected in. Use another template
    ");
    assert_snapshot!(with_template("\n\n{{ raise_exception('no users here') }}"), @r"
    exit 2
    --- stdout
    --- stderr
    error: [folder]/chat.jinja: the chat template refuses these messages (line 3): no users here
    ");
    assert_snapshot!(with_template(" \n"), @r"
    exit 2
    --- stdout
    --- stderr
    error: [folder]/chat.jinja is empty; a chat template is needed
    ");
}

#[test]
fn a_template_that_does_not_end() {
    let endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    let start = std::time::Instant::now();
    assert_snapshot!(with_template(endless), @r"
    exit 2
    --- stdout
    --- stderr
    error: [folder]/chat.jinja: the chat template was stopped (line 1) after 4000000 steps; it does not end, or the conversation is very long
    ");
    assert!(start.elapsed() < std::time::Duration::from_secs(5));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_reply_and_not_the_program() {
    use std::io::{Read, Write};
    use std::process::Stdio;

    let folder = Folder::new();
    let template = folder.write("chat.jinja", TEMPLATE);
    let mut child = support::program()
        .args(["chat", "demo", "--template", &template, "--temp", "0", "-v"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"hello there\n").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let status = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    stdin.write_all(b"/quit\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let statistics = String::from_utf8(output.stderr).unwrap();
    assert!(statistics.contains("; interrupted\n"), "{statistics}");
}
