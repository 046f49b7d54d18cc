//! Collects what is known about this machine. What cannot be found out is left open.

use std::fs;
use std::path::Path;

use paceline_registry::{
    AbiRange, Candidate, Candidates, DriverSearch, Environment, Error, FileFault, KnownBackend, PluginStore,
    Prober, Registry, State, check_folder, processor_features,
};

use super::variables::meaning_of;
use super::{Driver, Facts, Folder, FolderState, Memory, PluginFact};
use crate::commands::plugins_state;

/// Features that kernels are written for, and those that later ones may be.
const FEATURES: [&str; 16] = [
    "avx",
    "avx2",
    "avx512bf16",
    "avx512bw",
    "avx512dq",
    "avx512f",
    "avx512fp16",
    "avx512vl",
    "avx512vnni",
    "avxvnni",
    "f16c",
    "fma",
    "neon",
    "dotprod",
    "i8mm",
    "sve",
];
/// Collects all facts. Drivers' libraries are loaded in a process of their own, and only with a prober.
pub fn collect(candidates: &Candidates, registry: &Registry, prober: Option<&Prober>) -> Facts {
    let environment = Environment::of_process();
    let (memory_total, memory_available) = (meminfo("MemTotal:"), meminfo("MemAvailable:"));
    let installed = environment.user_plugin_directory().map(PluginStore::new);
    Facts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        abi: AbiRange::HOST.to_string(),
        system: system(),
        processor: cpuinfo("model name").next(),
        features: processor_features()
            .into_iter()
            .filter(|name| FEATURES.contains(name))
            .map(str::to_owned)
            .collect(),
        cpu_backend: cpu_backend(registry),
        threads: [
            std::thread::available_parallelism().ok().map(usize::from),
            Some(cpuinfo("processor").count()).filter(|count| *count > 0),
        ],
        memory: Memory {
            total: memory_total,
            available: memory_available,
            limit: read("/sys/fs/cgroup/memory.max").and_then(|text| text.parse().ok()),
            huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|text| chosen(&text)),
        },
        variables: variables(),
        drivers: prober.map(drivers).unwrap_or_default(),
        folders: candidates.searched().iter().map(|path| folder(path)).collect(),
        cache: environment.cache_directory().map(|path| folder(&path)),
        lock_fault: installed.as_ref().and_then(|store| store.lock().err()).map(|error| {
            let remedy = error.hint().unwrap_or_default();
            [error.to_string(), remedy]
        }),
        plugins: plugins(candidates, registry, installed.as_ref()),
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn system() -> String {
    let release =
        read("/proc/sys/kernel/osrelease").map_or_else(String::new, |release| format!(", {release}"));
    format!("{} {}{release}", std::env::consts::OS, std::env::consts::ARCH)
}

/// The values of a key, one for each thread of the machine.
fn cpuinfo(key: &str) -> impl Iterator<Item = String> {
    let text = read("/proc/cpuinfo").unwrap_or_default();
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    };
    text.lines().filter_map(value).collect::<Vec<_>>().into_iter()
}

/// A number of kibibytes, as bytes.
fn meminfo(key: &str) -> Option<u64> {
    let text = read("/proc/meminfo")?;
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The word in brackets.
fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// What the built-in CPU backend calls its device.
fn cpu_backend(registry: &Registry) -> Option<String> {
    let backend = registry.find("cpu").ok()?.client.backend().ok()?;
    backend.devices().ok()?.into_iter().next().map(|device| device.arch)
}

fn variables() -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .filter(|(name, _)| meaning_of(name).is_some())
        .collect();
    variables.sort();
    variables
}

fn drivers(prober: &Prober) -> Vec<Driver> {
    let driver = |known: &'static KnownBackend| {
        let device = known.device_files.iter().find(|path| Path::new(path).exists()).cloned();
        let found = match known.find_driver(prober) {
            Ok(DriverSearch { found: Some((library, path)), .. }) => {
                return Driver {
                    known,
                    library,
                    device,
                    found: Ok(path.unwrap_or_else(|| "usable".to_owned())),
                };
            }
            Ok(search) => search.missing.into_iter().next().map(|(_, problem)| problem).unwrap_or_default(),
            Err(error) => format!("cannot be tried: {error}"),
        };
        let library = known.libraries.first().cloned().unwrap_or_default();
        Driver { known, library, device, found: Err(found) }
    };
    KnownBackend::all().iter().map(driver).collect()
}

