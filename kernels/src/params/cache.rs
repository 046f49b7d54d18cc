//! Rotation, the KV cache, and attention.
//!
//! A cache has its canonical layout, `[blocks][256][heads][width]` of one type, and so has its canonical bytes.

#[cfg(doc)]
use super::Parameters;
use super::{Launch, View};

/// Positions of a block.
pub const KV_BLOCK: u32 = 256;

/// `Rope::pairing`: pairs (i, i + rotary/2).
pub const HALVES: u32 = 0;
/// `Rope::pairing`: pairs (2i, 2i + 1).
pub const ADJACENT: u32 = 1;

parameters! {
    /// Rotates pair i of every head by position · frequency\[i\] / factors\[i\]; elements beyond the pairs pass through.
    /// Angles are made anew from the position in float pairs, exact to about 2^-24 of a turn at any position up to 2^24.
    pub struct Rope {
        /// Operand `[rows][items: heads][width]`.
        pub x: View,
        /// Result; may be `x`.
        pub out: View,
        /// Positions i32 `[rows]`.
        pub positions: u64,
        /// Table f32 `[pairs][2]` of [`rope_table`].
        pub table: u64,
        /// Factors f32 `[pairs]`, or 0.
        pub factors: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Heads.
        pub heads: u32,
        /// Elements of a head.
        pub width: u32,
        /// Rotated pairs, at most width/2.
        pub pairs: u32,
        /// [`HALVES`] or [`ADJACENT`].
        pub pairing: u32,
        /// 0.
        pub reserved: u32,
    }

    /// Rows of keys and values to the cells of a cache, rounded to its types: f32, f16, bf16 (to nearest even), q8_0, q4_0,
    /// q4_1, q5_0, q5_1 (as the reference quantises). A cell outside of `0..cells_end` drops its row. The cells of live rows
    /// differ.
    pub struct KvAppend {
        /// Keys `[rows][items: heads][width]`.
        pub k: View,
        /// Values, likewise.
        pub v: View,
        /// Cache of keys.
        pub k_cache: u64,
        /// Cache of values.
        pub v_cache: u64,
        /// Cells i32 `[rows]`: block · 256 + offset.
        pub cells: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// KV heads.
        pub heads: u32,
        /// Elements of a key.
        pub k_width: u32,
        /// Elements of a value.
        pub v_width: u32,
        /// Type of cached keys, a GGUF id.
        pub k_type: u32,
        /// Type of cached values, a GGUF id.
        pub v_type: u32,
        /// Blocks of the smaller cache, times 256.
        pub cells_end: u32,
        /// 0.
        pub reserved: u32,
    }

    /// Queries, keys and values of a layer in one launch, with the bits of `rms_norm` (where there are weights) and `rope` of
    /// queries and keys, and of `kv_append`. Without heads of queries it is what a cache needs and nothing else. Rows whose
    /// cell is outside of `0..cells_end` have queries all the same.
    pub struct HeadsToCache {
        /// Queries `[rows][items: heads][width]`.
        pub q: View,
        /// Queries as attention reads them; may be `q`.
        pub q_out: View,
        /// Keys `[rows][items: kv_heads][width]`.
        pub k: View,
        /// Values, likewise.
        pub v: View,
        /// Factors of the norm of queries f32 `[width]`; 0: no norm.
        pub q_weight: u64,
        /// Factors of the norm of keys; 0: no norm.
        pub k_weight: u64,
        /// Positions i32 `[rows]`.
        pub positions: u64,
        /// Table f32 `[pairs][2]` of [`rope_table`].
        pub table: u64,
        /// Factors of angles f32 `[pairs]`, or 0.
        pub factors: u64,
        /// Cache of keys.
        pub k_cache: u64,
        /// Cache of values.
        pub v_cache: u64,
        /// Cells i32 `[rows]`: block · 256 + offset.
        pub cells: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Query heads.
        pub heads: u32,
        /// KV heads.
        pub kv_heads: u32,
        /// Elements of a head, at most [`MAX_HEAD`].
        pub width: u32,
        /// Rotated pairs, at most width/2.
        pub pairs: u32,
        /// [`HALVES`] or [`ADJACENT`].
        pub pairing: u32,
        /// Type of cached keys, a GGUF id.
        pub k_type: u32,
        /// Type of cached values, a GGUF id.
        pub v_type: u32,
        /// Blocks of the smaller cache, times 256.
        pub cells_end: u32,
        /// Added to the mean of squares.
        pub epsilon: f32,
        /// 1 if no launch writes positions, cells or the factors of norms and angles, so that they can be asked for before
        /// those in front of this one have ended.
        pub early: u32,
        /// 0.
        pub reserved: u32,
    }

    /// What each row sees, once for all layers with one window: spans\[row\] = (slot, begin, end, 0), positions of the
    /// row's sequence; slot -1 for a row that no sequence covers, and for all from the live count to `rows`.
    pub struct RowSpans {
        /// Sequences i32 `[max_sequences][4]`: first row, rows, length before the run, slot.
        pub sequences: u64,
        /// Address of the live count of sequences.
        pub live_sequences: u64,
        /// Result i32 `[rows][4]`.
        pub spans: u64,
        /// Address of the live count of rows.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Sequences.
        pub max_sequences: u32,
        /// Positions that a row sees, its own included; 0 for all.
        pub window: u32,
        /// 1 if a row sees nothing behind it, else it sees all positions to the end of the run.
        pub causal: u32,
    }

    /// First part of attention: partial results of chunks of `chunk_blocks` blocks. Query head h reads KV head
    /// h / (heads / kv_heads). Blocks of 256 positions are combined in ascending order, inside a chunk here and the chunks in
    /// [`AttentionJoin`].
    pub struct AttentionParts {
        /// Queries `[rows][items: heads][width]`.
        pub q: View,
        /// Cache of keys.
        pub k_cache: u64,
        /// Cache of values.
        pub v_cache: u64,
        /// Block tables i32 `[slots][table_columns]`.
        pub table: u64,
        /// What [`RowSpans`] left.
        pub spans: u64,
        /// Scratch f32 of [`AttentionParts::scratch_bytes`]: `[rows][heads][chunks][width + 4]`: sums of values, the largest score, the sum of weights, two unused.
        pub scratch: u64,
        /// Address of the live count of rows.
        pub live: u64,
        /// Cells i32 `[rows]` of at most 32 rows, given to the run, if launches in front of this one write those cells of the caches and
        /// no others, so that the rest can be read before they have ended; else 0. Taken for 0 unless `early`.
        pub cells: u64,
        /// Rows.
        pub rows: u32,
        /// Query heads.
        pub heads: u32,
        /// KV heads.
        pub kv_heads: u32,
        /// Elements of a head, at most [`MAX_HEAD`].
        pub width: u32,
        /// Type of cached keys, a GGUF id.
        pub k_type: u32,
        /// Type of cached values, a GGUF id.
        pub v_type: u32,
        /// Columns of the block tables.
        pub table_columns: u32,
        /// Blocks of the smaller cache: entries of the table beyond it are passed over.
        pub blocks: u32,
        /// Blocks of a chunk, see [`AttentionParts::chunk_blocks`]. It decides bits.
        pub chunk_blocks: u32,
        /// Most groups over which the chunks of a row are spread, see [`AttentionParts::splits`]. It decides no bits.
        pub splits: u32,
        /// Factor of scores.
        pub scale: f32,
        /// Softcap of scores, or 0.
        pub softcap: f32,
        /// 1 if spans and table are there before the launches in front of this one have ended.
        pub early: u32,
        /// 0.
        pub reserved: u32,
    }

    /// Second part: combines the partial results of [`AttentionParts`] in ascending order and divides. Rows that no sequence
    /// covers become zeros. The order is written down in `attention_join.kn`.
    pub struct AttentionJoin {
        /// Result `[rows][items: heads][width]`.
        pub out: View,
        /// What [`AttentionParts`] left.
        pub scratch: u64,
        /// What [`RowSpans`] left.
        pub spans: u64,
        /// Sinks f32 `[heads]`, or 0.
        pub sinks: u64,
        /// Address of the live count of rows.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Query heads.
        pub heads: u32,
        /// Elements of a head.
        pub width: u32,
        /// Columns of the block tables.
        pub table_columns: u32,
        /// As in [`AttentionParts`].
        pub chunk_blocks: u32,
        /// 0.
        pub reserved: u32,
    }

    /// Attention of many rows in one launch, on matrix units: the bits of [`AttentionParts::launch_matrix`] with chunks of one
    /// block, and of [`AttentionJoin`] or [`JoinQuantize`](super::fused::JoinQuantize) behind it. See
    /// [`AttentionRows::of`].
    pub struct AttentionRows {
        /// Queries `[rows][items: heads][width]`.
        pub q: View,
        /// Result `[rows][items: heads][width]`, if it is not quantised.
        pub out: View,
        /// What sigmoid is applied to before a result times that is quantised, or address 0. As in `JoinQuantize`.
        pub gate: View,
        /// Quantised rows of heads · width elements, or 0 for a result in f32.
        pub quantized: u64,
        /// Cache of keys, f16.
        pub k_cache: u64,
        /// Cache of values, f16.
        pub v_cache: u64,
        /// Block tables i32 `[slots][table_columns]`.
        pub table: u64,
        /// What [`RowSpans`] left.
        pub spans: u64,
        /// Sinks f32 `[heads]`, or 0.
        pub sinks: u64,
        /// Address of the live count of rows.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Query heads.
        pub heads: u32,
        /// KV heads.
        pub kv_heads: u32,
        /// Elements of a head: 64, 128 or 256.
        pub width: u32,
        /// Columns of the block tables.
        pub table_columns: u32,
        /// Blocks of the smaller cache: entries of the table beyond it are passed over.
        pub blocks: u32,
        /// Factor of scores.
        pub scale: f32,
        /// As in [`Quantize`](super::linear::Quantize).
        pub bf16_groups: u32,
    }
}

