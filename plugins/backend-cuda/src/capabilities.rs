//! What `layout_weights` and `plan` need to know of a device, and what a user may set.

use crate::driver::DeviceFacts;
use paceline_plugin_api::settings::{Setting, SettingType, Settings, Stage};
use paceline_plugin_api::{Error, Result};

/// The oldest compute capability that there are kernels for, as the number 10·major + minor.
pub(crate) const OLDEST_SM: u32 = 80;

/// The oldest that can start a kernel before the one in front of it has ended.
const FIRST_OVERLAPPING_SM: u32 = 90;

/// The settings of a device.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        key: "graphs",
        kind: SettingType::Bool { default: true },
        stage: Stage::Placement,
        unit: "",
        doc: "Whether a step is captured once and replayed; without it every kernel is launched by itself, with the \
              same bits.",
    },
    Setting {
        key: "overlap",
        kind: SettingType::Bool { default: true },
        stage: Stage::Placement,
        unit: "",
        doc: "Whether a kernel is started while the one before it ends, on devices that can; the bits are the same.",
    },
    Setting {
        key: "profile",
        kind: SettingType::Bool { default: false },
        stage: Stage::Placement,
        unit: "",
        doc: "Whether every kernel is timed, and the times are logged when the device is closed; slower, and without \
              graphs.",
    },
];

/// What a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// Compute capability, as the number 10·major + minor.
    pub sm: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory: u64,
}

impl Capabilities {
    pub fn of(facts: &DeviceFacts) -> Self {
        let (major, minor) = facts.compute_capability;
        Self { sm: major * 10 + minor, multiprocessors: facts.multiprocessors, memory: facts.memory }
    }

    pub fn to_text(self) -> String {
        let Self { sm, multiprocessors, memory } = self;
        format!("sm={sm} multiprocessors={multiprocessors} memory={memory}")
    }

    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || Error::invalid(format!("`{text}` are not capabilities of the CUDA backend"));
        let mut words = text.split(' ');
        let mut number =
            |key: &str| -> Option<u64> { words.next()?.strip_prefix(key)?.strip_prefix('=')?.parse().ok() };
        let sm = number("sm").and_then(|sm| u32::try_from(sm).ok()).ok_or_else(wrong)?;
        let multiprocessors = number("multiprocessors")
            .and_then(|count| u32::try_from(count).ok())
            .filter(|&count| count > 0)
            .ok_or_else(wrong)?;
        let memory = number("memory").ok_or_else(wrong)?;
        if words.next().is_some() {
            return Err(wrong());
        }
        if sm < OLDEST_SM {
            return Err(Error::unsupported(too_old(sm)));
        }
        Ok(Self { sm, multiprocessors, memory })
    }
}

/// Why a device of this compute capability is of no use.
pub(crate) fn too_old(sm: u32) -> String {
    format!(
        "there are no kernels for compute capability {}.{}; {}.{} is the oldest that there are kernels for",
        sm / 10,
        sm % 10,
        OLDEST_SM / 10,
        OLDEST_SM % 10
    )
}

/// The settings of one device, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceSettings {
    pub graphs: bool,
    /// Only where the device can.
    pub overlap: bool,
    pub profile: bool,
}

impl DeviceSettings {
    /// The settings for a device of this compute capability.
    pub fn read(given: &[(String, String)], sm: u32) -> Result<Self> {
        let settings = Settings::read(SETTINGS, given)?;
        let profile = settings.bool("profile");
        Ok(Self {
            graphs: settings.bool("graphs") && !profile,
            // Times of single kernels mean something only if each ends before the next begins.
            overlap: settings.bool("overlap") && sm >= FIRST_OVERLAPPING_SM && !profile,
            profile,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Capabilities = Capabilities { sm: 90, multiprocessors: 132, memory: 150_754_820_096 };

    #[test]
    fn capabilities_read_back() {
        assert_eq!(H200.to_text(), "sm=90 multiprocessors=132 memory=150754820096");
        assert_eq!(Capabilities::parse(&H200.to_text()), Ok(H200));
        for wrong in [
            "",
            "sm=90",
            "sm=90 multiprocessors=0 memory=1",
            "sm=x multiprocessors=1 memory=1",
            "threads=3",
            "sm=90 multiprocessors=132 memory=1 more",
        ] {
            assert!(Capabilities::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// The descriptor can be read without loading the plugin, so it says the same.
    #[test]
    fn the_descriptor_has_these_settings() {
        for setting in SETTINGS {
            let key = format!("key = \"{}\"", setting.key);
            let doc = format!("doc = \"{}\"", setting.doc);
            assert!(crate::DESCRIPTOR.contains(&key) && crate::DESCRIPTOR.contains(&doc), "{}", setting.key);
        }
        assert_eq!(crate::DESCRIPTOR.matches("[[setting]]").count(), SETTINGS.len());
    }

    #[test]
    fn an_old_device_is_refused_by_its_number() {
        let error = Capabilities::parse("sm=75 multiprocessors=40 memory=1").unwrap_err();
        assert!(error.message.contains("7.5") && error.message.contains("8.0"), "{}", error.message);
    }

    #[test]
    fn profiling_switches_graphs_and_overlap_off() {
        let given = |key: &str, value: &str, sm| DeviceSettings::read(&[(key.into(), value.into())], sm);
        let all = DeviceSettings { graphs: true, overlap: true, profile: false };
        assert_eq!(DeviceSettings::read(&[], 90), Ok(all));
        assert_eq!(DeviceSettings::read(&[], 89), Ok(DeviceSettings { overlap: false, ..all }));
        let timed = DeviceSettings { graphs: false, overlap: false, profile: true };
        assert_eq!(given("profile", "true", 90), Ok(timed));
        assert_eq!(given("graphs", "false", 90), Ok(DeviceSettings { graphs: false, ..all }));
        assert!(given("graph", "true", 90).unwrap_err().message.contains("graphs"));
    }
}
