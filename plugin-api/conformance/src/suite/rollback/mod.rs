//! Going back by some rows: planes, and records with their replay, give the bits of a sequence that never had the rows
//! which were taken back.

mod player;
mod refusals;
mod scripts;
mod subjects;

use super::compare::{compare_results, compare_values, first_difference};
use super::rows::{numerics, row_invariance};
use super::samples::random_weights;
use super::states::{export, fill};
use super::tolerance::of_operation;
use super::{CaseError, Context, wrong};
use crate::block::floats;
use crate::harness::{HarnessError, Loaded};
use crate::reference::ReferenceExecutor;
use paceline_plugin_api::graph::Graph;
use player::Player;
use scripts::{Round, Script, every_number, scripts};
use subjects::{Form, SLOTS, Subject};

/// What states hold before a case.
const DIRT: u8 = 0x3E;

const CONVS: [Subject; 3] = [Subject::Conv(37, 4), Subject::Conv(80, 2), Subject::Conv(5, 9)];
/// Value heads of one to four per key head, and a state of many columns.
const DELTAS: [Subject; 5] = [
    Subject::Delta(1, 2, 16, 8),
    Subject::Delta(3, 3, 8, 20),
    Subject::Delta(2, 6, 12, 16),
    Subject::Delta(1, 4, 20, 34),
    Subject::Delta(1, 2, 64, 130),
];

/// Runs all cases.
pub(super) fn run(context: &mut Context<'_>) {
    if context.wants("conv_causal") {
        for subject in CONVS {
            run_subject(context, "conv_causal", subject, false);
        }
    }
    if context.wants("gated_delta_net") {
        for subject in DELTAS {
            run_subject(context, "gated_delta_net", subject, false);
        }
    }
    if context.wants("gated_delta_net_replay") {
        for subject in DELTAS {
            run_subject(context, "gated_delta_net_replay", subject, true);
        }
        let result = settle_alone(context).map(|()| 0.0);
        context.record("gated_delta_net_replay", "a replay without rows", result);
    }
    refusals::run(context);
}

fn run_subject(context: &mut Context<'_>, group: &str, subject: Subject, with_records: bool) {
    let is_small = !matches!(subject, Subject::Delta(_, _, 64, _));
    let every = is_small.then(every_number);
    for script in scripts().into_iter().chain(every) {
        let name = format!("{}, {}", subject.name(), script.name);
        let result = bits(context, subject, with_records, script).map(|()| 0.0);
        let is_refused = matches!(result, Err(CaseError::Harness(HarnessError::Refused(_))));
        context.record(group, &name, result);
        if is_refused {
            return;
        }
    }
    for script in scripts() {
        let name = format!("{}, values, {}", subject.name(), script.name);
        let form = |depth| if with_records { Form::Records(depth) } else { Form::Planes(depth + 1) };
        let result = values(context, subject, form(script.depth), &script);
        context.record(group, &name, result);
    }
}

fn weights(context: &Context<'_>, subject: Subject, graph: &Graph) -> Vec<Vec<u8>> {
    random_weights(graph, context.options.seed, &subject.name())
}

fn load(context: &Context<'_>, subject: Subject, form: Form, max_rows: u32) -> Result<Loaded, CaseError> {
    let graph = subject.graph(form, max_rows);
    let mut loaded = context.bench.load(&graph, &weights(context, subject, &graph))?;
    fill(&mut loaded, DIRT)?;
    Ok(loaded)
}

/// The last node of each graph must state the same numerics.
fn check_numerics(forms: &[&Loaded]) -> Result<(), CaseError> {
    let of_operation = |loaded: &&Loaded| numerics(loaded.summary()).last().copied();
    let ids: Vec<_> = forms.iter().map(of_operation).collect();
    match ids.iter().all(|id| *id == ids[0]) {
        true => Ok(()),
        false => wrong(format!("the forms of one operation differ in their numerics: {ids:?}")),
    }
}

/// Elements of entry `entry` of the first state.
fn entry(loaded: &Loaded, state: &[u8], entry: usize) -> Vec<f32> {
    let id = loaded.graph().states().next().expect("every graph here has a state");
    let bytes = loaded.graph().value(id).shape.row_elements() as usize * 4;
    read_floats(&state[entry * bytes..(entry + 1) * bytes])
}

