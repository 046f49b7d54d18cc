//! `doctor`: what this machine is like, and what to put right.

use paceline_registry::Registry;
use serde_json::{Value, json};

use crate::app::{App, prober};
use crate::args::DoctorArgs;
use crate::doctor::{Finding, Level, collect, judge};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::table::Columns;
use crate::text;

/// Runs the command. Loads no plugin here; drivers are tried in processes of their own.
pub fn run(args: &DoctorArgs, app: &mut App) -> Result<Exit, Failure> {
    let candidates = app.discover(None);
    let facts = collect(&candidates, &Registry::new()?, prober().as_ref());
    let findings = judge(&facts);
    let problems = findings.iter().filter(|finding| finding.level == Level::Problem).count();
    if args.output.json {
        let findings: Vec<Value> = findings.iter().map(as_json).collect();
        app.printer.json(&json!({ "ok": problems == 0, "findings": findings }))?;
    } else {
        print(&findings, app)?;
        app.printer.flush()?;
        match problems {
            0 => app.printer.status("nothing to put right"),
            1 => app.printer.status("one thing to put right"),
            count => app.printer.status(format_args!("{count} things to put right")),
        }
    }
    Ok(if problems == 0 { Exit::Ok } else { Exit::Failed })
}

fn print(findings: &[Finding], app: &mut App) -> Result<(), Failure> {
    for of_section in findings.chunk_by(|a, b| a.section == b.section) {
        app.printer.line(of_section[0].section)?;
        let mut columns = Columns::new(&[], &[]);
        for finding in of_section {
            columns.row([&finding.name, &finding.value].map(|it| text::name(it).into_owned()));
        }
        columns.print(&mut app.printer, "  ")?;
        for finding in of_section {
            if let (Some(fault), Some(remedy)) = (&finding.fault, &finding.remedy) {
                let name = text::name(&finding.name);
                app.printer.line(format_args!("  problem: {name}: {}", text::name(fault)))?;
                app.printer.line(format_args!("    to do: {}", text::name(remedy)))?;
            }
        }
    }
    Ok(())
}

fn as_json(finding: &Finding) -> Value {
    json!({
        "section": finding.section,
        "name": finding.name,
        "value": finding.value,
        "ok": finding.level == Level::Fine,
        "fault": finding.fault,
        "remedy": finding.remedy,
    })
}
