//! Writing GGUF files.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::header::MAGIC;
use crate::shard::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, check_alignment};
use crate::shard_name::shard_file_name;
use crate::split::{COUNT_KEY, NUMBER_KEY, TENSORS_KEY};
use crate::tensor::tensor_bytes;
use crate::write_value::encode_str;
use crate::{Error, Fault, Gguf, Limits, MAX_DIMS, Origin, Result, TensorType, Value, ValueRef};

/// The version written; version 2 differs only in its number.
const VERSION: u32 = 3;

/// Collects metadata and tensors, then writes them as one file or several.
///
/// Keys and tensors keep the order in which they were added. Faults in what was added (names that
/// repeat, sizes that do not fit the shape) show when writing.
#[derive(Debug, Clone)]
pub struct Writer<'a> {
    metadata: Vec<(String, Value)>,
    tensors: Vec<Tensor<'a>>,
}

#[derive(Debug, Clone)]
struct Tensor<'a> {
    name: String,
    dims: Vec<u64>,
    tensor_type: TensorType,
    bytes: Cow<'a, [u8]>,
}

impl<'a> Writer<'a> {
    /// Starts a file for a model of `architecture`, which becomes the first key.
    pub fn new(architecture: &str) -> Self {
        let metadata = vec![("general.architecture".to_owned(), architecture.into())];
        Writer { metadata, tensors: Vec::new() }
    }

    /// Starts with all metadata and tensors of `model`, in their order. The tensors' bytes are not copied until they
    /// are written. A split model becomes a whole one, so the keys that number its parts are left out.
    ///
    /// # Errors
    /// [`Fault::CannotWrite`] for text that is not UTF-8.
    pub fn copy_of(model: &'a Gguf) -> Result<Self> {
        let mut writer = Writer { metadata: Vec::new(), tensors: Vec::new() };
        let of_parts = [NUMBER_KEY, COUNT_KEY, TENSORS_KEY];
        for (key, value) in model.entries().filter(|(key, _)| !of_parts.contains(key)) {
            let value = Value::try_from(value).map_err(|problem| {
                let what = format!("the value of metadata key '{key}': {problem}");
                Error::new(model.origin(), Fault::CannotWrite { what })
            })?;
            writer.metadata(key, value);
        }
        for tensor in model.tensors() {
            let bytes = model.stored_bytes(&tensor)?;
            writer.tensor(tensor.name, tensor.dims, tensor.tensor_type, bytes);
        }
        Ok(writer)
    }

    /// Adds a key.
    pub fn metadata(&mut self, key: impl Into<String>, value: impl Into<Value>) -> &mut Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Adds a tensor: 1 to 4 dimensions, the contiguous one first, and its bytes as they stand in
    /// the file. Bytes of unknown types are taken as they are.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        dims: &[u64],
        tensor_type: TensorType,
        bytes: impl Into<Cow<'a, [u8]>>,
    ) -> &mut Self {
        let (name, bytes) = (name.into(), bytes.into());
        self.tensors.push(Tensor { name, dims: dims.to_vec(), tensor_type, bytes });
        self
    }

    /// Sets the alignment of tensor data, bytes: a multiple of 8 up to 1 MiB. Without it, 32.
    /// Added as the key `general.alignment`.
    pub fn alignment(&mut self, alignment: u32) -> &mut Self {
        self.metadata(ALIGNMENT_KEY, alignment)
    }

    /// Writes one file to `out`.
    ///
    /// # Errors
    /// [`Fault::CannotWrite`] if the file would not be valid, before anything is written, and
    /// [`Fault::Io`] if `out` fails.
    pub fn write_to(&self, out: &mut impl Write) -> Result<()> {
        self.check().and_then(|()| write_model(&self.metadata, &self.tensors, out)).map_err(memory_error)
    }

    /// Writes one file at `path`, replacing what is there.
    ///
    /// # Errors
    /// As [`Writer::write_to`].
    pub fn write_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let origin = Origin::File(path.as_ref().to_owned());
        self.check()
            .and_then(|()| write_file(&self.metadata, &self.tensors, path.as_ref()))
            .map_err(|fault| Error::new(&origin, fault))
    }

    /// Writes the model as `shards` files `stem-00001-of-0000N.gguf` in `folder`, with tensors
    /// spread evenly and all metadata in the first, and returns their paths.
    ///
    /// # Errors
    /// As [`Writer::write_to`]; also if `shards` is 0 or more than the format can number.
    pub fn write_split(&self, folder: impl AsRef<Path>, stem: &str, shards: u16) -> Result<Vec<PathBuf>> {
        self.check().map_err(memory_error)?;
        if shards == 0 {
            let what = "a model cannot be split into 0 files".to_owned();
            return Err(memory_error(Fault::CannotWrite { what }));
        }
        let count = usize::from(shards);
        let mut paths = Vec::with_capacity(count);
        for index in 0..shards {
            let number = usize::from(index);
            let bounds = [number, number + 1].map(|number| self.tensors.len() * number / count);
            let path = folder.as_ref().join(shard_file_name(stem, u32::from(index) + 1, u32::from(shards)));
            write_file(&self.shard_metadata(index, shards), &self.tensors[bounds[0]..bounds[1]], &path)
                .map_err(|fault| Error::new(&Origin::File(path.clone()), fault))?;
            paths.push(path);
        }
        Ok(paths)
    }

    fn shard_metadata(&self, index: u16, shards: u16) -> Vec<(String, Value)> {
        // Later parts carry no metadata of the model, but each has an alignment of its own.
        let mut metadata: Vec<_> =
            self.metadata.iter().filter(|(key, _)| index == 0 || key == ALIGNMENT_KEY).cloned().collect();
        metadata.push((NUMBER_KEY.to_owned(), index.into()));
        metadata.push((COUNT_KEY.to_owned(), shards.into()));
        metadata.push((TENSORS_KEY.to_owned(), (self.tensors.len() as i32).into()));
        metadata
    }

    /// Refuses what would make an invalid file.
    fn check(&self) -> Result<(), Fault> {
        let limits = Limits::default();
        let refuse = |what: String| Err(Fault::CannotWrite { what });
        if self.metadata.len() as u64 > limits.keys || self.tensors.len() as u64 > limits.tensors {
            return refuse(format!("{} keys and {} tensors", self.metadata.len(), self.tensors.len()));
        }
        let mut keys = HashSet::new();
        for (key, _) in &self.metadata {
            if !keys.insert(key) {
                return refuse(format!("metadata key '{key}' was added twice"));
            }
            if key.len() as u64 > limits.key_bytes {
                return refuse(format!("a metadata key is {} bytes long", key.len()));
            }
        }
        let mut names = HashSet::new();
        for Tensor { name, dims, tensor_type, bytes } in &self.tensors {
            if !names.insert(name) {
                return refuse(format!("tensor '{name}' was added twice"));
            }
            if name.len() as u64 > limits.tensor_name_bytes {
                return refuse(format!("the name of a tensor is {} bytes long", name.len()));
            }
            if dims.is_empty() || dims.len() > MAX_DIMS {
                return refuse(format!("tensor '{name}' has {} dimensions", dims.len()));
            }
            match tensor_bytes(dims, *tensor_type) {
                Err(problem) => return refuse(format!("tensor '{name}' of shape {dims:?}: {problem}")),
                // 0 stands for a type of unknown size, which still cannot be empty.
                Ok(0) if !bytes.is_empty() => {}
                Ok(needed) if needed > 0 && needed == bytes.len() as u64 => {}
                Ok(needed) => {
                    let has = bytes.len();
                    return refuse(format!(
                        "tensor '{name}' of shape {dims:?} and type {tensor_type} has {has} bytes, not {needed}"
                    ));
                }
            }
        }
        alignment(&self.metadata).map(|_| ())
    }
}

