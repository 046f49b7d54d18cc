//! The text that plans depend on, and the settings of a device.

use crate::driver::DeviceFacts;
use crate::program::Leads;
use paceline_plugin_api::backend::Captures;
use paceline_plugin_api::settings::{Setting, SettingType, Settings, Stage};
use paceline_plugin_api::{Error, Result};

/// Whether steps are captured; a setting of every platform.
pub const GRAPHS: Setting = Setting {
    key: "graphs",
    kind: SettingType::Bool { default: true },
    stage: Stage::Placement,
    unit: "",
    doc: "Whether a step is captured once and replayed; without it every kernel is launched by itself, with the same \
          bits.",
};

/// Whether kernels overlap; a setting of platforms whose devices can.
pub const OVERLAP: Setting = Setting {
    key: "overlap",
    kind: SettingType::Bool { default: true },
    stage: Stage::Placement,
    unit: "",
    doc: "Whether a kernel is started while the one before it ends, on devices that can; the bits are the same.",
};

/// Whether products make their rows themselves; a setting of platforms that have kernels for it.
pub const FUSION: Setting = Setting {
    key: "fusion",
    kind: SettingType::Choice { options: &["none", "all", "norms", "joins", "gates"] },
    stage: Stage::Placement,
    unit: "",
    doc: "What a product of up to 16 rows does itself, without a launch of its own, before it multiplies: norms, what joins \
          the parts of attention, gates, all of these or nothing; the bits are the same.",
};

/// How products of prompts are computed; a setting of platforms that have kernels for it.
pub const PROMPTS: Setting = Setting {
    key: "prompts",
    kind: SettingType::Choice { options: &["bf16", "int8"] },
    stage: Stage::Placement,
    unit: "",
    doc: "How steps of more than 64 rows multiply with quantised weights, on devices of compute capability 9.0: in bf16, which is \
          faster and nearer to exact, or in int8 as fewer rows do, with the same bits as those.",
};

/// Whether kernels are timed; a setting of every platform.
pub const PROFILE: Setting = Setting {
    key: "profile",
    kind: SettingType::Bool { default: false },
    stage: Stage::Placement,
    unit: "",
    doc: "Whether every kernel is timed, and the times are logged when the device is closed; slower, and without graphs.",
};

/// The settings that every platform has.
pub const SETTINGS: &[Setting] = &[GRAPHS, PROFILE];

/// What a plan depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// What kernels are compiled for.
    pub target: String,
    /// Lanes that run together.
    pub wave: u32,
    /// Compute units.
    pub units: u32,
    /// Bytes of memory.
    pub memory: u64,
}

impl Capabilities {
    pub fn of(facts: &DeviceFacts) -> Self {
        let DeviceFacts { target, wave, units, memory, .. } = facts;
        Self { target: target.clone(), wave: *wave, units: *units, memory: *memory }
    }

    pub fn to_text(&self) -> String {
        let Self { target, wave, units, memory } = self;
        format!("target={target} wave={wave} units={units} memory={memory}")
    }

    pub fn parse(text: &str, platform: &str) -> Result<Self> {
        let wrong = || Error::invalid(format!("`{text}` are not capabilities of the backend `{platform}`"));
        let mut words = text.split(' ');
        let mut word = |key: &str| words.next()?.strip_prefix(key)?.strip_prefix('=');
        let target = word("target").filter(|target| !target.is_empty()).ok_or_else(wrong)?.to_owned();
        let mut number = |key: &str| word(key)?.parse::<u64>().ok();
        let mut count =
            |key: &str| number(key).and_then(|count| u32::try_from(count).ok()).filter(|&c| c > 0);
        let (wave, units) = (count("wave").ok_or_else(wrong)?, count("units").ok_or_else(wrong)?);
        let memory = number("memory").ok_or_else(wrong)?;
        if words.next().is_some() {
            return Err(wrong());
        }
        Ok(Self { target, wave, units, memory })
    }
}

/// The settings of one device, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceSettings {
    /// Only where the driver can.
    pub graphs: bool,
    /// Why not, if not.
    pub why_no_graphs: &'static str,
    /// Only where the device can.
    pub overlap: bool,
    pub fusion: Fusion,
    /// Whether products of many rows may be in bf16.
    pub bf16: bool,
    pub profile: bool,
}

impl DeviceSettings {
    /// Whether steps are captured, before any were.
    pub fn captures(&self) -> Captures {
        Captures { is_captured: self.graphs, reason: self.why_no_graphs, ..Captures::default() }
    }
}

/// The choices of [`FUSION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fusion {
    Nothing,
    All,
    Only(Leads),
}

