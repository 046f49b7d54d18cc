//! Ids of arithmetic.

use crate::graph::Node;

/// Makes the id `numerics` of [`NodePlan::Kernel`](crate::backend::NodePlan::Kernel): a hash of everything that decides a
/// node's bits (FNV-1a, 64 bits). A backend gives it the name of its family of kernels, which it changes whenever their
/// bits change, then whatever else they depend on: the operation, attributes, types of weights, the form of a kernel.
#[derive(Clone, Debug)]
pub struct Numerics(u64);

impl Numerics {
    /// Begins with the name of a family of kernels.
    pub fn new(family: &str) -> Self {
        let mut numerics = Self(0xCBF2_9CE4_8422_2325);
        numerics.text(family);
        numerics
    }

    /// Adds a text. `"ab"` then `"c"` differs from `"a"` then `"bc"`.
    pub fn text(&mut self, text: &str) {
        for &byte in text.as_bytes().iter().chain(&[0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }

    /// Adds the attributes of a node that decide a row's bits: all but `dims`, which count rows, and `mode` and
    /// `planes`, which say what is kept for a rollback.
    pub fn attributes(&mut self, node: &Node) {
        for (key, value) in &node.attributes {
            if !["dims", "mode", "planes"].contains(&key.as_str()) {
                self.text(&format!("{key}={value:?}"));
            }
        }
    }

    /// The id.
    pub fn id(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stay_and_tell_texts_apart() {
        // FNV-1a of "a" and a zero byte.
        assert_eq!(Numerics::new("a").id(), 0x089B_E207_B544_F1E4);
        let of = |texts: &[&str]| {
            let mut numerics = Numerics::new("");
            texts.iter().for_each(|text| numerics.text(text));
            numerics.id()
        };
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["a"]), of(&["a", ""]));
    }
}
