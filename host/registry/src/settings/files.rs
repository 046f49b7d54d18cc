//! `registry.toml`: the one that is part of the program, a site's, and a user's.
//!
//! ```toml
//! schema = 1
//!
//! [search]
//! dirs = ["$EXE/plugins", "/opt/paceline/plugins"]    # absolute, or from $EXE or $XDG_DATA_HOME
//!
//! [trust]
//! signatures = "warn"                                  # or "require", or "off"
//! keys = ["RW…"]                                       # public keys of minisign that plugins are signed with
//!
//! [select]
//! backend = ["cuda", "cpu"]                            # preferred ones first
//! strategy = "auto"                                    # or "none", or a list
//! rollback = ["gdn-replay"]                             # rollback strategies, preferred ones first
//! fallback = []                                        # where a run may go when its backend fails
//!
//! [settings]                                           # the host's own
//! context = 4096
//!
//! [plugin.cuda]
//! version = ">=0.1, <0.2"
//! enabled = true
//! path = "/opt/cuda.so"                                # pins a file
//! sha256 = "…"
//!
//! [plugin.cuda.settings]
//! streams = 4
//!
//! [[rule]]                                             # a default that holds where its conditions do
//! set = "speculation.rollback"
//! value = "replay"
//! when = { backend = "cuda", sequences = 1, recurrent_layers = "all-on-one" }
//! concerns = "recurrent"                               # whose devices count: all, recurrent or attention layers
//! measured = "What shows that this is right."
//! untested = "What nobody tried."
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use semver::VersionReq;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{Fault, Faults};
use super::rule::{Rule, read_rules};
use super::source::{Layer, Place};
use super::toml_text::Text;
use super::value::{AUTO, Value};
use crate::{Environment, SignaturePolicy, TrustedKey};

/// The form of files that this version reads.
const SCHEMA: i64 = 1;
/// The file that is part of the program.
const SHIPPED: &str = include_str!("../../../../registry.toml");
/// Its name in messages.
const SHIPPED_NAME: &str = "registry.toml";
/// The administrator's file.
const SITE_FILE: &str = "/etc/paceline/registry.toml";
/// The word for no strategy.
const NONE: &str = "none";

/// A file that was read. What it says about plugins is checked where they are known, by [`super::Resolver::new`].
#[derive(Clone, Debug)]
pub struct ConfigFile {
    pub(super) layer: Layer,
    pub(super) directories: Option<Vec<Placed<String>>>,
    pub(super) signatures: Option<Placed<SignaturePolicy>>,
    pub(super) keys: Option<Vec<TrustedKey>>,
    pub(super) backends: Option<Vec<Placed<String>>>,
    pub(super) strategy: Option<Strategy>,
    pub(super) rollbacks: Option<Vec<Placed<String>>>,
    pub(super) fallback: Option<Vec<Placed<String>>>,
    pub(super) plugins: BTreeMap<String, PluginEntry>,
    pub(super) plain: Vec<Plain>,
    pub(super) rules: Vec<Rule>,
}

/// Which strategies guess ahead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Those that suit the model.
    #[default]
    Auto,
    /// These, in this order; empty for none.
    Named(Vec<String>),
}

/// Something and its place.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub it: T,
    pub place: Place,
}

/// What a file says about a plugin, besides its settings.
#[derive(Clone, Debug, Default)]
pub(super) struct PluginEntry {
    pub version: Option<VersionReq>,
    pub enabled: Option<bool>,
    pub path: Option<PathBuf>,
    pub sha256: Option<String>,
}

/// A plain setting.
#[derive(Clone, Debug)]
pub(super) struct Plain {
    pub key: String,
    /// `None` for `auto`.
    pub value: Option<Value>,
    pub place: Place,
    pub value_place: Place,
}

impl ConfigFile {
    /// The file that is part of the program.
    ///
    /// # Errors
    /// A fault of the build.
    pub fn shipped() -> Result<Self, Fault> {
        Self::parse(SHIPPED_NAME, SHIPPED, Layer::Shipped)
    }

    /// The shipped file, and those of the site (`/etc/paceline/registry.toml`) and of the user, if they are there.
    ///
    /// # Errors
    /// As [`ConfigFile::read`], for each file.
    pub fn all(environment: &Environment) -> Result<Vec<Self>, Faults> {
        let mut files = vec![Self::shipped()];
        files.extend(Self::read(Path::new(SITE_FILE), Layer::Site).transpose());
        let user = environment.user_settings();
        files.extend(user.and_then(|path| Self::read(&path, Layer::User).transpose()));
        let (read, faults): (Vec<_>, Vec<_>) = files.into_iter().partition(Result::is_ok);
        Faults::check(faults.into_iter().filter_map(Result::err).collect())?;
        Ok(read.into_iter().filter_map(Result::ok).collect())
    }

