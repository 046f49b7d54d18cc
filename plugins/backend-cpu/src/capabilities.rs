//! What `plan` needs to know of a device, and what a user may set.

use crate::level::Level;
use paceline_plugin_api::settings::{Setting, SettingType, Settings, Stage};
use paceline_plugin_api::{Error, Result};

/// Plans leave room for at least this many threads, so that `threads` may exceed the processors.
const LEAST_PLANNED_THREADS: usize = 16;

/// The settings of a device.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        key: "threads",
        kind: SettingType::Integer { default: 0, min: 0, max: 512 },
        stage: Stage::Placement,
        unit: "threads",
        doc: "Threads that work on a launch, the waiting one included; 0 takes every processor.",
    },
    Setting {
        key: "level",
        kind: SettingType::Choice { options: &["auto", "scalar", "avx2", "avx512-vnni", "neon"] },
        stage: Stage::Placement,
        unit: "",
        doc: "Instruction level of the kernels; every level gives the same bits.",
    },
];

/// Number of processors that this process may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What a plan depends on: only how many threads need scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// Threads that a plan leaves scratch for.
    pub threads: usize,
}

impl Capabilities {
    pub fn of_this_machine() -> Self {
        Self { threads: processors().max(LEAST_PLANNED_THREADS) }
    }

    pub fn to_text(self) -> String {
        format!("threads={}", self.threads)
    }

    pub fn parse(text: &str) -> Result<Self> {
        text.strip_prefix("threads=")
            .and_then(|count| count.parse().ok())
            .filter(|count| (1..=4096).contains(count))
            .map(|threads| Self { threads })
            .ok_or_else(|| Error::invalid(format!("`{text}` are not capabilities of the CPU backend")))
    }
}

/// The settings of one device, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceSettings {
    pub threads: usize,
    pub level: Level,
}

impl DeviceSettings {
    pub fn read(given: &[(String, String)]) -> Result<Self> {
        let settings = Settings::read(SETTINGS, given)?;
        let threads = match settings.integer("threads") {
            0 => processors(),
            count => count as usize,
        };
        let planned = Capabilities::of_this_machine().threads;
        if threads > planned {
            return Err(Error::invalid(format!(
                "setting `threads` cannot be {threads}: at most {planned} on this machine"
            )));
        }
        let level = match settings.choice("level") {
            "auto" => Level::detect(),
            name => name.parse::<Level>().map_err(|e| Error::invalid(e.to_string()))?,
        };
        if !level.is_available() {
            return Err(Error::unsupported(format!(
                "setting `level` cannot be `{level}`: this processor lacks it; it has {}",
                Level::available().iter().map(|l| l.name()).collect::<Vec<_>>().join(", ")
            )));
        }
        Ok(Self { threads, level })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_read_back() {
        let capabilities = Capabilities::of_this_machine();
        assert_eq!(Capabilities::parse(&capabilities.to_text()), Ok(capabilities));
        for wrong in ["", "threads=", "threads=0", "threads=x", "cores=3"] {
            assert!(Capabilities::parse(wrong).is_err(), "{wrong}");
        }
    }
}
