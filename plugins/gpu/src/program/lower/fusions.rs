//! Nodes that one kernel computes together, to the bits of the nodes one by one.
//!
//! A node is drawn into another's kernel only if nothing else reads what lies between them, results included.

use paceline_kernels::params::cache::MAX_HEAD;
use paceline_plugin_api::graph::ops::Attributes;
use paceline_plugin_api::graph::{Graph, Node, ValueId, ValueKind};
use std::collections::HashMap;

/// Decays and strengths of a Gated DeltaNet layer: g = softplus(alpha + dt) · a, beta = sigmoid(beta).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gates {
    pub alpha: ValueId,
    pub beta: ValueId,
    pub dt: ValueId,
    pub a: ValueId,
}

/// Norm (where there is one) and rotation of queries or keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turned {
    /// Before the norm.
    pub x: ValueId,
    pub weight: Option<ValueId>,
    pub out: ValueId,
}

/// Keys and values on their way to the cache, and the queries that read it next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Heads {
    /// The node `rope` of the keys.
    pub rope: usize,
    /// The node `kv_append`.
    pub append: usize,
    pub keys: Turned,
    pub queries: Option<Turned>,
    pub epsilon: f32,
}

/// What is fused, by the index of the node.
#[derive(Debug, Default)]
pub(super) struct Fusions {
    /// Nodes whose kernel is that of another node, which makes their outputs.
    pub joined: HashMap<usize, &'static str>,
    /// Nodes whose output is their input, since another kernel does the work on it.
    pub passed: HashMap<usize, &'static str>,
    /// Delta rules that make decays and strengths themselves.
    pub gates: HashMap<usize, Gates>,
    /// The last node of queries, keys and values.
    pub heads: HashMap<usize, Heads>,
    /// Delta rules that norm queries and keys, and epsilon.
    pub normalized: HashMap<usize, f32>,
    /// Products of elements whose factor is the sigmoid of this value.
    pub gated: HashMap<usize, ValueId>,
}

struct Finder<'g> {
    graph: &'g Graph,
    readers: &'g [usize],
    /// The node that makes each value.
    makers: HashMap<ValueId, usize>,
    found: Fusions,
}

impl Fusions {
    /// Looks for what can be fused; `readers` counts who reads each value.
    pub fn find(graph: &Graph, readers: &[usize]) -> Self {
        let makers =
            graph.nodes().iter().enumerate().flat_map(|(i, n)| n.outputs.iter().map(move |&id| (id, i)));
        let mut finder = Finder { graph, readers, makers: makers.collect(), found: Self::default() };
        for (index, node) in graph.nodes().iter().enumerate().filter(|(_, node)| node.version == 1) {
            match node.operation.as_str() {
                "gated_delta_net" => {
                    finder.gates(index, node);
                    finder.norms(index, node);
                }
                "mul" => finder.gated(index, node),
                _ => {}
            }
        }
        for (index, node) in graph.nodes().iter().enumerate() {
            if node.operation == "kv_append" && node.version == 1 {
                finder.heads(index, node);
            }
        }
        finder.found
    }
}

impl<'g> Finder<'g> {
    /// The node that makes a value that nobody but one node reads, if it is this operation.
    fn sole(&self, id: ValueId, operation: &str) -> Option<(usize, &'g Node)> {
        let &index = self.makers.get(&id)?;
        let node = &self.graph.nodes()[index];
        let is_free = !self.found.joined.contains_key(&index) && !self.found.passed.contains_key(&index);
        (self.readers[id.index()] == 1 && node.operation == operation && node.version == 1 && is_free)
            .then_some((index, node))
    }

    fn activation(&self, id: ValueId, kind: &str) -> Option<(usize, &'g Node)> {
        self.sole(id, "activation").filter(|(_, node)| {
            let attributes = Attributes::of(node);
            attributes.text("kind") == kind && attributes.float("softcap") == 0.0
        })
    }

    /// True for a weight with one element for each head.
    fn is_per_head(&self, id: ValueId, heads: u32) -> bool {
        let value = self.graph.value(id);
        value.kind == ValueKind::Weight && value.shape.dims() == [heads]
    }

    fn gates(&mut self, index: usize, node: &Node) {
        let [g_out, beta_out] = [node.inputs[3], node.inputs[4]];
        let find = || {
            let (beta_at, beta) = self.activation(beta_out, "sigmoid")?;
            let (scaled_at, scaled) = self.sole(g_out, "mul")?;
            let (softplus_at, softplus) = self.activation(scaled.inputs[0], "softplus")?;
            let (sum_at, sum) = self.sole(softplus.inputs[0], "add")?;
            let gates =
                Gates { alpha: sum.inputs[0], beta: beta.inputs[0], dt: sum.inputs[1], a: scaled.inputs[1] };
            let heads = self.graph.value(g_out).shape.last();
            let fits = self.is_per_head(gates.dt, heads) && self.is_per_head(gates.a, heads);
            fits.then_some(([beta_at, sum_at, softplus_at, scaled_at], gates))
        };
        if let Some((nodes, gates)) = find() {
            self.found.gates.insert(index, gates);
            self.found.joined.extend(nodes.map(|index| (index, "in gated_delta_net")));
        }
    }

