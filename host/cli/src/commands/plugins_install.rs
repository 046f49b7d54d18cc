//! `plugins install`: copies plugins into the user's folder.

use paceline_registry::{Installation, PluginStore, Registry};

use super::plugins_list;
use crate::app::{App, plugin_store, prober};
use crate::args::PluginsInstallArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

/// Runs the command. What is refused is not installed; of a directory, what comes before it is.
pub fn run(args: &PluginsInstallArgs, app: &mut App) -> Result<Exit, Failure> {
    let store = plugin_store()?;
    let prober = prober();
    let mut installed = Vec::new();
    for file in PluginStore::files_of(&args.path)? {
        let installation = store.install(&file, prober.as_ref(), args.force)?;
        report(&installation, app);
        installed.push(installation);
    }
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
