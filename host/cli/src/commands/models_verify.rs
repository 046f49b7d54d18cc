//! `models verify`: every fault of a model file.

use paceline_gguf::Report;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::VerifyArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model_source::ModelSource;
use crate::text;

/// Runs the command. Faults are its data; the exit code says whether there are any.
pub fn run(args: &VerifyArgs, app: &mut App) -> Result<Exit, Failure> {
    let source = ModelSource::resolve(&args.model.model)?;
    let report = source.verify()?;
    if args.output.json {
        app.printer.json(&as_json(&source, &report))?;
    } else {
        for fault in &report.faults {
            app.printer.line(fault)?;
        }
        if report.unlisted_faults > 0 {
            app.printer.line(format_args!("and {} more", text::counted(report.unlisted_faults, "fault")))?;
        }
        app.printer.status(format_args!(
            "{source}: {}, {}: {}",
            text::counted(report.keys as u64, "metadata key"),
            text::counted(report.tensors as u64, "tensor"),
            match report.fault_count() {
                0 => "no faults".to_owned(),
                count => text::counted(count, "fault"),
            }
        ));
    }
    Ok(if report.is_ok() { Exit::Ok } else { Exit::Model })
}

fn as_json(source: &ModelSource, report: &Report) -> Value {
    let faults: Vec<Value> = report
        .faults
        .iter()
        .map(|fault| json!({ "file": fault.origin().to_string(), "message": fault.fault().to_string() }))
        .collect();
    json!({
        "model": source.to_string(),
        "ok": report.is_ok(),
        "files": report.files.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "metadata_keys": report.keys,
        "tensors": report.tensors,
        "faults": faults,
        "unlisted_faults": report.unlisted_faults,
    })
}
