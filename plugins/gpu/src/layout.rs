//! Layouts of weights: plain elements, or packed for products and gathers.

use paceline_kernels::layout::{self, WeightKind, packed_bytes};
use paceline_plugin_api::graph::Shape;
use paceline_plugin_api::support::{self, WeightFormats};
use paceline_plugin_api::{Error, Result};

/// The types of weights with kernels for GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panels;

/// How a weight lies in memory.
pub(crate) type Layout = support::Layout<Panels>;

impl WeightFormats for Panels {
    type Kind = WeightKind;
    const BACKEND: &str = "this backend";
    const ALIGNMENT: u64 = layout::ALIGNMENT as u64;

    fn from_gguf_id(id: u32) -> Option<WeightKind> {
        WeightKind::from_gguf_id(id)
    }

    fn gguf_id(kind: WeightKind) -> u32 {
        kind.gguf_id()
    }

    fn packed_bytes(kind: WeightKind, shape: &Shape) -> Result<u64> {
        let (count, rows, columns) = matrices(shape)?;
        let too_large = || Error::invalid(format!("a weight of shape {shape} is too large"));
        matrix_bytes(kind, rows, columns)?.checked_mul(count as u64).ok_or_else(too_large)
    }
}

/// Bytes of one packed matrix; those of experts lie one behind the other.
pub(crate) fn matrix_bytes(kind: WeightKind, rows: usize, columns: usize) -> Result<u64> {
    packed_bytes(kind, rows, columns).map(|bytes| bytes as u64).map_err(|e| Error::invalid(e.to_string()))
}

/// Matrices of a weight, rows and columns of each.
pub(crate) fn matrices(shape: &Shape) -> Result<(usize, usize, usize)> {
    match *shape.dims() {
        [rows, columns] => Ok((1, rows as usize, columns as usize)),
        [count, rows, columns] => Ok((count as usize, rows as usize, columns as usize)),
        _ => Err(Error::invalid(format!("a weight of shape {shape} is not made of matrices"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_plugin_api::backend::{Uses, WeightUse};
    use paceline_plugin_api::graph::DType;

    fn weight(dtype: DType, dims: &[u32], uses: Uses) -> WeightUse {
        let shape = Shape::new(dims).unwrap();
        WeightUse { name: "blk.0.w".into(), dtype, shape, uses, group: 0 }
    }

    #[test]
    fn every_kind_has_a_layout_that_reads_back() {
        for kind in WeightKind::ALL {
            let chosen = Layout::choose(&weight(DType(kind.gguf_id()), &[33, 256], Uses::PRODUCT)).unwrap();
            assert_eq!(Layout::from_id(chosen.layout), Some(Layout::Packed(kind)));
            assert!(chosen.alignment.is_power_of_two() && chosen.bytes > 0);
        }
        let both =
            Layout::choose(&weight(DType::Q6_K, &[100, 512], Uses::PRODUCT.union(Uses::GATHER))).unwrap();
        assert_eq!(Layout::from_id(both.layout), Some(Layout::Packed(WeightKind::Q6K)));
        // The last panel of every expert is as large as the others.
        let experts = Layout::choose(&weight(DType::Q8_0, &[3, 17, 64], Uses::PRODUCT)).unwrap();
        assert_eq!(experts.bytes, 3 * matrix_bytes(WeightKind::Q8_0, 32, 64).unwrap());
        let norm = Layout::choose(&weight(DType::F32, &[77], Uses::ELEMENTS)).unwrap();
        assert_eq!((Layout::from_id(norm.layout), norm.bytes), (Some(Layout::Elements), 308));
    }

    #[test]
    fn what_has_no_kernel_is_refused_by_name() {
        for wrong in [
            weight(DType(9999), &[4, 32], Uses::PRODUCT),
            weight(DType::F16, &[32], Uses::ELEMENTS),
            weight(DType::F32, &[4, 32], Uses::PRODUCT.union(Uses::ELEMENTS)),
            weight(DType::Q8_0, &[4, 33], Uses::PRODUCT),
            weight(DType::F32, &[4], Uses::default()),
        ] {
            assert!(Layout::choose(&wrong).unwrap_err().message.contains("blk.0.w"), "{wrong:?}");
        }
        assert_eq!((Layout::from_id(0), Layout::from_id(0x100 + 63)), (None, None));
    }
}
