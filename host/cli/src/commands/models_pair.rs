//! `models pair`: whether a drafter's file belongs to a model.

use std::sync::Arc;

use paceline_engine::{EngineError, MemoryPlan};
use paceline_gguf::{Gguf, ValueRef};
use serde_json::{Value, json};

use crate::app::App;
use crate::args::{PairArgs, StrategyChoice};
use crate::engine_setup::{Setup, open_draft};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model_source::ModelSource;
use crate::strategies::DFLASH;
use crate::text;

/// Length of a block, if the drafter's file does not say it.
const DEFAULT_BLOCK: i128 = 16;

/// What a pair is.
struct Pair {
    block: i128,
    layers: Option<i128>,
    target_layers: Vec<i128>,
    hidden: u32,
    vocabulary: u32,
    /// What the drafter takes on the device, row by row.
    memory: Vec<(&'static str, u64)>,
    /// All that it takes there.
    bytes: u64,
}

/// Runs the command. Nothing is allocated on a device.
pub fn run(args: &PairArgs, app: &mut App) -> Result<Exit, Failure> {
    let choice = StrategyChoice::Named(vec![DFLASH.to_owned()]);
    let draft_path = Some(args.draft.as_path());
    let setup = Setup::for_choices(
        &args.model,
        &args.engine,
        args.ctx,
        std::slice::from_ref(&choice),
        draft_path,
        app,
    )?;
    let source = ModelSource::resolve(&args.draft)?;
    let draft = open_draft(draft_path)?;
    let mut context = setup.context(setup.choose(&choice, draft.as_ref())?, setup.given.clone())?;
    setup.warn(&context.resolved);
    // How state is rolled back is no matter of the pair, and may be left out.
    let refusal = match (setup.settle(&mut context)?, draft) {
        (Ok(plan), Some(draft)) => {
            let plain = setup.plain_plan(&context)?;
            show(&pair(&setup, &draft, &plan, &plain), &source, &setup, args, app)?;
            return Ok(Exit::Ok);
        }
        (Ok(_), None) => return Ok(Exit::Ok),
        (Err(error), _) => error,
    };
    let reason = match &refusal {
        EngineError::StrategyRefused { plugin, source } if plugin == DFLASH => source.to_string(),
        EngineError::Strategy { plugin, what } if plugin == DFLASH => what.clone(),
        _ => return Err(setup.failure(refusal)),
    };
    if args.output.json {
        app.printer.json(&json!({
            "model": setup.source.to_string(),
            "draft": source.to_string(),
            "ok": false,
            "reason": reason,
        }))?;
    } else {
        let [model, draft] = [&setup.source, &source].map(ToString::to_string);
        app.printer.line(format_args!(
            "no: {} cannot draft for {}: {}",
            text::name(&draft),
            text::name(&model),
            text::name(&reason)
        ))?;
    }
    Ok(Exit::Model)
}

fn pair(setup: &Setup, draft: &Arc<Gguf>, plan: &MemoryPlan, plain: &MemoryPlan) -> Pair {
    let integer = |key: &str| draft.value(key).and_then(|value| value.as_integer());
    let target_layers = match draft.value("dflash.target_layers") {
        Some(ValueRef::Array(layers)) => layers.iter().filter_map(|layer| layer.as_integer()).collect(),
        _ => Vec::new(),
    };
    let shape = setup.model.shape();
    let rows = plan.rows().iter().filter(|row| row.what.contains("strategies") && row.bytes > 0);
    Pair {
        block: integer("dflash.block_size").unwrap_or(DEFAULT_BLOCK),
        layers: integer("dflash.block_count"),
        target_layers,
        hidden: shape.hidden,
        vocabulary: shape.vocabulary,
        memory: rows.map(|row| (row.what, row.bytes)).collect(),
        bytes: plan.total().saturating_sub(plain.total()),
    }
}

fn show(
    pair: &Pair,
    draft: &ModelSource,
    setup: &Setup,
    args: &PairArgs,
    app: &mut App,
) -> Result<(), Failure> {
    if args.output.json {
        return app.printer.json(&as_json(pair, draft, setup));
    }
    let layers: Vec<String> = pair.target_layers.iter().map(ToString::to_string).collect();
    let rows: Vec<String> =
        pair.memory.iter().map(|(what, bytes)| format!("{what} {}", text::bytes(*bytes))).collect();
    let [model_name, draft_name] = [&setup.source, draft].map(ToString::to_string);
    let printer = &mut app.printer;
    printer.line(format_args!("yes: {} drafts for {}", text::name(&draft_name), text::name(&model_name)))?;
    printer.line(format_args!("block          {} tokens, the last of the text included", pair.block))?;
    if let Some(layers) = pair.layers {
        printer.line(format_args!("layers         {layers}"))?;
    }
    printer.line(format_args!("target layers  {}", layers.join(", ")))?;
    printer.line(format_args!("hidden size    {}", pair.hidden))?;
    printer.line(format_args!("vocabulary     {}", text::counted(pair.vocabulary.into(), "token")))?;
    printer.line(format_args!("memory         {} ({})", text::bytes(pair.bytes), rows.join(", ")))
}

fn as_json(pair: &Pair, draft: &ModelSource, setup: &Setup) -> Value {
    let memory = pair.memory.iter().map(|(what, bytes)| json!({ "what": what, "bytes": bytes }));
    let small = |value: i128| u64::try_from(value).ok();
    json!({
        "model": setup.source.to_string(),
        "draft": draft.to_string(),
        "ok": true,
        "reason": null,
        "block": small(pair.block),
        "layers": pair.layers.and_then(small),
        "target_layers": pair.target_layers.iter().map(|&layer| small(layer)).collect::<Vec<_>>(),
        "hidden": pair.hidden,
        "vocabulary": pair.vocabulary,
        "memory_bytes": pair.bytes,
        "memory": memory.collect::<Vec<_>>(),
    })
}
