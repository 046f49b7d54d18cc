//! The child's side: does what it is asked for and answers.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::{Cause, Described, Failure, FoundDriver, Phase, ProbedDevice, Verdict, frame};
use crate::descriptor::PluginKind;
use crate::{FileFault, drivers, examine, library};
use paceline_plugin_api::abi::{BACKEND_INTERFACE, DRAFTER_INTERFACE, ROLLBACK_INTERFACE};
use paceline_plugin_api::client::PluginClient;

/// Tries the plugin in `file` and answers through the pipe that is this process's standard input.
///
/// Must be the first thing that the child does: nothing may have read the standard input, and no threads may run.
/// The returned code means nothing to the parent.
pub fn probe_main(phase: Phase, file: &Path) -> ExitCode {
    let answered = take_channel().and_then(|mut channel| {
        let answer = match phase {
            Phase::Describe => to_json(describe(file).map(|(described, _)| described)),
            Phase::Devices => to_json(devices(file)),
            Phase::Driver => to_json(driver(file)),
        };
        let written = channel.write_all(&frame::encode(&answer));
        // A plugin that closes every file has closed this one, and closing it again would be a fault of ours.
        std::mem::forget(channel);
        written
    });
    match answered {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn to_json<T: Serialize>(verdict: Verdict<T>) -> Vec<u8> {
    serde_json::to_vec(&verdict).unwrap_or_default()
}

fn describe(file: &Path) -> Verdict<(Described, PluginClient)> {
    let examined = examine::examine(file).map_err(|rejected| refusal(file, &rejected.fault))?;
    // Without its driver a library may not even load, and the loader would name some part of the driver.
    drivers::check(&examined.descriptor.needs).map_err(|fault| refusal(file, &fault))?;
    let client = library::enter(file, &examined.descriptor).map_err(|fault| refusal(file, &fault))?;
    let mut interfaces = Vec::new();
    match client.backend() {
        Ok(_) => interfaces.push(BACKEND_INTERFACE.to_owned()),
        Err(error) if examined.descriptor.kind == PluginKind::Backend => {
            return Err(refusal(file, &FileFault::Descriptor(error.to_string())));
        }
        Err(_) => {}
    }
    let broken = |error: paceline_plugin_api::Error| refusal(file, &FileFault::Descriptor(error.to_string()));
    if client.drafters().map_err(broken)?.is_some() {
        interfaces.push(DRAFTER_INTERFACE.to_owned());
    }
    if client.rollbacks().map_err(broken)?.is_some() {
        interfaces.push(ROLLBACK_INTERFACE.to_owned());
    }
    Ok((Described { interfaces }, client))
}

/// A fault that was found in an orderly way.
fn refusal(file: &Path, fault: &FileFault) -> Failure {
    let (reason, hint) = (fault.to_string(), fault.hint(&file.display().to_string()));
    let cause = match fault {
        FileFault::Loader(_) | FileFault::Driver { .. } => Cause::NotLoadable { reason, hint },
        _ => Cause::Refused { reason, hint },
    };
    Failure::new(Phase::Describe, cause)
}

/// Loads a driver's library by its name, with which the loader looks where it always does.
fn driver(name: &Path) -> Verdict<FoundDriver> {
    let not_loadable = |reason| Failure::new(Phase::Driver, Cause::NotLoadable { reason, hint: None });
    drivers::find(&name.to_string_lossy()).map(|path| FoundDriver { path }).map_err(not_loadable)
}

fn devices(file: &Path) -> Verdict<Vec<ProbedDevice>> {
    let (_, client) = describe(file)?;
    let devices = client.backend().and_then(|backend| backend.devices()).map_err(|error| {
        let reason = format!("fails {}: {error}", Phase::Devices.present());
        Failure::new(Phase::Devices, Cause::Refused { reason, hint: None })
    })?;
    Ok(devices.into_iter().map(ProbedDevice::from).collect())
}

/// Moves the channel away from the standard input, which becomes empty, and sees to it that this process leaves
/// neither itself nor a memory image behind.
#[cfg(unix)]
fn take_channel() -> io::Result<File> {
    use rustix::process::{Resource, Rlimit, Signal};

    let channel = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let nothing = Rlimit { current: Some(0), maximum: Some(0) };
    // A nicety: where it is not allowed, a crash leaves a file.
    let _ = rustix::process::setrlimit(Resource::Core, nothing);
    Ok(channel.into())
}

#[cfg(not(unix))]
fn take_channel() -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}
