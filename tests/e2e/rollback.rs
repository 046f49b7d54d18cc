//! A sequence that took rows back is as if it had never seen them: the same logits, to the bit.
//!
//! The text that remains is the same in every test. Its logits come from an engine that never takes anything back;
//! what is taken back in between are rows of junk.

use paceline_engine::{Engine, EngineOptions, Outputs, Rows, SequenceId, StrategyOptions, Want};
use paceline_gguf::Gguf;
use paceline_tests::engines::{bits, builtin_cpu, logits, options};
use paceline_tests::random_model::RandomModel;
use paceline_tests::strategies::{engine, strategies};
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;
use std::sync::Arc;
use {paceline_strategy_gdn_replay as _, paceline_strategy_ngram_adaptive as _};

/// Positions of the text; what is kept wraps every ring of planes and records several times.
const LENGTH: usize = 400;

/// A random model, the text, and the bits of its logits at every position.
struct Subject {
    name: String,
    gguf: Arc<Gguf>,
    text: Vec<u32>,
    expected: Vec<Vec<u32>>,
}

impl Subject {
    fn new(name: &str, model: &RandomModel, length: usize) -> Self {
        let gguf = Arc::new(Gguf::from_bytes(model.to_bytes()).unwrap());
        let text = model.tokens(length, 21);
        let mut bare = engine(gguf.clone(), &builtin_cpu(), options(&[]), &StrategyOptions::default());
        let sequence = bare.new_sequence().unwrap();
        let expected = logits(&mut bare, sequence, &text, 16).iter().map(|row| bits(row)).collect();
        Self { name: name.to_owned(), gguf, text, expected }
    }

    fn variant(name: &str, length: usize) -> Self {
        Self::new(name, &RandomModel::variant(name).unwrap(), length)
    }

    /// An engine that can take `depth` rows back.
    fn engine(&self, replay: bool, depth: u32, sequences: u32) -> Engine {
        let options = EngineOptions { sequences, context: Some(1024), ..options(&[]) };
        let strategies =
            StrategyOptions { most_verified: depth, ..strategies(&[("ngram-adaptive", &[])], replay) };
        engine(self.gguf.clone(), &builtin_cpu(), options, &strategies)
    }

    fn is_recurrent(&self, engine: &Engine) -> bool {
        engine.model().shape().count(paceline_engine::LayerKind::Recurrent) > 0
    }

    /// The text from `position`, with junk behind the first `keep` rows.
    fn rows(&self, position: usize, rows: usize, keep: usize) -> Vec<u32> {
        let kept = self.text[position..position + keep].iter().copied();
        let junk = (0..rows - keep)
            .map(|row| self.text[(position * 7 + row * 13 + 5) % LENGTH.min(self.text.len())] ^ 1);
        kept.chain(junk).collect()
    }

    /// Processes `rows` rows of which `keep` remain, and compares those.
    fn step(&self, engine: &mut Engine, sequence: SequenceId, rows: usize, keep: usize) {
        let position = engine.sequence_length(sequence);
        let tokens = self.rows(position, rows, keep);
        let run = [Rows { sequence, tokens: &tokens, outputs: rows }];
        let outputs = engine.run(&run, Want::Logits).unwrap();
        self.check_rows(&outputs, position, keep);
        engine.roll_back(sequence, rows - keep).unwrap();
        assert_eq!(engine.sequence_length(sequence), position + keep);
    }

    /// Processes a row that nobody will take back, and compares it.
    fn final_step(&self, engine: &mut Engine, sequence: SequenceId) {
        let position = engine.sequence_length(sequence);
        let tokens = &self.text[position..position + 1];
        let outputs = engine.run_final(&[Rows { sequence, tokens, outputs: 1 }], Want::Logits).unwrap();
        self.check_rows(&outputs, position, 1);
    }

    fn check_rows(&self, outputs: &Outputs<'_>, position: usize, keep: usize) {
        for row in 0..keep {
            self.check(position + row, outputs.logits(row).unwrap());
        }
    }

    fn check(&self, position: usize, row: &[f32]) {
        assert!(bits(row) == self.expected[position], "{}: other logits at {position}", self.name);
    }
}

