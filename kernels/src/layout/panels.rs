//! Planes of a panel.

use super::blocks::{self, Quants};
use super::{BLOCK, FRAGMENT, PANEL_ROWS, WeightKind};

/// Blocks of a unit: what a plane of scales holds side by side for a row.
const UNIT: usize = 8;
const NIBBLES: u32 = 0x0f0f_0f0f;

/// What a file's block has besides quants, and where it goes: bytes `from..from + bytes` of the block to
/// `plane + unit_bytes * unit + row_bytes * row + bytes * (block of the unit)`.
#[derive(Clone, Copy)]
struct Scales {
    from: usize,
    bytes: usize,
    row_bytes: usize,
}

impl Scales {
    const fn new(from: usize, bytes: usize, row_bytes: usize) -> Self {
        Self { from, bytes, row_bytes }
    }

    fn plane_bytes(self, units: usize) -> usize {
        units * PANEL_ROWS * self.row_bytes
    }
}

/// The planes of scales of a kind, in order.
fn scales(kind: WeightKind) -> &'static [Scales] {
    const D: Scales = Scales::new(0, 2, 16);
    const M: Scales = Scales::new(2, 2, 16);
    const HEAD: Scales = Scales::new(0, 16, 16);
    match kind {
        WeightKind::Q8_0 | WeightKind::Q4_0 | WeightKind::Q5_0 | WeightKind::Iq4Nl => &[D],
        WeightKind::Q4_1 | WeightKind::Q5_1 => &[D, M],
        WeightKind::Q4K | WeightKind::Q5K => &[HEAD],
        WeightKind::Q6K => const { &[Scales::new(192, 16, 16), Scales::new(208, 2, 2)] },
        WeightKind::Mxfp4 => const { &[Scales::new(0, 1, 8)] },
        WeightKind::F32 | WeightKind::F16 | WeightKind::Bf16 => &[],
    }
}

/// Bits of a quant above its nibble.
#[inline(always)]
fn upper_bits(kind: WeightKind) -> usize {
    match kind {
        WeightKind::Q5_0 | WeightKind::Q5_1 | WeightKind::Q5K => 1,
        WeightKind::Q6K => 2,
        _ => 0,
    }
}

/// The planes of a panel of some width.
pub(super) struct Planes {
    kind: WeightKind,
    /// Blocks of 32 elements in a row.
    blocks: usize,
    /// Where the plane of upper bits begins.
    upper: usize,
    /// Where the planes of scales begin.
    scales: usize,
}

impl Planes {
    /// The planes for rows of `k` elements, whole blocks of `kind`.
    pub fn of(kind: WeightKind, k: usize) -> Self {
        let blocks = k / BLOCK;
        let fragments = if kind == WeightKind::Q8_0 { blocks } else { blocks.div_ceil(2) };
        let upper = fragments * FRAGMENT;
        Self { kind, blocks, upper, scales: upper + blocks.div_ceil(UNIT) * upper_bits(kind) * FRAGMENT }
    }

    fn units(&self) -> usize {
        self.blocks.div_ceil(UNIT)
    }

    /// Bytes of a panel.
    pub fn bytes(&self) -> usize {
        let scales: usize = scales(self.kind).iter().map(|plane| plane.plane_bytes(self.units())).sum();
        self.scales + scales
    }

    /// Bytes of a row in a file.
    fn row_bytes(&self) -> usize {
        self.blocks * BLOCK / self.kind.block_elements() * self.kind.block_bytes()
    }

    /// Writes up to 16 rows of a file into a panel.
    pub fn pack(&self, rows: &[u8], panel: &mut [u8]) {
        // One copy of the loops for each kind, with everything that follows from it worked out: ten times as fast.
        macro_rules! each {
            ($($kind:ident)*) => {
                match self.kind {
                    $(WeightKind::$kind => self.pack_kind(WeightKind::$kind, rows, panel),)*
                    WeightKind::F32 | WeightKind::F16 | WeightKind::Bf16 => (),
                }
            };
        }
        each!(Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4K Q5K Q6K Iq4Nl Mxfp4)
    }

