//! Chat templates: against Jinja2, and what is given to the templates.
//!
//! `golden/chat.json` was written by Jinja2 as transformers sets it up, with `golden/make_chat.py`.

use std::time::Duration;

use paceline_text::{ChatTemplate, LocalTime, Message, RenderLimits, RenderOptions, TemplateError};
use serde_json::{Value, json};

fn golden() -> Value {
    serde_json::from_str(include_str!("golden/chat.json")).unwrap()
}

fn template_source(name: &str) -> &'static str {
    match name {
        "headers" => include_str!("golden/templates/headers.jinja"),
        "instructions" => include_str!("golden/templates/instructions.jinja"),
        "thinking" => include_str!("golden/templates/thinking.jinja"),
        "turns" => include_str!("golden/templates/turns.jinja"),
        other => panic!("the test does not know the template {other}"),
    }
}

fn messages(json: &Value) -> Vec<Message> {
    json.as_array().unwrap().iter().map(|message| Message::try_from(message.clone()).unwrap()).collect()
}

fn options(case: &Value, now: &Value) -> RenderOptions {
    RenderOptions {
        add_generation_prompt: case["add_generation_prompt"] == true,
        tools: case.get("tools").cloned(),
        bos_token: Some("<s>".into()),
        eos_token: Some("</s>".into()),
        kwargs: case.get("kwargs").and_then(Value::as_object).cloned().unwrap_or_default(),
        now: Some(LocalTime { unix_seconds: now.as_i64().unwrap(), utc_offset_seconds: 0 }),
        ..RenderOptions::default()
    }
}

/// What is different from the expectation.
fn difference(result: &Result<String, TemplateError>, expected: &Value) -> Option<String> {
    let is_same = match result {
        Ok(text) => expected["text"] == text.as_str(),
        Err(TemplateError::Raised { message, .. }) => expected["raised"] == message.as_str(),
        Err(TemplateError::Render { .. }) => expected["failed"].is_string(),
        Err(_) => false,
    };
    (!is_same).then(|| format!("\n    ours {result:?}\n  theirs {expected}"))
}

