//! Which tensor is stored as which type.

use paceline_plugin_api::graph::DType;

/// How matrices are stored. Norms, biases, the decay and the convolution are F32 always.
#[derive(Clone, Copy, Debug)]
pub enum WeightTypes {
    /// All matrices alike.
    All(DType),
    /// As the common tools mix types under the name Q4_K_M: Q4_K, with Q6_K for the embedding, the output head, V
    /// projections, and in some layers for `attn_qkv` and `ffn_down`.
    Q4KM,
    /// By tensor name, such as `blk.0.attn_qkv.weight`.
    ByName(fn(&str) -> DType),
}

impl From<DType> for WeightTypes {
    fn from(dtype: DType) -> Self {
        WeightTypes::All(dtype)
    }
}

impl WeightTypes {
    /// The type of a matrix with rows of `columns` elements in a model of `blocks` blocks.
    ///
    /// Rows that are not whole blocks of the wished type become Q8_0, or F16 where that does not fit either.
    pub fn of(&self, name: &str, columns: u64, blocks: u32) -> DType {
        let wished = match self {
            WeightTypes::All(dtype) => *dtype,
            WeightTypes::Q4KM => q4_k_m(name, blocks),
            WeightTypes::ByName(choose) => choose(name),
        };
        let fits = |dtype: &DType| dtype.block().is_some_and(|(n, _)| columns.is_multiple_of(n.into()));
        [wished, DType::Q8_0].into_iter().find(fits).unwrap_or(DType::F16)
    }

    /// `general.file_type` by llama.cpp's numbering, where the mix has a number.
    pub(super) fn file_type(&self) -> Option<u32> {
        Some(match self {
            WeightTypes::All(DType::F32) => 0,
            WeightTypes::All(DType::F16) => 1,
            WeightTypes::All(DType::Q4_0) => 2,
            WeightTypes::All(DType::Q4_1) => 3,
            WeightTypes::All(DType::Q8_0) => 7,
            WeightTypes::All(DType::Q5_0) => 8,
            WeightTypes::All(DType::Q5_1) => 9,
            WeightTypes::Q4KM => 15,
            WeightTypes::All(DType::Q6_K) => 18,
            WeightTypes::All(DType::IQ4_NL) => 25,
            WeightTypes::All(DType::BF16) => 32,
            WeightTypes::All(_) | WeightTypes::ByName(_) => return None,
        })
    }
}

fn q4_k_m(name: &str, blocks: u32) -> DType {
    let mut parts = name.split('.');
    let (first, block) = (parts.next(), parts.next().and_then(|number| number.parse::<u32>().ok()));
    let is = |kind: &str| name.ends_with(&format!(".{kind}.weight"));
    let more_bits = match (first, block) {
        (Some("token_embd" | "output"), _) => true,
        _ if is("attn_v") => true,
        // The first and last eighth of the blocks and every third between.
        (_, Some(block)) if is("attn_qkv") || is("ffn_down") => {
            let eighth = blocks / 8;
            block < eighth || block >= 7 * blocks / 8 || (block - eighth) % 3 == 2
        }
        _ => false,
    };
    if more_bits { DType::Q6_K } else { DType::Q4_K }
}
