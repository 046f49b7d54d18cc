//! `include/params.h`: the structures of [`crate::params`] in C.

use crate::params;

/// All modules of structures, in the order of the header.
const MODULES: &[params::Structures] = &[
    params::elementwise::STRUCTURES,
    params::norms::STRUCTURES,
    params::rows::STRUCTURES,
    params::choice::STRUCTURES,
    params::cache::STRUCTURES,
    params::recurrent::STRUCTURES,
    params::linear::STRUCTURES,
    params::fused::STRUCTURES,
    params::led::STRUCTURES,
    params::experts::STRUCTURES,
];

/// The text of `include/params.h`.
pub fn params_h() -> String {
    let mut text = String::from(
        "/* Parameters of kernels. Generated from src/params by the compile tool; do not edit. */\n\
         typedef struct { kn_u64 address; kn_u32 row; kn_u32 item; } KnView;\n",
    );
    for (name, fields) in MODULES.iter().copied().flatten() {
        text.push_str("typedef struct {\n");
        for (field, kind) in *fields {
            text.push_str(&format!("    {kind} {field};\n"));
        }
        text.push_str(&format!("}} {name};\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    /// Writes the header if `UPDATE_PARAMS_H` is set, else compares it.
    #[test]
    fn header_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/include/params.h");
        let text = super::params_h();
        if std::env::var_os("UPDATE_PARAMS_H").is_some() {
            std::fs::write(path, &text).expect("the header can be written");
        }
        let known = std::fs::read_to_string(path).unwrap_or_default();
        assert!(known == text, "include/params.h is stale: run the test with UPDATE_PARAMS_H=1");
    }
}
