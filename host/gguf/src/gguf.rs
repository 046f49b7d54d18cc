//! A model: one GGUF file, or all the files of a split one.

use std::path::Path;

use crate::fault_log::FaultLog;
use crate::metadata::Metadata;
use crate::shard::{Shard, read_shard};
use crate::source::Source;
use crate::split::{self, Part};
use crate::tensor::{TensorTable, bytes_in_layout};
use crate::{Error, Fault, Limits, Load, Origin, Result, TensorInfo, TypeLayout, ValueRef};

/// How [`Gguf::open`] works. The default maps the file, under the default limits.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// How the bytes come into memory.
    pub load: Load,
    /// How much a file may ask for.
    pub limits: Limits,
}

/// An open model. All its tables are checked; its bytes stay where they are.
///
/// It can be shared between threads. Metadata is that of the first file of a split model.
pub struct Gguf {
    /// In order of the parts; never empty.
    sources: Vec<Source>,
    version: u32,
    metadata: Metadata,
    tensors: TensorTable,
}

impl Gguf {
    /// Opens a model by the path of its file, or of any one file of a split model.
    ///
    /// # Errors
    /// The first fault found. Missing parts of a split model are named before any is opened.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let sources = open_sources(path.as_ref(), options)?;
        Self::assemble_strict(sources, &options.limits)
    }

    /// Opens a model that is part of the program, as by `include_bytes!`.
    ///
    /// Bytes keep the alignment that the program gave them, which may be 1.
    ///
    /// # Errors
    /// The first fault found.
    pub fn from_static(bytes: &'static [u8]) -> Result<Self> {
        Self::assemble_strict(vec![Source::from_static(bytes)], &Limits::default())
    }

    /// Opens a model from bytes in memory; they are kept, not copied.
    ///
    /// # Errors
    /// The first fault found.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        Self::assemble_strict(vec![Source::from_bytes(bytes)], &Limits::default())
    }

    fn assemble_strict(sources: Vec<Source>, limits: &Limits) -> Result<Self> {
        assemble(sources, limits, &mut FaultLog::Strict)
    }

    /// The GGUF version of the (first) file: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// `general.architecture`, the name that tells how the tensors make a model.
    ///
    /// # Errors
    /// If the key is missing or not text.
    pub fn architecture(&self) -> Result<&str> {
        self.require_str("general.architecture")
    }

    /// Where the files come from, in the order of their parts; at least one.
    pub fn origins(&self) -> impl ExactSizeIterator<Item = &Origin> {
        self.sources.iter().map(|source| &source.origin)
    }

    /// Length of all files together, bytes.
    pub fn file_bytes(&self) -> u64 {
        self.sources.iter().map(|source| source.bytes().len() as u64).sum()
    }

    /// Number of metadata keys.
    pub fn key_count(&self) -> usize {
        self.metadata.len()
    }

    /// All metadata in the order of the file.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&str, ValueRef<'_>)> {
        self.metadata.iter(self.metadata_bytes())
    }

    /// The value of `key` as it is, for values that may have more than one type. The typed
    /// accessors give better errors.
    pub fn value(&self, key: &str) -> Option<ValueRef<'_>> {
        self.metadata.value(self.metadata_bytes(), key)
    }

    /// Number of tensors in all files.
    pub fn tensor_count(&self) -> usize {
        self.tensors.records.len()
    }

    /// All tensors in the order of the files.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = TensorInfo<'_>> {
        (0..self.tensor_count()).map(|index| self.tensors.info(index))
    }

    /// The tensor with that name.
    pub fn tensor(&self, name: &str) -> Option<TensorInfo<'_>> {
        self.tensors.find(name)
    }

    /// The tensor with that name; a missing one is an error.
    ///
    /// # Errors
    /// [`Fault::MissingTensor`].
    pub fn require_tensor(&self, name: &str) -> Result<TensorInfo<'_>> {
        self.tensor(name)
            .ok_or_else(|| Error::new(self.origin(), Fault::MissingTensor { name: name.to_owned() }))
    }

    /// The bytes of a tensor of this model, exactly as many as its shape and type take.
    ///
    /// # Errors
    /// [`Fault::UnknownTensorType`] if the type's layout is not known.
    pub fn tensor_bytes(&self, tensor: &TensorInfo<'_>) -> Result<&[u8]> {
        let name = || tensor.name.to_owned();
        let source = self.source_of(tensor)?;
        if tensor.tensor_type.layout().is_none() {
            let fault = Fault::UnknownTensorType { name: name(), id: tensor.tensor_type.id() };
            return Err(Error::new(&source.origin, fault));
        }
        Self::range_of(source, tensor)
    }

    /// The bytes of a tensor whose type this crate has no layout for, as many as its shape takes in a layout that the
    /// caller knows. A type that has a layout here keeps it.
    ///
    /// # Errors
    /// [`Fault::TensorShape`] if the rows are not whole blocks, [`Fault::DeclaredTypeTooLarge`] if there is no room for
    /// so many bytes before the next tensor or the end of the file.
    pub fn tensor_bytes_as(&self, tensor: &TensorInfo<'_>, layout: TypeLayout) -> Result<&[u8]> {
        if tensor.tensor_type.layout().is_some() {
            return self.tensor_bytes(tensor);
        }
        let source = self.source_of(tensor)?;
        let fault = |fault| Error::new(&source.origin, fault);
        let (name, dims, tensor_type) = (tensor.name.to_owned(), tensor.dims.to_vec(), tensor.tensor_type);
        let needed = match bytes_in_layout(&dims, layout) {
            Ok(needed) => needed,
            Err(problem) => return Err(fault(Fault::TensorShape { name, dims, tensor_type, problem })),
        };
        if needed > tensor.byte_len {
            let room = tensor.byte_len;
            return Err(fault(Fault::DeclaredTypeTooLarge { name, id: tensor_type.id(), needed, room }));
        }
        Self::range_of(source, &TensorInfo { byte_len: needed, ..*tensor })
    }

    /// The bytes of a tensor of any type as they lie in the file, [`TensorInfo::byte_len`] of them.
    pub(crate) fn stored_bytes(&self, tensor: &TensorInfo<'_>) -> Result<&[u8]> {
        Self::range_of(self.source_of(tensor)?, tensor)
    }

    /// Gives back the memory that pages of mapped files take, once tensors were copied elsewhere: nobody else counts it
    /// as in use then. They are read again when they are touched.
    pub fn release_pages(&self) {
        self.sources.iter().for_each(Source::release_pages);
    }

    fn source_of(&self, tensor: &TensorInfo<'_>) -> Result<&Source> {
        let foreign = || Error::new(self.origin(), Fault::ForeignTensor { name: tensor.name.to_owned() });
        self.sources.get(tensor.shard).ok_or_else(foreign)
    }

    fn range_of<'s>(source: &'s Source, tensor: &TensorInfo<'_>) -> Result<&'s [u8]> {
        let name = || tensor.name.to_owned();
        // The range is certain for tensors of this model, but the caller may mix up two models.
        let range = usize::try_from(tensor.offset).ok().zip(usize::try_from(tensor.byte_len).ok());
        range
            .and_then(|(start, length)| source.bytes().get(start..start.checked_add(length)?))
            .ok_or_else(|| Error::new(&source.origin, Fault::ForeignTensor { name: name() }))
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.sources[0].origin
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub(crate) fn metadata_bytes(&self) -> &[u8] {
        self.sources[0].bytes()
    }
}