/// Longest head that attention works on.
pub const MAX_HEAD: u32 = 256;

impl AttentionParts {
    /// The launch on matrix units, for f16 caches and heads of 64, 128 or 256 whose caches begin at multiples of 16 bytes,
    /// where the target has such units (NVIDIA, and the host); none else. Other bits than [`Parameters::launch`] gives, and
    /// as independent of company.
    pub fn launch_matrix(&self) -> Option<Launch> {
        let is_f16 = self.k_type == 1 && self.v_type == 1;
        let is_aligned = (self.k_cache | self.v_cache).is_multiple_of(16);
        let entry = match self.width {
            64 => "attention_parts_f16_64",
            128 => "attention_parts_f16_128",
            256 => "attention_parts_f16_256",
            _ => return None,
        };
        (is_f16 && is_aligned).then_some(Launch::new(entry, self.groups(16, 128), 256))
    }

    /// Blocks of a chunk for tables of so many columns: one, until there would be more than 128 chunks, which
    /// [`AttentionJoin`] takes at most.
    pub const fn chunk_blocks(table_columns: u32) -> u32 {
        let blocks = table_columns.div_ceil(128);
        if blocks == 0 { 1 } else { blocks }
    }

    /// Groups over which to spread the chunks of a row: all that there are. A launch has fewer where its rows fill a GPU
    /// anyway, since groups beyond the end of a sequence cost time too.
    pub const fn splits(table_columns: u32) -> u32 {
        let chunks = table_columns.div_ceil(Self::chunk_blocks(table_columns));
        if chunks == 0 { 1 } else { chunks }
    }

