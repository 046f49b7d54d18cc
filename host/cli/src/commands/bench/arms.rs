//! What a benchmark compares: combinations of strategies, and values of settings.

use crate::args::{Axis, SettingArg, StrategyChoice, StrategyList};
use crate::strategies::HOST;

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

/// All arms: each combination of strategies with each combination of values. A setting of a strategy only varies where
/// that strategy is, one of how strategies are used where there is one, a setting of something else everywhere. `auto` are
/// the strategies that `auto` stands for here.
pub fn arms(strategies: &StrategyList, auto: &[String], axes: &[Axis]) -> Result<Vec<Arm>, String> {
    let ids = |choice: &StrategyChoice| match choice {
        StrategyChoice::Auto => auto.to_vec(),
        StrategyChoice::Named(ids) => ids.clone(),
    };
    let is_strategy = |plugin: &String| strategies.0.iter().any(|choice| ids(choice).contains(plugin));
    for (index, axis) in axes.iter().enumerate() {
        if axes[..index].iter().any(|other| (&other.plugin, &other.key) == (&axis.plugin, &axis.key)) {
            return Err(format!("`{}` varies twice", axis.name()));
        }
    }
    let mut arms = Vec::new();
    for choice in &strategies.0 {
        let combination = ids(choice);
        let varies = |axis: &&Axis| match axis.plugin.as_str() {
            HOST => !combination.is_empty(),
            _ => combination.contains(&axis.plugin) || !is_strategy(&axis.plugin),
        };
        let mut choices: Vec<Vec<SettingArg>> = vec![Vec::new()];
        for axis in axes.iter().filter(varies) {
            let with = |settings: &Vec<SettingArg>, value: &String| {
                let mut settings = settings.clone();
                settings.push(axis.setting(value));
                settings
            };
            choices =
                choices.iter().flat_map(|it| axis.values.iter().map(move |value| with(it, value))).collect();
            if choices.len() > MOST_ARMS {
                return Err(too_many());
            }
        }
        arms.extend(choices.into_iter().map(|settings| arm(choice, &combination, settings)));
        if arms.len() > MOST_ARMS {
            return Err(too_many());
        }
    }
    let varies = |axis: &Axis| {
        let is_axis = |it: &SettingArg| (&it.plugin, &it.key) == (&axis.plugin, &axis.key);
        arms.iter().any(|arm: &Arm| arm.settings.iter().any(is_axis))
    };
    match axes.iter().find(|axis| !varies(axis)) {
        Some(axis) => Err(format!("`{}` varies nothing: no strategy is used", axis.name())),
        None => Ok(arms),
    }
}

fn too_many() -> String {
    format!("there are more than {MOST_ARMS} arms: vary fewer settings, or give fewer values")
}

fn arm(choice: &StrategyChoice, strategies: &[String], settings: Vec<SettingArg>) -> Arm {
    let mut name = choice.name();
    for setting in &settings {
        name.push_str(&format!(" {}={}", setting.name(), setting.value));
    }
    Arm { name, strategies: strategies.to_vec(), settings }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::sweep;

    fn names(strategies: &str, axes: &[&str]) -> Result<Vec<String>, String> {
        let axes = axes.iter().map(|text| sweep(text)).collect::<Result<Vec<_>, _>>()?;
        let auto = ["ngram".to_owned(), "mtp".to_owned()];
        Ok(arms(&strategies.parse()?, &auto, &axes)?.into_iter().map(|arm| arm.name).collect())
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
    fn auto_is_what_it_stands_for() {
        assert_eq!(
            names("none,auto", &["mtp.depth=2,4"]).unwrap(),
            ["none", "auto mtp.depth=2", "auto mtp.depth=4"]
        );
        assert_eq!(
            names("none,auto", &["speculation.select=value,order"]).unwrap(),
            ["none", "auto speculation.select=value", "auto speculation.select=order"]
        );
    }

    #[test]
    fn too_much_to_vary() {
        let values: Vec<String> = (0..65).map(|value| value.to_string()).collect();
        let problem = names("none", &[&format!("a.b={}", values.join(","))]).unwrap_err();
        assert_eq!(problem, "there are more than 64 arms: vary fewer settings, or give fewer values");
        assert_eq!(names("none", &["a.b=1,2", "a.b=3,4"]).unwrap_err(), "`a.b` varies twice");
        assert_eq!(
            names("none", &["speculation.select=value,order"]).unwrap_err(),
            "`speculation.select` varies nothing: no strategy is used"
        );
    }
}
