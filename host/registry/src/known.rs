//! Backends that are known by name although their plugins may not be there, so that whoever asks for one learns what is
//! missing.

use std::io;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::Prober;

const TEXT: &str = include_str!("../known_backends.toml");

/// A backend that is known by name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownBackend {
    /// Id of the plugin.
    pub id: String,
    /// What it runs on.
    pub devices: String,
    /// Who makes these devices.
    pub vendor: String,
    /// Libraries of the driver, of which one will do, in the order in which they are looked for.
    pub libraries: Vec<String>,
    /// What the libraries belong to.
    pub driver: String,
    /// Files that the system has where there is such a device; none where no file tells.
    pub device_files: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    backend: Vec<KnownBackend>,
}

/// What came of looking for a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverSearch {
    /// The library that was found, and its file, if the system tells.
    pub found: Option<(String, Option<String>)>,
    /// Libraries that were looked for in vain before, with what is wrong with each.
    pub missing: Vec<(String, String)>,
}

impl KnownBackend {
    /// All that are known.
    pub fn all() -> &'static [Self] {
        static ALL: OnceLock<Vec<KnownBackend>> = OnceLock::new();

        // A test makes sure that the text is right.
        ALL.get_or_init(|| toml::from_str::<Known>(TEXT).map_or_else(|_| Vec::new(), |known| known.backend))
    }

    /// The one with that id.
    pub fn find(id: &str) -> Option<&'static Self> {
        Self::all().iter().find(|known| known.id == id)
    }

    /// Looks for the driver, in processes of their own.
    ///
    /// # Errors
    /// When such a process cannot be started, which says nothing about the driver.
    pub fn find_driver(&self, prober: &Prober) -> io::Result<DriverSearch> {
        let mut missing = Vec::new();
        for library in &self.libraries {
            match prober.find_driver(library)? {
                Ok(found) => return Ok(DriverSearch { found: Some((library.clone(), found.path)), missing }),
                Err(failure) => missing.push((library.clone(), failure.to_string())),
            }
        }
        Ok(DriverSearch { found: None, missing })
    }
}

impl DriverSearch {
    /// What came of it, as a clause: which library is here, or that none of those is that were looked for.
    pub fn text(&self) -> String {
        match (&self.found, self.missing.as_slice()) {
            (Some((library, None)), _) => format!("{library} is here"),
            (Some((library, Some(path))), _) => format!("{library} is here ({path})"),
            (None, [(library, problem)]) => format!("{library} {problem}"),
            (None, missing) => {
                let names: Vec<&str> = missing.iter().map(|(library, _)| library.as_str()).collect();
                let first = missing.first().map_or("", |(_, problem)| problem);
                format!("none of {} is here (the first {first})", names.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_right() {
        let known: Known = toml::from_str(TEXT).unwrap();
        let ids: Vec<&str> = known.backend.iter().map(|known| known.id.as_str()).collect();
        assert_eq!(ids, ["cuda", "rocm", "sycl"]);
        assert_eq!(KnownBackend::all(), known.backend);
        for known in KnownBackend::all() {
            crate::descriptor::check_id(&known.id).unwrap();
            assert!(known.libraries.iter().all(|library| library.contains(".so.")), "{known:?}");
        }
        assert_eq!(KnownBackend::find("rocm").unwrap().libraries.len(), 3);
        assert_eq!(KnownBackend::find("cpu"), None);
    }

    #[test]
    fn what_was_looked_for_is_said() {
        let missing = |names: &[&str]| {
            names
                .iter()
                .map(|name| ((*name).to_owned(), "cannot be loaded: no such file".to_owned()))
                .collect()
        };
        let text = |found: Option<(&str, Option<&str>)>, names: &[&str]| {
            let found = found.map(|(library, path)| (library.to_owned(), path.map(str::to_owned)));
            DriverSearch { found, missing: missing(names) }.text()
        };
        assert_eq!(text(None, &["liba.so.1"]), "liba.so.1 cannot be loaded: no such file");
        assert_eq!(
            text(None, &["liba.so.2", "liba.so.1"]),
            "none of liba.so.2, liba.so.1 is here (the first cannot be loaded: no such file)"
        );
        assert_eq!(
            text(Some(("liba.so.1", Some("/lib/liba.so.1.4"))), &["liba.so.2"]),
            "liba.so.1 is here (/lib/liba.so.1.4)"
        );
        assert_eq!(text(Some(("liba.so.1", None)), &[]), "liba.so.1 is here");
    }
}
