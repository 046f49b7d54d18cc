//! Trying a plugin in a process of its own, where it may crash, hang or exit.
//!
//! The parent starts a program of its choice, which calls [`probe_main`], with a pipe in the place of its standard
//! input. The child moves the pipe out of the way before any code of the plugin runs, and answers through it:
//! magic, length, JSON. Only a whole answer is one; an exit code says nothing, since a plugin may exit by itself.

mod child;
mod frame;
#[cfg(unix)]
mod prober;
#[cfg(not(unix))]
#[path = "no_prober.rs"]
mod prober;
#[cfg(unix)]
mod watch;

use std::fmt;

use paceline_plugin_api::backend::{DeviceInfo, DeviceKind};
use serde::{Deserialize, Serialize};

pub use child::probe_main;
pub use prober::Prober;

/// What a plugin is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// To be loaded, with the drivers' libraries that it needs, and to say what it is. Asks no driver for anything.
    Describe,
    /// For its devices. May touch a driver.
    Devices,
    /// To be loaded by its name alone: it is a driver's library and no plugin.
    Driver,
}

impl Phase {
    /// The phase's word on the child's command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Describe => "describe",
            Self::Devices => "devices",
            Self::Driver => "driver",
        }
    }

    /// The phase with that word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Describe, Self::Devices, Self::Driver].into_iter().find(|phase| phase.word() == word)
    }

    fn present(self) -> &'static str {
        match self {
            Self::Describe | Self::Driver => "while it is loaded",
            Self::Devices => "when it is asked for its devices",
        }
    }

    fn past(self) -> &'static str {
        match self {
            Self::Describe | Self::Driver => "while it was loaded",
            Self::Devices => "when it was asked for its devices",
        }
    }
}

/// What came of trying a plugin.
pub type Verdict<T> = Result<T, Failure>;

/// What a plugin says about itself when it is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// Interfaces that it offers, of those that this host knows.
    pub interfaces: Vec<String>,
}

/// A driver's library that the system's loader found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundDriver {
    /// The file, if the system tells.
    pub path: Option<String>,
}

/// A device that a plugin found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbedDevice {
    /// Name for people.
    pub name: String,
    /// Kind in a word: cpu, discrete, integrated or software.
    pub kind: String,
    /// PCI address or UUID of the hardware.
    pub physical_id: String,
    /// Architecture.
    pub arch: String,
    /// Total memory in bytes.
    pub memory_total: u64,
}

impl From<DeviceInfo> for ProbedDevice {
    fn from(device: DeviceInfo) -> Self {
        let kind = match device.kind {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Discrete => "discrete",
            DeviceKind::Integrated => "integrated",
            DeviceKind::Software => "software",
        };
        Self {
            name: device.name,
            kind: kind.to_owned(),
            physical_id: device.physical_id,
            arch: device.arch,
            memory_total: device.memory_total,
        }
    }
}

/// How a plugin failed when it was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What it was asked for.
    pub phase: Phase,
    /// What happened.
    pub cause: Cause,
    /// The end of what it wrote to standard error.
    pub stderr: String,
    /// What the same file found when it was last asked for its devices and answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Box<Earlier>>,
}

/// Devices that a plugin found at an earlier time, and that it may find again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earlier {
    /// How long ago that was, in seconds.
    pub seconds_ago: u64,
    /// The devices.
    pub devices: Vec<ProbedDevice>,
}

impl fmt::Display for Earlier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = match self.seconds_ago {
            seconds @ 0..60 => (seconds, "s"),
            seconds @ 60..3600 => (seconds / 60, "min"),
            seconds @ 3600..172_800 => (seconds / 3600, "h"),
            seconds => (seconds / 86_400, "days"),
        };
        write!(f, "{number} {unit} ago it found ")?;
        if self.devices.is_empty() {
            return f.write_str("no device");
        }
        for (index, device) in self.devices.iter().enumerate() {
            write!(f, "{}\"{}\"", if index > 0 { ", " } else { "" }, device.name.escape_debug())?;
        }
        Ok(())
    }
}

