//! A product whose first groups make the quantised rows that the others multiply: the same bits as the two launches that
//! it replaces, without the time between them.
//!
//! The groups behind those ask for their weights at once, and then wait until the first have counted that they are done.
//! That ends only if a device begins the groups of a launch in the order of their numbers, as NVIDIA's do; so there are
//! such kernels for these alone.

use super::elementwise::activation;
use super::fused::{GluQuantize, ItemsNormQuantize, JoinQuantize, NormQuantize};
use super::linear::{LINEAR_THREADS, Linear, NARROW_ROWS, entries};
use super::{Field, Launch, Parameters};
use crate::layout::WeightKind;

/// `LedLinear::lead`: what the first groups do.
pub mod lead {
    /// Nothing: the rows are those of the launch in front, which counts in the same place.
    pub const NOTHING: u32 = 0;
    /// [`NormQuantize`](super::NormQuantize) without y, of rows of at most [`LONGEST_ROW`](super::LONGEST_ROW).
    pub const NORM: u32 = 1;
    /// [`ItemsNormQuantize`](super::ItemsNormQuantize).
    pub const ITEMS_NORM: u32 = 2;
    /// [`JoinQuantize`](super::JoinQuantize).
    pub const JOIN: u32 = 3;
    /// [`GluQuantize`](super::GluQuantize) with silu.
    pub const GLU: u32 = 4;
}

/// Elements of the longest row that the first groups norm.
pub const LONGEST_ROW: u32 = 8192;

parameters! {
    /// A product of at most [`NARROW_ROWS`] rows with quantised weights, and what makes its rows: of the four structures
    /// the one that `lead` names.
    pub struct LedLinear {
        /// The product; its `x` is what is made.
        pub product: Linear,
        /// For [`lead::NORM`].
        pub norm: NormQuantize,
        /// For [`lead::ITEMS_NORM`].
        pub items_norm: ItemsNormQuantize,
        /// For [`lead::JOIN`].
        pub join: JoinQuantize,
        /// For [`lead::GLU`].
        pub glu: GluQuantize,
        /// Address of a u32 that is 0 when a run begins, and counts the groups that have made their part.
        pub ready: u64,
        /// How many those are in all.
        pub makers: u32,
        /// One of [`lead`].
        pub lead: u32,
    }
}

macro_rules! nested {
    ($($name:ident)*) => { $(impl Field for $name { const C: &'static str = $name::C_NAME; })* };
}

nested! { Linear NormQuantize ItemsNormQuantize JoinQuantize GluQuantize }

impl LedLinear {
    /// A product whose first groups do the work of a launch.
    pub fn new(product: Linear, maker: Maker, ready: u64) -> Self {
        let mut led = Self { product, ready, ..Default::default() };
        let launch = match maker {
            Maker::Norm(norm) => {
                (led.lead, led.norm) = (lead::NORM, norm);
                norm.launch()
            }
            Maker::ItemsNorm(norm) => {
                (led.lead, led.items_norm) = (lead::ITEMS_NORM, norm);
                norm.launch()
            }
            Maker::Join(join) => {
                (led.lead, led.join) = (lead::JOIN, join);
                join.launch()
            }
            Maker::Glu(glu) => {
                (led.lead, led.glu) = (lead::GLU, glu);
                glu.launch()
            }
        };
        led.makers = launch.groups[0] * launch.groups[1];
        led
    }

    /// A product of the rows that `first` makes, launched behind it.
    pub fn beside(first: &Self, product: Linear) -> Self {
        Self { product, ready: first.ready, makers: first.makers, ..Default::default() }
    }

    /// True if there can be such a kernel for a product.
    pub fn fits(product: &Linear) -> bool {
        let kind = WeightKind::from_gguf_id(product.segment0.kind);
        (1..=NARROW_ROWS).contains(&product.rows) && kind.is_some_and(WeightKind::is_quantized)
    }
}

/// What makes quantised rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Maker {
    /// See [`lead::NORM`].
    Norm(NormQuantize),
    /// See [`lead::ITEMS_NORM`].
    ItemsNorm(ItemsNormQuantize),
    /// See [`lead::JOIN`].
    Join(JoinQuantize),
    /// See [`lead::GLU`].
    Glu(GluQuantize),
}

impl Maker {
    /// Where the rows go.
    pub fn quantized(&self) -> u64 {
        match self {
            Self::Norm(p) => p.quantized,
            Self::ItemsNorm(p) => p.quantized,
            Self::Join(p) => p.quantized,
            Self::Glu(p) => p.quantized,
        }
    }

    /// True if the first groups of a product can do it.
    pub fn fits(&self) -> bool {
        match self {
            Self::Norm(norm) => norm.width <= LONGEST_ROW && norm.y.address == 0,
            Self::Glu(glu) => glu.kind == activation::SILU,
            Self::ItemsNorm(_) | Self::Join(_) => true,
        }
    }
}

fn entry(kind: Option<WeightKind>, rows: u32) -> &'static str {
    let Some(kind) = kind.filter(|kind| kind.is_quantized()) else {
        // No device has it.
        return "linear_led";
    };
    let [rows_1, rows_8, rows_16] = entries(kind).led;
    match rows {
        0..=1 => rows_1,
        2..=8 => rows_8,
        _ => rows_16,
    }
}

launches! {
    LedLinear(p) => {
        debug_assert!(LedLinear::fits(&p.product), "{} rows", p.product.rows);
        let makers = if p.lead == lead::NOTHING { 0 } else { p.makers };
        let groups = makers + p.product.launch().groups[0];
        let kind = WeightKind::from_gguf_id(p.product.segment0.kind);
        Launch::new(entry(kind, p.product.rows), [groups, 1, 1], LINEAR_THREADS)
    };
}
