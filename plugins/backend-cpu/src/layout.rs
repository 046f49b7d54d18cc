//! Layouts of weights: plain f32 elements, or packed panels for products and gathers.

use crate::weights::{WeightType, pack, packed_bytes, panel_count};
use paceline_plugin_api::backend::WeightUse;
use paceline_plugin_api::graph::Shape;
use paceline_plugin_api::support::{self, WeightFormats};
use paceline_plugin_api::{Error, Result};

/// Weights begin at multiples of a cache line.
pub(crate) const ALIGNMENT: u64 = 64;

/// The types of weights with kernels here: panels of 16 rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panels;

/// How a weight lies in memory.
pub(crate) type Layout = support::Layout<Panels>;

impl WeightFormats for Panels {
    type Kind = WeightType;
    const BACKEND: &str = "the CPU backend";
    const ALIGNMENT: u64 = ALIGNMENT;

    fn from_gguf_id(id: u32) -> Option<WeightType> {
        WeightType::from_gguf_id(id)
    }

    fn gguf_id(kind: WeightType) -> u32 {
        kind.gguf_id()
    }

    fn packed_bytes(kind: WeightType, shape: &Shape) -> Result<u64> {
        let [count, rows, columns] = matrices(shape)?;
        let bytes = packed_bytes(kind, rows, columns).map_err(|e| Error::invalid(e.to_string()))?;
        (bytes as u64).checked_mul(count as u64).ok_or_else(|| Error::invalid("the shape overflows"))
    }
}

/// Number, rows and columns of matrices. Each begins with a panel of its own.
fn matrices(shape: &Shape) -> Result<[usize; 3]> {
    match *shape.dims() {
        [rows, columns] => Ok([1, rows as usize, columns as usize]),
        [count, rows, columns] => Ok([count, rows, columns].map(|dim| dim as usize)),
        _ => Err(Error::invalid(format!("a weight of shape {shape} is not a matrix"))),
    }
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
            let [count, rows, columns] = matrices(&weight.shape)?;
            if !source.len().is_multiple_of(count) {
                return Err(named(&format!("{} bytes were given for {count} matrices", source.len())));
            }
            let sources = source.chunks_exact(source.len() / count);
            sources.zip(target.chunks_exact_mut(target.len() / count)).try_for_each(|(source, target)| {
                pack(kind, source, rows, columns, target, 0..panel_count(rows))
                    .map_err(|e| named(&e.to_string()))
            })
        }
    }
}
