//! What commands on installed plugins take. No field may be called like a global option, such as `plugin`: clap would take
//! one for the other.

use std::path::PathBuf;
use std::str::FromStr;

use paceline_registry::semver::{Version, VersionReq};

/// Arguments of `plugins install`.
#[derive(Debug, clap::Args)]
pub struct PluginsInstallArgs {
    /// A shared library, or a directory with some, such as `target/release`
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,

    /// Replace the same version with other content
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `plugins remove`.
#[derive(Debug, clap::Args)]
pub struct PluginsRemoveArgs {
    /// Id of a plugin, with a version such as `echo@0.1.0`; without one, all installed versions
    #[arg(value_name = "NAME[@VERSION]")]
    pub which: PluginVersion,
}

/// Arguments of `plugins enable` and `plugins disable`.
#[derive(Debug, clap::Args)]
pub struct PluginsSwitchArgs {
    /// Id of a plugin
    #[arg(value_name = "NAME")]
    pub id: String,
}

/// Arguments of `plugins use`.
#[derive(Debug, clap::Args)]
pub struct PluginsUseArgs {
    /// Id of a plugin and a version, or a range of versions such as `echo@^0.1` or `echo@>=0.1,<0.3`; `echo@*` for all
    #[arg(value_name = "NAME@VERSION")]
    pub which: PluginVersions,
}

/// `NAME` or `NAME@VERSION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginVersion {
    /// The plugin's id.
    pub id: String,
    /// The version.
    pub version: Option<Version>,
}

impl FromStr for PluginVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (id, version) = match text.split_once('@') {
            Some((id, version)) => (id, Some(version)),
            None => (text, None),
        };
        let version = version.map(str::parse).transpose();
        let version = version.map_err(|error| format!("what follows the `@` is no version: {error}"))?;
        Ok(Self { id: id.to_owned(), version })
    }
}

/// `NAME@RANGE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginVersions {
    /// The plugin's id.
    pub id: String,
    /// The versions; `None` for all.
    pub versions: Option<VersionReq>,
}

impl FromStr for PluginVersions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (id, versions) =
            text.split_once('@').ok_or("it must be an id, `@` and a version, as in `echo@0.1.0`")?;
        let versions = match versions {
            "*" => None,
            // As a range it would take later versions that are compatible.
            versions if versions.parse::<Version>().is_ok() => Some(format!("={versions}")),
            versions => Some(versions.to_owned()),
        };
        let versions = versions.map(|versions| versions.parse()).transpose();
        let versions = versions
            .map_err(|error| format!("what follows the `@` is neither a version nor a range: {error}"))?;
        Ok(Self { id: id.to_owned(), versions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_exact_and_a_range_is_not() {
        let versions =
            |text: &str| text.parse::<PluginVersions>().map(|it| it.versions.map(|it| it.to_string()));
        assert_eq!(versions("echo@0.1.0"), Ok(Some("=0.1.0".to_owned())));
        assert_eq!(versions("echo@0.1"), Ok(Some("^0.1".to_owned())));
        assert_eq!(versions("echo@>=0.1,<0.3"), Ok(Some(">=0.1, <0.3".to_owned())));
        assert_eq!(versions("echo@*"), Ok(None));
        assert!(versions("echo").unwrap_err().contains("`echo@0.1.0`"));
        assert!(versions("echo@new").unwrap_err().starts_with("what follows the `@`"));
        let version = "echo@0.1.0".parse::<PluginVersion>().unwrap();
        assert_eq!((version.id.as_str(), version.version), ("echo", Some(Version::new(0, 1, 0))));
        assert_eq!("echo".parse::<PluginVersion>().unwrap().version, None);
        assert!("echo@0.1".parse::<PluginVersion>().is_err());
    }
}