/// Models with every kind of layer, and of one kind only.
const MODELS: [&str; 6] =
    ["tiny", "all-attention", "all-recurrent", "heads-1-to-3", "long-convolution", "tiny-q8-0"];

#[test]
fn any_sequence_of_runs_and_rollbacks_leaves_no_trace() {
    for name in MODELS {
        let subject = Subject::variant(name, LENGTH);
        for replay in [false, true] {
            for depth in [1u32, 4, 15] {
                let mut engine = subject.engine(replay, depth, 1);
                let sequence = engine.new_sequence().unwrap();
                let engine = RefCell::new(engine);
                let most = depth as usize + 1;
                // Those of no rows are of one that stays.
                let steps = proptest::collection::vec((0..=most, 0usize..=16), 1..24);
                let config = Config { cases: 6, failure_persistence: None, ..Config::default() };
                let check = |steps: Vec<(usize, usize)>| {
                    let mut engine = engine.borrow_mut();
                    engine.clear_sequence(sequence);
                    for (rows, keep) in steps {
                        if rows == 0 {
                            subject.final_step(&mut engine, sequence);
                            continue;
                        }
                        // No more is taken back than the depth.
                        let keep = keep.min(rows).max(rows.saturating_sub(depth as usize));
                        subject.step(&mut engine, sequence, rows, keep);
                    }
                    Ok(())
                };
                let found = TestRunner::new(config).run(&steps, check);
                found.unwrap_or_else(|error| panic!("{name}, replay {replay}, depth {depth}: {error}"));
            }
        }
    }
}

#[test]
fn every_number_of_kept_rows_follows_every_other() {
    let subject = Subject::variant("tiny", LENGTH);
    for replay in [false, true] {
        for depth in [1usize, 3, 6] {
            let mut engine = subject.engine(replay, depth as u32, 1);
            for first in 1..=depth + 1 {
                let sequence = engine.new_sequence().unwrap();
                for second in 0..=depth {
                    subject.step(&mut engine, sequence, depth + 1, first);
                    subject.step(&mut engine, sequence, depth, second);
                }
                subject.step(&mut engine, sequence, 1, 1);
                engine.end_sequence(sequence);
            }
        }
    }
}

#[test]
fn runs_of_one_row_between_verifications_move_planes_and_banks_on() {
    let subject = Subject::variant("tiny", LENGTH);
    for replay in [false, true] {
        let mut engine = subject.engine(replay, 4, 1);
        let sequence = engine.new_sequence().unwrap();
        for singles in 0..12 {
            subject.step(&mut engine, sequence, 5, singles % 5 + 1);
            (0..singles).for_each(|_| subject.step(&mut engine, sequence, 1, 1));
            // A row of its own that is taken back, too.
            subject.step(&mut engine, sequence, 1, 0);
            (0..singles % 3).for_each(|_| subject.final_step(&mut engine, sequence));
        }
    }
}

/// With records, a row that stays is taken into the state at once; snapshots make no difference.
#[test]
fn a_row_that_stays_leaves_nothing_to_take_back() {
    for name in ["tiny", "all-attention"] {
        let subject = Subject::variant(name, LENGTH);
        for replay in [false, true] {
            let mut engine = subject.engine(replay, 4, 1);
            let sequence = engine.new_sequence().unwrap();
            for round in 0..6 {
                subject.step(&mut engine, sequence, 3, round % 3 + 1);
                subject.final_step(&mut engine, sequence);
                let position = engine.sequence_length(sequence);
                let expected = match (subject.is_recurrent(&engine), replay) {
                    (true, true) => 0,
                    (true, false) => 1,
                    (false, _) => position,
                };
                assert_eq!(engine.can_roll_back(sequence), expected, "{name}, replay {replay}");
                if expected == 0 {
                    let message = engine.roll_back(sequence, 1).unwrap_err().to_string();
                    assert!(message.contains("the state of 0 is kept"), "{message}");
                }
            }
        }
    }
}