fn read_floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn check_same(left: &[f32], right: &[f32], what: impl Fn() -> String) -> Result<(), CaseError> {
    first_difference(left, right).map_or(Ok(()), |difference| wrong(format!("{}: {difference}", what())))
}

/// The bits of planes, of records if they are wanted, and of a form that only ever sees the rows that are kept.
fn bits(
    context: &Context<'_>,
    subject: Subject,
    with_records: bool,
    script: Script,
) -> Result<(), CaseError> {
    let planned = load(context, subject, Form::Planes(script.depth + 1), script.max_rows())?;
    let promised = row_invariance(planned.summary());
    if promised < 3 {
        return Err(CaseError::NotOffered("the plan promises no row invariance".into()));
    }
    drop(planned);
    let script = script.within(promised);
    let form = |form| load(context, subject, form, script.max_rows());
    let (mut planes, mut plain) = (form(Form::Planes(script.depth + 1))?, form(Form::Plain)?);
    let mut records = if with_records { Some(form(Form::Records(script.depth))?) } else { None };
    check_numerics(
        &[Some(&planes), Some(&plain), records.as_ref()].into_iter().flatten().collect::<Vec<_>>(),
    )?;
    let mut player = Player::new(subject, context.options.seed, script.depth);
    for (index, step) in script.steps.iter().enumerate() {
        let case = |what: &str| format!("run {index} ({step:?}), {what}");
        player.begin(step);
        let out = run_form(&mut planes, &player, step, |round| round.rows)?;
        if let Some(records) = &mut records {
            let replayed = run_form(records, &player, step, |round| round.rows)?;
            check_same(&out, &replayed, || case("planes and records"))?;
            check_bases(records, &planes, &player, step).map_err(|error| in_case(error, &case("bases")))?;
        }
        let kept = run_form(&mut plain, &player, step, |round| round.rows - round.dropped)?;
        check_same(&kept_of(&out, step), &kept, || case("with rows that are taken back and without them"))?;
        check_kept(&planes, &plain, &player, step).map_err(|error| in_case(error, &case("states")))?;
        player.end(step);
    }
    for loaded in [Some(&planes), Some(&plain), records.as_ref()].into_iter().flatten() {
        check_untouched(loaded)?;
    }
    Ok(())
}

fn in_case(error: CaseError, case: &str) -> CaseError {
    match error {
        CaseError::Wrong(what) => CaseError::Wrong(format!("{case}: {what}")),
        other => other,
    }
}

fn run_form(
    loaded: &mut Loaded,
    player: &Player,
    step: &[Round],
    rows: impl Fn(&Round) -> u32,
) -> Result<Vec<f32>, CaseError> {
    let parameters = player.parameters(loaded.graph(), step, rows);
    let results = loaded.run(&parameters)?;
    Ok(floats(loaded.graph(), &parameters, &results, "out"))
}

/// The results of rows that are kept.
fn kept_of(out: &[f32], step: &[Round]) -> Vec<f32> {
    let rows: u32 = step.iter().map(|round| round.rows).sum();
    let width = out.len() / rows.max(1) as usize;
    let mut rest = out;
    let mut kept = Vec::new();
    for round in step {
        let (own, others) = rest.split_at(round.rows as usize * width);
        kept.extend_from_slice(&own[..(round.rows - round.dropped) as usize * width]);
        rest = others;
    }
    kept
}

/// After a run the base of a sequence is the state before the rows that can be taken back.
fn check_bases(records: &Loaded, planes: &Loaded, player: &Player, step: &[Round]) -> Result<(), CaseError> {
    let (bases, states) = (export(records, 0)?, export(planes, 0)?);
    for round in step {
        let settled = player.settled(round.rows);
        let base = entry(records, &bases, round.slot as usize);
        let is_new = player.slots[round.slot as usize].length == 0 && settled == 0;
        let expected = match (is_new, round.rows) {
            (true, 0) => continue,
            (true, _) => vec![0.0; base.len()],
            (false, _) => entry(planes, &states, player.entry(round.slot, settled)),
        };
        check_same(&expected, &base, || format!("slot {}, expected and given", round.slot))?;
    }
    Ok(())
}

