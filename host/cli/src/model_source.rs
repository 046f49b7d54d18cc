//! Finds the model that a user names.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use paceline_gguf::{Gguf, OpenOptions, Report, ShardName};
use paceline_plugin_api::settings::nearest;

use crate::demo_model;
use crate::exit::Exit;
use crate::failure::Failure;

/// File names that a message lists.
const LISTED_FILES: usize = 8;

/// A model that was named: the one in the program, or a file (for a split model, any of its parts).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelSource {
    /// The demo model in this program. A file of that name is called `./demo`.
    Demo,
    /// A file.
    File(PathBuf),
}

impl ModelSource {
    /// What `model` means. Whether the file holds a model is not looked at.
    pub fn resolve(model: &Path) -> Result<Self, Failure> {
        if model == Path::new(demo_model::DEMO) {
            return Ok(Self::Demo);
        }
        match fs::metadata(model) {
            Ok(metadata) if metadata.is_dir() => Err(directory(model)),
            Ok(_) => Ok(Self::File(model.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing(model)),
            Err(error) => {
                Err(Failure::new(Exit::Model, format!("cannot look at {}", model.display()))
                    .caused_by(&error))
            }
        }
    }

    /// Opens the model.
    pub fn open(&self) -> Result<Gguf, Failure> {
        Ok(match self {
            Self::Demo => Gguf::from_static(demo_model::bytes()?)?,
            Self::File(path) => Gguf::open(path, &OpenOptions::default())?,
        })
    }

    /// Looks for all faults of the model.
    pub fn verify(&self) -> Result<Report, Failure> {
        Ok(match self {
            Self::Demo => paceline_gguf::verify_bytes(demo_model::bytes()?.to_vec()),
            Self::File(path) => paceline_gguf::verify(path),
        })
    }
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Demo => f.write_str(demo_model::DEMO),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

fn directory(folder: &Path) -> Failure {
    let failure = Failure::new(Exit::Model, format!("{} is a directory, not a model file", folder.display()));
    let files = model_files(folder);
    failure.hint(match files.first() {
        Some(first) => format!("it holds {}; try {}", listed(&files), folder.join(first).display()),
        None => "there is no .gguf file in it".to_owned(),
    })
}

fn missing(model: &Path) -> Failure {
    let folder = model.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let message = format!("there is no folder {}", folder.display());
        return Failure::new(Exit::Model, format!("there is no file {}: {message}", model.display()));
    }
    let files = model_files(folder);
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    let beside = |file: &str| model.with_file_name(file).display().to_string();
    let with_extension = format!("{name}.gguf");
    let is_bare = model.parent().is_none_or(|folder| folder.as_os_str().is_empty());
    let near = if files.contains(&with_extension) {
        Some(beside(&with_extension))
    } else if let Some(file) = nearest(&name, files.iter().map(String::as_str)) {
        Some(beside(file))
    } else {
        nearest(&name, [demo_model::DEMO]).filter(|_| is_bare).map(str::to_owned)
    };
    let failure = Failure::new(Exit::Model, format!("there is no file {}", model.display()));
    match near {
        Some(near) => failure.hint(format!("did you mean {near}?")),
        None if files.is_empty() => {
            failure.hint(format!("give the path of a .gguf file, or `{}`", demo_model::DEMO))
        }
        None => failure.hint(format!("the folder holds {}", listed(&files))),
    }
}

/// Names of the GGUF files in a folder, sorted; of a split model, the first part alone.
fn model_files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| {
            entry.path().extension().is_some_and(|it| it.eq_ignore_ascii_case(OsStr::new("gguf")))
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| ShardName::parse(name).is_none_or(|shard| shard.index == 1))
        .collect();
    names.sort();
    names
}

fn listed(files: &[String]) -> String {
    let mut list = files.iter().take(LISTED_FILES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if files.len() > LISTED_FILES {
        list.push_str(&format!(" and {} more", files.len() - LISTED_FILES));
    }
    list
}