    /// Groups of a launch, `queries` being what shares one, so that there are about `enough`; the kernels count them in the
    /// same way, or use fewer.
    fn groups(&self, queries: u32, enough: u32) -> [u32; 3] {
        let kv_heads = self.kv_heads.max(1);
        let tiles = (self.rows * (self.heads / kv_heads)).div_ceil(queries).max(1);
        [self.splits.clamp(1, (enough / (kv_heads * tiles)).max(1)), kv_heads, tiles]
    }

    /// Bytes of scratch; it holds nothing between layers.
    pub fn scratch_bytes(rows: u32, heads: u32, width: u32, table_columns: u32) -> u64 {
        let chunks = table_columns.div_ceil(Self::chunk_blocks(table_columns));
        u64::from(rows) * u64::from(heads) * u64::from(chunks) * (u64::from(width) + 4) * 4
    }
}

impl AttentionRows {
    /// The parameters for what `parts` describes, still without a result; none where [`AttentionParts::launch_matrix`] has none, for
    /// a softcap, and for chunks of several blocks.
    pub fn of(parts: &AttentionParts) -> Option<Self> {
        let fits = parts.launch_matrix().is_some() && parts.softcap == 0.0 && parts.chunk_blocks == 1;
        fits.then(|| Self {
            q: parts.q,
            k_cache: parts.k_cache,
            v_cache: parts.v_cache,
            table: parts.table,
            spans: parts.spans,
            live: parts.live,
            rows: parts.rows,
            heads: parts.heads,
            kv_heads: parts.kv_heads,
            width: parts.width,
            table_columns: parts.table_columns,
            blocks: parts.blocks,
            scale: parts.scale,
            ..Self::default()
        })
    }

