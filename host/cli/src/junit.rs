//! What came out of the conformance suite, in the XML that programs which show test results read.

use std::fmt::Write;

use paceline_conformance::suite::{Outcome, Report, Tally};

/// The report as JUnit XML: a test suite for each operation and each part of the contract.
pub fn xml(plugin: &str, report: &Report) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string cannot fail.
    let _ = writeln!(xml, "<testsuites name=\"{}\"{}>", escaped(plugin), counts(report.total()));
    for group in report.groups() {
        let name = escaped(group);
        let _ = writeln!(xml, "  <testsuite name=\"{name}\"{}>", counts(report.tally(group)));
        for entry in report.entries().iter().filter(|entry| entry.group == group) {
            let case = format!("classname=\"{name}\" name=\"{}\"", escaped(&entry.case));
            let (element, message) = match &entry.outcome {
                Outcome::Passed { .. } => {
                    let _ = writeln!(xml, "    <testcase {case}/>");
                    continue;
                }
                Outcome::Failed { what } => ("failure", what),
                Outcome::Refused { reason } => ("skipped", reason),
            };
            let message = escaped(message);
            let _ = writeln!(xml, "    <testcase {case}><{element} message=\"{message}\"/></testcase>");
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn counts(tally: Tally) -> String {
    let Tally { passed, failed, refused, .. } = tally;
    format!(
        " tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"{refused}\"",
        passed + failed + refused
    )
}

/// A text as the value of an attribute.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => {
                let _ = write!(escaped, "&#{};", u32::from(character));
            }
            // XML has no way to write these.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_escaped() {
        assert_eq!(escaped("a<b> & \"c\"\n\u{1b}'"), "a&lt;b&gt; &amp; &quot;c&quot;&#10;\u{fffd}'");
    }

    #[test]
    fn an_empty_report_is_a_document() {
        assert_eq!(
            xml("x", &Report::default()),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <testsuites name=\"x\" tests=\"0\" failures=\"0\" errors=\"0\" skipped=\"0\">\n</testsuites>\n"
        );
    }
}