fn memory_error(fault: Fault) -> Error {
    Error::new(&Origin::Memory, fault)
}

fn alignment(metadata: &[(String, Value)]) -> Result<u64, Fault> {
    match metadata.iter().find(|(key, _)| key == ALIGNMENT_KEY) {
        None => Ok(DEFAULT_ALIGNMENT.into()),
        Some((_, Value::U32(value))) => {
            check_alignment(&ValueRef::U32(*value), &Limits::default()).map(u64::from)
        }
        Some((_, other)) => {
            let what = format!("metadata key '{ALIGNMENT_KEY}' must be u32, not {}", other.value_type());
            Err(Fault::CannotWrite { what })
        }
    }
}

fn write_file(metadata: &[(String, Value)], tensors: &[Tensor<'_>], path: &Path) -> Result<(), Fault> {
    let failed = |source| Fault::Io { action: "write the file", source };
    let mut out = BufWriter::new(File::create(path).map_err(failed)?);
    write_model(metadata, tensors, &mut out)?;
    out.flush().map_err(failed)
}

fn write_model(
    metadata: &[(String, Value)],
    tensors: &[Tensor<'_>],
    out: &mut impl Write,
) -> Result<(), Fault> {
    let alignment = alignment(metadata)?;
    let padding = |length: u64| (length.next_multiple_of(alignment) - length) as usize;

    let mut tables = MAGIC.to_vec();
    tables.extend(VERSION.to_le_bytes());
    tables.extend((tensors.len() as u64).to_le_bytes());
    tables.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        encode_str(key, &mut tables);
        tables.extend(value.value_type().id().to_le_bytes());
        value.encode(&mut tables);
    }
    let mut offset = 0_u64;
    for tensor in tensors {
        encode_str(&tensor.name, &mut tables);
        tables.extend((tensor.dims.len() as u32).to_le_bytes());
        tensor.dims.iter().for_each(|dim| tables.extend(dim.to_le_bytes()));
        tables.extend(tensor.tensor_type.id().to_le_bytes());
        tables.extend(offset.to_le_bytes());
        offset += (tensor.bytes.len() as u64).next_multiple_of(alignment);
    }
    tables.resize(tables.len() + padding(tables.len() as u64), 0);

    let mut write = || -> io::Result<()> {
        out.write_all(&tables)?;
        for tensor in tensors {
            out.write_all(&tensor.bytes)?;
            out.write_all(&vec![0; padding(tensor.bytes.len() as u64)])?;
        }
        Ok(())
    };
    write().map_err(|source| Fault::Io { action: "write the file", source })
}
