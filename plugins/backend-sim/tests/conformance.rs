//! The conformance suite against the simulated devices.

mod support;

use paceline_conformance::suite::{Suite, SuiteOptions};

#[test]
fn every_device_conforms() {
    let backend = support::backend();
    let devices = backend.devices().unwrap();
    assert_eq!(devices.len(), 2, "{devices:?}");
    let options = SuiteOptions { required: vec!["*".into()], ..SuiteOptions::default() };
    let report = Suite::new(&backend, options).run();
    println!("{report}");
    assert_eq!((report.failed(), report.refused()), (0, 0), "{report}");

    // Devices differ in their descriptions only, so the second answers for what a device is.
    let groups = ["plan", "load", "launch", "semaphore", "device", "state"];
    let groups = groups.iter().map(|&group| group.to_owned()).collect();
    let report = Suite::new(&backend, SuiteOptions { device: 1, groups, ..SuiteOptions::default() }).run();
    assert_eq!((report.failed(), report.refused()), (0, 0), "{report}");
}
