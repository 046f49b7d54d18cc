//! Layouts of weights: plain elements, or packed for products and gathers.

use crate::backend::{Uses, WeightLayout, WeightUse};
use crate::error::{Error, Result};
use crate::graph::{DType, Shape};
use std::fmt::Debug;

const ELEMENTS: u64 = 1;
/// Packed layouts are this plus the GGUF id of their type.
const PACKED: u64 = 0x100;

/// The packed forms of a backend, one for each type of weights that it has kernels for.
pub trait WeightFormats {
    /// A type of packed weights.
    type Kind: Copy + Debug + Eq;

    /// How messages name the backend, as in "the CPU backend".
    const BACKEND: &str;
    /// Weights begin at multiples of so many bytes, a power of two.
    const ALIGNMENT: u64;

    /// The packed form of a GGUF type, if there are kernels for it.
    fn from_gguf_id(id: u32) -> Option<Self::Kind>;

    /// The GGUF id of a type.
    fn gguf_id(kind: Self::Kind) -> u32;

    /// Bytes of a packed weight of this shape.
    ///
    /// # Errors
    /// A shape that has no packed form.
    fn packed_bytes(kind: Self::Kind, shape: &Shape) -> Result<u64>;
}

/// How a weight lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout<F: WeightFormats> {
    /// f32 or i32, row-major.
    Elements,
    /// As products and gathers read it.
    Packed(F::Kind),
}

impl<F: WeightFormats> Layout<F> {
    /// Chooses the layout of one weight: what [`Backend::layout_weights`](crate::backend::Backend::layout_weights)
    /// answers for it.
    ///
    /// # Errors
    /// A type or a combination of uses that has no kernel, by the weight's name.
    pub fn choose(weight: &WeightUse) -> Result<WeightLayout> {
        let named = |what: &str| {
            Error::unsupported(format!("weight `{}` of type {}: {what}", weight.name, weight.dtype))
        };
        let elements = weight.uses.contains(Uses::ELEMENTS);
        let packed = weight.uses.0 & (Uses::GATHER.union(Uses::PRODUCT)).0 != 0;
        let layout = match (elements, packed) {
            // Tables of indices are as wide.
            (true, false) if [DType::F32, DType::I32].contains(&weight.dtype) => Layout::<F>::Elements,
            (true, false) => return Err(named("elements must be f32 or i32")),
            (false, true) => Layout::Packed(
                F::from_gguf_id(weight.dtype.0)
                    .ok_or_else(|| named(&format!("{} has no kernels for this type", F::BACKEND)))?,
            ),
            _ => return Err(named("it is used both by elements and in products, or not at all")),
        };
        let bytes = layout.bytes(&weight.shape).map_err(|e| named(&e.message))?;
        Ok(WeightLayout { layout: layout.id(), bytes, alignment: F::ALIGNMENT })
    }

    /// The layout of a number that [`Layout::choose`] gave; `None` for any other.
    pub fn from_id(id: u64) -> Option<Self> {
        match id {
            ELEMENTS => Some(Layout::Elements),
            _ => {
                let id = u32::try_from(id.checked_sub(PACKED)?).ok()?;
                F::from_gguf_id(id).map(Layout::Packed)
            }
        }
    }

    /// The number by which the host knows the layout.
    pub fn id(self) -> u64 {
        match self {
            Layout::Elements => ELEMENTS,
            Layout::Packed(kind) => PACKED + u64::from(F::gguf_id(kind)),
        }
    }

    /// Bytes of a weight of this shape.
    ///
    /// # Errors
    /// A shape that overflows, or that has no packed form.
    pub fn bytes(&self, shape: &Shape) -> Result<u64> {
        match self {
            Layout::Elements => DType::F32.bytes(shape).ok_or_else(|| Error::invalid("the shape overflows")),
            Layout::Packed(kind) => F::packed_bytes(*kind, shape),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs f16 and q8_0, one byte an element.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Bytes;

    impl WeightFormats for Bytes {
        type Kind = DType;
        const BACKEND: &str = "the backend of bytes";
        const ALIGNMENT: u64 = 16;

        fn from_gguf_id(id: u32) -> Option<DType> {
            [DType::F16, DType::Q8_0].into_iter().find(|dtype| dtype.0 == id)
        }

        fn gguf_id(kind: DType) -> u32 {
            kind.0
        }

        fn packed_bytes(_: DType, shape: &Shape) -> Result<u64> {
            match shape.rank() {
                2 => shape.elements().ok_or_else(|| Error::invalid("the shape overflows")),
                _ => Err(Error::invalid("it is not a matrix")),
            }
        }
    }

    fn choose(dtype: DType, dims: &[u32], uses: Uses) -> Result<WeightLayout> {
        let shape = Shape::new(dims).unwrap();
        Layout::<Bytes>::choose(&WeightUse { name: "blk.0.w".into(), dtype, shape, uses, group: 0 })
    }

    #[test]
    fn uses_and_types_decide_the_layout() {
        let both = Uses::PRODUCT.union(Uses::GATHER);
        for (dtype, dims, uses, layout, bytes) in [
            (DType::F32, &[77][..], Uses::ELEMENTS, Layout::Elements, 308),
            (DType::I32, &[2, 3], Uses::ELEMENTS, Layout::Elements, 24),
            (DType::F16, &[4, 5], Uses::GATHER, Layout::Packed(DType::F16), 20),
            (DType::Q8_0, &[4, 32], both, Layout::Packed(DType::Q8_0), 128),
        ] {
            let chosen = choose(dtype, dims, uses).unwrap();
            assert_eq!((chosen.bytes, chosen.alignment), (bytes, 16));
            assert_eq!(Layout::<Bytes>::from_id(chosen.layout), Some(layout));
        }
    }

    #[test]
    fn what_has_no_kernel_is_refused_by_name() {
        for (dtype, dims, uses, what) in [
            (DType::Q4_K, &[4, 256][..], Uses::PRODUCT, "the backend of bytes has no kernels for this type"),
            (DType::F16, &[32], Uses::ELEMENTS, "elements must be f32 or i32"),
            (DType::F16, &[4, 32], Uses::PRODUCT.union(Uses::ELEMENTS), "both by elements and in products"),
            (DType::F32, &[4], Uses::default(), "or not at all"),
            (DType::F16, &[4], Uses::PRODUCT, "it is not a matrix"),
            (DType::F32, &[u32::MAX; 4], Uses::ELEMENTS, "overflows"),
        ] {
            let message = choose(dtype, dims, uses).unwrap_err().message;
            assert!(message.contains("`blk.0.w`") && message.contains(what), "{message}");
        }
    }

    #[test]
    fn other_numbers_are_no_layouts() {
        let others = [0, 2, 0xFF, 0x100 + 63, u64::MAX];
        assert_eq!(others.map(Layout::<Bytes>::from_id), [None; 5]);
    }
}
