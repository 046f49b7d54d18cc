//! The descriptor as it stands in TOML, and its way into a checked [`Descriptor`].

use std::ops::Range;

use paceline_plugin_api::settings::nearest;
use serde::Deserialize;
use toml::Spanned;

use super::fault::line_and_column;
use super::place::{self, Step};
use super::setting::RawSetting;
use super::vendor::{self, RawWeightType};
use super::{
    AbiRange, AbiVersion, DeclaredRule, Descriptor, DescriptorFault, Driver, DriverRange, PluginKind,
    VersionSource, check_id,
};

const KEYS: [&str; 13] = [
    "id",
    "kind",
    "version",
    "abi",
    "license",
    "summary",
    "needs",
    "cpu_features",
    "gpu_targets",
    "operations",
    "weight_type",
    "setting",
    "rule",
];

#[derive(Deserialize)]
struct RawDescriptor {
    id: Spanned<String>,
    kind: Spanned<String>,
    version: Spanned<String>,
    abi: Spanned<RawAbi>,
    license: Option<String>,
    summary: Option<String>,
    #[serde(default)]
    needs: Vec<Spanned<RawDriver>>,
    #[serde(default)]
    cpu_features: Vec<String>,
    #[serde(default)]
    gpu_targets: Vec<String>,
    #[serde(default)]
    operations: Vec<Spanned<String>>,
    #[serde(default, rename = "weight_type")]
    weight_types: Vec<Spanned<RawWeightType>>,
    #[serde(default, rename = "setting")]
    settings: Vec<Spanned<RawSetting>>,
    #[serde(default, rename = "rule")]
    rules: Vec<Spanned<toml::Table>>,
}

#[derive(Deserialize)]
struct RawAbi {
    oldest: Spanned<String>,
    built: Spanned<String>,
}

#[derive(Deserialize)]
struct RawDriver {
    library: Option<String>,
    #[serde(default)]
    any_of: Vec<String>,
    version: Option<String>,
    version_from: Option<String>,
}

/// Reads and checks a descriptor.
pub(super) fn parse(text: &str) -> Result<Descriptor, DescriptorFault> {
    let syntax = |error: &toml::de::Error| {
        DescriptorFault::new(text, error.span().map_or(0, |span| span.start), error.message())
    };
    let document = toml::Deserializer::parse(text).map_err(|error| syntax(&error))?;
    let mut unknown: Vec<Vec<Step>> = Vec::new();
    let raw: RawDescriptor = serde_ignored::deserialize(document, |path| unknown.push(place::steps(&path)))
        .map_err(|error| syntax(&error))?;
    let descriptor = checked(text, raw)?;
    // A newer plugin may say more than is understood here; in any other a strange key is a mistake.
    match unknown.first() {
        Some(steps) if descriptor.abi.built <= AbiVersion::HOST => Err(unknown_key(text, steps)),
        _ => Ok(descriptor),
    }
}

fn unknown_key(text: &str, steps: &[Step]) -> DescriptorFault {
    let at = place::find(text, steps).map_or(0, |span| span.start);
    let key = steps.iter().rev().find_map(|step| match step {
        Step::Key(key) => Some(key.as_str()),
        Step::Index(_) => None,
    });
    let key = key.unwrap_or_default();
    let near = (steps.len() == 1).then(|| nearest(key, KEYS)).flatten();
    let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    DescriptorFault::new(text, at, &format!("the key `{key}` is not known{hint}"))
}

fn checked(text: &str, raw: RawDescriptor) -> Result<Descriptor, DescriptorFault> {
    let fault = |span: Range<usize>, message: &str| DescriptorFault::new(text, span.start, message);
    check_id(raw.id.get_ref()).map_err(|message| fault(raw.id.span(), &message))?;
    let kind = match raw.kind.get_ref().as_str() {
        "backend" => PluginKind::Backend,
        "strategy" => PluginKind::Strategy,
        other => {
            let message = format!("the kind `{other}` is not known; there is `backend` and `strategy`");
            return Err(fault(raw.kind.span(), &message));
        }
    };
    let version = raw.version.get_ref().parse().map_err(|error: semver::Error| {
        fault(raw.version.span(), &format!("`{}` is no semantic version: {error}", raw.version.get_ref()))
    })?;
    let abi_version = |version: &Spanned<String>| {
        version.get_ref().parse::<AbiVersion>().map_err(|message| fault(version.span(), &message))
    };
    let RawAbi { oldest, built } = raw.abi.get_ref();
    let abi = AbiRange { oldest: abi_version(oldest)?, built: abi_version(built)? };
    if abi.oldest > abi.built || abi.oldest.major != abi.built.major {
        return Err(fault(raw.abi.span(), &format!("{abi} is no range of versions of one ABI")));
    }
    let needs = raw.needs.into_iter().map(|driver| {
        let span = driver.span();
        read_driver(driver.into_inner()).map_err(|message| fault(span, &message))
    });
    let needs = needs.collect::<Result<_, _>>()?;
    let operations = vendor::operations(kind, raw.operations).map_err(|(span, it)| fault(span, &it))?;
    let weight_types = vendor::weight_types(kind, raw.weight_types).map_err(|(span, it)| fault(span, &it))?;
    let mut settings = Vec::with_capacity(raw.settings.len());
    for setting in raw.settings {
        let span = setting.span();
        let setting = setting.into_inner().check().map_err(|message| fault(span.clone(), &message))?;
        if settings.iter().any(|earlier: &super::DeclaredSetting| earlier.key == setting.key) {
            return Err(fault(span, &format!("the setting `{}` stands here twice", setting.key)));
        }
        settings.push(setting);
    }
    let rules = raw.rules.into_iter().map(|rule| {
        let (line, _) = line_and_column(text, rule.span().start);
        DeclaredRule { table: rule.into_inner(), line }
    });
    Ok(Descriptor {
        id: raw.id.into_inner(),
        kind,
        version,
        abi,
        license: raw.license,
        summary: raw.summary,
        needs,
        cpu_features: raw.cpu_features,
        gpu_targets: raw.gpu_targets,
        operations,
        weight_types,
        settings,
        rules: rules.collect(),
        text: text.to_owned(),
    })
}

fn read_driver(raw: RawDriver) -> Result<Driver, String> {
    let libraries = match (raw.library, raw.any_of) {
        (Some(library), any_of) if any_of.is_empty() => vec![library],
        (None, any_of) if !any_of.is_empty() => any_of,
        _ => return Err("a driver has a `library`, or some in `any_of` of which one will do".to_owned()),
    };
    if let Some(library) = libraries.iter().find(|it| it.is_empty() || it.contains('/')) {
        return Err(format!("`{library}` is no name of a library, such as `libcuda.so.1`"));
    }
    let version = raw.version.as_deref().map(str::parse::<DriverRange>).transpose()?;
    let version_from = raw.version_from.as_deref().map(str::parse::<VersionSource>).transpose()?;
    if version.is_none() && version_from.is_some() {
        let named = libraries.join(", ");
        return Err(format!("`{named}` has a `version_from` and no `version` to compare with"));
    }
    Ok(Driver { libraries, version, version_from })
}
