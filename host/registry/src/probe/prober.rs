//! The parent's side: starts a child, and turns what becomes of it into a verdict.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::watch::{End, Watch};
use super::{Cause, Failure, FoundDriver, Phase, Verdict};

const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(10);

/// Variables that a child gets: what programs need to work at all, and what drivers are configured with.
const VARIABLES: [&str; 10] = [
    "HOME",
    "LANG",
    "LD_LIBRARY_PATH",
    "PATH",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
];
const DRIVER_PREFIXES: [&str; 16] = [
    "AMD_",
    "CUDA_",
    "GPU_",
    "HIP_",
    "HSA_",
    "IGC_",
    "NEO",
    "NVIDIA_",
    "OCL_",
    "ONEAPI_",
    "PACELINE_ROCM_",
    "ROCM_",
    "ROCR_",
    "SYCL_",
    "UR_",
    "ZE",
];

/// Tries plugins in processes of their own.
#[derive(Clone, Debug)]
pub struct Prober {
    program: PathBuf,
    arguments: Vec<OsString>,
    time_limit: Duration,
}

impl Prober {
    /// Whether this system can try plugins.
    pub(crate) const POSSIBLE: bool = true;

    /// A prober that runs `program ARGUMENTS PHASE FILE`, which has to call [`super::probe_main`].
    pub fn new(program: impl Into<PathBuf>, arguments: impl IntoIterator<Item = OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().collect(),
            time_limit: DEFAULT_TIME_LIMIT,
        }
    }

    /// Sets the time that a plugin has; ten seconds unless set.
    #[must_use]
    pub fn with_time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The variables of this process that a child gets and that may change what a plugin does.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut variables: Vec<_> = std::env::vars_os().filter(|(name, _)| is_for_drivers(name)).collect();
        variables.sort();
        variables
    }

    /// Loads a driver's library by its name, such as `libcuda.so.1`, in a process of its own.
    ///
    /// # Errors
    /// When the child cannot be started, which says nothing about the library.
    pub fn find_driver(&self, library: &str) -> io::Result<Verdict<FoundDriver>> {
        self.probe(Phase::Driver, Path::new(library))
    }

    /// Tries the plugin in a file.
    ///
    /// # Errors
    /// When the child cannot be started, which says nothing about the plugin.
    pub(crate) fn probe<T: DeserializeOwned>(&self, phase: Phase, file: &Path) -> io::Result<Verdict<T>> {
        let (answers, channel) = io::pipe()?;
        let (errors, stderr) = io::pipe()?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .arg(phase.word())
            .arg(file)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| is_passed(name)))
            .current_dir("/")
            .stdin(channel)
            .stdout(Stdio::null())
            .stderr(stderr)
            .process_group(0)
            .spawn()?;
        let (end, stderr) = Watch::new(child, answers, errors).until(self.time_limit)?;
        let cause = match end {
            End::Answered(answer) => match serde_json::from_slice::<Verdict<T>>(&answer) {
                Ok(verdict) => return Ok(verdict),
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            },
            End::Signal(signal) => Cause::Crashed { signal },
            End::Exit(exit_code) => Cause::NoAnswer { exit_code },
            End::TimeOver => {
                let limit_ms = u64::try_from(self.time_limit.as_millis()).unwrap_or(u64::MAX);
                Cause::TimedOut { limit_ms }
            }
        };
        Ok(Err(Failure { stderr, ..Failure::new(phase, cause) }))
    }
}

fn is_passed(name: &OsStr) -> bool {
    is_for_drivers(name)
        || name.to_str().is_some_and(|name| VARIABLES.contains(&name) || name.starts_with("LC_"))
}

fn is_for_drivers(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| {
        name == "LD_LIBRARY_PATH" || DRIVER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    })
}
