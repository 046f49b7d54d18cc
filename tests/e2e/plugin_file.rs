//! The CPU backend from its shared library.

use paceline_conformance::suite::{Suite, SuiteOptions};
use paceline_plugin_api::descriptor::{MAGIC, read_section};
use paceline_tests::engines::{cpu_library, library_cpu};

#[test]
fn the_library_conforms() {
    let report = Suite::new(&library_cpu(), SuiteOptions::default()).run();
    println!("{report}");
    assert_eq!(report.failed(), 0, "{report}");
    assert!(report.passed() > 2000, "only {} cases passed", report.passed());
}

#[test]
fn the_descriptor_can_be_read_from_the_file() {
    let bytes = std::fs::read(cpu_library()).unwrap();
    let start = bytes.windows(MAGIC.len()).position(|w| w == MAGIC).expect("the section is in the file");
    let text = read_section(&bytes[start..]).unwrap();
    assert!(text.contains("id = \"cpu\""), "{text}");
}
