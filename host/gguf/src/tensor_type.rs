//! The element types of tensors and how their bytes are laid out in blocks.

use std::fmt;

/// How a tensor type packs elements: whole blocks of `block_elements` in `block_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeLayout {
    /// Elements per block; the first dimension is a multiple of it.
    pub block_elements: u64,
    /// Bytes per block.
    pub block_bytes: u64,
}

macro_rules! tensor_types {
    ($($variant:ident $name:literal $id:literal $elements:literal $bytes:literal)*) => {
        /// A tensor's element type, by ggml's numbering.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum TensorType {
            $(
                #[doc = concat!("`", $name, "`, number ", $id, ": ", $elements, " elements in ", $bytes, " bytes.")]
                $variant,
            )*
            /// A number this crate has no layout for: a newer type, a retired one, or a fork's own.
            Unknown(u32),
        }

        impl TensorType {
            /// Every type with a known layout, in order of number.
            pub const KNOWN: &'static [TensorType] = &[$(TensorType::$variant),*];

            /// The type for a number in a file.
            pub fn from_id(id: u32) -> Self {
                match id {
                    $($id => TensorType::$variant,)*
                    other => TensorType::Unknown(other),
                }
            }

            /// The number that stands in files.
            pub fn id(self) -> u32 {
                match self {
                    $(TensorType::$variant => $id,)*
                    TensorType::Unknown(id) => id,
                }
            }

            /// The usual name, such as `Q4_K`; `None` for unknown types.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(TensorType::$variant => Some($name),)*
                    TensorType::Unknown(_) => None,
                }
            }

            /// The block layout; `None` for unknown types.
            pub fn layout(self) -> Option<TypeLayout> {
                match self {
                    $(TensorType::$variant => {
                        Some(TypeLayout { block_elements: $elements, block_bytes: $bytes })
                    })*
                    TensorType::Unknown(_) => None,
                }
            }
        }
    };
}

tensor_types! {
    F32     "F32"     0   1   4
    F16     "F16"     1   1   2
    Q4_0    "Q4_0"    2   32  18
    Q4_1    "Q4_1"    3   32  20
    Q5_0    "Q5_0"    6   32  22
    Q5_1    "Q5_1"    7   32  24
    Q8_0    "Q8_0"    8   32  34
    Q8_1    "Q8_1"    9   32  36
    Q2K     "Q2_K"    10  256 84
    Q3K     "Q3_K"    11  256 110
    Q4K     "Q4_K"    12  256 144
    Q5K     "Q5_K"    13  256 176
    Q6K     "Q6_K"    14  256 210
    Q8K     "Q8_K"    15  256 292
    Iq2Xxs  "IQ2_XXS" 16  256 66
    Iq2Xs   "IQ2_XS"  17  256 74
    Iq3Xxs  "IQ3_XXS" 18  256 98
    Iq1S    "IQ1_S"   19  256 50
    Iq4Nl   "IQ4_NL"  20  32  18
    Iq3S    "IQ3_S"   21  256 110
    Iq2S    "IQ2_S"   22  256 82
    Iq4Xs   "IQ4_XS"  23  256 136
    I8      "I8"      24  1   1
    I16     "I16"     25  1   2
    I32     "I32"     26  1   4
    I64     "I64"     27  1   8
    F64     "F64"     28  1   8
    Iq1M    "IQ1_M"   29  256 56
    Bf16    "BF16"    30  1   2
    Tq1_0   "TQ1_0"   34  256 54
    Tq2_0   "TQ2_0"   35  256 66
    Mxfp4   "MXFP4"   39  32  17
    Nvfp4   "NVFP4"   40  64  36
    Q1_0    "Q1_0"    41  128 18
}

impl TensorType {
    /// The name a number had before ggml retired it; such tensors can no longer be read.
    pub fn retired_name(id: u32) -> Option<&'static str> {
        Some(match id {
            4 => "Q4_2",
            5 => "Q4_3",
            31 => "Q4_0_4_4",
            32 => "Q4_0_4_8",
            33 => "Q4_0_8_8",
            36 => "IQ4_NL_4_4",
            37 => "IQ4_NL_4_8",
            38 => "IQ4_NL_8_8",
            _ => return None,
        })
    }

    /// Bytes that `elements` take, which must be a whole number of blocks.
    ///
    /// `None` if the type is unknown or the last block would be incomplete.
    pub fn byte_len(self, elements: u64) -> Option<u128> {
        let layout = self.layout()?;
        elements
            .is_multiple_of(layout.block_elements)
            .then(|| u128::from(elements / layout.block_elements) * u128::from(layout.block_bytes))
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), TensorType::retired_name(self.id())) {
            (Some(name), _) => formatter.pad(name),
            (None, Some(retired)) => formatter.pad(&format!("unknown({}, retired {retired})", self.id())),
            (None, None) => formatter.pad(&format!("unknown({})", self.id())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_maps_to_itself() {
        for id in 0..=300 {
            assert_eq!(TensorType::from_id(id).id(), id);
        }
        assert!(TensorType::KNOWN.windows(2).all(|pair| pair[0].id() < pair[1].id()));
    }

    #[test]
    fn unknown_types_have_no_size_and_show_their_number() {
        for id in [4, 5, 31, 32, 33, 36, 37, 38, 42, 105, 255, u32::MAX] {
            let tensor_type = TensorType::from_id(id);
            assert_eq!(tensor_type, TensorType::Unknown(id));
            assert_eq!(tensor_type.byte_len(256), None);
            assert!(tensor_type.to_string().contains(&id.to_string()));
        }
    }

    #[test]
    fn sizes_count_whole_blocks() {
        assert_eq!(TensorType::Q4K.byte_len(512), Some(288));
        assert_eq!(TensorType::Q4K.byte_len(511), None);
        assert_eq!(TensorType::Mxfp4.byte_len(64), Some(34));
        assert_eq!(TensorType::F64.byte_len(u64::MAX), Some(u128::from(u64::MAX) * 8));
    }
}
