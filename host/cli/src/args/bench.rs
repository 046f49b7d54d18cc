//! What `bench` takes.

use std::path::PathBuf;
use std::str::FromStr;

use crate::args::{EngineArgs, ModelArg, OutputArgs, SettingArg, StrategyChoice};

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Every arm has an engine of its own, so there must be memory for as many. Within each repetition every prompt goes \
through all arms before the next one comes, in an order that rotates, so that slow minutes of the machine meet all of \
them. Each arm begins with a run that does not count.

The first arm is what others are compared with: how many times as fast they are, prompt by prompt, and whether the \
tokens are the same. Texts go on after the model would end them, so that all have the same length.

Standard output gets the tables, or with --md, --json everything; --csv has a line for each run. Ctrl-C ends the \
measurement, and what was measured is shown; exit code 130 then.")]
#[command(mut_arg("model", |arg| arg
    .required(false)
    .required_unless_present("machine")
    .default_value_if("machine", "true", "demo")))]
pub struct BenchArgs {
    #[command(flatten)]
    pub model: ModelArg,

    /// Measure what this machine can do at best, and no model: bytes read from memory and products of 8-bit integers
    /// per second, with one thread and with all
    #[arg(long, conflicts_with_all = ["strategy", "draft", "ab", "sweep", "prompts", "md", "csv", "html"])]
    pub machine: bool,

    /// What is compared, with commas between: strategies with `+` between, `none` or `auto`
    #[arg(long, value_name = "LIST", default_value = "none,auto")]
    pub strategy: StrategyList,

    /// The drafter's own GGUF file, for strategies that have one
    #[arg(long, value_name = "FILE")]
    pub draft: Option<PathBuf>,

    /// Compare two values of a setting, as in `mtp-chain.depth=2,4`; may be given several times
    #[arg(long, value_name = "KEY=V1,V2", value_parser = ab)]
    pub ab: Vec<Axis>,

    /// Go through values of a setting, as in `mtp-chain.depth=1,2,4,8`; may be given several times
    #[arg(long, value_name = "KEY=V1,V2,...", value_parser = sweep)]
    pub sweep: Vec<Axis>,

    /// Continue the prompts of this file, JSON Lines with `kind`, `name` and `text`; may be given several times
    ///
    /// If left out, beginnings of source code that are part of this program.
    #[arg(long, value_name = "FILE")]
    pub prompts: Vec<PathBuf>,

