//! `plugins verify`: what is wrong with a plugin file.

use paceline_registry::{Candidate, DiscoverConfig, Environment, PluginKind, Registry, Signatures, State};
use serde_json::{Value, json};

use super::plugins_list::{abi, abi_text, kind};
use super::{plugins_verify_installed, plugins_verify_lossless};
use crate::app::{App, prober};
use crate::args::PluginsVerifyArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::layouts::{self, Layouts};
use crate::text;

/// Runs the command. Nothing that is known from earlier runs counts.
pub fn run(args: &PluginsVerifyArgs, app: &mut App) -> Result<Exit, Failure> {
    let Some(file) = &args.file else { return plugins_verify_installed::run(&args.output, app) };
    if args.in_this_process {
        return plugins_verify_lossless::compare_here(file, args, app);
    }
    let signatures = &app.config()?.plugins.signatures.clone();
    let candidates = Registry::discover(&DiscoverConfig {
        files: vec![file.clone()],
        prober: prober(),
        installed: Environment::of_process().user_plugin_directory(),
        signatures: signatures.clone(),
        ..DiscoverConfig::default()
    });
    let (mut different, mut found) = (None, Ok(()));
    let name = file.display().to_string();
    for candidate in candidates.list() {
        let layouts = compare_layouts(candidate);
        let texts = match is_strategy(candidate) && was_tried(candidate) {
            true => Some(plugins_verify_lossless::compare(file, args)?),
            false => None,
        };
        if args.output.json {
            let mut json = as_json(candidate, &layouts, texts.as_ref());
            json["signed_with"] = json!(signed_by(candidate, signatures));
            app.printer.json(&json)?;
            app.printer.flush()?;
        }
        candidate.warnings.iter().for_each(|warning| app.printer.warning(warning));
        if let Layouts::Different(difference) = &layouts {
            different = Some(Failure::new(
                Exit::Plugin,
                format!("plugin file {}: {difference}", text::name(&file.display().to_string())),
            ));
        } else if let (Some(descriptor), None) = (&candidate.descriptor, candidate.error())
            && texts.as_ref().is_none_or(plugins_verify_lossless::is_faultless)
        {
            let abi = abi(candidate).as_ref().map(abi_text).unwrap_or_default();
            app.printer.status(format_args!(
                "{}: {} `{}` {}, ABI {}: no faults{}{}; {}",
                text::name(&file.display().to_string()),
                descriptor.kind,
                descriptor.id,
                descriptor.version,
                abi,
                if was_tried(candidate) { "" } else { ", but it was not tried in a process of its own" },
                signed_by(candidate, signatures)
                    .map_or_else(String::new, |key| format!("; signed with {key}")),
                layouts.note(),
            ));
        }
        if let Some(texts) = &texts {
            found = found.and(plugins_verify_lossless::show(&name, texts, args.output.json, app));
        }
    }
    candidates.expect_named()?;
    found?;
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

/// The trusted key that a file is signed with, where files of settings ask for one.
fn signed_by<'a>(candidate: &Candidate, signatures: &'a Signatures) -> Option<&'a str> {
    signatures.check(&candidate.path).ok().flatten()
}

fn is_strategy(candidate: &Candidate) -> bool {
    candidate.descriptor.as_ref().is_some_and(|descriptor| descriptor.kind == PluginKind::Strategy)
}

fn was_tried(candidate: &Candidate) -> bool {
    matches!(candidate.state, State::Usable(Some(_)))
}

fn as_json(candidate: &Candidate, layouts: &Layouts, texts: Option<&Value>) -> Value {
    let descriptor = candidate.descriptor.as_ref();
    json!({
        "file": candidate.path,
        "ok": candidate.error().is_none()
            && !matches!(layouts, Layouts::Different(_))
            && texts.is_none_or(plugins_verify_lossless::is_faultless),
        "layouts": layouts.word(),
        "tried": was_tried(candidate),
        "id": candidate.id(),
        "kind": kind(candidate),
        "version": descriptor.map(|it| it.version.to_string()),
        "abi": abi(candidate),
        "error": candidate.error().map(ToString::to_string),
        "hint": candidate.error().and_then(|error| error.hint()),
        "warnings": candidate.warnings,
        "lossless": texts,
    })
}