#[test]
fn the_widest_verification_wraps_both_banks_for_hundreds_of_rows() {
    let subject = Subject::variant("tiny", LENGTH);
    for replay in [false, true] {
        let mut engine = subject.engine(replay, 15, 1);
        let sequence = engine.new_sequence().unwrap();
        let mut rejections = 0;
        for round in 0usize.. {
            let keep = [1, 2, 5, 1, 3, 16][round % 6];
            if engine.sequence_length(sequence) + 16 > LENGTH {
                break;
            }
            subject.step(&mut engine, sequence, 16, keep);
            rejections += usize::from(keep < 16);
        }
        assert!(engine.sequence_length(sequence) >= 300 && rejections >= 60, "{rejections} rejections");
    }
}

#[test]
fn more_than_three_hundred_tokens_with_more_than_a_hundred_rejections() {
    let subject = Subject::variant("heads-1-to-3", LENGTH);
    for replay in [false, true] {
        let mut engine = subject.engine(replay, 4, 1);
        let sequence = engine.new_sequence().unwrap();
        for round in 0..120 {
            subject.step(&mut engine, sequence, 5, [1, 4, 2, 3][round % 4]);
        }
        assert_eq!(engine.sequence_length(sequence), 300);
    }
}

#[test]
fn what_was_not_kept_is_refused_and_nothing_changes() {
    for name in ["tiny", "all-attention"] {
        let subject = Subject::variant(name, LENGTH);
        for replay in [false, true] {
            let mut engine = subject.engine(replay, 4, 1);
            let sequence = engine.new_sequence().unwrap();
            for rows in [1usize, 2, 5, 9, 40] {
                let position = engine.sequence_length(sequence);
                let tokens = subject.rows(position, rows, rows);
                engine.run(&[Rows { sequence, tokens: &tokens, outputs: 0 }], Want::Logits).unwrap();
                let limit = engine.can_roll_back(sequence);
                let expected = if subject.is_recurrent(&engine) { rows.min(4) } else { position + rows };
                assert_eq!(limit, expected, "{name}: after {rows} rows");
                for too_many in [limit + 1, limit + 2, limit + 1000, usize::MAX] {
                    let message = engine.roll_back(sequence, too_many).unwrap_err().to_string();
                    assert!(message.contains(&format!("the state of {limit} is kept")), "{message}");
                    assert_eq!(engine.sequence_length(sequence), position + rows);
                    assert_eq!(engine.can_roll_back(sequence), limit);
                }
                subject.step(&mut engine, sequence, 2, 1);
            }
        }
    }
}

#[test]
fn rollbacks_in_a_row_add_up_until_nothing_is_left() {
    for name in ["tiny", "all-attention"] {
        let subject = Subject::variant(name, LENGTH);
        for replay in [false, true] {
            let mut engine = subject.engine(replay, 6, 1);
            let sequence = engine.new_sequence().unwrap();
            subject.step(&mut engine, sequence, 3, 3);
            for parts in [[1, 2, 3], [3, 3, 0], [0, 1, 5], [5, 0, 1], [2, 2, 1]] {
                let start = engine.sequence_length(sequence);
                let tokens = subject.rows(start, 7, 1);
                engine.run(&[Rows { sequence, tokens: &tokens, outputs: 0 }], Want::Logits).unwrap();
                let mut left = 6;
                for part in parts {
                    engine.roll_back(sequence, part).unwrap();
                    left -= part;
                    if subject.is_recurrent(&engine) {
                        assert_eq!(engine.can_roll_back(sequence), left, "{name}");
                        assert!(engine.roll_back(sequence, left + 1).is_err(), "{name}");
                    }
                }
                // What is left of the junk goes too.
                engine.roll_back(sequence, left).unwrap();
                assert_eq!(engine.sequence_length(sequence), start + 1);
                subject.step(&mut engine, sequence, 4, 2);
            }
        }
    }
}

