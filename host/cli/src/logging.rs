//! The program's log on standard error.

use tracing_subscriber::EnvFilter;

use crate::args::GlobalArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::printer::stderr_colours;

/// Starts logging. Must come before plugins are entered, as they connect to what is there.
pub fn start(args: &GlobalArgs) -> Result<(), Failure> {
    let filter = match &args.log {
        Some(filter) => EnvFilter::try_new(filter).map_err(|error| {
            Failure::new(Exit::Usage, format!("`{filter}` is no log filter")).caused_by(&error).hint(
                "give a level, or `target=level` parts with commas between, as in `--log warn,cpu=debug`",
            )
        })?,
        None => EnvFilter::new(match args.verbose {
            0 => "warn",
            1 => "info",
            2 => "debug",
            _ => "trace",
        }),
    };
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(stderr_colours())
        .without_time()
        .try_init();
    started.map_err(|error| Failure::new(Exit::Failed, "cannot start the log").caused_by(&*error))
}