fn folder(path: &Path) -> Folder {
    let state = match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => FolderState::Missing,
        Err(error) => FolderState::Faulty(format!("cannot be looked at: {error}"), permit(path)),
        Ok(metadata) if !metadata.is_dir() => {
            FolderState::Faulty("is no folder".to_owned(), "move it out of the way".to_owned())
        }
        Ok(metadata) => match (check_folder(path), fs::read_dir(path)) {
            (Err(fault), _) => untrusted(path, &fault),
            (Ok(()), Err(error)) => FolderState::Faulty(format!("cannot be listed: {error}"), permit(path)),
            (Ok(()), Ok(_)) => FolderState::Fine(mode(&metadata)),
        },
    };
    Folder { path: path.display().to_string(), state }
}

fn permit(path: &Path) -> String {
    format!("let yourself read {}", path.display())
}

fn untrusted(path: &Path, fault: &FileFault) -> FolderState {
    let path = path.display();
    match fault {
        FileFault::WorldWritableDirectory { mode } => FolderState::Faulty(
            format!("every user of this machine can write it (mode {mode:04o}), so nothing in it is loaded"),
            format!("if you trust what is in it, run `chmod o-w {path}`"),
        ),
        FileFault::ForeignDirectory { owner, .. } => FolderState::Faulty(
            format!("it belongs to user {owner}, who is neither you nor root, so nothing in it is loaded"),
            "use a folder of your own".to_owned(),
        ),
        other => FolderState::Faulty(other.to_string(), permit(Path::new(&path.to_string()))),
    }
}

#[cfg(unix)]
fn mode(metadata: &fs::Metadata) -> Option<u32> {
    Some(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o7777)
}

#[cfg(not(unix))]
fn mode(_: &fs::Metadata) -> Option<u32> {
    None
}

fn plugins(candidates: &Candidates, registry: &Registry, store: Option<&PluginStore>) -> Vec<PluginFact> {
    let files = candidates.list().iter().map(|candidate| of_file(candidate, registry));
    let built_in = registry.plugins().iter().map(|plugin| PluginFact {
        name: format!("{} {}", plugin.id(), plugin.client.version()),
        origin: plugin.origin.to_string(),
        state: if candidates.is_disabled(&plugin.id()) { "switched off" } else { "usable" }.to_owned(),
        hash: None,
        fault: None,
    });
    let lock = store.and_then(|store| Some((store.folder(), store.lock().ok()?)));
    let missing = lock.into_iter().flat_map(|(folder, lock)| {
        let is_gone = |name: &str| !folder.join(name).exists();
        let gone: Vec<_> = lock.files.into_iter().filter(|file| is_gone(&file.name)).collect();
        gone.into_iter().map(move |file| PluginFact {
            name: format!("{} {}", file.id, file.version),
            origin: folder.join(&file.name).display().to_string(),
            state: "was installed and is not there".to_owned(),
            hash: None,
            fault: Some(Some(format!(
                "install it again, or forget it with `paceline plugins remove {}@{}`",
                file.id, file.version
            ))),
        })
    });
    files.chain(built_in).chain(missing.collect::<Vec<_>>()).collect()
}

fn of_file(candidate: &Candidate, registry: &Registry) -> PluginFact {
    let (word, reason) = plugins_state(candidate, registry);
    let fault = match &candidate.state {
        State::Refused(Error::NotChosen { .. }) => None,
        State::Refused(error) => Some(error.hint()),
        _ => None,
    };
    let name = match &candidate.descriptor {
        Some(descriptor) => format!("{} {}", descriptor.id, descriptor.version),
        None => candidate.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    };
    PluginFact {
        name,
        origin: candidate.path.display().to_string(),
        state: reason.map_or_else(|| word.to_owned(), |reason| format!("{word}: {reason}")),
        hash: candidate.installed.as_ref().map(|_| "as it was installed"),
        fault,
    }
}
