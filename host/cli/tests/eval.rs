//! `eval top` and `eval perplexity`.

#![cfg(all(feature = "demo-model", feature = "backend-cpu"))]

mod support;

use insta::assert_snapshot;
use serde_json::Value;
use support::{GREEDY, PROMPT, json, output_with_input, reference, run, shown, without_numbers};

#[test]
fn the_most_likely_tokens_as_a_table() {
    assert_snapshot!(run(&["eval", "top", "demo", "-p", "fn main() {", "-k", "2"]), @r#"
    exit 0
    --- stdout
    position  token    next    logit  text
           0  "fn"      630   5.1758  " test"
                       1034   4.7819  " add"
           1  " main"   305  11.5187  "()"
                        757   5.8786  "(),"
           2  "()"      322  13.0635  " {\n"
                        414  12.2641  " ->"
           3  " {"      282   9.5634  "\n\n"
                        416   7.6330  " }\n"
    --- stderr
    "#);
}

/// Rounding differs between implementations, so ids must be equal where the reference has a clear favourite.
#[test]
fn the_most_likely_tokens_are_those_of_the_reference() {
    let mut clear = 0;
    for name in ["rust", "python", "prose"] {
        let reference = reference(name);
        let top =
            json(&["eval", "top", "demo", "-p", reference["text"].as_str().unwrap(), "-k", "20", "--json"]);
        let positions = top["positions"].as_array().unwrap();
        let expected = reference["logits_top20"].as_array().unwrap();
        assert_eq!(positions.len(), expected.len());
        for (position, expected) in positions.iter().zip(expected) {
            let found = position["top"].as_array().unwrap();
            assert_eq!(found.len(), 20);
            let logit = |index: usize| expected["logits"][index].as_f64().unwrap();
            let id = &expected["ids"][0];
            let same = found.iter().find(|it| it["id"] == *id).expect("the favourite is among the 20");
            assert!((same["logit"].as_f64().unwrap() - logit(0)).abs() < 0.3, "{same} {expected}");
            if logit(0) - logit(1) > 0.5 {
                clear += 1;
                assert_eq!(found[0]["id"], *id);
            }
        }
    }
    assert!(clear > 50, "{clear}");
}

#[test]
fn ids_in_place_of_a_text() {
    let text = json(&["eval", "top", "demo", "-p", PROMPT, "-k", "3", "--json"]);
    let positions = text["positions"].as_array().unwrap();
    let ids: Vec<String> = positions.iter().map(|it| it["id"].to_string()).collect();
    let from_ids = json(&["eval", "top", "demo", "--ids", &ids.join(","), "-k", "3", "--json"]);
    assert_eq!(from_ids, text);
}

#[test]
fn what_cannot_be_evaluated() {
    assert_snapshot!(run(&["eval", "top", "demo", "--ids", "1,8192"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: token 8192 does not exist: demo has 8,192 tokens
    hint: ids go from 0 to 8191
    ");
    assert_snapshot!(run(&["eval", "top", "demo", "--ids", "1,x"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: invalid value 'x' for '--ids <ID,...>': a token id is a whole number, 0 or greater

    For more information, try '--help'.
    ");
    assert_snapshot!(run(&["eval", "top", "demo", "--ids", "1", "-p", "text"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: the argument '--ids <ID,...>' cannot be used with '--prompt <TEXT>'

    Usage: paceline eval top --ids <ID,...> <MODEL>

    For more information, try '--help'.
    ");
    assert_snapshot!(run(&["eval", "top", "demo", "-p", PROMPT, "--ctx", "8"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: the prompt has 36 tokens, the context holds 8
    hint: give `--ctx N` with more than 36; the model was trained for up to 4096
    ");
    assert_snapshot!(shown(&output_with_input(&["eval", "perplexity", "demo"], "a")), @r"
    exit 2
    --- stdout
    --- stderr
    error: the text has 1 token; there is nothing to predict
    hint: give a text of at least 2 tokens
    ");
}

#[test]
fn a_text_that_the_model_knows_is_less_perplexing() {
    let perplexity = |text: &str, more: &[&str]| -> Value {
        let output = output_with_input(&[&["eval", "perplexity", "demo", "--json"], more].concat(), text);
        assert!(output.status.success(), "{}", shown(&output));
        let mut result: Value = serde_json::from_slice(&output.stdout).unwrap();
        // Times are all that may differ.
        for key in ["ms", "tokens_per_second"] {
            assert!(result.as_object_mut().unwrap().remove(key).unwrap().as_f64().unwrap() > 0.0);
        }
        result
    };
    let text = format!("{PROMPT}{GREEDY}");
    let first = perplexity(&text, &[]);
    assert_eq!(perplexity(&text, &[]), first);
    let value = |result: &Value| result["perplexity"].as_f64().unwrap();
    assert!((1.0..100.0).contains(&value(&first)), "{first}");
    assert_eq!(perplexity(&text, &["--threads", "1"])["perplexity"], first["perplexity"]);
    let reversed: String = text.chars().rev().collect();
    assert!(value(&perplexity(&reversed, &[])) > 10.0 * value(&first));
    // 65 tokens in windows of 20: 19, 19, 19 and 4 have something before them.
    let windows = perplexity(&text, &["--ctx", "20"]);
    assert_eq!((&windows["text_tokens"], &windows["scored_tokens"]), (&65.into(), &61.into()));
    assert_eq!(perplexity(&text, &["--tokens", "10"])["scored_tokens"], 9);
}

#[test]
fn perplexity_for_people() {
    let output = output_with_input(&["eval", "perplexity", "demo", "--ctx", "20"], PROMPT);
    assert_snapshot!(without_numbers(&shown(&output)), @r"
    exit 0
    --- stdout
    perplexity [n] ± [n], [n] tokens scored
    --- stderr
    [n] tokens of the text in windows of [n]; [n] ms, [n] tokens/s
    ");
}
