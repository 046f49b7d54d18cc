//! Conditions of rules: read, tested, and compared with each other.

use std::collections::BTreeSet;
use std::fmt;

use semver::VersionReq;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{Fault, listed, nearest_or_all};
use super::observe::{Concern, Fact, Observe, Observed, Shape, bytes_text};
use super::toml_text::{Text, kind_of, whole_number};

/// A test of one fact.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Test {
    /// All that the fact is must be among these.
    Among(BTreeSet<String>),
    /// Every device has all of these.
    Has(BTreeSet<String>),
    /// Numbers from and to, both included.
    Between(u64, u64, Unit),
    /// True or false.
    Is(bool),
    /// Versions.
    Version(VersionReq),
}

/// How numbers are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    None,
    Bytes,
}

/// All conditions of a rule, in order of facts; there is at least one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct When(Vec<(Fact, Test)>);

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unmet {
    /// The condition.
    pub condition: String,
    /// What the fact is instead.
    pub actual: String,
}

impl When {
    /// Reads the table behind `when`.
    pub(super) fn read(text: &Text<'_>, value: &Spanned<DeValue<'_>>) -> Result<Self, Fault> {
        let DeValue::Table(table) = value.get_ref() else {
            let message =
                format!("`when` takes a table, as in `{{ sequences = 1 }}`, not {}", kind_of(value));
            return Err(text.fault(value.span().start, message));
        };
        let mut conditions = Vec::new();
        read_conditions(text, table, "", &mut conditions)?;
        if conditions.is_empty() {
            let message = "`when` is empty: a value without conditions is a plain setting";
            return Err(text.fault(value.span().start, message));
        }
        conditions.sort_by_key(|(fact, _)| *fact);
        Ok(Self(conditions))
    }

    /// The facts that are tested.
    pub(super) fn facts(&self) -> impl Iterator<Item = Fact> + '_ {
        self.0.iter().map(|(fact, _)| *fact)
    }

    /// The first condition that does not hold.
    pub(super) fn unmet(&self, facts: &dyn Observe, concern: &Concern) -> Option<Unmet> {
        let unmet = self.0.iter().find_map(|(fact, test)| {
            let observed = facts.observe(*fact, concern);
            (!test.holds(&observed)).then_some((fact, test, observed))
        });
        let (fact, test, observed) = unmet?;
        let actual = if fact.is_of_devices() && observed.is_nothing() {
            "no such layer".to_owned()
        } else {
            observed.to_string()
        };
        Some(Unmet { condition: condition_text(*fact, test), actual })
    }

    /// Whether these conditions hold nowhere but where the others do, and not everywhere there.
    pub(super) fn is_narrower_than(&self, other: &Self) -> bool {
        self.implies(other) && !other.implies(self)
    }

    fn implies(&self, other: &Self) -> bool {
        other.0.iter().all(|(fact, wider)| self.test(*fact).is_some_and(|test| test.implies(wider)))
    }

    /// Whether one fact makes sure that both never hold. Facts of devices say so only if both
    /// rules are about some of the same devices.
    pub(super) fn excludes(&self, other: &Self, share_devices: bool) -> bool {
        let comparable = self.0.iter().filter(|(fact, _)| share_devices || !fact.is_of_devices());
        comparable.into_iter().any(|(fact, test)| other.test(*fact).is_some_and(|it| test.excludes(it)))
    }

    fn test(&self, fact: Fact) -> Option<&Test> {
        self.0.iter().find(|(it, _)| *it == fact).map(|(_, test)| test)
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(|(fact, test)| condition_text(*fact, test)).collect();
        f.write_str(&all.join(", "))
    }
}

