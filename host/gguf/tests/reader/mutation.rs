//! Arbitrary bytes and damaged toy models never panic: what the fuzz target checks, on every test
//! run and with the same function.

use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::common::toy;
use crate::touch_everything::touch_everything;

static TOY: LazyLock<Vec<u8>> = LazyLock::new(toy);

/// One way of damaging a file; positions are taken modulo its length.
#[derive(Debug, Clone)]
enum Damage {
    Byte(usize, u8),
    Count(usize, u64),
    Cut(usize),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Repeat(usize, usize),
}

fn any_damage() -> impl Strategy<Value = Damage> {
    let count = prop_oneof![
        Just(0),
        Just(1 << 63),
        Just(u64::MAX),
        Just((1 << 32) + 1),
        Just(u64::from(u32::MAX)),
        0_u64..1000,
        any::<u64>(),
    ];
    prop_oneof![
        4 => (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        4 => (any::<usize>(), count).prop_map(|(at, count)| Damage::Count(at, count)),
        1 => any::<usize>().prop_map(Damage::Cut),
        1 => (any::<usize>(), vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        1 => (any::<usize>(), 1_usize..40).prop_map(|(at, length)| Damage::Remove(at, length)),
        1 => (any::<usize>(), 1_usize..200).prop_map(|(at, length)| Damage::Repeat(at, length)),
    ]
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let place = |at: &usize| at % (bytes.len() + 1);
        let range = |at: &usize, length: usize| place(at)..(place(at) + length).min(bytes.len());
        match self {
            Damage::Byte(at, byte) => {
                let range = range(at, 1);
                bytes[range].fill(*byte);
            }
            Damage::Count(at, count) => {
                let range = range(at, 8);
                let length = range.len();
                bytes[range].copy_from_slice(&count.to_le_bytes()[..length]);
            }
            Damage::Cut(at) => bytes.truncate(place(at)),
            Damage::Insert(at, inserted) => {
                let at = place(at);
                bytes.splice(at..at, inserted.iter().copied());
            }
            Damage::Remove(at, length) => drop(bytes.drain(range(at, *length))),
            Damage::Repeat(at, length) => {
                let range = range(at, *length);
                let copy = bytes[range.clone()].to_vec();
                bytes.splice(range.end..range.end, copy);
            }
        }
    }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        rng_seed: RngSeed::Fixed(0),
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    }
}

proptest! {
    #![proptest_config(config(8_000))]

    #[test]
    fn damaged_models_never_panic(damages in vec(any_damage(), 1..5)) {
        let mut bytes = TOY.clone();
        damages.iter().for_each(|damage| damage.apply(&mut bytes));
        touch_everything(&bytes);
    }
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn random_bytes_never_panic(noise in vec(any::<u8>(), 0..300), with_header: bool, counts in (0_u64..4, 0_u64..4)) {
        let start = if with_header { crate::common::header(3, counts.0, counts.1) } else { Vec::new() };
        touch_everything(&[start, noise].concat());
    }
}

/// Every field of the tables holds each awkward number once.
#[test]
fn awkward_numbers_anywhere_never_panic() {
    for number in crate::common::HUGE.into_iter().chain([0, u64::from(u32::MAX)]) {
        for at in 4..TOY.len() - 8 {
            let mut bytes = TOY.clone();
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
            touch_everything(&bytes);
        }
    }
}

#[test]
fn a_valid_model_can_be_touched() {
    touch_everything(&TOY);
}
