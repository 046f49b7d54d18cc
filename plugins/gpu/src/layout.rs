//! Layouts of weights: plain elements, or packed for products and gathers.

use paceline_kernels::layout::{self, WeightKind, packed_bytes};
use paceline_plugin_api::backend::{Uses, WeightLayout, WeightUse};
use paceline_plugin_api::graph::{DType, Shape};
use paceline_plugin_api::{Error, Result};

const ELEMENTS: u64 = 1;
/// Packed layouts are this plus the GGUF id of their type.
const PACKED: u64 = 0x100;

/// How a weight lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// f32 or i32, row-major.
    Elements,
    /// As the products read it.
    Packed(WeightKind),
}

impl Layout {
    pub fn from_id(id: u64) -> Option<Layout> {
        match id {
            ELEMENTS => Some(Layout::Elements),
            _ => {
                let id = u32::try_from(id.checked_sub(PACKED)?).ok()?;
                WeightKind::from_gguf_id(id).map(Layout::Packed)
            }
        }
    }

    fn id(self) -> u64 {
        match self {
            Layout::Elements => ELEMENTS,
            Layout::Packed(kind) => PACKED + u64::from(kind.gguf_id()),
        }
    }

    /// Bytes of a weight of this shape.
    pub fn bytes(self, shape: &Shape) -> Result<u64> {
        match self {
            Layout::Elements => DType::F32.bytes(shape).ok_or_else(|| Error::invalid("the shape overflows")),
            Layout::Packed(kind) => {
                let (rows, columns) = matrix(shape)?;
                let bytes = packed_bytes(kind, rows, columns).map_err(|e| Error::invalid(e.to_string()))?;
                Ok(bytes as u64)
            }
        }
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

/// Chooses the layout of one weight.
///
/// # Errors
/// A type or a combination of uses that has no kernel here, by the weight's name.
pub(crate) fn choose(weight: &WeightUse) -> Result<WeightLayout> {
    let named =
        |what: &str| Error::unsupported(format!("weight `{}` of type {}: {what}", weight.name, weight.dtype));
    let elements = weight.uses.contains(Uses::ELEMENTS);
    let packed = weight.uses.0 & (Uses::GATHER.union(Uses::PRODUCT)).0 != 0;
    let layout = match (elements, packed) {
        // Tables of indices are as wide.
        (true, false) if [DType::F32, DType::I32].contains(&weight.dtype) => Layout::Elements,
        (true, false) => return Err(named("elements must be f32 or i32")),
        (false, true) => Layout::Packed(
            WeightKind::from_gguf_id(weight.dtype.0)
                .ok_or_else(|| named("this backend has no kernels for this type"))?,
        ),
        _ => return Err(named("it is used both by elements and in products, or not at all")),
    };
    let bytes = layout.bytes(&weight.shape).map_err(|e| named(&e.message))?;
    Ok(WeightLayout { layout: layout.id(), bytes, alignment: layout::ALIGNMENT as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(dtype: DType, dims: &[u32], uses: Uses) -> WeightUse {
        let shape = Shape::new(dims).unwrap();
        WeightUse { name: "blk.0.w".into(), dtype, shape, uses, group: 0 }
    }

    #[test]
    fn every_kind_has_a_layout_that_reads_back() {
        for kind in WeightKind::ALL {
            let chosen = choose(&weight(DType(kind.gguf_id()), &[33, 256], Uses::PRODUCT)).unwrap();
            assert_eq!(Layout::from_id(chosen.layout), Some(Layout::Packed(kind)));
            assert!(chosen.alignment.is_power_of_two() && chosen.bytes > 0);
        }
        let both = choose(&weight(DType::Q6_K, &[100, 512], Uses::PRODUCT.union(Uses::GATHER))).unwrap();
        assert_eq!(Layout::from_id(both.layout), Some(Layout::Packed(WeightKind::Q6K)));
        let norm = choose(&weight(DType::F32, &[77], Uses::ELEMENTS)).unwrap();
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
            assert!(choose(&wrong).unwrap_err().message.contains("blk.0.w"), "{wrong:?}");
        }
        assert_eq!((Layout::from_id(0), Layout::from_id(0x100 + 63)), (None, None));
    }
}
