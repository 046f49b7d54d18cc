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
        let (rows, columns) = matrix(shape)?;
        let bytes = packed_bytes(kind, rows, columns).map_err(|e| Error::invalid(e.to_string()))?;
        Ok(bytes as u64)
    }
}

/// Rows and columns of a matrix.
pub(crate) fn matrix(shape: &Shape) -> Result<(usize, usize)> {
    match *shape.dims() {
        [rows, columns] => Ok((rows as usize, columns as usize)),
        [count, _, _] => {
            Err(Error::unsupported(format!("there are no kernels for matrices of {count} experts")))
        }
        _ => Err(Error::invalid(format!("a weight of shape {shape} is not a matrix"))),
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
