//! What a user may set: the memory of a device, and its faults.

use paceline_plugin_api::Result;
use paceline_plugin_api::settings::{Setting, SettingType, Settings, Stage};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const fn count(key: &'static str, max: i64, unit: &'static str, doc: &'static str) -> Setting {
    Setting {
        key,
        kind: SettingType::Integer { default: 0, min: 0, max },
        stage: Stage::Placement,
        unit,
        doc,
    }
}

/// The schema; the descriptor says the same.
pub const SETTINGS: &[Setting] = &[
    count("memory", 1 << 40, "bytes", "Memory that arenas may take; 0 takes all that the device has."),
    count(
        "fail_allocation",
        1_000_000,
        "",
        "The arena, counted from 1, whose allocation fails; 0 lets none fail.",
    ),
    count(
        "lose_after",
        1_000_000_000,
        "launches",
        "Launches after which the device is lost; 0 never loses it.",
    ),
    count(
        "nan_after",
        1_000_000_000,
        "launches",
        "The launch, counted from 1, from which on results are not numbers; 0 leaves all as they are.",
    ),
    count(
        "nan_launches",
        1_000_000_000,
        "launches",
        "Launches whose results are not numbers, from `nan_after` on; 0 is all.",
    ),
    Setting {
        key: "panic_in",
        kind: SettingType::Choice { options: &["none", "launch", "worker", "load", "import"] },
        stage: Stage::Placement,
        unit: "",
        doc: "The call, or the worker thread, that panics, once.",
    },
    count("panic_after", 1_000_000_000, "", "Times that the place of `panic_in` is passed before it panics."),
    count("slow_launch_ms", 600_000, "ms", "Time that every launch takes on top."),
];

/// The faults of one opened device.
pub(crate) struct Faults {
    /// Bytes that arenas may take; 0 is all.
    pub memory: u64,
    /// The arena whose allocation fails; 0 is none.
    pub fail_allocation: u64,
    /// Launches before the loss; 0 is no loss.
    pub lose_after: u64,
    /// Time on top of every launch.
    pub slow_launch: Duration,
    nan_after: u64,
    nan_launches: u64,
    panic_in: &'static str,
    panic_after: u64,
    /// Times that the place of the panic was reached.
    reached: AtomicU64,
}

impl Faults {
    /// Reads settings.
    pub fn read(given: &[(String, String)]) -> Result<Self> {
        let settings = Settings::read(SETTINGS, given)?;
        let number = |key: &str| settings.integer(key).unsigned_abs();
        Ok(Self {
            memory: number("memory"),
            fail_allocation: number("fail_allocation"),
            lose_after: number("lose_after"),
            slow_launch: Duration::from_millis(number("slow_launch_ms")),
            nan_after: number("nan_after"),
            nan_launches: number("nan_launches"),
            panic_in: settings.choice("panic_in"),
            panic_after: number("panic_after"),
            reached: AtomicU64::new(0),
        })
    }

    /// Panics if this is the place and the time.
    pub fn panic_at(&self, place: &str, device: &str) {
        if self.panic_in == place && self.reached.fetch_add(1, Ordering::Relaxed) == self.panic_after {
            panic!("{device}: the setting `panic_in` is `{place}`");
        }
    }

    /// True if the results of a launch, counted from 1, are not numbers.
    pub fn spoils(&self, launch: u64) -> bool {
        let is_reached = self.nan_after > 0 && launch >= self.nan_after;
        is_reached && (self.nan_launches == 0 || launch - self.nan_after < self.nan_launches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(given: &[(&str, &str)]) -> Faults {
        let given: Vec<_> = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Faults::read(&given).unwrap()
    }

    #[test]
    fn launches_are_spoiled_from_the_first_on_for_as_many_as_asked() {
        let spoiled = |faults: Faults| (1..=5).filter(|&launch| faults.spoils(launch)).collect::<Vec<_>>();
        assert!(spoiled(faults(&[])).is_empty());
        assert_eq!(spoiled(faults(&[("nan_after", "3")])), [3, 4, 5]);
        assert_eq!(spoiled(faults(&[("nan_after", "2"), ("nan_launches", "2")])), [2, 3]);
    }

    #[test]
    fn a_place_panics_once_after_so_many_passes() {
        let faults = faults(&[("panic_in", "load"), ("panic_after", "2")]);
        let panics = |place: &str| {
            let call = || faults.panic_at(place, "sim:0");
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err()
        };
        assert!(!panics("launch"));
        assert_eq!([0; 5].map(|_| panics("load")), [false, false, true, false, false]);
    }

    #[test]
    fn the_descriptor_says_the_same() {
        let descriptor = crate::DESCRIPTOR;
        assert_eq!(descriptor.matches("[[setting]]").count(), SETTINGS.len());
        for setting in SETTINGS {
            assert!(descriptor.contains(&format!("key = \"{}\"", setting.key)), "{}", setting.key);
            assert!(descriptor.contains(&format!("doc = \"{}\"", setting.doc)), "{}", setting.key);
            match setting.kind {
                SettingType::Integer { min, max, .. } => {
                    assert!(descriptor.contains(&format!("range = [{min}, {max}]")), "{}", setting.key);
                }
                SettingType::Choice { options } => {
                    assert!(descriptor.contains(&format!("options = {options:?}")), "{}", setting.key);
                }
                _ => unreachable!("no setting is of another type"),
            }
        }
    }
}
