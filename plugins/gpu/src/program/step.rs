//! Launches with addresses that are not known yet.
//!
//! While a graph is lowered, the structures that kernels take hold tokens in place of addresses: which value, and how
//! many bytes behind its first. [`KernelStep`] finds the tokens by the structures' own description of their fields; an
//! executable puts addresses in their place.

use super::Id;
use crate::capabilities::Fusion;
use paceline_kernels::params::experts::ExpertsCombine;
use paceline_kernels::params::fused::{GluQuantize, ItemsNormQuantize, JoinQuantize, NormQuantize};
use paceline_kernels::params::led::Maker;
use paceline_kernels::params::linear::{Linear, LinearSegment};
use paceline_kernels::params::{Field, Fields, Launch, Parameters, View};

/// A place in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ref {
    pub id: Id,
    /// Bytes behind the first.
    pub offset: u64,
}

/// Set in every token, so that none is 0, which stands for "none".
const TOKEN: u64 = 1 << 63;
const OFFSET_BITS: u32 = 40;

impl Ref {
    pub fn new(id: Id, offset: u64) -> Self {
        Self { id, offset }
    }

    /// What stands for the address.
    pub fn token(self) -> u64 {
        debug_assert!(self.offset < 1 << OFFSET_BITS && self.id < 1 << (63 - OFFSET_BITS));
        TOKEN | (self.id as u64) << OFFSET_BITS | self.offset
    }

    /// What a token stands for; none for a number that is no token.
    pub fn from_token(token: u64) -> Option<Self> {
        (token & TOKEN != 0).then_some(Self {
            id: ((token & !TOKEN) >> OFFSET_BITS) as usize,
            offset: token & ((1 << OFFSET_BITS) - 1),
        })
    }
}

/// A kernel, its shape, and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelStep {
    pub launch: Launch,
    /// The kernel's structure, with tokens in place of addresses.
    pub parameters: Vec<u8>,
    /// Where in it addresses go.
    pub addresses: Vec<(usize, Ref)>,
    /// True if it reads nothing but what a run is given, and is done before everything else.
    pub leads: bool,
    /// True if it begins only when all launches in front of it have ended, so that what those made is there for all
    /// behind it, however early they begin.
    pub waits: bool,
}

/// What makes the rows of a product that can make them itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leads {
    Norms,
    Joins,
    Gates,
}

impl Leads {
    pub fn of(maker: &Maker) -> Self {
        match maker {
            Maker::Norm(_) | Maker::ItemsNorm(_) => Self::Norms,
            Maker::Join(_) => Self::Joins,
            Maker::Glu(_) => Self::Gates,
        }
    }
}

/// One thing that a run does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Kernel(KernelStep),
    /// So many bytes become zeros.
    Clear(Id, u64),
    /// Launches, and one that gives the same bits in their place.
    Led {
        leads: Leads,
        apart: Vec<KernelStep>,
        together: KernelStep,
    },
}

/// A launch, or so many bytes that become zeros.
pub(crate) enum Chosen<'a> {
    Kernel(&'a KernelStep),
    Clear(Id, u64),
}

impl Step {
    /// What runs: of launches with two forms the one that the setting says.
    pub fn chosen(&self, fusion: Fusion) -> impl Iterator<Item = Chosen<'_>> {
        let (kernels, cleared) = match self {
            Self::Clear(id, bytes) => (&[][..], Some(Chosen::Clear(*id, *bytes))),
            Self::Kernel(step) => (std::slice::from_ref(step), None),
            Self::Led { leads, together, .. } if fusion.has(*leads) => (std::slice::from_ref(together), None),
            Self::Led { apart, .. } => (apart.as_slice(), None),
        };
        kernels.iter().map(Chosen::Kernel).chain(cleared)
    }

    /// The values that it touches.
    pub fn touches(&self) -> impl Iterator<Item = Id> + '_ {
        let (kernel, cleared) = match self {
            // It touches what the launches in whose place it is do, and a counter.
            Self::Kernel(step) | Self::Led { together: step, .. } => (Some(step), None),
            Self::Clear(id, _) => (None, Some(*id)),
        };
        kernel.into_iter().flat_map(|step| step.addresses.iter().map(|(_, at)| at.id)).chain(cleared)
    }
}

/// Structures that are parts of others.
const NESTED: [(&str, Fields); 7] = [
    (LinearSegment::C, LinearSegment::C_FIELDS),
    (Linear::C, Linear::C_FIELDS),
    (NormQuantize::C, NormQuantize::C_FIELDS),
    (ItemsNormQuantize::C, ItemsNormQuantize::C_FIELDS),
    (JoinQuantize::C, JoinQuantize::C_FIELDS),
    (GluQuantize::C, GluQuantize::C_FIELDS),
    (ExpertsCombine::C, ExpertsCombine::C_FIELDS),
];

/// Calls `found` with the offset of every address in a structure of these fields; returns its size.
fn addresses(fields: &[(&str, &str)], start: usize, found: &mut impl FnMut(usize)) -> usize {
    let mut offset = start;
    for (_, kind) in fields {
        offset += match *kind {
            kind if kind == u64::C => {
                found(offset);
                8
            }
            kind if kind == View::C => {
                found(offset);
                size_of::<View>()
            }
            kind => match NESTED.iter().find(|(name, _)| *name == kind) {
                Some((_, fields)) => addresses(fields, offset, found) - offset,
                // Numbers.
                None => 4,
            },
        };
    }
    offset
}

impl KernelStep {
    /// A launch of the kernel that takes `parameters`.
    pub fn new<P: Parameters>(parameters: &P) -> Self {
        Self::launched(parameters, parameters.launch())
    }

    /// The same, launched otherwise.
    pub fn launched<P: Parameters>(parameters: &P, launch: Launch) -> Self {
        let bytes = parameters.as_bytes().to_vec();
        let mut list = Vec::new();
        let size = addresses(P::FIELDS, 0, &mut |offset| {
            let word = bytes.get(offset..offset + 8).and_then(|word| word.try_into().ok());
            if let Some(at) = word.map(u64::from_ne_bytes).and_then(Ref::from_token) {
                list.push((offset, at));
            }
        });
        debug_assert_eq!(size, bytes.len(), "{}", P::NAME);
        Self { launch, parameters: bytes, addresses: list, leads: false, waits: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_kernels::params::elementwise::Binary;
    use paceline_kernels::params::linear::Linear;

    #[test]
    fn tokens_are_found_where_addresses_go() {
        let at = |id, offset| Ref::new(id, offset).token();
        let step = KernelStep::new(&Binary {
            x: View { address: at(3, 0), row: u32::MAX, item: 7 },
            y: View { address: 0, row: u32::MAX, item: u32::MAX },
            out: View { address: at(8_000_000, 1 << 39), row: 1, item: 1 },
            live: at(0, 4),
            rows: 2,
            items: 3,
            width: 4,
            kind: 1,
        });
        let expected = [(0, Ref::new(3, 0)), (32, Ref::new(8_000_000, 1 << 39)), (48, Ref::new(0, 4))];
        assert_eq!(step.addresses, expected);
    }

    #[test]
    fn tokens_in_segments_are_found() {
        let segment = LinearSegment {
            weight: Ref::new(5, 0).token(),
            out: Ref::new(6, 8).token(),
            ..Default::default()
        };
        let step = KernelStep::new(&Linear { segment1: segment, k: 32, rows: 1, ..Default::default() });
        let ids: Vec<Id> = step.addresses.iter().map(|(_, at)| at.id).collect();
        assert_eq!(ids, [5, 6]);
        assert_eq!(step.parameters.len(), size_of::<Linear>());
    }
}
