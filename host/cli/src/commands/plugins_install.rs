//! `plugins install`: copies plugins into the user's folder.

use std::path::PathBuf;

use paceline_registry::{Error, Installation, PluginStore, Registry, SignaturePolicy, Signatures};

use super::plugins_list;
use crate::app::{App, plugin_store, prober};
use crate::args::PluginsInstallArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

/// Runs the command. Of a directory all plugins are installed, or none.
pub fn run(args: &PluginsInstallArgs, app: &mut App) -> Result<Exit, Failure> {
    let store = plugin_store()?;
    let prober = prober();
    let files = PluginStore::files_of(&args.path)?;
    check_signatures(&files, &app.config()?.plugins.signatures)?;
    let installed = store.install_all(&files, prober.as_ref(), args.force)?;
    installed.iter().for_each(|installation| report(installation, app));
    let candidates = app.discover(None);
    let registry = Registry::new()?;
    for Installation { file, path, .. } in &installed {
        let path = path.canonicalize().ok();
        let candidate = candidates.list().iter().find(|candidate| Some(&candidate.path) == path.as_ref());
        if let Some((state, Some(reason))) = candidate.map(|it| plugins_list::state(it, &registry)) {
            let line = format!("`{}` {} is {state}: {reason}", file.id, file.version);
            app.printer.warning(text::name(&line));
        }
    }
    Ok(Exit::Ok)
}

/// What would be refused once it is installed is not installed.
fn check_signatures(files: &[PathBuf], signatures: &Signatures) -> Result<(), Failure> {
    if signatures.policy != SignaturePolicy::Require {
        return Ok(());
    }
    for file in files {
        signatures.check(file).map_err(|fault| Error::File { path: file.clone(), fault })?;
    }
    Ok(())
}

fn report(installation: &Installation, app: &App) {
    let Installation { file, path, was_there, untried, warnings } = installation;
    let done = if *was_there { "was installed before, unchanged" } else { "installed" };
    let line = format!("`{}` {} {done}: {}", file.id, file.version, path.display());
    app.printer.status(text::name(&line));
    if *untried {
        app.printer.warning("it was not tried in a process of its own");
    }
    warnings.iter().for_each(|warning| app.printer.warning(text::name(warning)));
}
