//! Rollbacks that no launch takes.

use super::subjects::{Form, Subject};
use super::{CaseError, Context, DELTAS, load};
use crate::block::ParameterBlock;
use crate::random::Random;
use crate::suite::samples::ROWS;
use crate::suite::states::check_launch_refused;

/// The most rows that can be taken back.
const DEPTH: i32 = 3;

/// A length before the run and a rollback: plane, bank, keep.
type Bad = (i32, [i32; 3]);

const PLANES: &[Bad] = &[(4, [DEPTH + 1, 0, 0]), (4, [-1, 0, 0]), (0, [i32::MAX, 0, 0])];
const RECORDS: &[Bad] = &[
    (4, [0, 2, 0]),
    (4, [0, -1, 0]),
    (4, [0, 0, DEPTH + 1]),
    (4, [0, 1, -1]),
    // Nothing can be kept of a sequence that begins.
    (0, [0, 0, 1]),
];

pub fn run(context: &mut Context<'_>) {
    let planes = Form::Planes(DEPTH as u32 + 1);
    for (group, subject, form, bad) in [
        ("conv_causal", Subject::Conv(6, 3), planes, PLANES),
        ("gated_delta_net", DELTAS[0], planes, PLANES),
        ("gated_delta_net_replay", DELTAS[0], Form::Records(DEPTH as u32), RECORDS),
    ] {
        if context.wants(group) {
            let result = refused(context, subject, form, bad).map(|()| 0.0);
            context.record(group, "rollbacks out of range", result);
        }
    }
}

fn refused(context: &Context<'_>, subject: Subject, form: Form, bad: &[Bad]) -> Result<(), CaseError> {
    let mut loaded = load(context, subject, form, 2)?;
    let graph = loaded.graph().clone();
    let parameters = |length: i32, rollback: [i32; 3]| {
        let mut block = ParameterBlock::new(&graph);
        for row in 0..2 {
            subject.fill_row(&mut block, row, &mut Random::new(row as u64));
        }
        block.set_integers(ROWS, &[2]).set_integers("sequence_count", &[2]);
        block.set_integers("sequences", &[0, 1, 3, 1, 1, 1, length, 2]);
        block.set_integers("rollback", &[&[0, 0, 0], &rollback[..]].concat());
        block.into_bytes()
    };
    for &(length, rollback) in bad {
        let what = format!("rollback {rollback:?} of a sequence of length {length}");
        check_launch_refused(&mut loaded, &parameters(length, rollback), &what)?;
    }
    // A refused launch leaves the executable usable.
    loaded.run(&parameters(4, [0, 1, DEPTH]))?;
    Ok(())
}