    /// Take at most this many prompts of each file
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = positive)]
    pub limit: usize,

    /// Generate this many tokens for each prompt
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..))]
    pub tokens: u32,

    /// Do everything this many times
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: u32,

    /// Temperature of sampling; 0 always takes the most likely token
    #[arg(long, alias = "temp", value_name = "F", default_value_t = 0.0, value_parser = temperature)]
    #[arg(allow_negative_numbers = true)]
    pub temperature: f32,

    /// Seed of the choices; each repetition has another one that follows from it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Write all tables as Markdown
    #[arg(long, conflicts_with = "json")]
    pub md: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    /// Write all runs to this file, comma separated
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write tables and plots to this file, a page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Combinations of strategies, as in `none,mtp-chain,ngram-adaptive+mtp-chain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategyList(pub Vec<StrategyChoice>);

impl FromStr for StrategyList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str =
            "names stand between commas and `+`, as in `none,mtp-chain,ngram-adaptive+mtp-chain`";

        let mut combinations: Vec<StrategyChoice> = Vec::new();
        for part in text.split(',') {
            let combination = StrategyChoice::parse(part, EXAMPLE)?;
            if combinations.contains(&combination) {
                return Err(format!("`{part}` comes twice"));
            }
            combinations.push(combination);
        }
        Ok(Self(combinations))
    }
}

/// A setting and the values that it takes in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What stands in front of the first dot: id of the plugin. Empty for settings of the host without a dot.
    pub plugin: String,
    /// Key of the setting, without the plugin.
    pub key: String,
    /// Two or more values as text, all different; the plugin knows what they may be.
    pub values: Vec<String>,
}

impl Axis {
    /// One of its values, as a setting.
    pub fn setting(&self, value: &str) -> SettingArg {
        SettingArg { plugin: self.plugin.clone(), key: self.key.clone(), value: value.to_owned() }
    }

    /// The whole key.
    pub fn name(&self) -> String {
        self.setting("").name()
    }
}

/// Reads a setting with two values, as in `mtp-chain.depth=2,4`.
pub fn ab(text: &str) -> Result<Axis, String> {
    let axis = axis(text)?;
    match axis.values.len() {
        2 => Ok(axis),
        count => {
            Err(format!("`{}` has {count} values; two are compared, and `--sweep` takes more", axis.name()))
        }
    }
}

/// Reads a setting with several values, as in `mtp-chain.depth=1,2,4,8`.
pub fn sweep(text: &str) -> Result<Axis, String> {
    axis(text)
}

fn axis(text: &str) -> Result<Axis, String> {
    let setting: SettingArg = text
        .parse()
        .map_err(|_| format!("`{text}` must be a key, `=` and values, as in `mtp-chain.depth=2,4`"))?;
    let name = setting.name();
    let SettingArg { plugin, key, value } = setting;
    let mut values: Vec<String> = Vec::new();
    for value in value.split(',') {
        if value.is_empty() {
            return Err(format!("a value of `{name}` is empty"));
        }
        if values.iter().any(|other| other == value) {
            return Err(format!("the value `{value}` of `{name}` comes twice"));
        }
        values.push(value.to_owned());
    }
    if values.len() < 2 {
        return Err(format!("`{name}` has one value only; use `--set` for that"));
    }
    Ok(Axis { plugin, key, values })
}

fn temperature(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|number: &f32| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "it must be 0 or more, such as 0.8".to_owned())
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&number| number > 0).ok_or_else(|| "it must be 1 or more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_strategies() {
        let list: StrategyList = "none,mtp-chain,ngram-adaptive+mtp-chain".parse().unwrap();
        let names: Vec<String> = list.0.iter().map(StrategyChoice::name).collect();
        assert_eq!(names, ["none", "mtp-chain", "ngram-adaptive+mtp-chain"]);
    }

    #[test]
    fn lists_that_make_no_sense() {
        let example = "names stand between commas and `+`, as in `none,mtp-chain,ngram-adaptive+mtp-chain`";
        for (text, problem) in [
            ("", format!("a strategy is missing: {example}")),
            ("none,", format!("a strategy is missing: {example}")),
            ("mtp-chain+", format!("a strategy is missing in `mtp-chain+`: {example}")),
            ("none+mtp-chain", "`none` stands alone, not with others as in `none+mtp-chain`".to_owned()),
            ("none,none", "`none` comes twice".to_owned()),
            ("a+b+a", "`a` comes twice in `a+b+a`".to_owned()),
            ("mtp chain", "`mtp chain` is no name of a strategy: it has ' '".to_owned()),
        ] {
            assert_eq!(text.parse::<StrategyList>().unwrap_err(), problem);
        }
    }

    #[test]
    fn values_of_a_setting() {
        let axis = ab("mtp-chain.depth=2,4").unwrap();
        assert_eq!((&*axis.plugin, &*axis.key), ("mtp-chain", "depth"));
        assert_eq!(axis.values, ["2", "4"]);
        assert_eq!(sweep("a.b=1,2,3").unwrap().values.len(), 3);
        for (text, problem) in [
            (".depth=2,4", "`.depth=2,4` must be a key, `=` and values, as in `mtp-chain.depth=2,4`"),
            ("a.b=1", "`a.b` has one value only; use `--set` for that"),
            ("a.b=", "a value of `a.b` is empty"),
            ("a.b=1,,2", "a value of `a.b` is empty"),
            ("a.b=1,2,1", "the value `1` of `a.b` comes twice"),
            ("a.b=1,2,3", "`a.b` has 3 values; two are compared, and `--sweep` takes more"),
        ] {
            assert_eq!(ab(text).unwrap_err(), problem);
        }
    }
}
