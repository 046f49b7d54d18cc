//! `models inspect`: the metadata and tensors of a model file.

use std::collections::BTreeMap;

use paceline_gguf::{Array, Gguf, TensorInfo, TensorType, ValueRef};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::args::InspectArgs;
use crate::conversation::TEMPLATE_KEY;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model_source::ModelSource;
use crate::printer::Printer;
use crate::table::Columns;
use crate::text;

/// Characters of a value that a line shows.
const SHOWN_CHARACTERS: usize = 64;
/// Elements of an array that JSON shows.
const JSON_ELEMENTS: usize = 16;

/// Runs the command.
pub fn run(args: &InspectArgs, app: &mut App) -> Result<Exit, Failure> {
    let source = ModelSource::resolve(&args.model.model)?;
    let model = source.open()?;
    if args.template {
        let template = model.get_bytes(TEMPLATE_KEY)?.ok_or_else(|| {
            Failure::new(Exit::Failed, format!("{source} has no chat template"))
                .hint("it is a base model, or its template was lost when it was converted")
        })?;
        app.printer.foreign_text(template)?;
    } else if args.output.json {
        app.printer.json(&as_json(&source, &model))?;
    } else {
        print_summary(&source, &model, &mut app.printer)?;
        print_metadata(&model, &mut app.printer)?;
        print_types(&model, &mut app.printer)?;
        if args.tensors {
            print_tensors(&model, &mut app.printer)?;
        }
    }
    Ok(Exit::Ok)
}

/// Tensors of one type, added up.
#[derive(Default)]
struct Total {
    tensors: u64,
    elements: u64,
    bytes: u64,
}

fn totals(model: &Gguf) -> BTreeMap<u32, (TensorType, Total)> {
    let mut totals = BTreeMap::new();
    for tensor in model.tensors() {
        let (_, total) =
            totals.entry(tensor.tensor_type.id()).or_insert((tensor.tensor_type, Total::default()));
        total.tensors += 1;
        // Sizes of single tensors are checked by the reader; those of many unknown ones may add up to anything.
        total.elements = total.elements.saturating_add(tensor.element_count());
        total.bytes = total.bytes.saturating_add(tensor.byte_len);
    }
    totals
}

fn print_summary(source: &ModelSource, model: &Gguf, printer: &mut Printer) -> Result<(), Failure> {
    let elements = model.tensors().fold(0_u64, |sum, tensor| sum.saturating_add(tensor.element_count()));
    let files = text::counted(model.origins().len() as u64, "file");
    let architecture = model.get_str("general.architecture")?.unwrap_or("not stated");
    printer.line(format_args!("model         {source}"))?;
    printer.line(format_args!(
        "format        GGUF version {}, {files}, {}",
        model.version(),
        text::bytes(model.file_bytes())
    ))?;
    printer.line(format_args!("architecture  {}", text::name(architecture)))?;
    printer.line(format_args!("parameters    {}", text::count(elements)))
}

fn print_metadata(model: &Gguf, printer: &mut Printer) -> Result<(), Failure> {
    printer.line(format_args!("\nmetadata: {}", text::counted(model.key_count() as u64, "key")))?;
    let mut columns = Columns::new(&["key", "type", "value"], &[]);
    for (key, value) in model.entries() {
        let type_name = match &value {
            ValueRef::Array(array) => format!("{}[{}]", array.element_type(), array.len()),
            other => other.value_type().to_string(),
        };
        columns.row([text::name(key).into_owned(), type_name, shown_value(key, &value)]);
    }
    columns.print(printer, "  ")
}

/// A value on one short line.
fn shown_value(key: &str, value: &ValueRef<'_>) -> String {
    match value {
        ValueRef::Array(array) => shown_array(array),
        ValueRef::Str(bytes) if key == TEMPLATE_KEY => {
            format!("{}, shown by --template", text::counted(bytes.len() as u64, "byte"))
        }
        other => text::shortened(&other.to_string(), SHOWN_CHARACTERS).into_owned(),
    }
}

