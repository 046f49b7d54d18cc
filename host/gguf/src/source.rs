//! Where a file's bytes are kept: mapped, read into memory, or given by the caller.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use memmap2::{Mmap, MmapMut};

use crate::map::{map_file, release_pages};
use crate::{Fault, Origin};

/// How a file's bytes are brought into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Load {
    /// Map the file: quick to open, pages are read when first touched and shared between
    /// processes. The file must not be changed while it is open.
    #[default]
    Map,
    /// Read the whole file into memory of its own, for files that may change or lie on a slow or
    /// unsteady network drive.
    Read,
}

/// The bytes of one file and where they came from.
pub(crate) struct Source {
    pub(crate) origin: Origin,
    storage: Storage,
}

enum Storage {
    Map(Mmap),
    /// Anonymous maps start on a page, so tensors keep the alignment they have in the file.
    Read(Mmap),
    Static(&'static [u8]),
    Owned(Vec<u8>),
}

impl Source {
    pub(crate) fn from_static(bytes: &'static [u8]) -> Self {
        Source { origin: Origin::Memory, storage: Storage::Static(bytes) }
    }

    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Self {
        Source { origin: Origin::Memory, storage: Storage::Owned(bytes) }
    }

    pub(crate) fn open(path: &Path, load: Load) -> Result<Self, Fault> {
        let failed = |action| move |source| Fault::Io { action, source };
        // Asked before opening, because opening a pipe waits for its other end.
        if !std::fs::metadata(path).map_err(failed("open the file"))?.is_file() {
            return Err(Fault::NotAFile);
        }
        let mut file = File::open(path).map_err(failed("open the file"))?;
        let length = file.metadata().map_err(failed("ask for the file's length"))?.len();
        let storage = if length == 0 {
            // Empty maps are refused by some systems.
            Storage::Static(&[])
        } else {
            match load {
                Load::Map => Storage::Map(map_file(&file).map_err(failed("map the file"))?),
                Load::Read => Storage::Read(read_all(&mut file, length).map_err(failed("read the file"))?),
            }
        };
        Ok(Source { origin: Origin::File(path.to_owned()), storage })
    }

    /// See [`crate::Gguf::release_pages`].
    pub(crate) fn release_pages(&self) {
        if let Storage::Map(map) = &self.storage {
            release_pages(map);
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Map(map) | Storage::Read(map) => map,
            Storage::Static(bytes) => bytes,
            Storage::Owned(bytes) => bytes,
        }
    }
}

fn read_all(file: &mut File, length: u64) -> std::io::Result<Mmap> {
    let length = usize::try_from(length).map_err(std::io::Error::other)?;
    let mut memory = MmapMut::map_anon(length)?;
    file.read_exact(&mut memory)?;
    memory.make_read_only()
}
