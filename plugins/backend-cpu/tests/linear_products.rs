//! Products of the matrix kernels: right values, and bits that depend on nothing they must not.

use paceline_backend_cpu::level::Level;
use paceline_backend_cpu::linear::{Activations, LinearError, Output, linear};
use paceline_backend_cpu::quantized::{QuantizedRows, row_bytes};
use paceline_backend_cpu::weights::{WeightType, dequantize_row};

mod linear_support;
use linear_support::{
    Matrix, Numbers, quantize, random_canonical, random_values, scale_positions, set_scales,
};

const ROWS: [usize; 8] = [1, 2, 3, 5, 8, 9, 17, 33];
const SIZES: [usize; 5] = [1, 15, 16, 17, 40];

fn widths(kind: WeightType) -> &'static [usize] {
    match kind.block() {
        1 => &[1, 7, 32, 100, 1024],
        32 => &[32, 96, 1024],
        _ => &[256, 768, 1024],
    }
}

/// The activations as the kernels see them, in `f64`.
fn seen_activations(kind: WeightType, values: &[f32], k: usize) -> Vec<f64> {
    if !kind.is_quantized() {
        return values.iter().map(|&v| f64::from(v)).collect();
    }
    let quantized = quantize(Level::Scalar, values, k);
    let rows = QuantizedRows::new(&quantized, values.len() / k, k).unwrap();
    let mut seen = Vec::new();
    for row in 0..rows.rows() {
        for block in 0..k / 32 {
            let block = rows.block(row, block);
            seen.extend(block.quants.iter().map(|&q| f64::from(q) * f64::from(block.scale)));
        }
    }
    seen
}

/// The product with rows of activations, as bits, in calls for the panels between
/// consecutive `cuts`. Elements that no call writes would come out as a marker.
fn product(matrix: &Matrix, level: Level, values: &[f32], bias: Option<&[f32]>, cuts: &[usize]) -> Vec<u32> {
    const MARKER: f32 = 12345.678;
    let rows = values.len() / matrix.k;
    let quantized = quantize(level, values, matrix.k);
    let activations = if matrix.kind.is_quantized() {
        Activations::Quantized(QuantizedRows::new(&quantized, rows, matrix.k).unwrap())
    } else {
        Activations::F32 { values, rows }
    };
    // One element between the rows must stay untouched.
    let stride = matrix.n + 1;
    let mut out = vec![MARKER; rows * stride];
    for range in cuts.windows(2) {
        let output = Output { start: out.as_mut_ptr(), stride };
        // SAFETY: `out` holds all rows at this stride, and nothing else uses it.
        unsafe { linear(level, &matrix.view(), activations, bias, output, range[0]..range[1]).unwrap() };
    }
    for row in out.chunks_exact(stride) {
        assert_eq!(row[matrix.n], MARKER, "a kernel wrote past its row");
    }
    out.chunks_exact(stride).flat_map(|row| row[..matrix.n].iter().map(|v| v.to_bits())).collect()
}

