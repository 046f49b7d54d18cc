//! `plugins verify`: what is wrong with a plugin file.

use paceline_registry::{Candidate, DiscoverConfig, Registry, State};
use serde_json::{Value, json};

use super::plugins_list::{abi, abi_text, kind};
use crate::app::{App, prober};
use crate::args::PluginsVerifyArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

/// Runs the command. Nothing that is known from earlier runs counts.
pub fn run(args: &PluginsVerifyArgs, app: &mut App) -> Result<Exit, Failure> {
    let candidates = Registry::discover(&DiscoverConfig {
        files: vec![args.file.clone()],
        prober: prober(),
        ..DiscoverConfig::default()
    });
    for candidate in candidates.list() {
        if args.output.json {
            app.printer.json(&as_json(candidate))?;
            app.printer.flush()?;
        }
        candidate.warnings.iter().for_each(|warning| app.printer.warning(warning));
        if let (Some(descriptor), None) = (&candidate.descriptor, candidate.error()) {
            let abi = abi(candidate).as_ref().map(abi_text).unwrap_or_default();
            app.printer.status(format_args!(
                "{}: {} `{}` {}, ABI {}: no faults{}",
                text::name(&args.file.display().to_string()),
                descriptor.kind,
                descriptor.id,
                descriptor.version,
                abi,
                if was_tried(candidate) { "" } else { ", but it was not tried in a process of its own" },
            ));
        }
    }
    candidates.expect_named()?;
    Ok(Exit::Ok)
}

fn was_tried(candidate: &Candidate) -> bool {
    matches!(candidate.state, State::Usable(Some(_)))
}

fn as_json(candidate: &Candidate) -> Value {
    let descriptor = candidate.descriptor.as_ref();
    json!({
        "file": candidate.path,
        "ok": candidate.error().is_none(),
        "tried": was_tried(candidate),
        "id": candidate.id(),
        "kind": kind(candidate),
        "version": descriptor.map(|it| it.version.to_string()),
        "abi": abi(candidate),
        "error": candidate.error().map(ToString::to_string),
        "hint": candidate.error().and_then(|error| error.hint()),
        "warnings": candidate.warnings,
    })
}
