//! How far a backend may be from the reference executor, and why.

use paceline_plugin_api::graph::DType;

/// What an element may be off: a fixed part, a part of its own size, and a part of the root mean square of its row
/// (the last axis), which stands for the size of the terms in a sum that may cancel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Fixed part.
    pub absolute: f64,
    /// Part of the expected value's size.
    pub relative: f64,
    /// Part of the row's root mean square.
    pub of_row: f64,
}

const fn tolerance(absolute: f64, relative: f64, of_row: f64) -> Tolerance {
    Tolerance { absolute, relative, of_row }
}

/// Not at all: copies, choices, integers.
pub const EXACT: Tolerance = tolerance(0.0, 0.0, 0.0);

/// (operation, tolerance, reason)
pub const OPERATIONS: &[(&str, Tolerance, &str)] = &[
    ("embed", tolerance(0.0, 1e-6, 0.0), "block types multiply two factors: one rounding"),
    ("add", tolerance(0.0, 1e-7, 0.0), "one rounding"),
    ("mul", tolerance(0.0, 1e-7, 0.0), "one rounding"),
    ("scale", tolerance(0.0, 2e-7, 0.0), "one rounding, and the factor is rounded to f32"),
    (
        "rms_norm",
        tolerance(1e-9, 1e-5, 0.0),
        "a sum of squares in f32, a root, a quotient, silu by an own exp",
    ),
    ("l2_norm", tolerance(1e-9, 5e-6, 0.0), "a sum of squares in f32, a root, a quotient"),
    ("softmax", tolerance(1e-9, 2e-5, 0.0), "x - max in f32 has an error that exp turns into a relative one"),
    ("activation", tolerance(2e-6, 1e-5, 0.0), "polynomials for exp and tanh; softplus near 0 cancels"),
    ("glu", tolerance(2e-6, 1e-5, 0.0), "as activation, times a number of size 1"),
    ("route", tolerance(1e-9, 2e-5, 0.0), "as softmax, and a quotient"),
    ("rope", tolerance(2e-3, 0.0, 0.0), "an angle in f32 is off by 2^-24 of itself: 5e-4 at position 8192"),
    ("attention", tolerance(1e-5, 0.0, 1e-3), "sums in f32, scores with products of f16 keys"),
    ("conv_causal", tolerance(1e-6, 1e-5, 1e-6), "a sum of a few products in f32, silu"),
    ("gated_delta_net", tolerance(1e-6, 0.0, 2e-4), "f32 sums over many rows, each of which feeds the next"),
];

/// Tolerance of an operation; exact for one that is not listed.
pub fn of_operation(operation: &str) -> Tolerance {
    OPERATIONS.iter().find(|(name, ..)| *name == operation).map_or(EXACT, |(_, tolerance, _)| *tolerance)
}

/// Tolerance of `linear` by the type of its weight. Its terms cancel, so it is a part of the row's size.
pub fn of_product(weight: DType) -> Tolerance {
    match weight {
        // Sums in f32.
        DType::F32 => tolerance(1e-6, 0.0, 2e-5),
        // Activations may be rounded to the weight's type: 2^-11 and 2^-8 of every factor.
        DType::F16 => tolerance(1e-6, 0.0, 4e-3),
        DType::BF16 => tolerance(1e-6, 0.0, 2e-2),
        // Activations may be quantised to 8 bits by blocks: an error of up to 1/254 of the block's largest value, of
        // which the root mean square is a third; sums of such errors reach 4 to 5 times their own.
        _ => tolerance(1e-6, 0.0, 5e-2),
    }
}

/// Tolerance of `experts` by the types of gate, up and down: the errors that [`of_product`] allows for each add up.
pub fn of_experts(weights: [DType; 3]) -> Tolerance {
    tolerance(1e-6, 0.0, weights.map(|weight| of_product(weight).of_row).iter().sum())
}

/// Tolerance of what reads a KV cache of these types: more for block types, whose writers may round differently, and
/// whose readers may quantise queries and weights to 8 bits.
pub fn of_caches(types: [DType; 2]) -> Tolerance {
    let mut tolerance = of_operation("attention");
    if types.iter().any(|dtype| !dtype.is_plain()) {
        tolerance.of_row = 5e-2;
    }
    tolerance
}

/// Tolerance of stored cache elements: plain types round to nearest; block types may be off by one step, which is a
/// part of the block's largest value.
pub fn of_stored(dtype: DType) -> Tolerance {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => EXACT,
        DType::Q8_0 => tolerance(0.0, 0.0, 0.04),
        DType::Q5_0 | DType::Q5_1 => tolerance(0.0, 0.0, 0.3),
        _ => tolerance(0.0, 0.0, 0.6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_plugin_api::graph::ops;

    #[test]
    fn every_listed_operation_exists() {
        for (name, _, reason) in OPERATIONS {
            assert!(ops::all().any(|(known, _)| known == *name), "{name}");
            assert!(!reason.is_empty());
        }
    }
}
