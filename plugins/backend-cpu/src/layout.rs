//! Layouts of weights: plain f32 elements, or packed panels for products and gathers.

use crate::weights::{PANEL_ROWS, WeightType, pack, packed_bytes, panel_count};
use paceline_plugin_api::backend::{Uses, WeightLayout, WeightUse};
use paceline_plugin_api::graph::{DType, Shape};
use paceline_plugin_api::{Error, Result};

/// Weights begin at multiples of a cache line.
pub(crate) const ALIGNMENT: u64 = 64;

const ELEMENTS: u64 = 1;
/// Packed layouts are this plus the GGUF id of their type.
const PACKED: u64 = 0x100;

/// How a weight lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// f32 or i32, row-major.
    Elements,
    /// Panels of 16 rows.
    Packed(WeightType),
}

impl Layout {
    pub fn from_id(id: u64) -> Option<Layout> {
        match id {
            ELEMENTS => Some(Layout::Elements),
            _ => {
                let id = u32::try_from(id.checked_sub(PACKED)?).ok()?;
                WeightType::from_gguf_id(id).map(Layout::Packed)
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
    fn bytes(self, shape: &Shape) -> Result<u64> {
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

/// Rows and columns of a matrix, or of several, one below the other, whose panels begin with their rows.
pub(crate) fn matrix(shape: &Shape) -> Result<(usize, usize)> {
    match *shape.dims() {
        [rows, columns] => Ok((rows as usize, columns as usize)),
        [count, rows, columns] if (rows as usize).is_multiple_of(PANEL_ROWS) => {
            Ok((count as usize * rows as usize, columns as usize))
        }
        [_, rows, _] => Err(Error::invalid(format!(
            "matrices of {rows} rows have no kernel: it must be a multiple of {PANEL_ROWS}"
        ))),
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
            WeightType::from_gguf_id(weight.dtype.0)
                .ok_or_else(|| named("the CPU backend has no kernels for this type"))?,
        ),
        _ => return Err(named("it is used both by elements and in products, or not at all")),
    };
    let bytes = layout.bytes(&weight.shape).map_err(|e| named(&e.message))?;
    Ok(WeightLayout { layout: layout.id(), bytes, alignment: ALIGNMENT })
}

/// Writes canonical bytes into the chosen layout.
///
/// # Errors
/// Sizes that do not fit, by the weight's name.
pub(crate) fn import(weight: &WeightUse, layout: u64, source: &[u8], target: &mut [u8]) -> Result<()> {
    let named = |what: &str| Error::invalid(format!("weight `{}`: {what}", weight.name));
    let layout = Layout::from_id(layout).ok_or_else(|| named("its layout is not the CPU backend's"))?;
    let bytes = layout.bytes(&weight.shape).map_err(|e| named(&e.message))?;
    if target.len() as u64 != bytes {
        return Err(named(&format!("the target has {} bytes, the layout takes {bytes}", target.len())));
    }
    match layout {
        Layout::Elements => {
            if source.len() != target.len() {
                return Err(named(&format!("{} bytes were given for {bytes}", source.len())));
            }
            target.copy_from_slice(source);
            Ok(())
        }
        Layout::Packed(kind) => {
            let (rows, columns) = matrix(&weight.shape)?;
            pack(kind, source, rows, columns, target, 0..panel_count(rows)).map_err(|e| named(&e.to_string()))
        }
    }
}
