//! What a plugin's answer may depend on beside the plugin itself.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::descriptor::AbiRange;
use crate::identity::{FileIdentity, sha256_of_text};

/// Kernel modules of drivers.
const MODULES: [&str; 5] = ["amdgpu", "i915", "nvidia", "nvidia_uvm", "xe"];
/// Libraries of drivers.
const LIBRARIES: [&str; 8] = [
    "libamdhip64.so",
    "libamdhip64.so.5",
    "libamdhip64.so.6",
    "libamdhip64.so.7",
    "libcuda.so.1",
    "libhsa-runtime64.so.1",
    "libze_intel_gpu.so.1",
    "libze_loader.so.1",
];
/// Where distributions put libraries of drivers, from the root.
pub(crate) const FOLDERS: [&str; 8] = [
    "lib64",
    "usr/lib",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/wsl/lib",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/local/lib",
    "opt/rocm/lib",
];

/// What a verdict depends on beside the file.
pub(crate) enum Surroundings<'a> {
    /// On nothing.
    Any,
    /// On this host, on the descriptor, which may be another file, and on the libraries that the system's loader
    /// would find.
    Loading { environment: &'a [(OsString, OsString)], descriptor: &'a str },
    /// On the drivers too.
    Drivers { environment: &'a [(OsString, OsString)], descriptor: &'a str, drivers: &'a str },
}

impl Surroundings<'_> {
    /// One text for the same surroundings.
    pub fn text(&self) -> String {
        let host = format!("host {} abi {}", env!("CARGO_PKG_VERSION"), AbiRange::HOST);
        match self {
            Self::Any => "any".to_owned(),
            Self::Loading { environment, descriptor } => {
                let libraries = environment.iter().filter(|(name, _)| name == "LD_LIBRARY_PATH");
                format!("{host} loader {}", hash(&[descriptor, &loader()], libraries))
            }
            Self::Drivers { environment, descriptor, drivers } => {
                format!("{host} drivers {}", hash(&[descriptor, &loader(), drivers], environment.iter()))
            }
        }
    }
}

fn hash<'a>(texts: &[&str], environment: impl Iterator<Item = &'a (OsString, OsString)>) -> String {
    let environment: Vec<_> = environment.collect();
    sha256_of_text(&format!("{texts:?}{environment:?}"))
}

/// Changes when libraries are installed in the usual places.
fn loader() -> String {
    stamp(Path::new("/etc/ld.so.cache")).unwrap_or_default()
}

/// Versions of the drivers that are installed under a root.
pub(crate) fn drivers(root: &Path) -> String {
    let mut found = Vec::new();
    found.extend(line(&root.join("proc/sys/kernel/osrelease")).map(|release| format!("kernel {release}")));
    for module in MODULES {
        let folder = root.join("sys/module").join(module);
        // Modules that come with the kernel have its version.
        let version = line(&folder.join("version")).or_else(|| folder.exists().then(|| "present".to_owned()));
        found.extend(version.map(|version| format!("{module} {version}")));
    }
    let libraries =
        FOLDERS.iter().flat_map(|folder| LIBRARIES.map(|library| root.join(folder).join(library)));
    found.extend(libraries.filter_map(|path| Some(format!("{} {}", path.display(), stamp(&path)?))));
    found.join("\n")
}

fn line(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn stamp(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    serde_json::to_string(&FileIdentity::of(&metadata)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_changes_changes_the_text() {
        let root = tempfile::tempdir().unwrap();
        let none = drivers(root.path());
        let module = root.path().join("sys/module/nvidia");
        fs::create_dir_all(&module).unwrap();
        fs::write(module.join("version"), "535.104.05\n").unwrap();
        let old = drivers(root.path());
        assert_eq!((none.as_str(), old.as_str()), ("", "nvidia 535.104.05"));
        fs::write(module.join("version"), "550.1\n").unwrap();
        let new = drivers(root.path());
        assert_ne!(old, new);
        let folder = root.path().join("opt/rocm/lib");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("libamdhip64.so.6"), "").unwrap();
        assert_ne!(new, drivers(root.path()));
    }

    #[test]
    fn only_what_matters_counts() {
        let variable = |name: &str| [(OsString::from(name), OsString::from("x"))];
        let (library, driver) = (variable("LD_LIBRARY_PATH"), variable("CUDA_VISIBLE_DEVICES"));
        let loading = |environment| Surroundings::Loading { environment, descriptor: "" }.text();
        assert_ne!(loading(&[]), loading(&library));
        assert_eq!(loading(&[]), loading(&driver));
        let with_drivers =
            |environment| Surroundings::Drivers { environment, descriptor: "", drivers: "" }.text();
        assert_ne!(with_drivers(&[]), with_drivers(&driver));
    }
}
