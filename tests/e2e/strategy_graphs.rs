//! Graphs of strategies that the host must refuse: they would touch what is the target's, or name what nobody fills.

use paceline_engine::{Engine, EngineError, EngineOptions, Model, StrategyOptions};
use paceline_plugin_api::graph::step::{StepInputs, Tap, declare_table};
use paceline_plugin_api::graph::{Builder, DType, Graph, StateKind, fragment};
use paceline_plugin_api::strategy::{
    Draft, Drafter, DrafterInfo, DrafterPlugin, Facts, Request, Session, draft_cost, draft_kind,
};
use paceline_plugin_api::{PluginInfo, Result, drafter_plugin};
use paceline_tests::engines::builtin_cpu;
use paceline_tests::strategies::{drafter, open};
use paceline_tests::test_models::demo_q8_path;
use paceline_tests::test_strategy;

const INFO: PluginInfo = test_strategy!("bad-graphs");

struct BadGraphs;
struct Never;

/// The graph of a case.
fn graph(case: &str, facts: &Facts) -> Graph {
    let (context, hidden) = (&facts.context, facts.hidden);
    let mut b = Builder::new();
    match case {
        "writes block tables" => {
            let table = declare_table(&mut b, context, 4);
            let count = b.parameter("g0.sequence_count", DType::I32, &[1], None);
            let mine = b.parameter("g0.sequences", DType::I32, &[1, 3], Some(count));
            b.table_update(table, mine);
        }
        "forgets to update" => {
            let count = b.parameter("update_count", DType::I32, &[1], None);
            b.parameter("block_updates", DType::I32, &[3, 3], Some(count));
        }
        "writes a tap" => {
            let table = declare_table(&mut b, context, 4);
            let step = StepInputs::group(&mut b, context, table, 0, 4);
            let x = b.row_fragment(fragment::EMBED, step.ids, hidden);
            let (tap, entries) = (Tap::Hidden.state(&mut b, context, hidden), step.staged(&mut b));
            b.rows_store(x, tap, entries);
        }
        "reads a tap that is not declared" => {
            let table = declare_table(&mut b, context, 4);
            let step = StepInputs::group(&mut b, context, table, 0, 4);
            let (tap, entries) = (Tap::LayerInput(1).state(&mut b, context, hidden), step.staged(&mut b));
            b.rows_load(tap, entries);
        }
        "takes rows of two sizes" => {
            b.parameter("g0.ids", DType::I32, &[64], None);
            b.parameter("g0.positions", DType::I32, &[1], None);
        }
        "wants what nobody fills" => {
            b.parameter("temperature", DType::I32, &[1], None);
        }
        "wants numbers" => {
            b.parameter("g0.ids", DType::F32, &[4], None);
        }
        "takes a weight that is not there" => {
            b.weight("blk.0.no_such.weight", DType::F32, &[4]);
        }
        "takes a weight of another shape" => {
            b.weight("output_norm.weight", DType::F32, &[4]);
        }
        "takes a table of another size" => {
            b.state("blocks", StateKind::Table, DType::I32, &[1, 1]);
        }
        "gives a fragment the wrong rows" => {
            let table = declare_table(&mut b, context, 4);
            let step = StepInputs::group(&mut b, context, table, 0, 4);
            let x = b.row_fragment(fragment::EMBED, step.ids, hidden);
            let half = b.slice(x, 0, hidden / 2);
            b.row_fragment(fragment::HEAD, half, facts.vocabulary);
        }
        "expects another output" => {
            let table = declare_table(&mut b, context, 4);
            let step = StepInputs::group(&mut b, context, table, 0, 4);
            b.row_fragment(fragment::EMBED, step.ids, hidden + 1);
        }
        "names an unknown fragment" => {
            let table = declare_table(&mut b, context, 4);
            let step = StepInputs::group(&mut b, context, table, 0, 4);
            b.row_fragment("nextn.magic", step.ids, hidden);
        }
        other => panic!("there is no case {other}"),
    }
    b.finish()
}

impl DrafterPlugin for BadGraphs {
    type Drafter = Never;

    fn create(
        &self,
        facts: &Facts,
        settings: &[(String, String)],
        session: &mut dyn Session,
    ) -> Result<Never> {
        let (_, case) = settings.first().expect("a case");
        if case == "a ring without end" {
            session.declare_ring(u32::MAX)?;
        } else {
            session.declare_tap(Tap::Hidden)?;
            session.declare_program("first", &graph(case, facts))?;
        }
        Ok(Never)
    }
}

impl Drafter for Never {
    fn info(&self) -> DrafterInfo {
        DrafterInfo { most: 1, kind: draft_kind::POINT, cost: draft_cost::DEVICE, fixed: false }
    }
    fn begin(&mut self, _: u32) -> Result<()> {
        Ok(())
    }
    fn observe(&mut self, _: &mut dyn Session, _: u32, _: u32, _: &[u32]) -> Result<()> {
        Ok(())
    }
    fn propose(&mut self, _: &mut dyn Session, _: Request, _: &mut Draft<'_>) -> Result<()> {
        Ok(())
    }
    fn truncate(&mut self, _: u32, _: u32) -> Result<()> {
        Ok(())
    }
}

drafter_plugin!(INFO, BadGraphs, BadGraphs);

#[test]
fn every_bad_graph_is_refused_with_its_reason() {
    let model = Model::new(open(&demo_q8_path())).unwrap();
    let cases = [
        "writes block tables",
        "forgets to update",
        "writes a tap",
        "reads a tap that is not declared",
        "takes rows of two sizes",
        "wants what nobody fills",
        "wants numbers",
        "takes a weight that is not there",
        "takes a weight of another shape",
        "takes a table of another size",
        "gives a fragment the wrong rows",
        "expects another output",
        "names an unknown fragment",
        "a ring without end",
    ];
    let mut reasons = String::new();
    for case in cases {
        let strategies = StrategyOptions {
            drafters: vec![drafter("bad-graphs", &[("case", case)])],
            ..StrategyOptions::default()
        };
        let refused = Engine::plan(&model, &builtin_cpu(), EngineOptions::default(), &strategies);
        let Err(EngineError::StrategyRefused { source, .. }) = refused else {
            panic!("{case} is not refused")
        };
        reasons.push_str(&format!("{case}\n    {}\n", source.message));
    }
    insta::assert_snapshot!(reasons);
}
