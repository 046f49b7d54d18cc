//! What commands take that guess ahead.

use std::path::PathBuf;
use std::str::FromStr;

/// The word for no strategy.
const NONE: &str = "none";
/// The word for those that suit the model.
const AUTO: &str = "auto";

/// Which strategies guess ahead.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Strategies")]
pub struct StrategyArgs {
    /// Strategies that guess ahead, with `+` between, as in `ngram-adaptive+mtp-chain`; `none`, or `auto` for those
    /// that suit the model
    ///
    /// They change how long a text takes, and not the text. `auto` is `ngram-adaptive`, with `mtp-chain` if the model
    /// has a prediction block, and with `dflash` if a drafter's file is given with --draft; one that cannot work here is
    /// left out, and --verbose says why. Settings of strategies and of how they are used are given with --set, such as
    /// `mtp-chain.depth=4`; `speculation.select`, `speculation.controller`, `speculation.acceptance`,
    /// `speculation.most_verified` and `speculation.rollback` are those of the host.
    ///
    /// If left out, the files of settings decide; as shipped, that is `auto`.
    #[arg(long, value_name = "LIST")]
    pub strategy: Option<StrategyChoice>,

    /// The drafter's own GGUF file, for strategies that have one
    #[arg(long, value_name = "FILE")]
    pub draft: Option<PathBuf>,
}

/// Strategies that work together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrategyChoice {
    /// Those that suit the model.
    Auto,
    /// These, in this order; empty for none.
    Named(Vec<String>),
}

impl StrategyChoice {
    /// Reads strategies with `+` between. `example` ends a message about one that is missing.
    pub fn parse(text: &str, example: &str) -> Result<Self, String> {
        match text {
            NONE => return Ok(Self::Named(Vec::new())),
            AUTO => return Ok(Self::Auto),
            _ => {}
        }
        let mut strategies: Vec<String> = Vec::new();
        for id in text.split('+') {
            if id.is_empty() {
                let place = if text.is_empty() { String::new() } else { format!(" in `{text}`") };
                return Err(format!("a strategy is missing{place}: {example}"));
            }
            if [NONE, AUTO].contains(&id) {
                return Err(format!("`{id}` stands alone, not with others as in `{text}`"));
            }
            if let Some(character) = id.chars().find(|it| !it.is_ascii_alphanumeric() && !"-_".contains(*it))
            {
                return Err(format!("`{id}` is no name of a strategy: it has {character:?}"));
            }
            if strategies.iter().any(|other| other == id) {
                return Err(format!("`{id}` comes twice in `{text}`"));
            }
            strategies.push(id.to_owned());
        }
        Ok(Self::Named(strategies))
    }

    /// As it is typed.
    pub fn name(&self) -> String {
        match self {
            Self::Auto => AUTO.to_owned(),
            Self::Named(ids) if ids.is_empty() => NONE.to_owned(),
            Self::Named(ids) => ids.join("+"),
        }
    }
}

impl FromStr for StrategyChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, "names stand between `+`, as in `ngram-adaptive+mtp-chain`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_read_back_as_they_are_typed() {
        for text in ["auto", "none", "mtp-chain", "ngram-adaptive+mtp-chain"] {
            assert_eq!(text.parse::<StrategyChoice>().unwrap().name(), text);
        }
        assert_eq!("none".parse(), Ok(StrategyChoice::Named(Vec::new())));
    }

    #[test]
    fn choices_that_make_no_sense() {
        let example = "names stand between `+`, as in `ngram-adaptive+mtp-chain`";
        for (text, problem) in [
            ("", format!("a strategy is missing: {example}")),
            ("mtp-chain+", format!("a strategy is missing in `mtp-chain+`: {example}")),
            ("none+mtp-chain", "`none` stands alone, not with others as in `none+mtp-chain`".to_owned()),
            ("mtp-chain+auto", "`auto` stands alone, not with others as in `mtp-chain+auto`".to_owned()),
            ("a+b+a", "`a` comes twice in `a+b+a`".to_owned()),
            ("a,b", "`a,b` is no name of a strategy: it has ','".to_owned()),
        ] {
            assert_eq!(text.parse::<StrategyChoice>().unwrap_err(), problem);
        }
    }
}