    /// Reads a file of a site or a user; `None` if it is not there.
    ///
    /// # Errors
    /// A file that cannot be read, and as [`ConfigFile::parse`].
    pub fn read(path: &Path, layer: Layer) -> Result<Option<Self>, Fault> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&name, &text, layer).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Fault::new(format!("{name} cannot be read: {error}"))),
        }
    }

    /// Reads a text. `name` stands for the file in messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and column: what is no TOML, unknown keys and facts, wrong types,
    /// and what cannot go together.
    pub fn parse(name: &str, text: &str, layer: Layer) -> Result<Self, Fault> {
        let text = Text { file: name, text };
        let document = text.parse()?;
        let table = document.get_ref();
        text.only(table, "", &["schema", "search", "trust", "select", "settings", "plugin", "rule"])?;
        match table.get("schema") {
            None => return Err(text.fault(0, format!("the file does not begin with `schema = {SCHEMA}`"))),
            Some(value) if text.value("schema", value)? != Value::Integer(SCHEMA) => {
                let message = format!("this version reads files with `schema = {SCHEMA}` only");
                return Err(text.fault(value.span().start, message));
            }
            Some(_) => {}
        }
        let mut file = Self {
            layer,
            directories: None,
            signatures: None,
            keys: None,
            backends: None,
            strategy: None,
            rollbacks: None,
            fallback: None,
            plugins: BTreeMap::new(),
            plain: Vec::new(),
            rules: Vec::new(),
        };
        if let Some(value) = table.get("search") {
            file.directories = read_search(&text, value)?;
        }
        if let Some(value) = table.get("trust") {
            read_trust(&text, value, &mut file)?;
        }
        if let Some(value) = table.get("settings") {
            read_settings(&text, text.table("settings", value)?, "", &mut file.plain)?;
        }
        if let Some(value) = table.get("plugin") {
            for (id, value) in text.table("plugin", value)? {
                crate::descriptor::check_id(id.get_ref()).map_err(|it| text.fault(id.span().start, it))?;
                let entry = read_plugin(&text, id.get_ref(), value, &mut file.plain)?;
                file.plugins.insert(id.get_ref().to_string(), entry);
            }
        }
        if let Some(value) = table.get("select") {
            read_select(&text, value, &mut file)?;
        }
        if let Some(value) = table.get("rule") {
            file.rules = read_rules(&text, value)?;
        }
        file.plain.sort_by(|a, b| a.place.cmp(&b.place));
        Ok(file)
    }
}

fn read_search(text: &Text<'_>, value: &Spanned<DeValue<'_>>) -> Result<Option<Vec<Placed<String>>>, Fault> {
    let table = text.table("search", value)?;
    text.only(table, " in `search`", &["dirs"])?;
    let Some(value) = table.get("dirs") else { return Ok(None) };
    let directories = text.strings("dirs", value)?;
    let items = value.get_ref().as_array().into_iter().flatten();
    let mut placed = Vec::with_capacity(directories.len());
    for (directory, item) in directories.into_iter().zip(items) {
        let first = directory.split('/').next().unwrap_or_default();
        if !(first.is_empty() && !directory.is_empty() || ["$EXE", "$XDG_DATA_HOME"].contains(&first)) {
            let message = format!(
                "the directory `{directory}` depends on where the program is started: begin it with `/`, `$EXE` or \
                 `$XDG_DATA_HOME`"
            );
            return Err(text.fault(item.span().start, message));
        }
        placed.push(Placed { it: directory, place: text.place(item.span().start) });
    }
    Ok(Some(placed))
}

fn read_trust(text: &Text<'_>, value: &Spanned<DeValue<'_>>, file: &mut ConfigFile) -> Result<(), Fault> {
    let table = text.table("trust", value)?;
    text.only(table, " in `trust`", &["signatures", "keys"])?;
    if let Some(value) = table.get("signatures") {
        let word = text.string("signatures", value)?;
        let policy = SignaturePolicy::WORDS.iter().find(|(name, _)| *name == word).map(|(_, policy)| *policy);
        let policy = policy.ok_or_else(|| text.wrong("signatures", "`off`, `warn` or `require`", value))?;
        file.signatures = Some(Placed { it: policy, place: text.place(value.span().start) });
    }
    if let Some(value) = table.get("keys") {
        let items = value.get_ref().as_array().into_iter().flatten();
        let keys = text.strings("keys", value)?.into_iter().zip(items).map(|(key, item)| {
            TrustedKey::parse(&key).map_err(|problem| text.fault(item.span().start, problem))
        });
        file.keys = Some(keys.collect::<Result<_, _>>()?);
    }
    Ok(())
}

