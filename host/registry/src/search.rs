//! Where plugins and what is known about them are kept.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Directories in which plugins are looked for, besides those that the user names.
const SYSTEM_DIRECTORY: &str = "/usr/lib/paceline/plugins";
/// Names further directories, separated by colons.
pub(crate) const SEARCH_VARIABLE: &str = "PACELINE_PLUGIN_DIRS";

/// What of this process's surroundings decides where things are kept.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The directory of the program.
    pub program_directory: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// `XDG_DATA_HOME`.
    pub data_home: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`.
    pub config_home: Option<PathBuf>,
    /// `XDG_CACHE_HOME`.
    pub cache_home: Option<PathBuf>,
    /// `PACELINE_PLUGIN_DIRS`.
    pub plugin_directories: Option<OsString>,
}

impl Environment {
    /// The surroundings of this process. Where the process has more rights than the user who started it, variables
    /// say nothing: they are the user's.
    pub fn of_process() -> Self {
        let program = std::env::current_exe().and_then(|program| program.canonicalize()).ok();
        let program_directory = program.as_deref().and_then(Path::parent).map(Path::to_owned);
        if has_more_rights_than_its_user() {
            return Self { program_directory, ..Self::default() };
        }
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        Self {
            program_directory,
            home: path("HOME"),
            data_home: path("XDG_DATA_HOME"),
            config_home: path("XDG_CONFIG_HOME"),
            cache_home: path("XDG_CACHE_HOME"),
            plugin_directories: std::env::var_os(SEARCH_VARIABLE),
        }
    }

    /// The variables of this process that are text. None where the process has more rights than the user who started
    /// it, as in [`Environment::of_process`].
    pub fn variables_of_process() -> Vec<(String, String)> {
        if has_more_rights_than_its_user() {
            return Vec::new();
        }
        let text =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        std::env::vars_os().filter_map(text).collect()
    }

    /// The directories to search, in order: those of `PACELINE_PLUGIN_DIRS`, then `plugins` beside the program, the
    /// user's, and the system's. A relative one would depend on the current directory and is left out.
    pub fn search_directories(&self) -> Vec<PathBuf> {
        let named = self.plugin_directories.iter().flat_map(std::env::split_paths);
        let beside = self.program_directory.iter().map(|directory| directory.join("plugins"));
        named
            .chain(beside)
            .chain(self.user_plugin_directory())
            .chain([PathBuf::from(SYSTEM_DIRECTORY)])
            .filter(|directory| directory.is_absolute())
            .collect()
    }

    /// The directory in which this user's plugins are installed; `None` if there is no place for it.
    pub fn user_plugin_directory(&self) -> Option<PathBuf> {
        self.under(self.data_home.as_deref(), ".local/share").map(|data| data.join("paceline/plugins"))
    }

    /// The user's `registry.toml`, which need not be there; `None` if there is no place for it.
    pub fn user_settings(&self) -> Option<PathBuf> {
        self.under(self.config_home.as_deref(), ".config").map(|config| config.join("paceline/registry.toml"))
    }

    /// The directory for what is known about plugins; `None` if there is no place for it.
    pub fn cache_directory(&self) -> Option<PathBuf> {
        self.under(self.cache_home.as_deref(), ".cache").map(|cache| cache.join("paceline"))
    }

    /// A directory of a file, which is absolute or begins with `$EXE` or `$XDG_DATA_HOME`; `None` if that is not known.
    pub(crate) fn expand(&self, directory: &str) -> Option<PathBuf> {
        let (first, rest) = directory.split_once('/').unwrap_or((directory, ""));
        let base = match first {
            "$EXE" => self.program_directory.clone(),
            "$XDG_DATA_HOME" => self.under(self.data_home.as_deref(), ".local/share"),
            _ => Some(PathBuf::from("/")),
        };
        base.map(|base| base.join(rest)).filter(|directory| directory.is_absolute())
    }

    /// A directory of the user's: the one that is set, or the usual one in the user's home.
    fn under(&self, set: Option<&Path>, usual: &str) -> Option<PathBuf> {
        let set = set.filter(|set| set.is_absolute()).map(Path::to_owned);
        set.or_else(|| self.home.as_ref().map(|home| home.join(usual)).filter(|path| path.is_absolute()))
    }
}

/// Whether this process runs with another user's or group's rights, or with capabilities of its file.
#[cfg(unix)]
fn has_more_rights_than_its_user() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};

    getuid() != geteuid() || getgid() != getegid() || is_marked_secure()
}

#[cfg(not(unix))]
fn has_more_rights_than_its_user() -> bool {
    false
}

/// What the kernel told this process when it started.
#[cfg(unix)]
fn is_marked_secure() -> bool {
    const AT_SECURE: usize = 23;
    const WORD: usize = size_of::<usize>();

    match fs::read("/proc/self/auxv") {
        Ok(vector) => vector.chunks_exact(2 * WORD).any(|entry| {
            let word = |at: usize| entry[at..at + WORD].try_into().map_or(0, usize::from_ne_bytes);
            word(0) == AT_SECURE && word(WORD) != 0
        }),
        // A process with such rights may not look at itself.
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

/// Files in a directory whose names are those of shared libraries, in order of their names. A directory that is not
/// there has none.
pub(crate) fn libraries(directory: &Path) -> Vec<PathBuf> {
    let Ok(listed) = fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = listed
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| is_library(&name.to_string_lossy())) && !path.is_dir()
        })
        .collect();
    paths.sort();
    paths
}

/// `libx.so`, or on ELF systems `libx.so.1.2`.
fn is_library(name: &str) -> bool {
    let suffix = std::env::consts::DLL_SUFFIX;
    name.ends_with(suffix)
        || name.split_once(&format!("{suffix}.")).is_some_and(|(_, version)| {
            version
                .split('.')
                .all(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn directories_come_in_order_and_are_absolute() {
        let environment = Environment {
            program_directory: Some("/opt/paceline/bin".into()),
            home: Some("/home/me".into()),
            data_home: Some("/data".into()),
            plugin_directories: Some("/first:relative:.::/second".into()),
            ..Environment::default()
        };
        let expected = [
            "/first",
            "/second",
            "/opt/paceline/bin/plugins",
            "/data/paceline/plugins",
            "/usr/lib/paceline/plugins",
        ];
        assert_eq!(environment.search_directories(), expected.map(PathBuf::from));
        assert_eq!(environment.cache_directory(), Some("/home/me/.cache/paceline".into()));
        assert_eq!(environment.user_settings(), Some("/home/me/.config/paceline/registry.toml".into()));
    }

    #[test]
    fn nothing_is_taken_from_the_current_directory() {
        let relative = Environment {
            home: Some(".".into()),
            data_home: Some("data".into()),
            config_home: Some("config".into()),
            cache_home: Some("cache".into()),
            plugin_directories: Some("".into()),
            ..Environment::default()
        };
        assert_eq!(relative.search_directories(), [PathBuf::from("/usr/lib/paceline/plugins")]);
        assert_eq!(relative.cache_directory(), None);
        assert_eq!(relative.user_settings(), None);
    }

    #[test]
    fn this_process_has_its_users_rights() {
        assert!(!has_more_rights_than_its_user());
    }

    #[test]
    fn libraries_are_known_by_their_names() {
        for name in ["libx.so", "x.so", "libx.so.1", "libx.so.1.22"] {
            assert!(is_library(name), "{name}");
        }
        for name in ["libx.so.toml", "libx.so.plugin.toml", "libx.a", "so", "libx.so.", "libx.so.1.bak"] {
            assert!(!is_library(name), "{name}");
        }
    }
}