#[test]
fn templates_give_what_jinja2_gives() {
    let golden = golden();
    let mut differences = String::new();
    for template in golden["templates"].as_array().unwrap() {
        let name = template["name"].as_str().unwrap();
        let compiled = ChatTemplate::new(template_source(name)).unwrap();
        for case in template["cases"].as_array().unwrap() {
            let conversation = case["name"].as_str().unwrap();
            let messages = messages(&golden["conversations"][conversation]);
            let result = compiled.render(&messages, &options(case, &golden["now"]));
            if let Some(difference) = difference(&result, &case["expected"]) {
                differences += &format!("\n{name}, {conversation}, {:?}{difference}", case.get("kwargs"));
            }
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn small_pieces_give_what_jinja2_gives() {
    let golden = golden();
    let messages = messages(&golden["conversations"]["chat"]);
    let mut differences = String::new();
    for snippet in golden["snippets"].as_array().unwrap() {
        let source = snippet["source"].as_str().unwrap();
        let result = ChatTemplate::new(source)
            .and_then(|template| template.render(&messages, &options(snippet, &golden["now"])));
        if let Some(difference) = difference(&result, &snippet["expected"]) {
            differences += &format!("\n{source}{difference}");
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn dates_are_those_of_python() {
    let directives = "%a %b %C %d %e %g %G %H %I %j %k %l %m %M %p %S %u %U %V %w %W %y %Y";
    for date in golden()["dates"].as_array().unwrap() {
        let time = LocalTime { unix_seconds: date[0].as_i64().unwrap(), utc_offset_seconds: 0 };
        assert_eq!(time.strftime(directives), date[1].as_str().unwrap());
    }
}

fn render(source: &str, options: &RenderOptions) -> Result<String, TemplateError> {
    ChatTemplate::new(source)?.render(&[Message::new("user", "Hello")], options)
}

/// Where the engine is not Python. None of it is known from the templates of models.
#[test]
fn known_differences() {
    let given = |source: &str| render(source, &RenderOptions::default());
    assert_eq!(given("{{ 1e20 }}"), Ok("100000000000000000000.0".into()));
    assert_eq!(given("{{ {'a': 1} | attr('a') }}"), Ok("1".into()));
    assert_eq!(given("{% with a = 1, b = a %}{{ b }}{% endwith %}"), Ok("1".into()));
    assert_eq!(given("{% generation %}{% set a = 1 %}{% endgeneration %}{{ a }}"), Ok("1".into()));
    assert!(given("{{ '%s' % 1 }}").is_err() && given("{{ [0] * 2 }}").is_err());
}

#[test]
fn files_without_a_template_have_none() {
    assert!(ChatTemplate::from_metadata(None).unwrap().is_none());
    assert!(ChatTemplate::from_metadata(Some(" \n")).unwrap().is_none());
    assert!(ChatTemplate::from_metadata(Some("{{")).is_err());
    let template = ChatTemplate::from_metadata(Some("{{ 1 }}")).unwrap().unwrap();
    assert_eq!(template.source(), "{{ 1 }}");
    assert_eq!(template.render(&[], &RenderOptions::default()), Ok("1".into()));
}

#[test]
fn errors_name_the_line_and_the_cause() {
    let error = |source: &str| render(source, &RenderOptions::default()).unwrap_err();
    let raised =
        error("{% macro m() %}\n\n{{ raise_exception('Roles must ' ~ 'alternate') }}{% endmacro %}{{ m() }}");
    assert!(matches!(&raised, TemplateError::Raised { message, .. } if message == "Roles must alternate"));
    assert!(raised.to_string().contains("(line 3)"), "{raised}");
    let unknown = error("\n{{ missing() }}").to_string();
    assert!(unknown.contains("(line 2)") && unknown.contains("missing"), "{unknown}");
    let failed = error("\n\n{{ messages[0].nothing.more }}").to_string();
    assert!(failed.contains("(line 3)") && failed.contains("undefined"), "{failed}");
    let syntax = error("{% if true %}\n{% endfor %}");
    assert!(matches!(syntax, TemplateError::Syntax { line: Some(2), .. }), "{syntax}");
    let filter = error("{% set x = 1 %}\n{{ x | nothing }}").to_string();
    assert!(filter.contains("(line 2)") && filter.contains("nothing"), "{filter}");
    let long = error(&format!("{{{{ raise_exception('{}') }}}}", "é".repeat(20_000)[..20_000].to_owned()));
    assert!(long.to_string().len() < 2000);
}

#[test]
fn variables_are_what_templates_expect() {
    let with = |kwargs: Value| RenderOptions {
        bos_token: Some("<s>".into()),
        kwargs: kwargs.as_object().unwrap().clone(),
        ..RenderOptions::default()
    };
    let source = "{{ bos_token }}|{{ eos_token is defined }}|{{ tools }}|{{ documents }}|{{ extra.b }}|{{ extra | tojson }}";
    assert_eq!(
        render(source, &with(json!({"extra": {"z": 1, "b": 2}}))),
        Ok("<s>|False|None|None|2|{\"z\": 1, \"b\": 2}".into())
    );
    assert_eq!(render("{{ bos_token }}", &with(json!({"bos_token": "<x>"}))), Ok("<x>".into()));
    for name in ["messages", "tools", "add_generation_prompt"] {
        assert_eq!(render("", &with(json!({ name: 1 }))), Err(TemplateError::ReservedVariable { name }));
    }
}

#[test]
fn messages_are_what_they_were() {
    let json = json!({"role": "assistant", "content": null, "tool_calls": [{"z": 1, "a": 2}], "name": "n"});
    let message = Message::try_from(json.clone()).unwrap();
    assert_eq!((message.role.as_str(), &message.content), ("assistant", &Some(Value::Null)));
    let template = ChatTemplate::new("{{ messages[0] | tojson }}{{ 'content' in messages[0] }}").unwrap();
    let text = template.render(&[message], &RenderOptions::default()).unwrap();
    assert_eq!(
        text,
        r#"{"role": "assistant", "content": null, "tool_calls": [{"z": 1, "a": 2}], "name": "n"}True"#
    );
    let without = Message::try_from(json!({"role": "assistant"})).unwrap();
    let text = template.render(&[without], &RenderOptions::default()).unwrap();
    assert_eq!(text, r#"{"role": "assistant"}False"#);
    for wrong in [json!(1), json!({}), json!({"role": 1, "content": "x"}), json!([{"role": "user"}])] {
        assert_eq!(Message::try_from(wrong), Err(TemplateError::MalformedMessage));
    }
    let mut twice = Message::new("user", "said");
    twice.extra.insert("role".into(), json!("system"));
    assert_eq!(
        template.render(&[twice], &RenderOptions::default()).unwrap(),
        r#"{"role": "user", "content": "said"}True"#
    );
}

#[test]
fn nested_input_is_refused() {
    let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
    let options = |depth| RenderOptions { tools: Some(nested(depth)), ..RenderOptions::default() };
    assert!(render("{{ tools | tojson }}{% set x = tools %}", &options(48)).is_ok());
    assert_eq!(render("", &options(49)), Err(TemplateError::InputTooDeep { limit: 48 }));
    let mut message = Message::new("user", "");
    message.content = Some(nested(2000));
    let template = ChatTemplate::new("").unwrap();
    assert_eq!(
        template.render(&[message], &RenderOptions::default()),
        Err(TemplateError::InputTooDeep { limit: 48 })
    );
}

#[test]
fn limits_are_those_of_the_caller() {
    let limits = |change: fn(&mut RenderLimits)| {
        let mut options = RenderOptions::default();
        change(&mut options.limits);
        render("{% for i in range(1000) %}{{ i }}{% endfor %}", &options)
    };
    assert!(limits(|_| {}).is_ok());
    assert_eq!(
        limits(|limits| limits.output_bytes = 2889),
        Err(TemplateError::OutputTooLong { limit: 2889 })
    );
    assert!(limits(|limits| limits.output_bytes = 2890).is_ok());
    let work = limits(|limits| limits.work = 1000);
    assert_eq!(work, Err(TemplateError::TooMuchWork { line: Some(1), limit: 1000 }));
    assert!(matches!(limits(|limits| limits.time = Duration::ZERO), Err(TemplateError::TooMuchTime { .. })));
}

/// The default limits are far from what a long conversation needs.
#[test]
fn long_conversations_stay_within_the_limits() {
    let golden = golden();
    let tools = golden["templates"][0]["cases"][2]["tools"].clone();
    let options = RenderOptions {
        tools: Some(tools),
        bos_token: Some("<s>".into()),
        eos_token: Some("</s>".into()),
        ..RenderOptions::default()
    };
    let text = "A longer answer, with some words in it. ".repeat(100);
    let turns =
        |count: usize| (0..count).map(|turn| Message::new(["user", "assistant"][turn % 2], text.clone()));
    let messages: Vec<Message> = turns(1000).collect();
    for name in ["headers", "instructions", "thinking", "turns"] {
        let prompt = ChatTemplate::new(template_source(name)).unwrap().render(&messages, &options).unwrap();
        assert!(prompt.len() > 3_900_000, "{name}");
    }
}

#[test]
fn templates_are_shared_between_threads() {
    let template = ChatTemplate::new("{{ messages[0].content }}").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let template = &template;
            scope.spawn(move || {
                for round in 0..50 {
                    let text = format!("{thread} {round}");
                    let rendered = template.render(&[Message::new("user", &text)], &RenderOptions::default());
                    assert_eq!(rendered, Ok(text));
                }
            });
        }
    });
}