    #[inline(always)]
    fn pack_kind(&self, kind: WeightKind, rows: &[u8], panel: &mut [u8]) {
        panel.fill(0);
        for (r, row) in rows.chunks_exact(self.row_bytes()).enumerate() {
            let read = |b: usize| {
                let (at, part) = blocks::locate(kind, b);
                blocks::read(kind, &row[at..at + kind.block_bytes()], part)
            };
            for pair in 0..self.blocks.div_ceil(2) {
                let (first, is_pair) = (2 * pair, 2 * pair + 1 < self.blocks);
                let quants = [read(first), if is_pair { read(first + 1) } else { [0; 8] }];
                if kind == WeightKind::Q8_0 {
                    for (b, quants) in (first..self.blocks).zip(&quants) {
                        write_fragment(&mut panel[b * FRAGMENT..][..FRAGMENT], r, |e| quants[e]);
                    }
                    continue;
                }
                write_fragment(&mut panel[pair * FRAGMENT..][..FRAGMENT], r, |e| {
                    let [low, high] = quants.map(|quants| quants[e] & NIBBLES);
                    match is_looked_up(kind) {
                        true => blocks::compact(low) | blocks::compact(high) << 16,
                        false => low | high << 4,
                    }
                });
                if upper_bits(kind) > 0 {
                    // Both blocks of a pair have their upper bits in one fragment.
                    let (fragment, shift) = upper_place(kind, self.upper, first);
                    let bits = upper_bits(kind) as u32;
                    let fragment = &mut panel[fragment..][..FRAGMENT];
                    for e in 0..8 {
                        let [low, high] = quants.map(|quants| (quants[e] >> 4) & NIBBLES);
                        merge(fragment, word_in_fragment(r, e), (low | high << bits) << shift);
                    }
                }
            }
            self.each_scale(r, |from, to, bytes| {
                panel[to..to + bytes].copy_from_slice(&row[from..from + bytes])
            });
        }
    }

    /// The reverse of [`Planes::pack`].
    pub fn unpack(&self, panel: &[u8], rows: &mut [u8]) {
        rows.fill(0);
        for (r, row) in rows.chunks_exact_mut(self.row_bytes()).enumerate() {
            for b in 0..self.blocks {
                let (at, part) = blocks::locate(self.kind, b);
                let quants = self.unpack_quants(panel, r, b);
                blocks::write(self.kind, &mut row[at..at + self.kind.block_bytes()], part, &quants);
            }
            self.each_scale(r, |to, from, bytes| {
                row[to..to + bytes].copy_from_slice(&panel[from..from + bytes])
            });
        }
    }

    /// Calls `copy(offset in the row, offset in the panel, bytes)` for everything but quants.
    fn each_scale(&self, r: usize, mut copy: impl FnMut(usize, usize, usize)) {
        let blocks = self.blocks * BLOCK / self.kind.block_elements();
        let blocks_of_unit = UNIT * BLOCK / self.kind.block_elements();
        let mut plane_at = self.scales;
        for plane in scales(self.kind) {
            for block in 0..blocks {
                let (unit, i) = (block / blocks_of_unit, block % blocks_of_unit);
                let to = plane_at + (unit * PANEL_ROWS + r) * plane.row_bytes + i * plane.bytes;
                copy(block * self.kind.block_bytes() + plane.from, to, plane.bytes);
            }
            plane_at += plane.plane_bytes(self.units());
        }
    }

    fn unpack_quants(&self, panel: &[u8], r: usize, b: usize) -> Quants {
        std::array::from_fn(|e| {
            let at = word_in_fragment(r, e);
            if self.kind == WeightKind::Q8_0 {
                return word(panel, b * FRAGMENT + at);
            }
            let stored = word(panel, b / 2 * FRAGMENT + at);
            let second = b as u32 % 2;
            let nibbles = if is_looked_up(self.kind) {
                blocks::expand(stored >> (16 * second))
            } else {
                (stored >> (4 * second)) & NIBBLES
            };
            let upper = match upper_bits(self.kind) {
                0 => 0,
                bits => {
                    let (fragment, shift) = upper_place(self.kind, self.upper, b);
                    let mask = ((1 << bits) - 1) * 0x0101_0101;
                    ((word(panel, fragment + at) >> shift) & mask) << 4
                }
            };
            nibbles | upper
        })
    }
}

/// Whether nibbles are indices of a table.
#[inline(always)]
fn is_looked_up(kind: WeightKind) -> bool {
    matches!(kind, WeightKind::Iq4Nl | WeightKind::Mxfp4)
}

/// Offset of the fragment with the upper bits of a block, and their shift; `plane` is where such fragments begin.
#[inline(always)]
fn upper_place(kind: WeightKind, plane: usize, b: usize) -> (usize, u32) {
    let bits = upper_bits(kind);
    let (unit, i) = (b / UNIT, b % UNIT);
    let per_fragment = UNIT / bits;
    (plane + (unit * bits + i / per_fragment) * FRAGMENT, (i % per_fragment * bits) as u32)
}

/// Writes elements `4 e..4 e + 4` of row r, for all e.
#[inline(always)]
fn write_fragment(fragment: &mut [u8], r: usize, word: impl Fn(usize) -> u32) {
    for e in 0..8 {
        let at = word_in_fragment(r, e);
        fragment[at..at + 4].copy_from_slice(&word(e).to_le_bytes());
    }
}

/// Offset in a fragment of elements `4 e..4 e + 4` of row r.
#[inline(always)]
fn word_in_fragment(r: usize, e: usize) -> usize {
    let (lane, i) = (r % 8 * 4 + e % 4, r / 8 + 2 * (e / 4));
    16 * lane + 4 * i
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// ORs a word into bytes.
#[inline(always)]
fn merge(bytes: &mut [u8], at: usize, bits: u32) {
    let merged = word(bytes, at) | bits;
    bytes[at..at + 4].copy_from_slice(&merged.to_le_bytes());
}
