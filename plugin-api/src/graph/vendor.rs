//! What vendors add: names of operations of their own, and graphs rewritten into what a backend knows.

use super::{Graph, Node, Value};

/// Longest name of a vendor's operation, with its version.
const LONGEST: usize = 64;

/// Name and version of a vendor's operation, such as `acme.ternary_linear/1`: the vendor's prefix, a dot, the name,
/// and a version from 1. The names without a prefix, and the prefix `paceline`, are not for vendors.
///
/// # Errors
/// What is wrong with the text, for people.
pub fn vendor_operation(text: &str) -> Result<(&str, u32), String> {
    let shown = text.escape_debug();
    let is_word = |word: &str, also: u8| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == also;
        word.starts_with(|first: char| first.is_ascii_lowercase()) && word.bytes().all(allowed)
    };
    let form = || {
        format!(
            "`{shown}` is no vendor's operation: it has the form `acme.ternary_linear/1`, in lower case, \
             at most {LONGEST} bytes"
        )
    };
    let (name, version) = text.split_once('/').ok_or_else(form)?;
    let (vendor, own) = name.split_once('.').ok_or_else(|| {
        format!(
            "`{shown}` lacks the prefix of a vendor: write `acme.{shown}` with a word of your own for `acme`"
        )
    })?;
    if vendor == "paceline" {
        return Err(format!(
            "`{shown}` has the prefix `paceline`, which is not for vendors: use one of your own"
        ));
    }
    let number: u32 = version.parse().ok().filter(|&number| number > 0).ok_or_else(form)?;
    // One spelling for each operation.
    let is_canonical = number.to_string() == version;
    if !is_canonical || text.len() > LONGEST || !is_word(vendor, b'-') || !is_word(own, b'_') {
        return Err(form());
    }
    Ok((name, number))
}

impl Graph {
    /// The graph with changed values and nodes: for backends that turn a type or an operation of their own into ones
    /// that they have kernels for. The result is to be validated.
    #[must_use]
    pub fn rewritten(&self, value: impl FnMut(&mut Value), node: impl FnMut(&mut Node)) -> Graph {
        let mut graph = self.clone();
        graph.values.iter_mut().for_each(value);
        graph.nodes.iter_mut().for_each(node);
        graph
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ops::Output;
    use crate::graph::{Builder, DType, GraphError, Shape};

    #[test]
    fn a_vendor_has_a_prefix_of_its_own() {
        assert_eq!(vendor_operation("acme.negate/1"), Ok(("acme.negate", 1)));
        assert_eq!(vendor_operation("acme-2.ternary_linear/12"), Ok(("acme-2.ternary_linear", 12)));
        let what = |text: &str| vendor_operation(text).unwrap_err();
        assert_eq!(
            what("negate/1"),
            "`negate/1` lacks the prefix of a vendor: write `acme.negate/1` with a word of your own for `acme`"
        );
        assert_eq!(
            what("paceline.negate/1"),
            "`paceline.negate/1` has the prefix `paceline`, which is not for vendors: use one of your own"
        );
        let others = [
            "",
            "acme.negate",
            "acme.negate/0",
            "acme.negate/01",
            "acme.negate/+1",
            "acme.negate/x",
            "Acme.negate/1",
            "acme.Negate/1",
            ".negate/1",
            "acme./1",
            "acme.a.b/1",
            "acme.negate/1/2",
            "acme.n\n/1",
        ];
        for text in others {
            assert!(
                what(text).contains("it has the form `acme.ternary_linear/1`"),
                "{text:?}: {}",
                what(text)
            );
        }
        assert!(vendor_operation(&format!("acme.{}/1", "a".repeat(LONGEST))).is_err());
    }

    fn output(dims: &[u32]) -> Output {
        Output { dtype: DType::F32, shape: Shape::new(dims).unwrap(), live: None }
    }

    #[test]
    fn a_vendors_node_crosses_as_bytes() {
        let mut b = Builder::new();
        let x = b.parameter("x", DType::F32, &[2, 4], None);
        let made = b.vendor_node("acme.negate", 1, &[x], Vec::new(), &[output(&[2, 4])]).unwrap();
        let refused = b.vendor_node("negate", 1, &[x], Vec::new(), &[output(&[2, 4])]);
        assert!(matches!(refused, Err(GraphError::Node { node: 1, .. })), "{refused:?}");
        let refused = b.vendor_node("acme.negate", 1, &[x], Vec::new(), &[output(&[0, 4])]);
        assert!(matches!(refused, Err(GraphError::Value { .. })), "{refused:?}");
        b.result("y", made[0]);
        let graph = b.finish();
        assert_eq!(graph.nodes().len(), 1, "what was refused left nothing behind");
        assert_eq!(Graph::from_bytes(&graph.to_bytes()), Ok(graph));
    }
}