impl Fusion {
    fn of(word: &str) -> Self {
        match word {
            "all" => Self::All,
            "norms" => Self::Only(Leads::Norms),
            "joins" => Self::Only(Leads::Joins),
            "gates" => Self::Only(Leads::Gates),
            _ => Self::Nothing,
        }
    }

    /// True if products of this kind make their rows themselves.
    pub fn has(self, leads: Leads) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Only(only) => only == leads,
        }
    }
}

impl DeviceSettings {
    /// The settings for a device; without one, whether they can be read at all.
    pub fn read(schema: &[Setting], given: &[(String, String)], facts: Option<&DeviceFacts>) -> Result<Self> {
        let settings = Settings::read(schema, given)?;
        let profile = settings.bool(PROFILE.key);
        let has_overlap = schema.iter().any(|setting| setting.key == OVERLAP.key);
        let why_no_graphs = match facts {
            Some(facts) if !facts.captures => "the driver does not capture",
            _ if profile => "every kernel is timed by itself: the setting `profile`",
            _ if !settings.bool(GRAPHS.key) => "the setting `graphs` is off",
            _ => "",
        };
        Ok(Self {
            graphs: facts.is_some() && why_no_graphs.is_empty(),
            why_no_graphs,
            // Times of single kernels mean something only if each ends before the next begins.
            overlap: has_overlap
                && settings.bool(OVERLAP.key)
                && facts.is_some_and(|facts| facts.overlaps)
                && !profile,
            // Nothing where there is no such setting.
            fusion: Fusion::of(settings.choice(FUSION.key)),
            bf16: settings.choice(PROMPTS.key) != "int8",
            profile,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Driver;
    use crate::driver::double::DoubleDriver;

    #[test]
    fn capabilities_read_back() {
        let h200 = Capabilities { target: "sm_90".into(), wave: 32, units: 132, memory: 150_754_820_096 };
        assert_eq!(h200.to_text(), "target=sm_90 wave=32 units=132 memory=150754820096");
        assert_eq!(Capabilities::parse(&h200.to_text(), "cuda"), Ok(h200));
        for wrong in [
            "",
            "target=sm_90",
            "target= wave=32 units=132 memory=1",
            "target=sm_90 wave=32 units=0 memory=1",
            "target=sm_90 wave=0 units=1 memory=1",
            "target=sm_90 wave=x units=1 memory=1",
            "threads=3",
            "target=sm_90 wave=32 units=132 memory=1 more",
        ] {
            let error = Capabilities::parse(wrong, "cuda").unwrap_err();
            assert!(error.message.contains("`cuda`"), "{wrong}");
        }
    }

    #[test]
    fn settings_follow_what_the_device_can() {
        let schema = [GRAPHS, OVERLAP, FUSION, PROMPTS, PROFILE];
        let able = DoubleDriver::leaked().facts(0).unwrap();
        let given = |key: &str, value: &str| {
            DeviceSettings::read(&schema, &[(key.into(), value.into())], Some(&able))
        };
        let read = |facts: &DeviceFacts| DeviceSettings::read(&schema, &[], Some(facts));
        let all = DeviceSettings {
            why_no_graphs: "",
            graphs: true,
            overlap: true,
            fusion: Fusion::Nothing,
            bf16: true,
            profile: false,
        };
        assert_eq!(read(&able), Ok(all));
        assert_eq!(
            read(&DeviceFacts { overlaps: false, ..able.clone() }),
            Ok(DeviceSettings { overlap: false, ..all })
        );
        assert_eq!(
            read(&DeviceFacts { captures: false, ..able.clone() }),
            Ok(DeviceSettings { graphs: false, why_no_graphs: "the driver does not capture", ..all })
        );
        let off = "the setting `graphs` is off";
        assert_eq!(given("graphs", "false"), Ok(DeviceSettings { graphs: false, why_no_graphs: off, ..all }));
        assert_eq!(
            given("profile", "true"),
            Ok(DeviceSettings {
                graphs: false,
                why_no_graphs: "every kernel is timed by itself: the setting `profile`",
                overlap: false,
                profile: true,
                ..all
            })
        );
        let only = Fusion::Only(Leads::Joins);
        assert_eq!(given("fusion", "joins"), Ok(DeviceSettings { fusion: only, ..all }));
        assert_eq!([Leads::Joins, Leads::Norms].map(|leads| only.has(leads)), [true, false]);
        assert_eq!(given("prompts", "int8"), Ok(DeviceSettings { bf16: false, ..all }));
        assert!(given("graph", "true").unwrap_err().message.contains("graphs"));
        let without = DeviceSettings::read(SETTINGS, &[], Some(&able));
        assert_eq!(without, Ok(DeviceSettings { overlap: false, ..all }));
        assert!(DeviceSettings::read(SETTINGS, &[("overlap".into(), "true".into())], None).is_err());
    }
}