fn condition_text(fact: Fact, test: &Test) -> String {
    let name = fact.name();
    let number = |number: &u64, unit: &Unit| match unit {
        Unit::None => number.to_string(),
        Unit::Bytes => bytes_text(*number),
    };
    let words = |words: &BTreeSet<String>, between: &str| {
        words.iter().map(String::as_str).collect::<Vec<_>>().join(between)
    };
    match test {
        Test::Among(options) => format!("{name} = {}", words(options, " or ")),
        Test::Has(abilities) => format!("{name} has {}", words(abilities, " and ")),
        Test::Between(min, max, unit) if min == max => format!("{name} = {}", number(min, unit)),
        Test::Between(min, u64::MAX, unit) => format!("{name} >= {}", number(min, unit)),
        Test::Between(0, max, unit) => format!("{name} <= {}", number(max, unit)),
        Test::Between(min, max, unit) => format!("{name} = {} to {}", number(min, unit), number(max, unit)),
        Test::Is(flag) => format!("{name} = {flag}"),
        Test::Version(range) => format!("{name} {range}"),
    }
}

impl Test {
    /// What is nothing at all passes no test: a rule needs something to hold for.
    fn holds(&self, observed: &Observed) -> bool {
        match (self, observed) {
            (Self::Among(options), Observed::Words(words)) => !words.is_empty() && words.is_subset(options),
            (Self::Has(wanted), Observed::Abilities(devices)) => {
                !devices.is_empty() && devices.iter().all(|device| wanted.is_subset(device))
            }
            (Self::Between(min, max, _), Observed::Numbers(numbers) | Observed::Bytes(numbers)) => {
                !numbers.is_empty() && numbers.iter().all(|number| (min..=max).contains(&number))
            }
            (Self::Is(wanted), Observed::Flag(flag)) => wanted == flag,
            (Self::Version(range), Observed::Versions(versions)) => {
                !versions.is_empty() && versions.iter().all(|version| range.matches(version))
            }
            _ => false,
        }
    }

    fn implies(&self, wider: &Self) -> bool {
        match (self, wider) {
            (Self::Among(words), Self::Among(wider)) => words.is_subset(wider),
            (Self::Has(words), Self::Has(wider)) => wider.is_subset(words),
            (Self::Between(min, max, _), Self::Between(least, most, _)) => least <= min && max <= most,
            _ => self == wider,
        }
    }

    fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Among(words), Self::Among(others)) => words.is_disjoint(others),
            (Self::Between(min, max, _), Self::Between(least, most, _)) => max < least || most < min,
            (Self::Is(flag), Self::Is(other)) => flag != other,
            _ => false,
        }
    }
}

/// Reads a table whose keys are facts, or parts of their names in front of a dot.
fn read_conditions(
    text: &Text<'_>,
    table: &DeTable<'_>,
    prefix: &str,
    conditions: &mut Vec<(Fact, Test)>,
) -> Result<(), Fault> {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.get_ref());
        let Some(fact) = Fact::from_name(&name) else {
            let inner = format!("{name}.");
            match value.get_ref() {
                DeValue::Table(table) if Fact::ALL.iter().any(|fact| fact.name().starts_with(&inner)) => {
                    read_conditions(text, table, &inner, conditions)?;
                    continue;
                }
                _ => {
                    let hint = nearest_or_all(&name, &Fact::ALL.map(Fact::name));
                    return Err(text.fault(key.span().start, format!("the fact `{name}` is not known{hint}")));
                }
            }
        };
        if conditions.iter().any(|(earlier, _)| *earlier == fact) {
            return Err(text.fault(key.span().start, format!("the fact `{name}` stands here twice")));
        }
        conditions.push((fact, read_test(text, fact, value)?));
    }
    Ok(())
}

