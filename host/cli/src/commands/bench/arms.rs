//! What a benchmark compares: combinations of strategies, and values of settings.

use std::str::FromStr;

use crate::args::SettingArg;

/// The word for no strategy.
const NONE: &str = "none";
/// More arms than this are a mistake rather than a plan.
const MOST_ARMS: usize = 64;

/// One way to run the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Its name in reports: the strategies, and the settings that vary.
    pub name: String,
    /// Ids of strategies, in the order in which they are asked; empty for plain generation.
    pub strategies: Vec<String>,
    /// Settings that differ between arms.
    pub settings: Vec<SettingArg>,
}

/// Combinations of strategies, as in `none,mtp-chain,ngram-adaptive+mtp-chain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategyList(pub Vec<Vec<String>>);

impl FromStr for StrategyList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut combinations: Vec<Vec<String>> = Vec::new();
        for part in text.split(',') {
            let combination = combination(part)?;
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
    /// Id of the plugin.
    pub plugin: String,
    /// Key of the setting, without the plugin.
    pub key: String,
    /// Two or more values as text, all different; the plugin knows what they may be.
    pub values: Vec<String>,
}

/// Reads a setting with two values, as in `mtp-chain.depth=2,4`.
pub fn ab(text: &str) -> Result<Axis, String> {
    let axis = axis(text)?;
    match axis.values.len() {
        2 => Ok(axis),
        count => Err(format!(
            "`{}.{}` has {count} values; two are compared, and `--sweep` takes more",
            axis.plugin, axis.key
        )),
    }
}

/// Reads a setting with several values, as in `mtp-chain.depth=1,2,4,8`.
pub fn sweep(text: &str) -> Result<Axis, String> {
    axis(text)
}

/// All arms: each combination of strategies with each combination of values. A setting of a strategy only varies where
/// that strategy is; a setting of something else varies everywhere.
pub fn arms(strategies: &StrategyList, axes: &[Axis]) -> Result<Vec<Arm>, String> {
    let is_strategy = |plugin: &String| strategies.0.iter().any(|combination| combination.contains(plugin));
    for (index, axis) in axes.iter().enumerate() {
        if axes[..index].iter().any(|other| (&other.plugin, &other.key) == (&axis.plugin, &axis.key)) {
            return Err(format!("`{}.{}` varies twice", axis.plugin, axis.key));
        }
    }
    let mut arms = Vec::new();
    for combination in &strategies.0 {
        let varies = |axis: &&Axis| combination.contains(&axis.plugin) || !is_strategy(&axis.plugin);
        let mut choices: Vec<Vec<SettingArg>> = vec![Vec::new()];
        for axis in axes.iter().filter(varies) {
            let with = |settings: &Vec<SettingArg>, value: &String| {
                let (plugin, key) = (axis.plugin.clone(), axis.key.clone());
                let mut settings = settings.clone();
                settings.push(SettingArg { plugin, key, value: value.clone() });
                settings
            };
            choices =
                choices.iter().flat_map(|it| axis.values.iter().map(move |value| with(it, value))).collect();
            if choices.len() > MOST_ARMS {
                return Err(too_many());
            }
        }
        arms.extend(choices.into_iter().map(|settings| arm(combination, settings)));
        if arms.len() > MOST_ARMS {
            return Err(too_many());
        }
    }
    Ok(arms)
}

fn too_many() -> String {
    format!("there are more than {MOST_ARMS} arms: vary fewer settings, or give fewer values")
}

fn arm(strategies: &[String], settings: Vec<SettingArg>) -> Arm {
    let mut name = if strategies.is_empty() { NONE.to_owned() } else { strategies.join("+") };
    for setting in &settings {
        name.push_str(&format!(" {}.{}={}", setting.plugin, setting.key, setting.value));
    }
    Arm { name, strategies: strategies.to_vec(), settings }
}

