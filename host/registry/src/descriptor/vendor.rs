//! What a backend adds to the types and operations that everyone knows.

use std::ops::Range;

use paceline_plugin_api::graph::vendor_operation;
use paceline_plugin_api::weight_types::WeightType;
use serde::Deserialize;
use toml::Spanned;

use super::PluginKind;

#[derive(Deserialize)]
pub(super) struct RawWeightType {
    id: i64,
    name: String,
    elements: i64,
    bytes: i64,
}

/// A fault, and where it is.
type Fault = (Range<usize>, String);

/// The weight types, each with an id and a name of its own.
pub(super) fn weight_types(
    kind: PluginKind,
    raw: Vec<Spanned<RawWeightType>>,
) -> Result<Vec<WeightType>, Fault> {
    let mut types: Vec<WeightType> = Vec::with_capacity(raw.len());
    for entry in raw {
        let span = entry.span();
        let fault = |message: String| (span.clone(), message);
        if kind != PluginKind::Backend {
            return Err(fault("only a backend has a `weight_type`".to_owned()));
        }
        let declared = entry.into_inner().check().map_err(fault)?;
        let same = |earlier: &&WeightType| {
            earlier.id == declared.id || earlier.name.eq_ignore_ascii_case(&declared.name)
        };
        if let Some(earlier) = types.iter().find(same) {
            let (id, name) = (earlier.id, &earlier.name);
            return Err(fault(format!(
                "weight type `{}`: its id or name is that of `{name}` ({id}) before it",
                declared.name
            )));
        }
        types.push(declared);
    }
    Ok(types)
}

impl RawWeightType {
    fn check(self) -> Result<WeightType, String> {
        let name = self.name;
        let shown = name.escape_debug().to_string();
        let number = |key: &str, value: i64| {
            u32::try_from(value).map_err(|_| {
                format!(
                    "weight type `{shown}`: `{key}` is {value}, which is no number from 0 to {}",
                    u32::MAX
                )
            })
        };
        let id = number("id", self.id)?;
        let (elements, bytes) = (number("elements", self.elements)?, number("bytes", self.bytes)?);
        let declared = WeightType { id, name, elements, bytes };
        declared.check().map_err(|fault| format!("weight type `{shown}`: {fault}"))?;
        Ok(declared)
    }
}

/// The operations, each once.
pub(super) fn operations(kind: PluginKind, raw: Vec<Spanned<String>>) -> Result<Vec<String>, Fault> {
    let mut operations: Vec<String> = Vec::with_capacity(raw.len());
    for entry in raw {
        let span = entry.span();
        let operation = entry.into_inner();
        let fault = |message: String| (span.clone(), format!("`operations`: {message}"));
        if kind != PluginKind::Backend {
            return Err(fault("only a backend has some".to_owned()));
        }
        vendor_operation(&operation).map_err(fault)?;
        if operations.contains(&operation) {
            return Err(fault(format!("`{operation}` stands here twice")));
        }
        operations.push(operation);
    }
    Ok(operations)
}
