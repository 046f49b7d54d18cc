//! Features of this processor, asked by name.
//!
//! A plugin that is compiled for features which are not there ends the process at its first such instruction, which
//! may stand in a constructor. The standard library's answer includes whether the operating system saves the
//! registers that a feature uses.

/// Defines the names of the features that are known, and the answers.
macro_rules! features {
    ($detected:ident, [$($known:tt)*]) => {
        const NAMES: &[&str] = &[$($known),*];

        /// Whether this processor and system have a feature; `None` for a name that is not known here.
        fn has(name: &str) -> Option<bool> {
            match name {
                $($known => Some(std::arch::$detected!($known)),)*
                _ => None,
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
features!(is_x86_feature_detected, [
    "adx" "aes" "avx" "avx2" "avx512bf16" "avx512bitalg" "avx512bw" "avx512cd" "avx512dq" "avx512f" "avx512fp16"
    "avx512ifma" "avx512vbmi" "avx512vbmi2" "avx512vl" "avx512vnni" "avx512vp2intersect" "avx512vpopcntdq"
    "avxifma" "avxneconvert" "avxvnni" "avxvnniint16" "avxvnniint8" "bmi1" "bmi2" "cmpxchg16b" "f16c" "fma" "fxsr"
    "gfni" "lzcnt" "movbe" "pclmulqdq" "popcnt" "rdrand" "rdseed" "sha" "sse" "sse2" "sse3" "sse4.1" "sse4.2"
    "sse4a" "ssse3" "vaes" "vpclmulqdq" "xsave"
]);

#[cfg(target_arch = "aarch64")]
features!(is_aarch64_feature_detected, [
    "aes" "bf16" "dotprod" "fcma" "fhm" "fp" "fp16" "frintts" "i8mm" "jsconv" "lse" "neon" "pmull" "rdm" "sha2"
    "sha3" "sve" "sve2"
]);

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const NAMES: &[&str] = &[];

/// Nothing is known about other processors.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn has(_: &str) -> Option<bool> {
    None
}

/// Features that this processor and system have, of those that a descriptor may name.
pub fn processor_features() -> Vec<&'static str> {
    NAMES.iter().copied().filter(|name| has(name) == Some(true)).collect()
}

/// Splits the features that are not there into those that this processor lacks and those that nobody here knows.
pub(crate) fn missing(wanted: &[String]) -> (Vec<String>, Vec<String>) {
    let those = |answer| wanted.iter().filter(|name| has(name) == answer).cloned().collect();
    (those(Some(false)), those(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_told_from_lacking_ones() {
        let basic = if cfg!(target_arch = "x86_64") { "sse2" } else { "neon" };
        let (lacking, unknown) = missing(&[basic.to_owned(), "warp-drive".to_owned()]);
        assert_eq!((lacking, unknown), (vec![], vec!["warp-drive".to_owned()]));
    }
}