/// What happened to a plugin that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// It was refused, or reported an error, in an orderly way.
    Refused {
        /// Why; goes on from the name of the plugin.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The system's loader refused it, most often because of a library that may be installed at any time.
    NotLoadable {
        /// Why; goes on from the name of the plugin.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A signal ended its process.
    Crashed {
        /// Number of the signal.
        signal: i32,
    },
    /// It did not answer in time.
    TimedOut {
        /// The time that it had.
        limit_ms: u64,
    },
    /// Its process ended without an answer.
    NoAnswer {
        /// Exit code of the process.
        exit_code: i32,
    },
    /// It was not tried: an earlier run of the host ended while it had the plugin do this.
    EndedAnEarlierRun,
}

impl Failure {
    /// What to do about it, if there is something to say.
    pub fn hint(&self) -> Option<&str> {
        match &self.cause {
            Cause::Refused { hint, .. } | Cause::NotLoadable { hint, .. } => hint.as_deref(),
            _ => Some(
                "it is tried again when the file changes, after some time, or at once after `paceline plugins rescan`",
            ),
        }
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_cause(f)?;
        self.earlier.as_ref().map_or(Ok(()), |earlier| write!(f, "; {earlier}"))
    }
}

impl Failure {
    pub(crate) fn new(phase: Phase, cause: Cause) -> Self {
        Self { phase, cause, stderr: String::new(), earlier: None }
    }

    fn write_cause(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = self.phase;
        match &self.cause {
            Cause::Refused { reason, .. } | Cause::NotLoadable { reason, .. } => return f.write_str(reason),
            Cause::Crashed { signal } => {
                write!(f, "crashes {} (signal {signal}{})", phase.present(), signal_name(*signal))?;
            }
            Cause::TimedOut { limit_ms } => {
                write!(f, "did not answer within {} s {}", *limit_ms as f64 / 1e3, phase.past())?;
            }
            Cause::NoAnswer { exit_code } => {
                write!(f, "ends its process {}, with exit code {exit_code}", phase.present())?;
            }
            Cause::EndedAnEarlierRun => {
                write!(f, "is not used: an earlier run of this program ended {}", phase.past())?;
            }
        }
        match last_line(&self.stderr) {
            Some(line) => write!(f, "; the last that it wrote is {line:?}"),
            None => Ok(()),
        }
    }
}

/// The last line of a text that is not empty, not too long for a message.
fn last_line(text: &str) -> Option<String> {
    const LONGEST: usize = 200;

    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(LONGEST).collect())
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => ", illegal instruction",
        6 => ", abort",
        7 => ", bus error",
        8 => ", arithmetic error",
        9 => ", killed",
        11 => ", bad memory access",
        31 => ", bad system call",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line() {
        let failure = |cause| Failure {
            phase: Phase::Describe,
            cause,
            stderr: "first\nlast \u{1b}[31mwords\n\n".to_owned(),
            earlier: None,
        };
        assert_eq!(
            failure(Cause::Crashed { signal: 11 }).to_string(),
            "crashes while it is loaded (signal 11, bad memory access); the last that it wrote is \
             \"last \\u{1b}[31mwords\""
        );
        let silent = Failure { stderr: String::new(), ..failure(Cause::TimedOut { limit_ms: 1500 }) };
        assert_eq!(silent.to_string(), "did not answer within 1.5 s while it was loaded");
    }

    #[test]
    fn what_was_found_earlier_is_told_with_its_age() {
        let device = |name: &str| ProbedDevice {
            name: name.to_owned(),
            kind: "discrete".to_owned(),
            physical_id: String::new(),
            arch: String::new(),
            memory_total: 0,
        };
        let text = |seconds_ago, names: &[&str]| {
            let devices = names.iter().map(|name| device(name)).collect();
            let earlier = Some(Box::new(Earlier { seconds_ago, devices }));
            Failure { earlier, ..Failure::new(Phase::Devices, Cause::Crashed { signal: 6 }) }.to_string()
        };
        let crash = "crashes when it is asked for its devices (signal 6, abort)";
        assert_eq!(text(59, &["A", "B\n"]), format!("{crash}; 59 s ago it found \"A\", \"B\\n\""));
        assert_eq!(text(60, &["A"]), format!("{crash}; 1 min ago it found \"A\""));
        assert_eq!(text(3600 * 47, &["A"]), format!("{crash}; 47 h ago it found \"A\""));
        assert_eq!(text(3600 * 49, &[]), format!("{crash}; 2 days ago it found no device"));
    }

    #[test]
    fn a_failure_is_kept_as_json() {
        let failure = Failure::new(Phase::Devices, Cause::Refused { reason: "no".to_owned(), hint: None });
        let verdict: Verdict<Described> = Err(failure);
        let text = serde_json::to_string(&verdict).unwrap();
        assert_eq!(serde_json::from_str::<Verdict<Described>>(&text).unwrap(), verdict);
    }
}