fn combination(text: &str) -> Result<Vec<String>, String> {
    if text == NONE {
        return Ok(Vec::new());
    }
    let mut strategies: Vec<String> = Vec::new();
    for id in text.split('+') {
        if id.is_empty() {
            let example = "as in `none,mtp-chain,ngram-adaptive+mtp-chain`";
            let place = if text.is_empty() { String::new() } else { format!(" in `{text}`") };
            return Err(format!(
                "a strategy is missing{place}: names stand between commas and `+`, {example}"
            ));
        }
        if id == NONE {
            return Err(format!("`{NONE}` stands alone, not with others as in `{text}`"));
        }
        if let Some(character) = id.chars().find(|it| !it.is_ascii_alphanumeric() && !"-_".contains(*it)) {
            return Err(format!("`{id}` is no name of a strategy: it has {character:?}"));
        }
        if strategies.iter().any(|other| other == id) {
            return Err(format!("`{id}` comes twice in `{text}`"));
        }
        strategies.push(id.to_owned());
    }
    Ok(strategies)
}

fn axis(text: &str) -> Result<Axis, String> {
    let SettingArg { plugin, key, value } = text.parse().map_err(|_| {
        format!("`{text}` must be a plugin, a dot, a key, `=` and values, as in `mtp-chain.depth=2,4`")
    })?;
    let mut values: Vec<String> = Vec::new();
    for value in value.split(',') {
        if value.is_empty() {
            return Err(format!("a value of `{plugin}.{key}` is empty"));
        }
        if values.iter().any(|other| other == value) {
            return Err(format!("the value `{value}` of `{plugin}.{key}` comes twice"));
        }
        values.push(value.to_owned());
    }
    if values.len() < 2 {
        return Err(format!("`{plugin}.{key}` has one value only; use `--set` for that"));
    }
    Ok(Axis { plugin, key, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(strategies: &str, axes: &[&str]) -> Result<Vec<String>, String> {
        let axes = axes.iter().map(|text| sweep(text)).collect::<Result<Vec<_>, _>>()?;
        Ok(arms(&strategies.parse()?, &axes)?.into_iter().map(|arm| arm.name).collect())
    }

    #[test]
    fn lists_of_strategies() {
        let list: StrategyList = "none,mtp-chain,ngram-adaptive+mtp-chain".parse().unwrap();
        let arms = arms(&list, &[]).unwrap();
        let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["none", "mtp-chain", "ngram-adaptive+mtp-chain"]);
        assert!(arms[0].strategies.is_empty());
        assert_eq!(arms[2].strategies, ["ngram-adaptive", "mtp-chain"]);
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
            (
                "depth=2,4",
                "`depth=2,4` must be a plugin, a dot, a key, `=` and values, as in `mtp-chain.depth=2,4`",
            ),
            ("a.b=1", "`a.b` has one value only; use `--set` for that"),
            ("a.b=", "a value of `a.b` is empty"),
            ("a.b=1,,2", "a value of `a.b` is empty"),
            ("a.b=1,2,1", "the value `1` of `a.b` comes twice"),
            ("a.b=1,2,3", "`a.b` has 3 values; two are compared, and `--sweep` takes more"),
        ] {
            assert_eq!(ab(text).unwrap_err(), problem);
        }
    }

    #[test]
    fn a_setting_of_a_strategy_varies_where_it_is() {
        assert_eq!(
            names("none,mtp-chain", &["mtp-chain.depth=2,4"]).unwrap(),
            ["none", "mtp-chain mtp-chain.depth=2", "mtp-chain mtp-chain.depth=4"]
        );
    }

    #[test]
    fn other_settings_vary_everywhere() {
        assert_eq!(
            names("none,mtp", &["cpu.threads=1,2", "mtp.depth=2,4"]).unwrap(),
            [
                "none cpu.threads=1",
                "none cpu.threads=2",
                "mtp cpu.threads=1 mtp.depth=2",
                "mtp cpu.threads=1 mtp.depth=4",
                "mtp cpu.threads=2 mtp.depth=2",
                "mtp cpu.threads=2 mtp.depth=4",
            ]
        );
    }

    #[test]
    fn too_much_to_vary() {
        let values: Vec<String> = (0..65).map(|value| value.to_string()).collect();
        let problem = names("none", &[&format!("a.b={}", values.join(","))]).unwrap_err();
        assert_eq!(problem, "there are more than 64 arms: vary fewer settings, or give fewer values");
        assert_eq!(names("none", &["a.b=1,2", "a.b=3,4"]).unwrap_err(), "`a.b` varies twice");
    }
}