fn read_select(text: &Text<'_>, value: &Spanned<DeValue<'_>>, file: &mut ConfigFile) -> Result<(), Fault> {
    let table = text.table("select", value)?;
    text.only(table, " in `select`", &["backend", "strategy", "rollback", "fallback"])?;
    let ids = |name: &str| -> Result<Option<Vec<Placed<String>>>, Fault> {
        let Some(value) = table.get(name) else { return Ok(None) };
        let ids = text.strings(name, value)?;
        let items = value.get_ref().as_array().into_iter().flatten();
        let mut placed: Vec<Placed<String>> = Vec::new();
        for (id, item) in ids.into_iter().zip(items) {
            let at = item.span().start;
            if placed.iter().any(|earlier| earlier.it == id) {
                return Err(text.fault(at, format!("`{name}` has `{id}` twice")));
            }
            if [AUTO, NONE].contains(&id.as_str()) {
                return Err(text.fault(at, format!("`{id}` stands alone and not in a list")));
            }
            if file.plugins.get(&id).is_some_and(|entry| entry.enabled == Some(false)) {
                let message = format!("`{name}` has `{id}`, which this file switches off");
                return Err(text.fault(at, message));
            }
            placed.push(Placed { it: id, place: text.place(at) });
        }
        Ok(Some(placed))
    };
    file.backends = ids("backend")?;
    file.rollbacks = ids("rollback")?;
    file.fallback = ids("fallback")?;
    file.strategy = match table.get("strategy") {
        None => None,
        Some(value) if value.get_ref().is_array() => {
            ids("strategy")?.map(|ids| Strategy::Named(ids.into_iter().map(|id| id.it).collect()))
        }
        Some(value) => match value.get_ref().as_str() {
            Some(AUTO) => Some(Strategy::Auto),
            Some(NONE) => Some(Strategy::Named(Vec::new())),
            _ => return Err(text.wrong("strategy", "`auto`, `none` or a list of strategies", value)),
        },
    };
    Ok(())
}

fn read_plugin(
    text: &Text<'_>,
    id: &str,
    value: &Spanned<DeValue<'_>>,
    plain: &mut Vec<Plain>,
) -> Result<PluginEntry, Fault> {
    let table = text.table(id, value)?;
    text.only(
        table,
        &format!(" in `[plugin.{id}]`, whose settings stand in `[plugin.{id}.settings]`"),
        &["version", "enabled", "path", "sha256", "settings"],
    )?;
    let mut entry = PluginEntry::default();
    if let Some(value) = table.get("version") {
        let range = text.string("version", value)?;
        let parsed = range.parse().map_err(|error| {
            text.fault(value.span().start, format!("`{range}` is no range of versions: {error}"))
        });
        entry.version = Some(parsed?);
    }
    if let Some(value) = table.get("enabled") {
        entry.enabled = Some(text.flag("enabled", value)?);
    }
    if let Some(value) = table.get("path") {
        let path = PathBuf::from(text.string("path", value)?);
        if !path.is_absolute() {
            let message = format!(
                "the path `{}` depends on where the program is started: begin it with `/`",
                path.display()
            );
            return Err(text.fault(value.span().start, message));
        }
        entry.path = Some(path);
    }
    if let Some(value) = table.get("sha256") {
        let digits = text.string("sha256", value)?;
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            let message =
                format!("`{}` is no SHA-256, which has 64 hexadecimal digits", digits.escape_debug());
            return Err(text.fault(value.span().start, message));
        }
        entry.sha256 = Some(digits.to_ascii_lowercase());
    }
    if entry.enabled == Some(false) {
        let without_effect = ["version", "path", "sha256"].iter().find_map(|key| table.get_key_value(*key));
        if let Some((key, _)) = without_effect {
            let message = format!("`{id}` is switched off here, so its `{}` has no effect", key.get_ref());
            return Err(text.fault(key.span().start, message));
        }
    }
    if let Some(value) = table.get("settings") {
        read_settings(text, text.table("settings", value)?, &format!("{id}."), plain)?;
    }
    Ok(entry)
}

/// Reads settings; tables in them stand for keys with dots.
fn read_settings(
    text: &Text<'_>,
    table: &DeTable<'_>,
    prefix: &str,
    plain: &mut Vec<Plain>,
) -> Result<(), Fault> {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.get_ref());
        if let DeValue::Table(table) = value.get_ref() {
            read_settings(text, table, &format!("{name}."), plain)?;
            continue;
        }
        let place = text.place(key.span().start);
        if let Some(earlier) = plain.iter().find(|earlier| earlier.key == name) {
            let message = format!("`{name}` stands here and at {}", earlier.place);
            return Err(Fault::at(&place, message));
        }
        let read = text.value(&name, value)?;
        plain.push(Plain {
            key: name,
            value: (read != Value::Text(AUTO.to_owned())).then_some(read),
            place,
            value_place: text.place(value.span().start),
        });
    }
    Ok(())
}
