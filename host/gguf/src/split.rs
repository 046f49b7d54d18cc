//! Split models: finding all parts on disk, and checking that they belong together.

use std::path::{Path, PathBuf};

use crate::metadata::Metadata;
use crate::{Fault, Limits, Origin, ShardName};

pub(crate) const NUMBER_KEY: &str = "split.no";
pub(crate) const COUNT_KEY: &str = "split.count";
pub(crate) const TENSORS_KEY: &str = "split.tensors.count";

/// How many missing files a message names.
const NAMED_MISSING: usize = 5;

/// All files of the model that `path` is, or is one part of, in order.
///
/// Siblings are looked up by their exact names beside `path`, so neither the order of the folder
/// nor the names of folders matter. Nothing is opened.
pub(crate) fn locate(path: &Path, limits: &Limits) -> Result<Vec<PathBuf>, Fault> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()).and_then(ShardName::parse) else {
        return Ok(vec![path.to_owned()]);
    };
    // The format numbers parts in 16 bits, whatever limit the caller sets.
    let limit = limits.shards.min(u16::MAX.into());
    if name.total > limit {
        return Err(Fault::TooManyShards { total: name.total, limit });
    }
    let mut missing = 0;
    let mut names = Vec::new();
    let mut paths = Vec::new();
    for index in 1..=name.total {
        let sibling = name.sibling(index);
        let sibling_path = path.with_file_name(&sibling);
        if sibling_path.exists() {
            paths.push(sibling_path);
        } else {
            missing += 1;
            if names.len() < NAMED_MISSING {
                names.push(sibling);
            }
        }
    }
    if missing > 0 { Err(Fault::ShardsMissing { names, missing, total: name.total }) } else { Ok(paths) }
}

/// One part as seen by the checks below.
pub(crate) struct Part<'a> {
    pub(crate) metadata: &'a Metadata,
    pub(crate) bytes: &'a [u8],
}

impl Part<'_> {
    fn number(&self, key: &str) -> Result<Option<u64>, Fault> {
        self.metadata.fetch(self.bytes, key)
    }

    fn expect(&self, key: &'static str, expected: u64, required: bool) -> Result<(), Fault> {
        match self.number(key)? {
            Some(found) if found == expected => Ok(()),
            Some(found) => Err(Fault::ShardMismatch {
                key,
                found: found.to_string(),
                expected: format!("must be {expected}"),
            }),
            None if required => Err(Fault::ShardMismatch {
                key,
                found: "absent".to_owned(),
                expected: format!("must be {expected}"),
            }),
            None => Ok(()),
        }
    }

    /// Checks a model of a single file: it must not be a part of something larger.
    pub(crate) fn check_whole(&self, origin: &Origin) -> Result<(), Fault> {
        match self.number(COUNT_KEY)? {
            Some(count) if count > 1 => {
                let advice = match origin {
                    Origin::File(_) => {
                        "give the parts their names back (name-00001-of-00003.gguf and so on), all in one folder"
                    }
                    Origin::Memory => {
                        "models in memory must be whole: merge the parts with a GGUF split tool"
                    }
                };
                Err(Fault::LoneShard { count, advice })
            }
            _ => Ok(()),
        }
    }

    /// Checks that this is part `index` (from 0) of `count`.
    pub(crate) fn check_member(&self, index: usize, count: usize) -> Result<(), Fault> {
        self.expect(COUNT_KEY, count as u64, true)?;
        self.expect(NUMBER_KEY, index as u64, true)
    }

    /// Checks what part `index` says about the number of tensors in all parts together.
    pub(crate) fn check_tensor_count(&self, index: usize, tensors: usize) -> Result<(), Fault> {
        self.expect(TENSORS_KEY, tensors as u64, index == 0)
    }
}
