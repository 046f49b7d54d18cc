//! The sources of the kernels for AMD, for whoever compiles them where no image fits.

/// Sources of a module, the prelude first, each with a mark that lets a compiler name it.
macro_rules! text {
    ($($file:literal)*) => {
        concat!($("#line 1 \"", $file, "\"\n", include_str!(concat!("../", $file)), "\n"),*)
    };
}

const BASE: &str = text!(
    "prelude/hip.h" "include/params.h" "math.kn" "elementwise.kn" "norms.kn" "rows.kn" "choice.kn" "kv_types.kn" "cache.kn"
    "attention_join.kn" "attention.kn" "attention_mma.kn" "recurrent.kn" "quantize_block.kn" "quantize.kn"
    "fused_rows.kn" "fused.kn" "attention_rows.kn" "experts_list.kn" "experts.kn"
);
const PRODUCTS: &str = text!(
    "prelude/hip.h" "include/params.h" "math.kn" "linear.kn" "linear_float.kn" "embed.kn" "experts_list.kn"
    "experts_float.kn" "linear_int.kn" "experts_int.kn"
);

/// How they are compiled: no fast-math, no contraction. What sets the chip and its tuning comes on top.
pub const HIP_FLAGS: &[&str] =
    &["-O3", "-ffp-contract=off", "-fno-math-errno", "-fhip-fp32-correctly-rounded-divide-sqrt"];

/// Modules and their texts.
pub fn hip_modules() -> impl Iterator<Item = (&'static str, &'static str)> {
    [("base", BASE), ("products", PRODUCTS)].into_iter()
}
