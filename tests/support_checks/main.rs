//! Checks of what the end-to-end tests stand on.

mod demo_model;
mod dense;
mod golden;
mod invariants;
mod random_models;
mod tiny_model;

use paceline_gguf::{Gguf, OpenOptions};
use paceline_tests::{DrafterReference, RandomDrafter, RandomModel, Reference};
use std::path::Path;

/// The tokens that recorded outputs of random models are for.
const TOKENS: [u32; 17] = [72, 101, 108, 108, 111, 44, 32, 119, 111, 114, 108, 100, 33, 10, 7, 250, 131];

fn file_of(bytes: Vec<u8>) -> Gguf {
    Gguf::from_bytes(bytes).unwrap()
}

fn reference_of(model: &RandomModel) -> Reference {
    Reference::load(&file_of(model.to_bytes())).unwrap()
}

fn drafter_of(drafter: &RandomDrafter) -> DrafterReference {
    DrafterReference::load(&file_of(drafter.to_bytes())).unwrap()
}

fn open(path: impl AsRef<Path>) -> Gguf {
    Gguf::open(path, &OpenOptions::default()).unwrap()
}

/// The largest difference of two tables of numbers.
fn largest_difference<T: Copy + Into<f64>>(computed: &[Vec<f64>], expected: &[Vec<T>]) -> f64 {
    assert_eq!(computed.len(), expected.len(), "rows");
    let mut largest = 0.0_f64;
    for (computed, expected) in computed.iter().zip(expected) {
        assert_eq!(computed.len(), expected.len(), "columns");
        for (computed, expected) in computed.iter().zip(expected) {
            let difference = (computed - (*expected).into()).abs();
            assert!(difference.is_finite(), "{computed}");
            largest = largest.max(difference);
        }
    }
    largest
}
