//! The contract around the operations: planning, loading, launching, waiting, memory.

mod captures;
mod device;
mod launch;
mod load;
mod peers;
mod plan;
mod semaphore;
mod state;
mod toys;

use super::{CaseError, Context, wrong};
use paceline_plugin_api::Error;

/// One case of the contract.
type Case = (&'static str, fn(&Context<'_>) -> Result<(), CaseError>);

/// Runs all cases.
pub(super) fn run(context: &mut Context<'_>) {
    for (group, cases) in [
        ("plan", plan::CASES),
        ("load", load::CASES),
        ("launch", launch::CASES),
        ("semaphore", semaphore::CASES),
        ("device", device::CASES),
        ("captures", captures::CASES),
        ("peers", peers::CASES),
        ("state", state::CASES),
    ] {
        if !context.wants(group) {
            continue;
        }
        for (name, case) in cases {
            let result = case(context).map(|()| 0.0);
            context.record(group, name, result);
        }
    }
}

/// Turns an error of a call that must work into a wrong outcome that names the call.
fn failing(call: &'static str) -> impl Fn(Error) -> CaseError {
    move |error| CaseError::Wrong(format!("{call}: {error}"))
}

/// Checks that something was refused, with a text that contains `part`.
fn check_refused<T>(what: &str, result: Result<T, String>, part: &str) -> Result<(), CaseError> {
    match result {
        Ok(_) => wrong(format!("{what} was accepted")),
        Err(text) if text.trim().is_empty() => wrong(format!("{what} was refused without a reason")),
        Err(text) if !text.contains(part) => {
            wrong(format!("{what} was refused with `{text}`, without `{part}`"))
        }
        Err(_) => Ok(()),
    }
}
