//! Comparison of results.

use super::tolerance::Tolerance;
use crate::block::{ResultData, result};
use paceline_plugin_api::graph::Graph;

/// Compares values whose last axis has `width` elements. Returns the largest error as a part of what is allowed.
///
/// # Errors
/// The place of the largest error, if it is beyond the tolerance; NaN and infinities must be the same.
pub fn compare_values(
    expected: &[f32],
    given: &[f32],
    width: usize,
    tolerance: Tolerance,
) -> Result<f64, String> {
    if expected.len() != given.len() {
        return Err(format!("{} values instead of {}", given.len(), expected.len()));
    }
    let mut worst = 0.0;
    let mut place = None;
    for (row, (expected, given)) in expected.chunks(width).zip(given.chunks(width)).enumerate() {
        let finite = expected.iter().map(|&v| f64::from(v)).filter(|v| v.is_finite());
        let size = (finite.map(|v| v * v).sum::<f64>() / expected.len() as f64).sqrt();
        for (column, (&expected, &given)) in expected.iter().zip(given).enumerate() {
            let part = error(expected, given, size, tolerance);
            if part > worst {
                worst = part;
                place = Some((row, column, expected, given, size));
            }
        }
    }
    match place {
        Some((row, column, expected, given, size)) if worst > 1.0 => Err(format!(
            "row {row}, column {column}: {given:e} instead of {expected:e}, off by {:.3e}, {worst:.1} times what is \
             allowed (root mean square of the row {size:.3e})",
            (f64::from(given) - f64::from(expected)).abs()
        )),
        _ => Ok(worst),
    }
}

/// Error of one element as a part of what is allowed.
fn error(expected: f32, given: f32, row_size: f64, tolerance: Tolerance) -> f64 {
    if expected == given || (expected.is_nan() && given.is_nan()) {
        return 0.0;
    }
    let (expected, given) = (f64::from(expected), f64::from(given));
    let allowed = tolerance.absolute + tolerance.relative * expected.abs() + tolerance.of_row * row_size;
    let off = (expected - given).abs() / allowed;
    // Also where the quotient is NaN: a NaN or an infinity that is not expected, or nothing is allowed.
    if off.is_finite() && expected.is_finite() { off } else { f64::INFINITY }
}

/// Compares the live rows of all results of a run. Returns the largest error as a part of what is allowed.
///
/// # Errors
/// The first result that is wrong, and where. Integers must be equal.
pub fn compare_results(
    graph: &Graph,
    parameters: &[u8],
    expected: &[u8],
    given: &[u8],
    tolerance: Tolerance,
) -> Result<f64, String> {
    let mut worst = 0.0f64;
    for slot in graph.results() {
        let width = graph.value(slot.value).shape.last() as usize;
        let data = |block: &[u8]| result(graph, parameters, block, &slot.name);
        let part = match (data(expected), data(given)) {
            (ResultData::Floats(expected), ResultData::Floats(given)) => {
                compare_values(&expected, &given, width, tolerance)
            }
            (ResultData::Integers(expected), ResultData::Integers(given)) => {
                match expected.iter().zip(&given).position(|(e, g)| e != g) {
                    None => Ok(0.0),
                    Some(at) => {
                        let (row, column) = (at / width, at % width);
                        Err(format!("row {row}, column {column}: {} instead of {}", given[at], expected[at]))
                    }
                }
            }
            _ => Err("another type".into()),
        };
        worst = worst.max(part.map_err(|what| format!("result `{}`, {what}", slot.name))?);
    }
    Ok(worst)
}

/// The first place at which two lists of values differ in their bits.
pub(super) fn first_difference(left: &[f32], right: &[f32]) -> Option<String> {
    if left.len() != right.len() {
        return Some(format!("{} and {} values", left.len(), right.len()));
    }
    let at = left.iter().zip(right).position(|(l, r)| l.to_bits() != r.to_bits())?;
    Some(format!("element {at} is {:e} and {:e}", left[at], right[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOSE: Tolerance = Tolerance { absolute: 0.0, relative: 0.1, of_row: 0.0 };

    #[test]
    fn errors_are_measured_in_tolerances() {
        assert_eq!(compare_values(&[1.0, f32::NAN], &[1.0, f32::NAN], 2, LOOSE), Ok(0.0));
        let part = compare_values(&[10.0, 2.0], &[10.5, 2.0], 2, LOOSE).unwrap();
        assert!((part - 0.5).abs() < 1e-9);
        let message = compare_values(&[10.0, 2.0, 1.0, 1.0], &[10.0, 2.0, 1.0, 2.0], 2, LOOSE).unwrap_err();
        assert!(message.starts_with("row 1, column 1: 2e0 instead of 1e0"), "{message}");
    }

    #[test]
    fn what_is_not_a_number_is_wrong() {
        for given in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(compare_values(&[1.0], &[given], 1, LOOSE).is_err());
            assert!(compare_values(&[given], &[1.0], 1, LOOSE).is_err());
        }
        assert!(compare_values(&[0.0], &[1e-30], 1, LOOSE).is_err(), "nothing is allowed at 0");
        assert!(compare_values(&[0.0], &[0.0, 1.0], 1, LOOSE).is_err());
    }
}
