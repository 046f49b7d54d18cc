//! The conformance suite: what every backend must pass.
//!
//! ```no_run
//! # fn example(backend: &paceline_plugin_api::client::BackendClient) {
//! use paceline_conformance::suite::{Suite, SuiteOptions};
//! let report = Suite::new(backend, SuiteOptions::default()).run();
//! println!("{report}");
//! assert_eq!(report.failed(), 0);
//! # }
//! ```
//!
//! Every operation is run over its attributes, types, odd shapes and row counts and compared with the reference
//! executor; what a plan promises about bits is held against it; and the contract of planning, loading, launching and
//! waiting is tried out. What a backend refuses in its plan is reported and is no failure, unless it is required.

mod compare;
mod contract;
mod declared;
mod report;
mod rollback;
mod rows;
mod samples;
mod sequences;
mod states;
mod stored_rows;
mod stores;
pub mod tolerance;

pub use compare::{compare_results, compare_values};
pub use report::{Entry, Outcome, Report, Tally};

use crate::harness::{Bench, HarnessError};
use paceline_plugin_api::client::{BackendClient, WeightTypesClient};
use paceline_plugin_api::weight_types::WeightType;

/// What to run, and on what.
#[derive(Clone, Debug)]
pub struct SuiteOptions {
    /// Index of the device.
    pub device: u32,
    /// Settings of the device.
    pub settings: Vec<(String, String)>,
    /// Groups to run (operations by name, and `weight_types`, `plan`, `load`, `launch`, `semaphore`, `device`, `state`); empty is all.
    pub groups: Vec<String>,
    /// Cases that count as failed when they are refused: a group, or a group and the beginning of a case's name, as
    /// in `linear q4_k`. `*` is everything.
    pub required: Vec<String>,
    /// Seed of all data.
    pub seed: u64,
    /// Weight types that the plugin's descriptor declares.
    pub weight_types: Vec<WeightType>,
    /// What the plugin says about them.
    pub weight_type_reader: Option<WeightTypesClient>,
}

impl Default for SuiteOptions {
    fn default() -> Self {
        Self {
            device: 0,
            settings: Vec::new(),
            groups: Vec::new(),
            required: Vec::new(),
            seed: 1,
            weight_types: Vec::new(),
            weight_type_reader: None,
        }
    }
}

/// A suite for one backend.
pub struct Suite<'a> {
    backend: &'a BackendClient,
    options: SuiteOptions,
}

/// What cases need: a device, the seed, and where outcomes go.
struct Context<'a> {
    bench: Bench,
    options: &'a SuiteOptions,
    report: Report,
}

impl Context<'_> {
    /// True if a group is to be run.
    fn wants(&self, group: &str) -> bool {
        self.options.groups.is_empty() || self.options.groups.iter().any(|wanted| wanted == group)
    }

    /// Records a case. A refusal of the backend is one, other errors are failures.
    fn record(&mut self, group: &str, case: &str, result: Result<f64, CaseError>) {
        let outcome = match result {
            Ok(worst) => Outcome::Passed { worst },
            Err(CaseError::Harness(HarnessError::Refused(reason)) | CaseError::NotOffered(reason)) => {
                if is_required(&self.options.required, group, case) {
                    Outcome::Failed { what: format!("required, but refused: {reason}") }
                } else {
                    Outcome::Refused { reason }
                }
            }
            Err(CaseError::Harness(error)) => Outcome::Failed { what: error.to_string() },
            Err(CaseError::Wrong(what)) => Outcome::Failed { what },
        };
        self.report.add(group, case, outcome);
    }
}

/// True if the list names a case: by its group, by the group and the beginning of its name up to a space, or by `*`.
fn is_required(required: &[String], group: &str, case: &str) -> bool {
    let name = format!("{group} {case}");
    required.iter().any(|required| {
        let rest = name.strip_prefix(required.as_str());
        required == "*" || rest.is_some_and(|rest| rest.starts_with([' ', ',']))
    })
}

/// Why a case did not pass.
#[derive(Clone, Debug, PartialEq)]
enum CaseError {
    /// The backend refused, or a call failed.
    Harness(HarnessError),
    /// The backend does not promise or offer what the case is about.
    NotOffered(String),
    /// The backend did something wrong.
    Wrong(String),
}

impl From<HarnessError> for CaseError {
    fn from(error: HarnessError) -> Self {
        Self::Harness(error)
    }
}

impl From<crate::reference::ReferenceError> for CaseError {
    fn from(error: crate::reference::ReferenceError) -> Self {
        Self::Wrong(format!("the reference executor refuses the case: {error}"))
    }
}

fn wrong<T>(what: impl Into<String>) -> Result<T, CaseError> {
    Err(CaseError::Wrong(what.into()))
}

impl<'a> Suite<'a> {
    /// A suite for a backend.
    pub fn new(backend: &'a BackendClient, options: SuiteOptions) -> Self {
        Self { backend, options }
    }

    /// Runs everything that the options select.
    pub fn run(&self) -> Report {
        let bench = match Bench::open(self.backend, self.options.device, &self.options.settings) {
            Ok(bench) => bench,
            Err(error) => {
                let mut report = Report::default();
                report.add("device", "opens", Outcome::Failed { what: error.to_string() });
                return report;
            }
        };
        let mut context = Context { bench, options: &self.options, report: Report::default() };
        for sample in samples::row_samples(self.options.seed) {
            if context.wants(sample.operation) {
                rows::run(&mut context, &sample);
            }
        }
        declared::run(&mut context);
        for sample in samples::sequence_samples() {
            if context.wants(sample.operation) {
                sequences::run(&mut context, &sample);
            }
        }
        stores::run(&mut context);
        stored_rows::run(&mut context);
        rollback::run(&mut context);
        contract::run(&mut context);
        context.report
    }
}

#[cfg(test)]
mod tests {
    use super::is_required;

    #[test]
    fn required_cases_are_named_by_group_and_beginning() {
        let required = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|text| (*text).to_owned()).collect();
            is_required(&list, "linear", "q4_k [17,256], up to 1 rows")
        };
        assert!(required(&["*"]) && required(&["linear"]) && required(&["add", "linear q4_k"]));
        assert!(required(&["linear q4_k [17,256]"]));
        assert!(
            !required(&[]) && !required(&["linear q4"]) && !required(&["lin"]) && !required(&["linear q5_k"])
        );
    }
}
