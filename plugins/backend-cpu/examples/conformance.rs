//! Runs the conformance suite at one level and prints the report: `conformance [LEVEL]`. For runs under tools that
//! watch a program, such as valgrind.

#[path = "../tests/support/host.rs"]
mod host;

use paceline_conformance::suite::{Suite, SuiteOptions};

fn main() {
    let level = std::env::args().nth(1).unwrap_or_else(|| "auto".into());
    let options = SuiteOptions { settings: vec![("level".into(), level)], ..SuiteOptions::default() };
    let report = Suite::new(&host::backend(), options).run();
    println!("{report}");
    if report.failed() > 0 {
        std::process::exit(1);
    }
}
