//! `config check`: every fault of the files of settings.

use std::path::Path;

use paceline_registry::settings::{ConfigFile, Fault, Faults, Layer};
use paceline_registry::{Candidates, Registry};

use crate::app::App;
use crate::args::ConfigCheckArgs;
use crate::config::Config;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::resolution::Sources;
use crate::text;

/// Runs the command.
pub fn run(args: &ConfigCheckArgs, app: &mut App) -> Result<Exit, Failure> {
    let configs: Vec<Result<Config, Faults>> = if args.files.is_empty() {
        vec![Config::read()]
    } else {
        args.files.iter().map(|file| read(file)).collect::<Result<_, _>>()?
    };
    let (mut faults, mut notes) = (Vec::new(), Vec::new());
    // Plugins are looked for where there is something to hold against them.
    if configs.iter().any(Result::is_ok) {
        let candidates = app.discover(None);
        let registry = app.with_named(&candidates)?;
        for config in configs.iter().flatten() {
            match notes_of(config, &registry, &candidates, &mut faults) {
                Ok(found) => notes.extend(found),
                Err(found) => faults.extend(found.0),
            }
        }
    }
    faults.extend(configs.into_iter().filter_map(Result::err).flat_map(|faults| faults.0));
    faults.sort();
    faults.dedup();
    notes.sort();
    notes.dedup();
    for fault in &faults {
        app.printer.line(text::name(&fault.to_string()))?;
    }
    app.printer.flush()?;
    notes.iter().for_each(|note| app.printer.warning(text::name(note)));
    match faults.len() {
        0 => app.printer.status("no faults"),
        count => app.printer.status(text::counted(count as u64, "fault")),
    }
    Ok(if faults.is_empty() { Exit::Ok } else { Exit::Usage })
}

/// A file that the user named, on top of the one that is part of the program.
fn read(file: &Path) -> Result<Result<Config, Faults>, Failure> {
    match ConfigFile::read(file, Layer::Site) {
        Ok(Some(file)) => Ok(ConfigFile::shipped()
            .map_err(Faults::from)
            .and_then(|shipped| Config::of(vec![shipped, file]))),
        Ok(None) => Err(Failure::new(Exit::Usage, format!("there is no file {}", file.display()))),
        Err(fault) => Ok(Err(fault.into())),
    }
}

/// What of the files has no effect. Wrong rules of plugins are added to the faults.
fn notes_of(
    config: &Config,
    registry: &Registry,
    candidates: &Candidates,
    faults: &mut Vec<Fault>,
) -> Result<Vec<String>, Faults> {
    let sources = Sources::new(config, registry, candidates)?;
    let resolver = sources.resolver(&[])?;
    faults.extend(resolver.plugin_faults().cloned());
    Ok(sources.notes(&resolver))
}
