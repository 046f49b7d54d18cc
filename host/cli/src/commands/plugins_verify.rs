//! `plugins verify`: what is wrong with a plugin file.

use paceline_registry::{Candidate, DiscoverConfig, Environment, Registry, State};
use serde_json::{Value, json};

use super::plugins_list::{abi, abi_text, kind};
use super::plugins_verify_installed;
use crate::app::{App, prober};
use crate::args::PluginsVerifyArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::layouts::{self, Layouts};
use crate::text;

/// Runs the command. Nothing that is known from earlier runs counts.
pub fn run(args: &PluginsVerifyArgs, app: &mut App) -> Result<Exit, Failure> {
    let Some(file) = &args.file else { return plugins_verify_installed::run(&args.output, app) };
    let candidates = Registry::discover(&DiscoverConfig {
        files: vec![file.clone()],
        prober: prober(),
        installed: Environment::of_process().user_plugin_directory(),
        ..DiscoverConfig::default()
    });
    let mut different = None;
    for candidate in candidates.list() {
        let layouts = compare_layouts(candidate);
        if args.output.json {
            app.printer.json(&as_json(candidate, &layouts))?;
            app.printer.flush()?;
        }
        candidate.warnings.iter().for_each(|warning| app.printer.warning(warning));
        if let Layouts::Different(difference) = &layouts {
            different = Some(Failure::new(
                Exit::Plugin,
                format!("plugin file {}: {difference}", text::name(&file.display().to_string())),
            ));
        } else if let (Some(descriptor), None) = (&candidate.descriptor, candidate.error()) {
            let abi = abi(candidate).as_ref().map(abi_text).unwrap_or_default();
            app.printer.status(format_args!(
                "{}: {} `{}` {}, ABI {}: no faults{}; {}",
                text::name(&file.display().to_string()),
                descriptor.kind,
                descriptor.id,
                descriptor.version,
                abi,
                if was_tried(candidate) { "" } else { ", but it was not tried in a process of its own" },
                layouts.note(),
            ));
        }
    }
    candidates.expect_named()?;
    match different {
        Some(failure) => {
            Err(failure.hint("build the plugin with a `paceline-plugin-api` that was not changed"))
        }
        None => Ok(Exit::Ok),
    }
}

/// Only what survived being tried is loaded here.
fn compare_layouts(candidate: &Candidate) -> Layouts {
    match candidate.state {
        State::Usable(Some(_)) => layouts::compare(&candidate.path),
        State::Usable(None) => Layouts::NotCompared("the file was not tried in a process of its own"),
        _ => Layouts::NotCompared("the file cannot be used"),
    }
}

fn was_tried(candidate: &Candidate) -> bool {
    matches!(candidate.state, State::Usable(Some(_)))
}

fn as_json(candidate: &Candidate, layouts: &Layouts) -> Value {
    let descriptor = candidate.descriptor.as_ref();
    json!({
        "file": candidate.path,
        "ok": candidate.error().is_none() && !matches!(layouts, Layouts::Different(_)),
        "layouts": layouts.word(),
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