    /// Queries of a group.
    const fn queries(width: u32) -> u32 {
        if width > 128 { 32 } else { 64 }
    }

    /// Bytes of dynamic shared memory for heads of so many elements: two pieces of 256 positions by 64 elements in f16, and
    /// queries as two f16 each.
    const fn shared_bytes(width: u32) -> u32 {
        2 * 256 * 64 * 2 + Self::queries(width) * width * 4
    }
}

/// The table of [`Rope`]: for each of rotary/2 pairs base^(-2i/rotary) / (divisor · 2π), a frequency in turns per position,
/// as the sum of two f32.
pub fn rope_table(rotary: u32, base: f64, divisor: f64) -> Vec<[f32; 2]> {
    (0..rotary / 2)
        .map(|pair| {
            let frequency = base.powf(-2.0 * f64::from(pair) / f64::from(rotary)) / divisor;
            let turns = frequency / core::f64::consts::TAU;
            let high = turns as f32;
            [high, (turns - f64::from(high)) as f32]
        })
        .collect()
}

launches! {
    Rope(p) => Launch::new(
        "rope", [(p.heads * (p.width - p.pairs.min(p.width))).div_ceil(256).max(1), p.rows.max(1), 1], 256
    );
    KvAppend(p) => Launch::new(
        "kv_append",
        [(p.heads * (p.k_width.div_ceil(32) + p.v_width.div_ceil(32))).div_ceil(8).max(1), p.rows.max(1), 1],
        256
    );
    HeadsToCache(p) => Launch::new(
        "heads_to_cache", [(p.heads + 2 * p.kv_heads).div_ceil(8).max(1), p.rows.max(1), 1], 256
    );
    RowSpans(p) => Launch::new("row_spans", [p.rows.div_ceil(256).max(1), 1, 1], 256);
    AttentionParts(p) => Launch::new("attention_parts", p.groups(8, 1024), 256);
    AttentionJoin(p) => Launch::new("attention_join", [p.heads.max(1), p.rows.max(1), 1], 256);
    AttentionRows(p) => {
        let entry = match p.width {
            64 => "attention_rows_f16_64",
            128 => "attention_rows_f16_128",
            _ => "attention_rows_f16_256",
        };
        let kv_heads = p.kv_heads.max(1);
        let tiles = (p.rows * (p.heads / kv_heads)).div_ceil(AttentionRows::queries(p.width)).max(1);
        Launch {
            shared_bytes: AttentionRows::shared_bytes(p.width),
            ..Launch::new(entry, [tiles, kv_heads, 1], 128)
        }
    };
}