/// After a run the plane of the last kept row holds the state of a sequence that has only the kept rows.
fn check_kept(planes: &Loaded, plain: &Loaded, player: &Player, step: &[Round]) -> Result<(), CaseError> {
    let (states, expected) = (export(planes, 0)?, export(plain, 0)?);
    for round in step {
        let kept = round.rows - round.dropped;
        if player.slots[round.slot as usize].length + kept == 0 {
            continue;
        }
        let given = entry(planes, &states, player.entry(round.slot, kept));
        let expected = entry(plain, &expected, round.slot as usize);
        check_same(&expected, &given, || format!("slot {}, expected and given", round.slot))?;
    }
    Ok(())
}

/// No script uses the first slot.
fn check_untouched(loaded: &Loaded) -> Result<(), CaseError> {
    for (index, id) in loaded.graph().states().enumerate() {
        let state = export(loaded, index)?;
        if state[..state.len() / SLOTS as usize].iter().any(|&byte| byte != DIRT) {
            return wrong(format!(
                "state `{}` changed in a slot that nobody uses",
                loaded.graph().value(id).name
            ));
        }
    }
    Ok(())
}

/// Results, and at the end all states with their planes and records, compared with the reference.
fn values(context: &Context<'_>, subject: Subject, form: Form, script: &Script) -> Result<f64, CaseError> {
    let mut loaded = load(context, subject, form, script.max_rows())?;
    let graph = loaded.graph().clone();
    let mut reference = ReferenceExecutor::new(&graph, weights(context, subject, &graph))?;
    for (index, id) in graph.states().enumerate() {
        reference.set_state(index, &vec![DIRT; graph.value(id).bytes().unwrap_or(0) as usize])?;
    }
    let tolerance = of_operation(subject.operation());
    let mut player = Player::new(subject, context.options.seed, script.depth);
    let mut worst = 0.0f64;
    for (index, step) in script.steps.iter().enumerate() {
        player.begin(step);
        let parameters = player.parameters(&graph, step, |round| round.rows);
        let (expected, given) = (reference.run(&parameters)?, loaded.run(&parameters)?);
        let error = compare_results(&graph, &parameters, &expected, &given, tolerance)
            .or_else(|what| wrong(format!("run {index} ({step:?}): {what}")))?;
        worst = worst.max(error);
        player.end(step);
    }
    for (index, id) in graph.states().enumerate() {
        let (expected, given) = (read_floats(reference.state(index)), read_floats(&export(&loaded, index)?));
        let width = graph.value(id).shape.last() as usize;
        let error = compare_values(&expected, &given, width, tolerance)
            .or_else(|what| wrong(format!("state `{}`: {what}", graph.value(id).name)))?;
        worst = worst.max(error);
    }
    Ok(worst)
}

/// A graph that only replays leaves the state after the kept rows as the base.
fn settle_alone(context: &Context<'_>) -> Result<(), CaseError> {
    const DEPTH: u32 = 5;
    let subject = DELTAS[0];
    let graphs = [subject.graph(Form::Records(DEPTH), 5), subject.graph(Form::Settle(DEPTH), 5)];
    let placement = context.bench.place(&graphs.each_ref(), &[])?;
    let (mut records, mut settle) = (placement.load(0, 1)?, placement.load(1, 1)?);
    fill(&mut records, DIRT)?;
    let mut planes = load(context, subject, Form::Planes(DEPTH + 1), 5)?;
    let mut player = Player::new(subject, context.options.seed, DEPTH);
    let begins = |slot, rows, dropped| Round { slot, rows, dropped, begins: true };
    let step = [begins(1, 3, 1), begins(3, 2, 2)];
    player.begin(&step);
    run_form(&mut records, &player, &step, |round| round.rows)?;
    run_form(&mut planes, &player, &step, |round| round.rows)?;
    player.end(&step);
    let parameters = player.parameters(settle.graph(), &step[..1], |_| 0);
    settle.run(&parameters)?;
    let base = entry(&records, &export(&records, 0)?, 1);
    let expected = entry(&planes, &export(&planes, 0)?, player.entry(1, 0));
    check_same(&expected, &base, || "the state of a plane and the settled base".into())
}
