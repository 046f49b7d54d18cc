//! What there is, from variables of the environment or from whoever opened this copy of the library.

use crate::code::Code;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Bytes of a device that states none.
const PLAIN_MEMORY: u64 = 4 << 30;
/// HIP 6.3.
const PLAIN_VERSION: i32 = 60_342_134;
const PLAIN_DELAY_US: u64 = 50;

/// A device that there is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    pub target: String,
    pub memory: u64,
    pub is_integrated: bool,
}

/// A call that fails: its name, after how many that do not, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub call: String,
    pub after: u64,
    pub code: Code,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub devices: Vec<DeviceConfig>,
    pub no_peer: Vec<(usize, usize)>,
    pub version: i32,
    pub faults: Vec<Fault>,
    pub delay_us: u64,
}

/// What was set for this copy of the library.
static GIVEN: LazyLock<Mutex<HashMap<String, String>>> = LazyLock::new(Mutex::default);

/// Sets what a variable of the environment sets otherwise.
pub fn set(name: &str, value: &str) {
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), value.to_owned());
}

fn get(name: &str) -> Option<String> {
    let given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    given.or_else(|| std::env::var(name).ok())
}

impl Config {
    /// Reads the variables. What cannot be read is said on standard error and left out: a C library has no better way.
    pub fn read() -> Self {
        let list = |name: &str| -> Vec<String> {
            let text = get(name).unwrap_or_default();
            text.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
        };
        fn all<T>(name: &str, words: Vec<String>, read: impl Fn(&str) -> Option<T>) -> Vec<T> {
            let read = |word: String| {
                let value = read(&word);
                if value.is_none() {
                    eprintln!("hip double: {name}: `{word}` is not understood");
                }
                value
            };
            words.into_iter().filter_map(read).collect()
        }
        let devices = all("HIP_DOUBLE_DEVICES", list("HIP_DOUBLE_DEVICES"), device);
        let number = |name: &str| get(name).and_then(|text| text.trim().parse::<u64>().ok());
        Self {
            devices: visible(devices, get("HIP_VISIBLE_DEVICES").as_deref()),
            no_peer: all("HIP_DOUBLE_NO_PEER", list("HIP_DOUBLE_NO_PEER"), pair),
            version: number("HIP_DOUBLE_VERSION").and_then(|it| it.try_into().ok()).unwrap_or(PLAIN_VERSION),
            faults: all("HIP_DOUBLE_FAULTS", list("HIP_DOUBLE_FAULTS"), fault),
            delay_us: number("HIP_DOUBLE_DELAY_US").unwrap_or(PLAIN_DELAY_US),
        }
    }
}

fn device(word: &str) -> Option<DeviceConfig> {
    let mut parts = word.split(':');
    let target = parts.next().filter(|target| target.starts_with("gfx"))?.to_owned();
    let mut device = DeviceConfig { target, memory: PLAIN_MEMORY, is_integrated: false };
    for part in parts {
        match part {
            "integrated" => device.is_integrated = true,
            size => {
                let scales = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
                let (number, shift) =
                    scales.iter().find_map(|(unit, shift)| Some((size.strip_suffix(unit)?, shift)))?;
                device.memory = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
            }
        }
    }
    Some(device)
}

fn pair(word: &str) -> Option<(usize, usize)> {
    let (a, b) = word.split_once('-')?;
    Some((a.parse().ok()?, b.parse().ok()?))
}

fn fault(word: &str) -> Option<Fault> {
    let mut parts = word.split(':');
    let (call, after, code) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then(|| Fault { call: call.to_owned(), after, code })
}

/// The devices that the list of numbers shows, in its order, up to the first number that names none.
fn visible(devices: Vec<DeviceConfig>, list: Option<&str>) -> Vec<DeviceConfig> {
    let Some(list) = list else { return devices };
    list.split(',').map_while(|word| devices.get(word.trim().parse::<usize>().ok()?).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read() {
        let plain = DeviceConfig { target: "gfx906".into(), memory: PLAIN_MEMORY, is_integrated: false };
        assert_eq!(device("gfx906"), Some(plain.clone()));
        assert_eq!(device("gfx906:16GiB"), Some(DeviceConfig { memory: 16 << 30, ..plain.clone() }));
        let shared = DeviceConfig { target: "gfx1151".into(), memory: 96 << 20, is_integrated: true };
        assert_eq!(device("gfx1151:96MiB:integrated"), Some(shared));
        for wrong in ["sm_90", "gfx906:16", "gfx906:xGiB", "gfx906:99999999999999999999GiB"] {
            assert_eq!(device(wrong), None, "{wrong}");
        }
        assert_eq!(fault("hipMalloc:3:2"), Some(Fault { call: "hipMalloc".into(), after: 3, code: 2 }));
        assert_eq!((fault("hipMalloc"), fault("a:b:c"), fault("a:1:2:3")), (None, None, None));
        assert_eq!((pair("0-12"), pair("0"), pair("x-1")), (Some((0, 12)), None, None));
    }

    #[test]
    fn only_visible_devices_are_shown() {
        let all: Vec<_> = ["gfx906", "gfx1030", "gfx1101"].iter().filter_map(|word| device(word)).collect();
        let shown = |list| -> Vec<String> {
            visible(all.clone(), list).into_iter().map(|device| device.target).collect()
        };
        assert_eq!(shown(None), ["gfx906", "gfx1030", "gfx1101"]);
        assert_eq!(shown(Some("2,0")), ["gfx1101", "gfx906"]);
        assert_eq!(shown(Some("1,7,0")), ["gfx1030"]);
        assert!(shown(Some("")).is_empty() && shown(Some("-1")).is_empty());
    }
}