#[test]
fn sequences_keep_as_many_rows_as_each_of_them_wants() {
    let subject = Subject::variant("tiny", LENGTH);
    for replay in [false, true] {
        let mut engine = subject.engine(replay, 4, 4);
        let ids: Vec<SequenceId> = (0..4).map(|_| engine.new_sequence().unwrap()).collect();
        // Different lengths are behind them when they meet.
        for (number, &id) in ids.iter().enumerate() {
            (0..number).for_each(|_| subject.step(&mut engine, id, 5, number + 1));
        }
        for round in 0..20usize {
            // One of them sits out, with a rollback pending.
            let parts: Vec<(SequenceId, usize, usize)> = ids
                .iter()
                .enumerate()
                .filter(|(number, _)| *number != round % 5)
                .map(|(number, &id)| {
                    let rows = 1 + (round + number * 2) % 4;
                    (id, rows, (round * 3 + number) % (rows + 1))
                })
                .collect();
            let tokens: Vec<Vec<u32>> = parts
                .iter()
                .map(|&(id, rows, keep)| subject.rows(engine.sequence_length(id), rows, keep))
                .collect();
            let positions: Vec<usize> = parts.iter().map(|part| engine.sequence_length(part.0)).collect();
            let runs: Vec<Rows<'_>> = parts
                .iter()
                .zip(&tokens)
                .map(|(&(sequence, rows, _), tokens)| Rows { sequence, tokens, outputs: rows })
                .collect();
            let outputs = engine.run(&runs, Want::Logits).unwrap();
            let mut first = 0;
            for (&(_, rows, keep), &position) in parts.iter().zip(&positions) {
                (0..keep).for_each(|row| subject.check(position + row, outputs.logits(first + row).unwrap()));
                first += rows;
            }
            for &(id, rows, keep) in &parts {
                engine.roll_back(id, rows - keep).unwrap();
            }
        }
        ids.iter().for_each(|&id| subject.step(&mut engine, id, 3, 3));
    }
}

#[test]
fn a_slot_full_of_other_text_leaves_no_trace() {
    let subject = Subject::variant("tiny", LENGTH);
    for replay in [false, true] {
        let mut engine = subject.engine(replay, 4, 1);
        let sequence = engine.new_sequence().unwrap();
        let other: Vec<u32> = subject.text.iter().map(|token| token ^ 3).collect();
        for round in 0..4 {
            // A rollback is pending when the slot is cleared.
            engine
                .run(&[Rows { sequence, tokens: &other[..299 + round], outputs: 0 }], Want::Logits)
                .unwrap();
            engine.roll_back(sequence, round).unwrap();
            engine.clear_sequence(sequence);
            assert_eq!(engine.can_roll_back(sequence), 0);
            subject.step(&mut engine, sequence, 5, 2);
            subject.step(&mut engine, sequence, 5, 3);
            subject.step(&mut engine, sequence, 1, 1);
            engine.clear_sequence(sequence);
        }
    }
}

#[test]
fn a_rollback_after_a_long_prompt_and_down_to_nothing() {
    let subject = Subject::variant("tiny", LENGTH);
    for replay in [false, true] {
        let mut engine = subject.engine(replay, 4, 1);
        let sequence = engine.new_sequence().unwrap();
        subject.step(&mut engine, sequence, 4, 0);
        assert_eq!(engine.sequence_length(sequence), 0);
        let tokens = subject.rows(0, 204, 200);
        engine.run(&[Rows { sequence, tokens: &tokens, outputs: 0 }], Want::Logits).unwrap();
        engine.roll_back(sequence, 4).unwrap();
        subject.step(&mut engine, sequence, 3, 1);
        subject.step(&mut engine, sequence, 2, 2);
    }
}

#[test]
fn counts_are_data_and_not_part_of_a_graph() {
    let subject = Subject::variant("tiny", LENGTH);
    for replay in [false, true] {
        let mut engine = subject.engine(replay, 4, 1);
        let sequence = engine.new_sequence().unwrap();
        for rows in 1..=5 {
            subject.step(&mut engine, sequence, rows, rows);
        }
        let loads = engine.run_counts().loads;
        for rows in 1..=5 {
            for keep in rows - rows.min(4)..=rows {
                subject.step(&mut engine, sequence, rows, keep);
            }
        }
        assert_eq!(engine.run_counts().loads, loads, "replay {replay}");
    }
}

#[test]
fn without_strategies_recurrent_state_cannot_be_taken_back() {
    let subject = Subject::variant("tiny", 20);
    let mut bare = engine(subject.gguf.clone(), &builtin_cpu(), options(&[]), &StrategyOptions::default());
    let sequence = bare.new_sequence().unwrap();
    subject.step(&mut bare, sequence, 5, 5);
    assert_eq!(bare.can_roll_back(sequence), 0);
    assert!(bare.roll_back(sequence, 1).is_err());
    subject.step(&mut bare, sequence, 5, 5);
}
