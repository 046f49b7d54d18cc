//! A small report for tests, with round numbers.

use super::model::{Machine, Position, Report, Run, SplitSeconds, VerifyCost};

/// Three arms on two kinds of prompts, three repetitions of two prompts each.
pub fn report() -> Report {
    let arms = ["none", "mtp-chain", "ngram-adaptive+mtp-chain"];
    let mut runs = Vec::new();
    for repetition in 0..3 {
        for (kind, prompts) in
            [("code", ["ring_buffer", "matrix_type"]), ("prose", ["ownership", "page <cache>"])]
        {
            for prompt in prompts {
                runs.extend(
                    arms.iter()
                        .enumerate()
                        .map(|(index, arm)| run(arm, index as u64, kind, prompt, repetition)),
                );
            }
        }
    }
    Report {
        machine: Machine {
            os: "linux".to_owned(),
            cpu: "Example & Sons CPU".to_owned(),
            threads: 2,
            model: "demo-qwen35-Q8_0.gguf".to_owned(),
            version: "0.1.0".to_owned(),
            command: "paceline bench demo --strategy none,mtp-chain,ngram-adaptive+mtp-chain".to_owned(),
        },
        arms: arms.map(str::to_owned).into(),
        runs,
        verify_cost: VerifyCost::table(&[(1, 0.002), (2, 0.0021), (4, 0.0024), (8, 0.0036)]),
    }
}

/// The first arm makes no guesses; the others make as many as they have numbers, twice, and are right less often in prose.
fn run(arm: &str, index: u64, kind: &str, prompt: &str, repetition: u32) -> Run {
    let is_prose = u64::from(kind == "prose");
    let (depth, rounds) = (2 * index, 240 / (1 + index) + 20 * index * is_prose);
    let accepted_at = |place: u64| rounds - (rounds * (place + 1) * (1 + is_prose)) / 12;
    let positions: Vec<Position> =
        (0..depth).map(|place| Position { drafted: rounds, accepted: accepted_at(place) }).collect();
    let seconds = 0.4 / (1.0 + 0.4 * index as f64 - 0.1 * (index * is_prose) as f64);
    let generation_seconds = seconds * (1.0 + 0.01 * f64::from(repetition));
    Run {
        arm: arm.to_owned(),
        kind: kind.to_owned(),
        prompt: prompt.to_owned(),
        repetition,
        temperature: 0.0,
        generated_tokens: 241,
        prompt_tokens: 36,
        prompt_seconds: 0.03,
        generation_seconds,
        rounds,
        drafted: rounds * depth,
        verified: rounds * depth,
        accepted: positions.iter().map(|position| position.accepted).sum(),
        positions,
        split: SplitSeconds {
            draft: 0.2 * generation_seconds * index.min(1) as f64,
            verify: 0.7 * generation_seconds,
            commit: 0.05 * generation_seconds,
            host: 0.05 * generation_seconds,
        },
        identical: Some(!(index == 2 && prompt == "ownership" && repetition == 1)),
        strategy_bytes: index * 3 * (1 << 20),
        uploads: rounds * (1 + index),
        waits: rounds,
        launches: rounds * (2 + index),
    }
}