/// As many elements as there is room for.
fn shown_array(array: &Array<'_>) -> String {
    let mut shown = String::from("[");
    for (index, element) in array.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        let element = element.to_string();
        // Characters, as the limit is one of width.
        if shown.chars().count() + separator.len() + element.chars().count() > SHOWN_CHARACTERS {
            return format!("{shown}{separator}…]");
        }
        shown.push_str(separator);
        shown.push_str(&element);
    }
    shown + "]"
}

fn print_types(model: &Gguf, printer: &mut Printer) -> Result<(), Failure> {
    printer.line(format_args!("\ntensors: {}, by type", text::count(model.tensor_count() as u64)))?;
    let mut columns = Columns::new(&["type", "tensors", "elements", "size"], &[1, 2, 3]);
    for (tensor_type, total) in totals(model).values() {
        columns.row([
            tensor_type.to_string(),
            text::count(total.tensors),
            text::count(total.elements),
            text::bytes(total.bytes),
        ]);
    }
    columns.print(printer, "  ")
}

fn print_tensors(model: &Gguf, printer: &mut Printer) -> Result<(), Failure> {
    printer.line("\nall tensors, contiguous dimension first")?;
    let mut columns = Columns::new(&["name", "type", "shape", "size"], &[3]);
    for tensor in model.tensors() {
        let shape = tensor.dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
        columns.row([
            text::name(tensor.name).into_owned(),
            tensor.tensor_type.to_string(),
            shape,
            text::bytes(tensor.byte_len),
        ]);
    }
    columns.print(printer, "  ")
}

fn as_json(source: &ModelSource, model: &Gguf) -> Value {
    let metadata: Map<String, Value> =
        model.entries().map(|(key, value)| (key.to_owned(), value_with_type(&value))).collect();
    let types: Vec<Value> = totals(model)
        .values()
        .map(|(tensor_type, total)| {
            json!({
                "type": tensor_type.to_string(),
                "type_id": tensor_type.id(),
                "tensors": total.tensors,
                "elements": total.elements,
                "bytes": total.bytes,
            })
        })
        .collect();
    json!({
        "model": source.to_string(),
        "gguf_version": model.version(),
        "files": model.origins().map(ToString::to_string).collect::<Vec<_>>(),
        "bytes": model.file_bytes(),
        "metadata": metadata,
        "types": types,
        "tensors": model.tensors().map(|tensor| tensor_json(&tensor)).collect::<Vec<_>>(),
    })
}

fn tensor_json(tensor: &TensorInfo<'_>) -> Value {
    json!({
        "name": tensor.name,
        "type": tensor.tensor_type.to_string(),
        "type_id": tensor.tensor_type.id(),
        "shape": tensor.dims,
        "bytes": tensor.byte_len,
        "file": tensor.shard,
        "offset": tensor.offset,
    })
}

fn value_with_type(value: &ValueRef<'_>) -> Value {
    match value {
        ValueRef::Array(array) => json!({
            "type": "array",
            "element_type": array.element_type().name(),
            "length": array.len(),
            "first": array.iter().take(JSON_ELEMENTS).map(|element| plain(&element)).collect::<Vec<_>>(),
        }),
        other => json!({ "type": other.value_type().name(), "value": plain(other) }),
    }
}

/// The value alone. A number that JSON cannot write (infinite, or none at all) is null.
fn plain(value: &ValueRef<'_>) -> Value {
    match *value {
        ValueRef::F32(number) => json!(number),
        ValueRef::F64(number) => json!(number),
        ValueRef::Bool(flag) => json!(flag),
        ValueRef::Str(bytes) => json!(String::from_utf8_lossy(bytes)),
        ValueRef::U64(number) => json!(number),
        ref other => json!(other.as_integer().and_then(|integer| i64::try_from(integer).ok())),
    }
}
