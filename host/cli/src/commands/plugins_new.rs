//! `plugins new`: the crate of a plugin that builds and works.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use paceline_registry::semver::VersionReq;
use paceline_registry::{AbiVersion, Descriptor, Registry};

use crate::app::App;
use crate::args::{NewPluginKind, PluginsNewArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::new_file::NewFile;

const MANIFEST: &str = include_str!("../../templates/Cargo.toml.in");
const IGNORED: &str = include_str!("../../templates/gitignore.in");
const TEST: &str = include_str!("../../templates/plugin_test.rs.in");
/// Names that cargo or the compiler gives a meaning of its own, or that the crate depends on.
const TAKEN: [&str; 16] = [
    "alloc",
    "build",
    "core",
    "crate",
    "deps",
    "examples",
    "fn",
    "incremental",
    "paceline-conformance",
    "paceline-plugin-api",
    "proc-macro",
    "self",
    "std",
    "super",
    "test",
    "type",
];

/// The files in which kinds differ.
struct Template {
    descriptor: &'static str,
    library: &'static str,
    test: &'static str,
    readme: &'static str,
}

macro_rules! template {
    ($folder:literal) => {
        Template {
            descriptor: include_str!(concat!("../../templates/", $folder, "/descriptor.toml.in")),
            library: include_str!(concat!("../../templates/", $folder, "/lib.rs.in")),
            test: include_str!(concat!("../../templates/", $folder, "/test.rs.in")),
            readme: include_str!(concat!("../../templates/", $folder, "/README.md.in")),
        }
    };
}

/// Runs the command.
pub fn run(args: &PluginsNewArgs, app: &mut App) -> Result<Exit, Failure> {
    let name = args.name.as_str();
    let template = match args.kind {
        NewPluginKind::Backend => template!("backend"),
        NewPluginKind::Drafter => template!("drafter"),
        NewPluginKind::Rollback => template!("rollback"),
    };
    let with_conformance = args.kind == NewPluginKind::Backend;
    let api = Dependencies::find(args.plugin_api.as_deref())?;
    let fill = |text: &str| api.fill(text, name);
    let descriptor = fill(template.descriptor);
    check_name(name, &descriptor)?;
    let mut manifest = MANIFEST.to_owned();
    let mut test = TEST.to_owned();
    if with_conformance {
        const API: &str = "paceline-plugin-api = {{plugin_api}}\n";
        const IMPORT: &str = "use paceline_plugin_api::abi::HostTable;\n";
        manifest = manifest.replace(API, &format!("paceline-conformance = {{{{conformance}}}}\n{API}"));
        // The reference executor is slow enough with optimisation.
        manifest.push_str("\n[profile.dev]\nopt-level = 1\n");
        let suite = "use paceline_conformance::suite::{Suite, SuiteOptions};\n";
        test = test.replace(IMPORT, &format!("{suite}{IMPORT}"));
    }
    let folder = args.path.clone().unwrap_or_else(|| PathBuf::from(name));
    expect_empty(&folder)?;
    for (file, text) in [
        ("Cargo.toml", fill(&manifest)),
        ("descriptor.toml", descriptor),
        ("src/lib.rs", fill(template.library)),
        ("tests/plugin.rs", fill(&(test + template.test))),
        ("README.md", fill(template.readme)),
        (".gitignore", fill(IGNORED)),
    ] {
        write(&folder.join(file), &text)?;
    }
    if api.is_guessed {
        app.printer.warning(
            "it depends on `paceline-plugin-api` from cargo's registry; `--plugin-api DIR` takes that of a checkout",
        );
    }
    app.printer.status(format_args!(
        "wrote the plugin `{name}` to {}; its README.md has the commands",
        folder.display()
    ));
    if Registry::new()?.find(name).is_ok() {
        app.printer.warning(format_args!(
            "a built-in plugin has the id `{name}`: this one takes its place when it is given with `--plugin`, chosen \
             with `plugins use`, or newer"
        ));
    }
    Ok(Exit::Ok)
}

/// Where the crates for authors come from, as values of a manifest.
struct Dependencies {
    plugin_api: String,
    conformance: String,
    /// Nobody said where they come from, and there is no checkout.
    is_guessed: bool,
}

impl Dependencies {
    fn find(given: Option<&str>) -> Result<Self, Failure> {
        let in_checkout = || {
            let program = std::env::current_exe().ok()?;
            program.ancestors().map(|folder| folder.join("plugin-api")).find(|folder| is_plugin_api(folder))
        };
        match given {
            None => match in_checkout() {
                Some(folder) => Self::in_folder(&folder),
                None => Ok(Self { is_guessed: true, ..Self::of_version(env!("CARGO_PKG_VERSION")) }),
            },
            Some(given) if is_plugin_api(Path::new(given)) => Self::in_folder(Path::new(given)),
            Some(version) if version.parse::<VersionReq>().is_ok() => Ok(Self::of_version(version)),
            Some(given) => {
                let message = format!("{given} is neither the folder of `paceline-plugin-api` nor a version");
                Err(Failure::new(Exit::Usage, message).hint(
                    "give the folder `plugin-api` of a checkout of Paceline, or a version such as `0.1`",
                ))
            }
        }
    }

    fn in_folder(folder: &Path) -> Result<Self, Failure> {
        let shown = folder.display().to_string();
        let not_usable = |what: &str| Failure::new(Exit::Usage, format!("{shown} {what}"));
        let folder =
            folder.canonicalize().map_err(|error| not_usable("cannot be found").caused_by(&error))?;
        let path = |folder: &Path| -> Result<String, Failure> {
            let text = folder.to_str().ok_or_else(|| not_usable("has a path that is not UTF-8"))?;
            // A text of JSON is one of TOML too.
            Ok(format!("{{ path = {} }}", serde_json::Value::from(text)))
        };
        Ok(Self {
            plugin_api: path(&folder)?,
            conformance: path(&folder.join("conformance"))?,
            is_guessed: false,
        })
    }

    fn of_version(version: &str) -> Self {
        let version = serde_json::Value::from(version).to_string();
        Self { plugin_api: version.clone(), conformance: version, is_guessed: false }
    }

    fn fill(&self, text: &str, name: &str) -> String {
        text.replace("{{plugin_api}}", &self.plugin_api)
            .replace("{{conformance}}", &self.conformance)
            .replace("{{abi_oldest}}", &AbiVersion::HOST_OLDEST.to_string())
            .replace("{{abi_built}}", &AbiVersion::HOST.to_string())
            .replace("{{crate}}", &name.replace('-', "_"))
            .replace("{{name}}", name)
    }
}

fn is_plugin_api(folder: &Path) -> bool {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    manifest.lines().any(|line| line.trim() == "name = \"paceline-plugin-api\"")
}

/// The rules of ids are the descriptor's.
fn check_name(name: &str, descriptor: &str) -> Result<(), Failure> {
    let fault = match Descriptor::parse(descriptor) {
        Ok(parsed) if parsed.id == name => None,
        // What ends the text that it stands in is no name either.
        Ok(_) => Some("it is no id".to_owned()),
        Err(fault) => Some(fault.to_string()),
    };
    if let Some(fault) = fault {
        let message = format!("a plugin cannot be called {name:?}: {fault}");
        return Err(Failure::new(Exit::Usage, message)
            .hint("take lower case letters, digits and dashes, the first a letter"));
    }
    if TAKEN.contains(&name) {
        let message =
            format!("a plugin cannot be called `{name}`: that is taken in Rust or by a crate that it needs");
        return Err(Failure::new(Exit::Usage, message).hint("take another name"));
    }
    Ok(())
}

/// Nothing that is there is touched.
fn expect_empty(folder: &Path) -> Result<(), Failure> {
    let is_empty = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => folder.symlink_metadata().is_err(),
    };
    if is_empty {
        return Ok(());
    }
    let message = format!("{} is there already and is no empty folder", folder.display());
    Err(Failure::new(Exit::Usage, message).hint("give another one with `--path DIR`"))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot make the folder {}", folder.display()))
                .caused_by(&error)
        })?;
    }
    let mut file = NewFile::create(path, false)?;
    file.write_all(text.as_bytes()).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot write {}", path.display())).caused_by(&error)
    })?;
    file.finish()
}