    fn norms(&mut self, index: usize, node: &Node) {
        let [q, k] = [0, 1].map(|input| self.sole(node.inputs[input], "l2_norm"));
        let (Some((q_at, q)), Some((k_at, k))) = (q, k) else { return };
        let epsilon = |node| Attributes::of(node).float("eps") as f32;
        if q_at != k_at && epsilon(q).to_bits() == epsilon(k).to_bits() {
            self.found.passed.extend([q_at, k_at].map(|at| (at, "in gated_delta_net")));
            self.found.normalized.insert(index, epsilon(q));
        }
    }

    fn gated(&mut self, index: usize, node: &Node) {
        let [x, y] = [node.inputs[0], node.inputs[1]];
        if self.graph.value(x).shape != self.graph.value(y).shape || self.found.joined.contains_key(&index) {
            return;
        }
        if let Some((at, activation)) = self.activation(y, "sigmoid") {
            self.found.passed.insert(at, "in mul");
            self.found.gated.insert(index, activation.inputs[0]);
        }
    }

    /// What was rotated and perhaps normed before; the nodes, and the norm's epsilon.
    fn turned(&self, id: ValueId) -> Option<(Turned, Vec<usize>, Option<f32>)> {
        let (rope_at, rope) = self.sole(id, "rope")?;
        let x = rope.inputs[0];
        let norm = self.sole(x, "rms_norm").filter(|(_, node)| {
            let attributes = Attributes::of(node);
            attributes.flag("weight") && !attributes.flag("gate")
        });
        Some(match norm {
            Some((at, norm)) => {
                let turned = Turned { x: norm.inputs[0], weight: Some(norm.inputs[1]), out: id };
                (turned, vec![rope_at, at], Some(Attributes::of(norm).float("eps") as f32))
            }
            None => (Turned { x, weight: None, out: id }, vec![rope_at], None),
        })
    }

    /// The attention that reads what was appended, if its queries are rotated as the keys are and nothing touches the
    /// cache before all of this is there.
    fn queries(&self, append: usize, node: &Node, rope: &Node) -> Option<(Turned, Vec<usize>, Option<f32>)> {
        let caches = [node.inputs[2], node.inputs[3]];
        let behind = self.graph.nodes()[append + 1..].iter();
        // Whoever touches the cache first.
        let reader = behind.clone().find(|other| other.inputs.iter().any(|id| caches.contains(id)))?;
        if reader.version != 1 || reader.operation != "attention" || reader.inputs[1..3] != caches {
            return None;
        }
        let (turned, nodes, epsilon) = self.turned(reader.inputs[0])?;
        let other = &self.graph.nodes()[nodes[0]];
        let is_alike = other.attributes == rope.attributes && other.inputs[1..] == rope.inputs[1..];
        let [q, k] = [other, rope].map(|node| self.graph.value(node.inputs[0]));
        (is_alike && q.shape.last() == k.shape.last() && q.live == k.live).then_some((turned, nodes, epsilon))
    }

    fn heads(&mut self, append: usize, node: &Node) {
        let Some((keys, mut nodes, keys_epsilon)) = self.turned(node.inputs[0]) else { return };
        let rope = nodes[0];
        let [k, v] = [0, 1].map(|input| self.graph.value(node.inputs[input]).shape);
        if k != v || k.last() > MAX_HEAD {
            return;
        }
        let queries = self.queries(append, node, &self.graph.nodes()[rope]);
        let queries = queries.filter(|(_, _, epsilon)| match (epsilon, keys_epsilon) {
            (Some(q), Some(k)) => q.to_bits() == k.to_bits(),
            _ => true,
        });
        let mut epsilon = keys_epsilon;
        let queries = queries.map(|(turned, of_queries, queries_epsilon)| {
            nodes.extend(of_queries);
            epsilon = epsilon.or(queries_epsilon);
            turned
        });
        nodes.push(append);
        let Some(&last) = nodes.iter().max() else { return };
        let heads = Heads { rope, append, keys, queries, epsilon: epsilon.unwrap_or(0.0) };
        self.found.heads.insert(last, heads);
        self.found.joined.extend(nodes.into_iter().map(|index| (index, "heads to cache")));
    }
}