impl std::fmt::Debug for Gguf {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Gguf")
            .field("origin", self.origin())
            .field("files", &self.sources.len())
            .field("keys", &self.key_count())
            .field("tensors", &self.tensor_count())
            .finish()
    }
}

/// Brings all files of a model into memory, none of them if one is missing.
pub(crate) fn open_sources(path: &Path, options: &OpenOptions) -> Result<Vec<Source>> {
    let failed = |path: &Path, fault| Error::new(&Origin::File(path.to_owned()), fault);
    split::locate(path, &options.limits)
        .map_err(|fault| failed(path, fault))?
        .iter()
        .map(|part| Source::open(part, options.load).map_err(|fault| failed(part, fault)))
        .collect()
}

/// Reads and checks all files. Faults go to `log`, except the one that ends the walk through the
/// first file: without its metadata there is no model to return.
pub(crate) fn assemble(sources: Vec<Source>, limits: &Limits, log: &mut FaultLog) -> Result<Gguf> {
    let mut tensors = TensorTable::default();
    let mut shards: Vec<Result<Shard>> = Vec::with_capacity(sources.len());
    for (index, source) in sources.iter().enumerate() {
        let tensors_before = tensors.records.len();
        // Lossless: the number of parts is limited to 16 bits when they are located.
        let shard = index as u16;
        let mut on_fault = |fault| log.admit(&source.origin, fault);
        let read = read_shard(source.bytes(), shard, limits, &mut tensors, &mut on_fault)
            .map_err(|fault| Error::new(&source.origin, fault));
        match read {
            Err(error) if log.is_strict() => return Err(error),
            Err(_) => tensors.truncate(tensors_before),
            Ok(_) => {}
        }
        shards.push(read);
    }
    check_parts(&sources, &shards, tensors.records.len(), log)?;
    tensors.index(&mut |first, second| {
        let other = (first.shard != second.shard).then(|| sources[first.shard].origin.to_string());
        let fault = Fault::DuplicateTensor { name: second.name.to_owned(), other };
        log.admit_error(Error::new(&sources[second.shard].origin, fault))
    })?;
    let first = shards.remove(0);
    for error in shards.into_iter().filter_map(Result::err) {
        log.admit_error(error)?;
    }
    let Shard { version, metadata } = first?;
    Ok(Gguf { sources, version, metadata, tensors })
}

/// Checks that the files are one model. Those that could not be read are left out.
fn check_parts(
    sources: &[Source],
    shards: &[Result<Shard>],
    tensor_count: usize,
    log: &mut FaultLog,
) -> Result<()> {
    let parts = || {
        sources.iter().zip(shards).enumerate().filter_map(|(index, (source, shard))| {
            let metadata = &shard.as_ref().ok()?.metadata;
            Some((index, &source.origin, Part { metadata, bytes: source.bytes() }))
        })
    };
    let count = sources.len();
    for (index, origin, part) in parts() {
        let checked = if count == 1 { part.check_whole(origin) } else { part.check_member(index, count) };
        checked.or_else(|fault| log.admit_error(Error::new(origin, fault)))?;
    }
    // After all memberships: a stray file also upsets the count, but is the better explanation.
    if count > 1 && shards.iter().all(Result::is_ok) {
        for (index, origin, part) in parts() {
            let checked = part.check_tensor_count(index, tensor_count);
            checked.or_else(|fault| log.admit_error(Error::new(origin, fault)))?;
        }
    }
    Ok(())
}