#[test]
fn products_match_double_precision() {
    let mut numbers = Numbers::new(1);
    for kind in WeightType::ALL {
        for &k in widths(kind) {
            let (n, rows) = (23, 3);
            let matrix = Matrix::random(kind, n, k, &mut numbers);
            let values = random_values(rows * k, &mut numbers);
            let bias = random_values(n, &mut numbers);
            let seen = seen_activations(kind, &values, k);
            let out = product(&matrix, Level::detect(), &values, Some(&bias), &[0, 2]);
            let mut weights = vec![0.0; k];
            for (i, canonical) in matrix.canonical.chunks_exact(matrix.canonical.len() / n).enumerate() {
                dequantize_row(kind, canonical, &mut weights).unwrap();
                for r in 0..rows {
                    let products =
                        weights.iter().zip(&seen[r * k..]).map(|(&weight, &a)| f64::from(weight) * a);
                    let (sum, size) = products.fold((0.0, 0.0), |(s, m), p| (s + p, m + f64::abs(p)));
                    let expected = sum + f64::from(bias[i]);
                    let found = f64::from(f32::from_bits(out[r * n + i]));
                    let tolerance = 4e-6 * (size + f64::from(bias[i].abs()));
                    assert!(
                        (found - expected).abs() <= tolerance,
                        "{kind} k {k} row {r} output {i}: {found} against {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn bits_depend_on_neither_level_nor_rows_nor_split() {
    let mut numbers = Numbers::new(2);
    for kind in WeightType::ALL {
        for &k in widths(kind) {
            let values = random_values(ROWS[ROWS.len() - 1] * k, &mut numbers);
            for n in SIZES {
                let matrix = Matrix::random(kind, n, k, &mut numbers);
                let bias = random_values(n, &mut numbers);
                let panels = n.div_ceil(16);
                let one_by_one: Vec<usize> = (0..=panels).collect();
                let mut expected = Vec::new();
                for row in values.chunks_exact(k) {
                    expected.extend(product(&matrix, Level::Scalar, row, Some(&bias), &[0, panels]));
                }
                for level in Level::available() {
                    for rows in ROWS {
                        // The scalar level is slow, and exact for one row by definition.
                        if level == Level::Scalar && (rows > 5 || k > 256) {
                            continue;
                        }
                        for cuts in [&[0, panels][..], &one_by_one] {
                            let found = product(&matrix, level, &values[..rows * k], Some(&bias), cuts);
                            assert_eq!(
                                found,
                                expected[..rows * n],
                                "{kind} {level} n {n} k {k} rows {rows} cuts {cuts:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn many_panels_in_chunks_equal_single_rows() {
    let mut numbers = Numbers::new(3);
    for kind in WeightType::ALL {
        let (n, k, rows) = (16 * 37 + 5, 768, 19);
        let matrix = Matrix::random(kind, n, k, &mut numbers);
        let values = random_values(rows * k, &mut numbers);
        for level in Level::available().into_iter().filter(|&level| level != Level::Scalar) {
            let whole = product(&matrix, level, &values, None, &[0, 38]);
            let split = product(&matrix, level, &values, None, &[0, 3, 20, 38]);
            assert_eq!(whole, split, "{kind} {level}");
            for (row, expected) in values.chunks_exact(k).zip(whole.chunks_exact(n)) {
                assert_eq!(product(&matrix, level, row, None, &[0, 38]), expected, "{kind} {level}");
            }
        }
    }
}

/// Products of one matrix on all levels, which must agree.
fn agreed_product(matrix: &Matrix, values: &[f32]) -> Vec<f32> {
    let cuts = [0, matrix.n.div_ceil(16)];
    let scalar = product(matrix, Level::Scalar, values, None, &cuts);
    for level in Level::available() {
        assert_eq!(product(matrix, level, values, None, &cuts), scalar, "{} {level}", matrix.kind);
    }
    scalar.into_iter().map(f32::from_bits).collect()
}

#[test]
fn extreme_quants_are_exact() {
    let k = 256;
    for kind in WeightType::ALL.into_iter().filter(|kind| kind.is_quantized()) {
        for (byte, activation) in
            [(0x80, 1.0), (0x80, -1.0), (0x00, -1.0), (0x00, 1.0), (0xff, 1.0), (0xff, -1.0), (0x7f, 1.0)]
        {
            let (block, _) = scale_positions(kind);
            let mut canonical = vec![byte; 16 * k / kind.block() * block];
            canonical.chunks_exact_mut(block).for_each(|block| set_scales(kind, block, 1.0));
            let mut weights = vec![0.0; k];
            dequantize_row(kind, &canonical[..k / kind.block() * block], &mut weights).unwrap();
            let expected: f64 = weights.iter().map(|&w| f64::from(w) * activation).sum();
            let matrix = Matrix::new(kind, 16, k, canonical);
            let out = agreed_product(&matrix, &vec![activation as f32; 3 * k]);
            assert!(
                out.iter().all(|&v| (f64::from(v) - expected).abs() <= 1e-5 * (1.0 + expected.abs())),
                "{kind} of bytes {byte:#x}: {out:?} against {expected}"
            );
        }
    }
}

#[test]
fn bad_scales_and_activations_give_nan_only_where_they_reach() {
    let mut numbers = Numbers::new(4);
    for kind in WeightType::ALL {
        let (n, k) = (19, 256);
        let mut canonical = random_canonical(kind, n, k, &mut numbers);
        let row_bytes = canonical.len() / n;
        // NaN in the scale (or the first value) of row 5, zeros in all of row 6.
        let (_, scales) = scale_positions(kind);
        let at = 5 * row_bytes + scales.first().copied().unwrap_or(0);
        match kind {
            WeightType::F32 => canonical[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes()),
            // Its exponents have no NaN that readers agree on.
            WeightType::Mxfp4 => {}
            WeightType::Bf16 => canonical[at..at + 2].copy_from_slice(&[0xc1, 0x7f]),
            _ => canonical[at..at + 2].copy_from_slice(&[0x01, 0xfe]),
        }
        canonical[6 * row_bytes..7 * row_bytes].fill(0);
        let matrix = Matrix::new(kind, n, k, canonical);
        let mut values = random_values(4 * k, &mut numbers);
        values[k + 40] = f32::NAN;
        values[2 * k + 70] = f32::INFINITY;
        values[3 * k..].fill(0.0);
        let out = agreed_product(&matrix, &values);
        for (r, row) in out.chunks_exact(n).enumerate() {
            for (i, value) in row.iter().enumerate() {
                let reached =
                    (i == 5 && kind != WeightType::Mxfp4) || r == 1 || (r == 2 && kind.is_quantized());
                if reached {
                    assert!(value.is_nan(), "{kind} row {r} output {i}: {value}");
                } else if r != 2 {
                    assert!(value.is_finite(), "{kind} row {r} output {i}: {value}");
                    assert!(*value == 0.0 || (i != 6 && r != 3), "{kind} row {r} output {i}: {value}");
                }
            }
        }
    }
}

#[test]
fn unfit_arguments_are_errors() {
    let mut numbers = Numbers::new(5);
    let matrix = Matrix::random(WeightType::Q8_0, 17, 64, &mut numbers);
    let floats = Matrix::random(WeightType::F32, 17, 64, &mut numbers);
    let values = random_values(64, &mut numbers);
    let quantized = vec![0; 2 * row_bytes(96)];
    let rows = |k| Activations::Quantized(QuantizedRows::new(&quantized, 1, k).unwrap());
    let plain = |rows| Activations::F32 { values: &values, rows };
    let mut out = vec![0.0; 17];
    let output = Output { start: out.as_mut_ptr(), stride: 17 };
    let level = Level::detect();
    let call = |matrix: &Matrix, activations, bias, panels| {
        // SAFETY: `out` holds one row, and a call with more rows is refused before any write.
        unsafe { linear(level, &matrix.view(), activations, bias, output, panels) }
    };
    assert_eq!(call(&matrix, rows(64), None, 0..2), Ok(()));
    assert_eq!(call(&matrix, rows(64), None, 1..1), Ok(()));
    assert_eq!(call(&matrix, rows(64), None, 0..3), Err(LinearError::Panels));
    assert_eq!(call(&matrix, rows(96), None, 0..2), Err(LinearError::Width { needed: 64, found: 96 }));
    assert_eq!(call(&matrix, plain(1), None, 0..2), Err(LinearError::Activations(WeightType::Q8_0)));
    assert_eq!(call(&floats, rows(64), None, 0..2), Err(LinearError::Activations(WeightType::F32)));
    assert_eq!(call(&floats, plain(2), None, 0..2), Err(LinearError::Width { needed: 128, found: 64 }));
    let bias = Some(&values[..3]);
    assert_eq!(call(&floats, plain(1), bias, 0..2), Err(LinearError::Bias { needed: 17, found: 3 }));
    assert!(QuantizedRows::new(&quantized, 3, 96).is_err());
    assert!(QuantizedRows::new(&quantized, 1, 33).is_err());
}
