//! All that can be known about a plugin file without running it.

use std::fs::File;
use std::path::{Path, PathBuf};

use paceline_plugin_api::abi::ENTRY_SYMBOL;
use paceline_plugin_api::descriptor::read_section;

use crate::descriptor::{AbiRange, Descriptor};
use crate::identity::FileIdentity;
use crate::shared_object::{self, DESCRIPTOR_LIMIT, SharedObject};
use crate::{FileFault, cpu_features, trust};

/// A file that passed all checks which can be made without running it.
pub(crate) struct Examined {
    pub identity: FileIdentity,
    pub descriptor: Descriptor,
    pub warnings: Vec<String>,
}

/// Why a file cannot be loaded, and what it says about itself as far as that could be read.
pub(crate) struct Rejected {
    pub fault: FileFault,
    pub descriptor: Option<Box<Descriptor>>,
}

impl From<FileFault> for Rejected {
    fn from(fault: FileFault) -> Self {
        Self { fault, descriptor: None }
    }
}

/// Examines the file at a canonical path.
pub(crate) fn examine(path: &Path) -> Result<Examined, Rejected> {
    // Asked before opening, because opening a pipe waits for its other end.
    let kind = std::fs::metadata(path).map_err(|source| FileFault::io("open it", source))?;
    if kind.is_dir() {
        return Err(FileFault::NotAFile("a directory").into());
    }
    if !kind.is_file() {
        return Err(FileFault::NotAFile("a pipe or device").into());
    }
    let file = File::open(path).map_err(|source| FileFault::io("open it", source))?;
    let metadata = file.metadata().map_err(|source| FileFault::io("ask for its owner and length", source))?;
    let mut library =
        if shared_object::KNOWN { Some(SharedObject::read(file, metadata.len())?) } else { None };
    let entries = match &mut library {
        Some(library) => library.entry_symbols()?,
        None => None,
    };
    let text = match &mut library {
        Some(library) => library.descriptor_section()?,
        None => None,
    };
    let descriptor = match text {
        Some(section) => embedded(&section)?,
        None => beside(path, entries.as_deref().unwrap_or_default())?,
    };
    let checks = || {
        if let Some(library) = &library {
            library.check_machine()?;
        }
        let warnings = trust::check(path, &metadata)?;
        check_usable(&descriptor, entries.as_deref())?;
        Ok(warnings)
    };
    match checks() {
        Ok(warnings) => Ok(Examined { identity: FileIdentity::of(&metadata), descriptor, warnings }),
        Err(fault) => Err(Rejected { fault, descriptor: Some(Box::new(descriptor)) }),
    }
}

/// The descriptor in a library's section.
fn embedded(section: &[u8]) -> Result<Descriptor, FileFault> {
    let text = read_section(section).map_err(|fault| FileFault::Descriptor(fault.to_string()))?;
    Descriptor::parse(text)
        .map_err(|fault| FileFault::Descriptor(format!("the descriptor in it is wrong at {fault}")))
}

/// The descriptor in the text file beside a library that has none inside.
fn beside(path: &Path, entries: &[String]) -> Result<Descriptor, FileFault> {
    let sidecar = sidecar(path);
    let shown = sidecar.display();
    let metadata = match std::fs::metadata(&sidecar) {
        Ok(metadata) => metadata,
        // Without a descriptor and without an entry it is some other library.
        Err(_) if entries.is_empty() => return Err(FileFault::NoPlugin),
        Err(_) => return Err(FileFault::NoDescriptor { sidecar }),
    };
    if !metadata.is_file() || metadata.len() > DESCRIPTOR_LIMIT {
        return Err(FileFault::Descriptor(format!(
            "{shown} beside it is no file of at most {DESCRIPTOR_LIMIT} bytes"
        )));
    }
    trust::check(&sidecar, &metadata)
        .map_err(|fault| FileFault::Sidecar { path: sidecar.clone(), fault: Box::new(fault) })?;
    let text = std::fs::read_to_string(&sidecar)
        .map_err(|error| FileFault::Descriptor(format!("{shown} beside it cannot be read: {error}")))?;
    Descriptor::parse(&text)
        .map_err(|fault| FileFault::Descriptor(format!("{shown} beside it is wrong at {fault}")))
}

/// Where the descriptor of a library lies that has none inside: `libx.so` has `libx.so.plugin.toml`.
pub(crate) fn sidecar(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".plugin.toml");
    name.into()
}

/// Checks that this program and this machine can use the plugin.
fn check_usable(descriptor: &Descriptor, entries: Option<&[String]>) -> Result<(), FileFault> {
    if !descriptor.abi.meets(AbiRange::HOST) {
        return Err(FileFault::OtherAbi { plugin: descriptor.abi });
    }
    if let Some(entries) = entries.filter(|entries| !entries.iter().any(|entry| entry == ENTRY_SYMBOL)) {
        return Err(FileFault::NoEntry { others: entries.to_vec() });
    }
    let (lacking, unknown) = cpu_features::missing(&descriptor.cpu_features);
    if lacking.is_empty() && unknown.is_empty() {
        return Ok(());
    }
    Err(FileFault::CpuFeatures { lacking, unknown })
}
