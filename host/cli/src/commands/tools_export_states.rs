//! `tools export-states`: the hidden states of a text, for whoever trains a drafter.

use std::path::Path;

use paceline_engine::{Engine, Rows, SequenceId, Want};
use paceline_gguf::{TensorType, Writer};
use paceline_plugin_api::graph::step::Tap;
use paceline_registry::settings::Given;
use serde_json::json;

use crate::app::App;
use crate::args::ExportStatesArgs;
use crate::engine_setup::Setup;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::new_file::NewFile;
use crate::printer::Unit;
use crate::resolution::CONTEXT;
use crate::strategies::Strategies;
use crate::{input, text, tokenizer};

/// Architecture of the file, so that no program takes it for a model.
const ARCHITECTURE: &str = "hidden-states";

/// What was collected of one tap: rows of the model's width, one after the other.
struct States {
    tap: Tap,
    bytes: Vec<u8>,
}

impl States {
    fn name(&self) -> String {
        match self.tap {
            Tap::Hidden => "hidden".to_owned(),
            Tap::LayerInput(layer) => format!("layer.{layer}.input"),
        }
    }
}

/// Runs the command.
pub fn run(args: &ExportStatesArgs, app: &mut App) -> Result<Exit, Failure> {
    let mut setup = Setup::new(&args.model, &args.engine, None, app)?;
    let typed = input::file_text(&args.file)?;
    let mut ids = tokenizer::encode(&setup.tokenizer, &typed, false)?;
    ids.truncate(args.tokens.unwrap_or(usize::MAX));
    if ids.is_empty() {
        return Err(Failure::new(Exit::Usage, format!("{} holds no token", args.file.display()))
            .hint("give a text that is not empty"));
    }
    // What cannot be written is said before the work begins.
    let file = NewFile::create(&args.out, args.force)?;
    let mut layers = args.layers.clone();
    layers.sort_unstable();
    layers.dedup();
    let taps: Vec<Tap> =
        std::iter::once(Tap::Hidden).chain(layers.into_iter().map(Tap::LayerInput)).collect();
    let mut strategies = Strategies::default();
    strategies.options.taps.clone_from(&taps);
    let window = args.window.min(setup.model.shape().context);
    let mut given = setup.given.clone();
    given.push(Given::option("--window", CONTEXT, &window.to_string()));
    let mut context = setup.context(strategies, given)?;
    let mut engine = setup.engine(&mut context, None, app)?;
    let window = engine.context_length();
    let mut states: Vec<States> = taps.into_iter().map(|tap| States { tap, bytes: Vec::new() }).collect();
    collect(&mut engine, &ids, window, &mut states, app).map_err(|error| setup.failure(error))?;
    let width = u64::from(setup.model.shape().hidden);
    write(file, &args.out, &setup, &ids, window, width, &states)?;
    let names: Vec<String> = states.iter().map(States::name).collect();
    let bytes: u64 = states.iter().map(|it| it.bytes.len() as u64).sum();
    if args.output.json {
        app.printer.json(&json!({
            "file": args.out,
            "tokens": ids.len(),
            "window": window,
            "width": width,
            "tensors": names,
            "bytes": bytes,
        }))?;
    } else {
        app.printer.line(format_args!("file     {}", args.out.display()))?;
        app.printer.line(format_args!(
            "text     {} in windows of {window}",
            text::counted(ids.len() as u64, "token")
        ))?;
        app.printer.line(format_args!(
            "tensors  tokens, {}: {width} wide, {}",
            names.join(", "),
            text::bytes(bytes)
        ))?;
        app.printer.flush()?;
    }
    Ok(Exit::Ok)
}

/// Runs the text, window after window, and keeps the hidden states of every position.
fn collect(
    engine: &mut Engine,
    ids: &[u32],
    window: usize,
    states: &mut [States],
    app: &App,
) -> paceline_engine::Result<()> {
    let mut progress = app.printer.progress("computing hidden states", Unit::Tokens);
    let sequence: SequenceId = engine.new_sequence()?;
    let mut done = 0;
    for tokens in ids.chunks(window) {
        engine.clear_sequence(sequence);
        for part in tokens.chunks(engine.microbatch()) {
            let position = engine.sequence_length(sequence);
            engine.run(&[Rows { sequence, tokens: part, outputs: 0 }], Want::Ids)?;
            for it in states.iter_mut() {
                let rows = engine.hidden_states(sequence, it.tap, position, part.len())?;
                it.bytes.extend(rows.iter().flat_map(|value| value.to_le_bytes()));
            }
            done += part.len();
            progress.at(done as u64, ids.len() as u64);
        }
    }
    Ok(())
}

fn write(
    mut file: NewFile,
    out: &Path,
    setup: &Setup,
    ids: &[u32],
    window: usize,
    width: u64,
    states: &[States],
) -> Result<(), Failure> {
    let tokens: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let mut writer = Writer::new(ARCHITECTURE);
    writer
        .metadata("hidden-states.model", setup.source.to_string().as_str())
        .metadata("hidden-states.model_architecture", setup.model.shape().architecture.as_str())
        .metadata("hidden-states.window", window as u32)
        .tensor("tokens", &[ids.len() as u64], TensorType::I32, tokens);
    for it in states {
        writer.tensor(it.name(), &[width, ids.len() as u64], TensorType::F32, it.bytes.as_slice());
    }
    writer.write_to(&mut file).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot write {}: {}", out.display(), error.fault()))
    })?;
    file.finish()
}