fn read_test(text: &Text<'_>, fact: Fact, value: &Spanned<DeValue<'_>>) -> Result<Test, Fault> {
    let name = fact.name();
    let fault = |message: String| text.fault(value.span().start, message);
    let wrong = |takes: &str| fault(format!("the fact `{name}` takes {takes}, not {}", kind_of(value)));
    match fact.shape() {
        Shape::Words => Ok(Test::Among(words(text, fact, value)?)),
        Shape::Abilities => Ok(Test::Has(words(text, fact, value)?)),
        Shape::KnownWords(known) => {
            let found = words(text, fact, value)?;
            match found.iter().find(|word| !known.contains(&word.as_str())) {
                Some(word) => {
                    let hint = nearest_or_all(word, known);
                    Err(fault(format!("the fact `{name}` is never `{word}`{hint}")))
                }
                None if found.len() == known.len() => {
                    Err(fault(format!("the fact `{name}` is always one of {}: leave it out", listed(known))))
                }
                None => Ok(Test::Among(found)),
            }
        }
        Shape::Flag => match value.get_ref() {
            DeValue::Boolean(flag) => Ok(Test::Is(*flag)),
            _ => Err(wrong("true or false")),
        },
        Shape::Version => {
            let takes = "versions, as in \">=0.1, <0.2\"";
            let range = value.get_ref().as_str().ok_or_else(|| wrong(takes))?;
            let range = range
                .parse()
                .map_err(|error| fault(format!("`{range}` is no range of versions: {error}")))?;
            Ok(Test::Version(range))
        }
        Shape::Number | Shape::Bytes => {
            let unit = if fact.shape() == Shape::Bytes { Unit::Bytes } else { Unit::None };
            let example = if unit == Unit::Bytes { "\">=16GiB\"" } else { "\">=2, <=8\"" };
            let takes = format!("a whole number or a range, as in {example}");
            let range = match value.get_ref() {
                DeValue::Integer(_) => whole_number(value)
                    .and_then(|number| u64::try_from(number).ok())
                    .map(|number| (number, number)),
                DeValue::String(range) => read_range(range, unit),
                _ => return Err(wrong(&takes)),
            };
            match range {
                Some((min, max)) if min <= max => Ok(Test::Between(min, max, unit)),
                Some(_) => Err(fault(format!("the fact `{name}` can never be in this range"))),
                None => Err(fault(format!("the fact `{name}` takes {takes}"))),
            }
        }
    }
}

/// One word or a list of words.
fn words(text: &Text<'_>, fact: Fact, value: &Spanned<DeValue<'_>>) -> Result<BTreeSet<String>, Fault> {
    let wrong = |value: &Spanned<DeValue<'_>>| {
        let message =
            format!("the fact `{}` takes a word or a list of words, not {}", fact.name(), kind_of(value));
        text.fault(value.span().start, message)
    };
    match value.get_ref() {
        DeValue::String(word) => Ok([word.to_string()].into()),
        DeValue::Array(list) if list.is_empty() => Err(text
            .fault(value.span().start, format!("the fact `{}` can never be in an empty list", fact.name()))),
        DeValue::Array(list) => {
            list.iter().map(|it| it.get_ref().as_str().map(str::to_owned).ok_or_else(|| wrong(it))).collect()
        }
        _ => Err(wrong(value)),
    }
}

/// Reads `>=2, <8`, with units of memory where there are some.
fn read_range(text: &str, unit: Unit) -> Option<(u64, u64)> {
    let mut range = (0, u64::MAX);
    for limit in text.split(',') {
        let limit = limit.trim();
        let (sign, rest) = limit.split_at(limit.find(|it: char| it.is_ascii_digit() || it == ' ')?);
        let number = read_number(rest.trim(), unit)?;
        let (min, max) = match sign {
            ">=" => (number, u64::MAX),
            ">" => (number.checked_add(1)?, u64::MAX),
            "<=" => (0, number),
            "<" => (0, number.checked_sub(1)?),
            "=" | "" => (number, number),
            _ => return None,
        };
        range = (range.0.max(min), range.1.min(max));
    }
    Some(range)
}

fn read_number(text: &str, unit: Unit) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let found = units.iter().find_map(|(name, shift)| Some((text.strip_suffix(name)?.trim(), 1 << shift)));
    let (number, size): (&str, u64) = match found {
        Some(found) if unit == Unit::Bytes => found,
        Some(_) => return None,
        None => (text, 1),
    };
    number.parse::<u64>().ok()?.checked_mul(size)
}
