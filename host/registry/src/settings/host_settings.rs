//! The settings of the host itself.

use paceline_plugin_api::settings::Stage;

use super::schema::{DefaultValue, Owner, Setting};
use super::value::{Takes, Value};

/// In front of settings that have an effect only where a strategy guesses ahead.
pub(super) const SPECULATION: &str = "speculation.";

fn setting(key: &str, takes: Takes, default: DefaultValue, stage: Stage, unit: &str, doc: &str) -> Setting {
    Setting {
        key: key.to_owned(),
        owner: Owner::Host,
        takes,
        default,
        stage,
        unit: unit.to_owned(),
        doc: doc.to_owned(),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn word(word: &str) -> DefaultValue {
    DefaultValue::Value(Value::Text(word.to_owned()))
}

fn number(number: i64) -> DefaultValue {
    DefaultValue::Value(Value::Integer(number))
}

/// What decides how layers are placed comes first, and so can have no rules on the placement.
pub(super) fn all() -> Vec<Setting> {
    use Stage::{Context, Placement};

    let whole = |min, max| Takes::Integer { min, max };
    vec![
        setting(
            "context",
            whole(1, i64::from(i32::MAX)),
            DefaultValue::Decided("what the model was trained for, at most 8192".to_owned()),
            Placement,
            "positions",
            "Positions of a sequence, for what is read and what is written.",
        ),
        setting("sequences", whole(1, 4096), number(1), Placement, "sequences", "Sequences at a time."),
        setting(
            "microbatch",
            whole(1, 65536),
            number(512),
            Placement,
            "tokens",
            "Most tokens of a prompt that one run of the model takes.",
        ),
        setting(
            "kv_types",
            Takes::Pair(words(&["f16", "f32", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"])),
            word("f16"),
            Placement,
            "",
            "Type of cached keys and values; two of them, as in `q8_0/f16`, for keys and for values.",
        ),
        setting(
            "launch_timeout",
            whole(1, 86_400),
            number(600),
            Context,
            "s",
            "How long one run on a device may take before the device is given up.",
        ),
        setting(
            "speculation.select",
            Takes::Choice(words(&["value", "order"])),
            word("value"),
            Context,
            "",
            "Which of several drafts is taken: the best worth, or the first.",
        ),
        setting(
            "speculation.controller",
            Takes::Bool,
            DefaultValue::Value(Value::Bool(true)),
            Context,
            "",
            "Adapt the length of drafts, and stop drafting while it does not pay.",
        ),
        setting(
            "speculation.acceptance",
            Takes::Choice(words(&["agree", "reject"])),
            word("agree"),
            Context,
            "",
            "Whether a guess must be the model's own token, or may be drawn.",
        ),
        setting(
            "speculation.most_verified",
            whole(1, 15),
            number(15),
            Context,
            "tokens",
            "Most guesses that one run of the model looks at.",
        ),
        setting(
            "speculation.rollback",
            Takes::Choice(words(&["replay", "snapshots"])),
            word("snapshots"),
            Context,
            "",
            "How recurrent state is taken back after wrong guesses.",
        ),
    ]
}
