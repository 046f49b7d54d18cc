//! The inventory: which devices are simulated.
//!
//! A text of entries `kind:arch:memory` with commas between them, such as `rocm:gfx906:32GiB,cuda:sm_90:80GiB`. The
//! kind is the id of the backend whose devices are meant. An entry may end with `:without=OPERATION`: plans for that
//! device refuse the operation.

use paceline_plugin_api::graph::ops;
use paceline_plugin_api::settings::nearest;
use paceline_plugin_api::{Error, Result};

/// The environment variable that holds the inventory.
pub const VARIABLE: &str = "PACELINE_SIM_DEVICES";
/// The inventory when the variable is not set.
pub const DEFAULT: &str = "rocm:gfx906:32GiB,cuda:sm_90:80GiB";

/// What a device can do, as its capabilities begin.
const CAPABILITIES: &str = "sim/1";
/// Units of memory sizes, the longer ones first.
const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// One simulated device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Id of the backend whose devices it resembles.
    pub kind: String,
    /// Architecture.
    pub arch: String,
    /// Memory in bytes.
    pub memory: u64,
    /// An operation that its plans refuse.
    pub without: Option<String>,
}

impl Profile {
    /// What layouts and plans need to know of the device.
    pub fn capabilities(&self) -> String {
        match &self.without {
            Some(operation) => format!("{CAPABILITIES} without {operation}"),
            None => CAPABILITIES.to_owned(),
        }
    }

    /// The device in error texts.
    pub fn label(&self, index: usize) -> String {
        format!("sim:{index} ({} {})", self.kind, self.arch)
    }

    fn parse(entry: &str) -> Result<Self, String> {
        let parts: Vec<&str> = entry.split(':').map(str::trim).collect();
        let (kind, arch, memory, without) = match parts[..] {
            [kind, arch, memory] => (kind, arch, memory, None),
            [kind, arch, memory, without] => (kind, arch, memory, Some(without)),
            _ => return Err(format!("it has {} parts", parts.len())),
        };
        let is_word = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        };
        for (what, text) in [("kind", kind), ("architecture", arch)] {
            if !is_word(text) {
                return Err(format!("`{text}` is no {what}"));
            }
        }
        let memory =
            bytes(memory).ok_or_else(|| format!("`{memory}` is no size of memory, such as 32GiB"))?;
        let without = without.map(operation).transpose()?;
        Ok(Self { kind: kind.into(), arch: arch.into(), memory, without })
    }
}

/// Bytes of a text such as `80GiB`; more than none.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)))?;
    number.trim().parse::<u64>().ok()?.checked_mul(unit).filter(|&bytes| bytes > 0)
}

fn operation(part: &str) -> Result<String, String> {
    let name = part.strip_prefix("without=").ok_or_else(|| format!("`{part}` is not `without=OPERATION`"))?;
    if ops::all().any(|(known, _)| known == name) {
        return Ok(name.to_owned());
    }
    let hint = nearest(name, ops::all().map(|(known, _)| known));
    Err(format!(
        "there is no operation `{name}`{}",
        hint.map_or(String::new(), |h| format!("; did you mean `{h}`?"))
    ))
}

/// Reads an inventory; an empty text has no device.
///
/// # Errors
/// An entry that is malformed, with the variable that it comes from.
pub fn parse(text: &str) -> Result<Vec<Profile>> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let read = |entry: &str| {
        Profile::parse(entry).map_err(|what| {
            Error::invalid(format!(
                "{VARIABLE}: entry `{entry}` is malformed: {what}; write kind:arch:memory[:without=OPERATION], \
                 such as {DEFAULT}"
            ))
        })
    };
    text.split(',').map(read).collect()
}

/// The inventory of this process.
///
/// # Errors
/// As for [`parse`].
pub fn of_environment() -> Result<Vec<Profile>> {
    match std::env::var(VARIABLE) {
        Ok(text) => parse(&text),
        Err(std::env::VarError::NotPresent) => parse(DEFAULT),
        Err(std::env::VarError::NotUnicode(_)) => Err(Error::invalid(format!("{VARIABLE} is not UTF-8"))),
    }
}

/// The operation that capabilities lack.
///
/// # Errors
/// Capabilities that are not of this backend.
pub fn lacking(capabilities: &str) -> Result<Option<&str>> {
    match capabilities.strip_prefix(CAPABILITIES) {
        Some("") => Ok(None),
        Some(rest) if rest.starts_with(" without ") => Ok(rest.strip_prefix(" without ")),
        _ => Err(Error::invalid(format!("capabilities `{capabilities}` are not those of backend `sim`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read() {
        let devices = parse("rocm:gfx906:32GiB, sycl:xe-hpg:512MiB:without=rope").unwrap();
        assert_eq!((devices[0].kind.as_str(), devices[0].memory), ("rocm", 32 << 30));
        assert_eq!((devices[1].arch.as_str(), devices[1].memory), ("xe-hpg", 512 << 20));
        assert_eq!(lacking(&devices[0].capabilities()), Ok(None));
        assert_eq!(lacking(&devices[1].capabilities()), Ok(Some("rope")));
        assert_eq!(devices[1].label(1), "sim:1 (sycl xe-hpg)");
        assert_eq!(parse(" "), Ok(Vec::new()));
        assert_eq!(parse(DEFAULT).unwrap().len(), 2);
    }

    #[test]
    fn malformed_entries_are_named() {
        for (text, what) in [
            ("rocm:gfx906", "entry `rocm:gfx906` is malformed: it has 2 parts"),
            ("rocm::1GiB", "`` is no architecture"),
            ("rocm:gfx906:32", "`32` is no size of memory"),
            ("rocm:gfx906:0GiB", "`0GiB` is no size of memory"),
            ("rocm:gfx906:99999999999TiB", "is no size of memory"),
            ("rocm:gfx906:1GiB,", "entry `` is malformed"),
            ("rocm:gfx906:1GiB:rope", "`rope` is not `without=OPERATION`"),
            ("rocm:gfx906:1GiB:without=ropes", "there is no operation `ropes`; did you mean `rope`?"),
        ] {
            let message = parse(text).unwrap_err().message;
            assert!(message.starts_with("PACELINE_SIM_DEVICES: ") && message.contains(what), "{message}");
        }
    }
}
