//! The operations: names, versions, attributes, and the shapes that they require and make.
//!
//! `R` is the number of rows of a run, a live count; the other dimensions are fixed when a graph is planned.
//! What each operation computes is defined by the reference executor of the conformance crate; the formulas here
//! say it shortly. A **sequences** parameter is i32 `[S, 4]`, one entry per sequence of the run: first row, number
//! of rows, length before the run, state slot. Rows of a sequence are consecutive and in order. A sequence whose
//! length before the run is 0 starts from zero state, whatever its slot holds.
//!
//! A **rollback** parameter is i32 `[S, 3]`, live with the sequences: plane, bank and keep of each, which let the host
//! take back the last rows of an earlier run. With `planes` P > 1 a state has entries slot·P + plane. The state before a
//! run is in the plane that the parameter names, the state after n of its W rows goes to plane (plane + n) mod P, for
//! the last P rows; the other planes stay. With records a state has a base and two banks of N records. Bank `1 - bank`
//! takes one for each of the last N rows of a run: delta\[Hv,e\], k\[Hk,d\] and g\[Hv\] as the step used them; row j is
//! record j - max(0, W - N). Only the rows before these change the base; it becomes zeros where a sequence begins. The
//! replay applies the first `keep` records of bank `bank` to the base, whether or not the sequence has rows, to the very
//! bits that the rows made. A plane is below P, a bank 0 or 1, a keep at most N, and 0 for a sequence of length 0.
//!
//! Indices: a selected row is a live row; a cell is inside the cache or state, or negative, which drops the row (a cell
//! that a node made counts as negative when it is beyond the state, since no launch can check it); an update
//! stays inside its table and writes nothing negative; a slot or a row belongs to at most one sequence of a run, and a
//! sequence without rows does nothing. A backend refuses a launch that breaks this. Attention reads position p of a
//! sequence from the block that row `slot` of the table names in column p/256; a window of w includes the row's own
//! position; without `causal` a row sees all positions to the end of the run. KV head and key head of head h are
//! h/(Hq/Hk) and h mod Hk.
//!
//! | operation | inputs → outputs | attributes (default) |
//! |---|---|---|
//! | `embed/1` | ids i32\[R\], table\[V,D\] → f32\[R,D\], faults i32\[1\] | an id out of range gives a row of zeros and is counted in faults |
//! | `rms_norm/1` | x\[..,D\], w\[D\]?, z like x? → like x | `eps`; `weight` (1), `gate` (0): w·x/√(mean x² + eps), times silu(z) |
//! | `l2_norm/1` | x\[..,D\] → like x | `eps`: x/√(Σx² + eps) |
//! | `linear/1` | x\[R,K\], w\[N,K\], b\[N\]? → \[R,N\] | `bias` (0) |
//! | `add/1`, `mul/1` | x, y → like x | y has the trailing dimensions of x |
//! | `scale/1` | x → like x | `factor` |
//! | `activation/1` | x → like x | `kind`: silu, gelu, gelu_tanh, sigmoid, softplus, tanh, exp; `softcap` (0): c·f(x/c) |
//! | `glu/1` | gate, up → like gate | `kind`: silu, gelu, gelu_tanh, sigmoid: f(gate)·up |
//! | `reshape/1` | x → dims | `dims`; axis 0 stays when it is live |
//! | `slice/1` | x\[..,D\] → \[..,length\] | `offset`, `length` on the last axis |
//! | `concat/1` | x, y, … → \[..,ΣD\] | on the last axis |
//! | `rope/1` | x\[R,H,d\], positions i32\[R\], factors\[rotary/2\]? → like x | `rotary`, `base`; `pairing` (half), or adjacent; `divisor` (1), `factors` (0): pair i turns by position·base^(-2i/rotary)/(divisor·factors\[i\]) |
//! | `table_update/1` | table state i32\[S,B\], updates i32\[U,3\] → – | each update writes (row, column, value) |
//! | `kv_append/1` | k\[R,H,d\], v\[R,H,d\], K state\[B,256,H,d\], V state, cells i32\[R\] → – | cell = block·256 + offset |
//! | `attention/1` | q\[R,Hq,d\], K state, V state, table state, sequences, sinks\[Hq\]? → like q | `scale`; `softcap` (0), `window` (0), `causal` (1), `sinks` (0) |
//! | `rows_store/1` | x\[R,D\], state\[N,D\], cells i32\[R\] → – | row r becomes entry cells\[r\], in the order of the rows |
//! | `lookup/1` | ids i32\[M\], table\[K\] (a weight of i32) → i32\[M\] | entry ids\[m\] of the table; 0 for an id out of range |
//! | `rows_load/1` | state\[N,D\], cells i32\[M\] → \[M,D\] | a negative cell gives a row of zeros |
//! | `conv_causal/1` | x\[R,C\], w\[C,k\], state\[slots·P,k-1,C\], sequences, rollback (if P > 1) → like x | `activation` (none), or silu; `planes` (1): P |
//! | `gated_delta_net/1` | q, k\[R,Hk,d\], v\[R,Hv,e\], g\[R,Hv\], beta\[R,Hv\], state\[slots,Hv,d,e\], sequences → \[R,Hv,e\] | `scale`; `mode` (plain) |
//! | … `mode` snapshots | …, state\[slots·P,Hv,d,e\], sequences, rollback → \[R,Hv,e\] | `planes` (1): P |
//! | … `mode` records | …, state\[slots,Hv,d,e\], sequences, records\[slots·2,N,Hv·e+Hk·d+Hv\], rollback → \[R,Hv,e\] | |
//! | `gated_delta_net_replay/1` | state\[slots,Hv,d,e\], records\[slots·2,N,Hv·e+Hk·d+Hv\], sequences, rollback → – | |
//! | `select_rows/1` | x\[R,..\], rows i32\[M\] → \[M,..\] | |
//! | `argmax/1` | x\[M,V\] → ids i32\[M\], faults i32\[1\] | the lowest index wins ties; a row with NaN gives -1 and is counted in faults |
//! | `draw/1` | x\[M,V\], noise i32\[M,4\], tokens\[V\] (a weight of i32)? → ids i32\[M\], faults i32\[1\] | `tokens` (0): a token of the row's distribution, by its noise |
//! | `top_k/1` | x\[M,V\] → ids i32\[M,k\], values f32\[M,k\] | `k`; descending, NaN last, the lowest index wins ties |
//! | `softmax/1` | x\[..,V\] → like x | |
//! | `route/1` | logits\[R,E\] → ids i32\[R,k\], weights f32\[R,k\] | `k`; `scoring` (softmax), or sigmoid; `normalize` (1); `factor` (1.0) |
//! | `experts/1` | x\[R,D\], gate\[E,N,D\], up\[E,N,D\], down\[E,D,N\], ids i32\[R,k\], weights\[R,k\] → like x | `kind`: silu, gelu, gelu_tanh, sigmoid |
//!
//! `draw` takes the largest x_v·factor - ln(-ln u) of a row, the lowest index among equals, of those v whose x_v·factor is at
//! most `floor` below the largest; a row of `noise` holds a key, the factor and the floor ([`noise::Noise`](super::noise)). u
//! belongs to the key and to v, or to tokens\[v\] where the columns stand for tokens of a larger vocabulary
//! ([`noise::uniform_f32`](super::noise::uniform_f32)). Without a factor that is positive and finite, and where the largest is not
//! finite, it is an `argmax`; NaN is as there. It serves guesses alone: the logarithm may be off in its last bits.
//!
//! `route` chooses the k largest logits of a row in descending order, the lowest index first among equal ones and NaN
//! last. With p the softmax of the row, or the sigmoid of each logit, the weight of chosen j is p_j, divided by the sum
//! of the chosen p where `normalize` is on, times `factor`. `experts` gives Σ_j weights\[r,j\]·y_j in ascending j, with
//! y_j = down_e (f(gate_e x)·(up_e x)) and e = ids\[r,j\]; an id out of range adds nothing, and ids of a row may be equal.

mod infer;

use super::{Attribute, DType, Graph, Node, Shape, StateKind, Value, ValueId, ValueKind};

/// Positions per block of a KV cache.
pub const KV_BLOCK: u32 = 256;

/// What an output of a node is.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Data type.
    pub dtype: DType,
    /// Shape.
    pub shape: Shape,
    /// Parameter with the live count of axis 0.
    pub live: Option<ValueId>,
}

/// An attribute that an operation knows.
struct AttributeRule {
    key: &'static str,
    default: Default,
}

enum Default {
    RequiredInteger,
    RequiredFloat,
    RequiredText,
    RequiredIntegers,
    Integer(i64),
    Float(f64),
    Text(&'static str),
}

struct Operation {
    name: &'static str,
    version: u32,
    attributes: &'static [AttributeRule],
    infer: fn(&Context<'_>) -> Result<Vec<Output>, String>,
}

const fn rule(key: &'static str, default: Default) -> AttributeRule {
    AttributeRule { key, default }
}

const EPS: AttributeRule = rule("eps", Default::RequiredFloat);
const SCALE: AttributeRule = rule("scale", Default::RequiredFloat);
const PLANES: AttributeRule = rule("planes", Default::Integer(1));
const KIND: AttributeRule = rule("kind", Default::RequiredText);

static OPERATIONS: &[Operation] = &[
    op("embed", &[], infer::embed),
    op(
        "rms_norm",
        &[EPS, rule("gate", Default::Integer(0)), rule("weight", Default::Integer(1))],
        infer::rms_norm,
    ),
    op("l2_norm", &[EPS], infer::over_last_axis),
    op("linear", &[rule("bias", Default::Integer(0))], infer::linear),
    op("add", &[], infer::broadcast),
    op("mul", &[], infer::broadcast),
    op("scale", &[rule("factor", Default::RequiredFloat)], infer::same_as_first),
    op("activation", &[KIND, rule("softcap", Default::Float(0.0))], infer::activation),
    op("glu", &[KIND], infer::glu),
    op("reshape", &[rule("dims", Default::RequiredIntegers)], infer::reshape),
    op(
        "slice",
        &[rule("length", Default::RequiredInteger), rule("offset", Default::RequiredInteger)],
        infer::slice,
    ),
    op("concat", &[], infer::concat),
    op(
        "rope",
        &[
            rule("base", Default::RequiredFloat),
            rule("divisor", Default::Float(1.0)),
            rule("factors", Default::Integer(0)),
            rule("pairing", Default::Text("half")),
            rule("rotary", Default::RequiredInteger),
        ],
        infer::rope,
    ),
    op("table_update", &[], infer::table_update),
    op("kv_append", &[], infer::kv_append),
    op(
        "attention",
        &[
            rule("causal", Default::Integer(1)),
            SCALE,
            rule("sinks", Default::Integer(0)),
            rule("softcap", Default::Float(0.0)),
            rule("window", Default::Integer(0)),
        ],
        infer::attention,
    ),
    op("rows_store", &[], infer::rows_store),
    op("rows_load", &[], infer::rows_load),
    op("lookup", &[], infer::lookup),
    op("conv_causal", &[rule("activation", Default::Text("none")), PLANES], infer::conv_causal),
    op("gated_delta_net", &[rule("mode", Default::Text("plain")), PLANES, SCALE], infer::gated_delta_net),
    op("gated_delta_net_replay", &[], infer::gated_delta_net_replay),
    op("select_rows", &[], infer::select_rows),
    op("argmax", &[], infer::argmax),
    op("draw", &[rule("tokens", Default::Integer(0))], infer::draw),
    op("top_k", &[rule("k", Default::RequiredInteger)], infer::top_k),
    op("softmax", &[], infer::over_last_axis),
    op(
        "route",
        &[
            rule("factor", Default::Float(1.0)),
            rule("k", Default::RequiredInteger),
            rule("normalize", Default::Integer(1)),
            rule("scoring", Default::Text("softmax")),
        ],
        infer::route,
    ),
    op("experts", &[KIND], infer::experts),
];

const fn op(
    name: &'static str,
    attributes: &'static [AttributeRule],
    infer: fn(&Context<'_>) -> Result<Vec<Output>, String>,
) -> Operation {
    Operation { name, version: 1, attributes, infer }
}

fn find(name: &str, version: u32) -> Option<&'static Operation> {
    OPERATIONS.iter().find(|o| o.name == name && o.version == version)
}

/// Names and versions of all operations that this crate defines.
pub fn all() -> impl Iterator<Item = (&'static str, u32)> {
    OPERATIONS.iter().map(|o| (o.name, o.version))
}

/// True if this crate defines the operation.
pub fn is_known(name: &str, version: u32) -> bool {
    find(name, version).is_some()
}

/// Access to a node's attributes with the operation's defaults filled in.
///
/// The accessors answer 0, 0.0 or "" for a key that the operation does not define; on a validated graph that
/// cannot happen.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    operation: Option<&'static Operation>,
    given: &'a [(String, Attribute)],
}

impl<'a> Attributes<'a> {
    /// The attributes of `node`.
    pub fn of(node: &'a Node) -> Self {
        Self { operation: find(&node.operation, node.version), given: &node.attributes }
    }

    fn given(&self, key: &str) -> Option<&'a Attribute> {
        self.given.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    fn default(&self, key: &str) -> Option<&'static Default> {
        self.operation?.attributes.iter().find(|rule| rule.key == key).map(|rule| &rule.default)
    }

    /// An integer.
    pub fn integer(&self, key: &str) -> i64 {
        match (self.given(key), self.default(key)) {
            (Some(Attribute::Integer(value)), _) => *value,
            (None, Some(Default::Integer(value))) => *value,
            _ => 0,
        }
    }

    /// A switch: an integer that is not 0.
    pub fn flag(&self, key: &str) -> bool {
        self.integer(key) != 0
    }

    /// A number.
    pub fn float(&self, key: &str) -> f64 {
        match (self.given(key), self.default(key)) {
            (Some(Attribute::Float(value)), _) => *value,
            (None, Some(Default::Float(value))) => *value,
            _ => 0.0,
        }
    }

    /// A word.
    pub fn text(&self, key: &str) -> &'a str {
        match (self.given(key), self.default(key)) {
            (Some(Attribute::Text(value)), _) => value,
            (None, Some(Default::Text(value))) => value,
            _ => "",
        }
    }

    /// A list of integers.
    pub fn integers(&self, key: &str) -> &'a [i64] {
        match self.given(key) {
            Some(Attribute::Integers(values)) => values,
            _ => &[],
        }
    }
}

/// Leaves out attributes at their default and sorts the rest: the canonical form.
pub(super) fn canonical_attributes(
    name: &str,
    version: u32,
    mut attributes: Vec<(String, Attribute)>,
) -> Vec<(String, Attribute)> {
    if let Some(operation) = find(name, version) {
        attributes.retain(|(key, value)| {
            let default = operation.attributes.iter().find(|rule| rule.key == key).map(|rule| &rule.default);
            !matches!((default, value),
                (Some(Default::Integer(d)), Attribute::Integer(v)) if d == v)
                && !matches!((default, value),
                (Some(Default::Float(d)), Attribute::Float(v)) if d == v)
                && !matches!((default, value),
                (Some(Default::Text(d)), Attribute::Text(v)) if d == v)
        });
    }
    attributes.sort_by(|a, b| a.0.cmp(&b.0));
    attributes
}

/// Checks a node against its operation: attributes, inputs, and that its outputs are what the operation makes.
/// A node of an operation that is not known here passes.
pub(super) fn check(graph: &Graph, node: &Node) -> Result<(), String> {
    if find(&node.operation, node.version).is_none() {
        return Ok(());
    }
    let outputs = infer(graph.values(), &node.operation, node.version, &node.inputs, &node.attributes)?;
    if outputs.len() != node.outputs.len() {
        return Err(format!("it makes {} outputs, not {}", outputs.len(), node.outputs.len()));
    }
    for (expected, &id) in outputs.iter().zip(&node.outputs) {
        let value = graph.value(id);
        if value.dtype != expected.dtype || value.shape != expected.shape || value.live != expected.live {
            return Err(format!(
                "output {id} is {} {}, expected {} {}",
                value.dtype, value.shape, expected.dtype, expected.shape
            ));
        }
    }
    Ok(())
}

/// The outputs of an operation on these inputs.
///
/// # Errors
/// What is wrong with the operation's name, attributes or inputs.
pub(super) fn infer(
    values: &[Value],
    name: &str,
    version: u32,
    inputs: &[ValueId],
    attributes: &[(String, Attribute)],
) -> Result<Vec<Output>, String> {
    let operation = find(name, version).ok_or_else(|| format!("operation {name}/{version} is not known"))?;
    for (key, value) in attributes {
        let rule = operation
            .attributes
            .iter()
            .find(|rule| rule.key == key)
            .ok_or_else(|| format!("attribute `{key}` is not known"))?;
        let fits = matches!(
            (&rule.default, value),
            (Default::RequiredInteger | Default::Integer(_), Attribute::Integer(_))
                | (Default::RequiredFloat | Default::Float(_), Attribute::Float(_))
                | (Default::RequiredText | Default::Text(_), Attribute::Text(_))
                | (Default::RequiredIntegers, Attribute::Integers(_))
        );
        if !fits {
            return Err(format!("attribute `{key}` has the wrong type"));
        }
        if matches!(value, Attribute::Float(f) if !f.is_finite()) {
            return Err(format!("attribute `{key}` is not finite"));
        }
    }
    for rule in operation.attributes {
        let required = matches!(
            rule.default,
            Default::RequiredInteger
                | Default::RequiredFloat
                | Default::RequiredText
                | Default::RequiredIntegers
        );
        if required && !attributes.iter().any(|(key, _)| key == rule.key) {
            return Err(format!("attribute `{}` is missing", rule.key));
        }
    }
    let attributes = Attributes { operation: Some(operation), given: attributes };
    (operation.infer)(&Context { values, inputs, attributes })
}

struct Context<'a> {
    values: &'a [Value],
    inputs: &'a [ValueId],
    attributes: Attributes<'a>,
}

impl Context<'_> {
    fn count(&self, expected: usize) -> Result<(), String> {
        if self.inputs.len() == expected {
            Ok(())
        } else {
            Err(format!("it takes {expected} inputs, not {}", self.inputs.len()))
        }
    }

    fn value(&self, index: usize) -> Result<&Value, String> {
        let id = self.inputs.get(index).ok_or_else(|| format!("input {index} is missing"))?;
        self.values.get(id.index()).ok_or_else(|| format!("input {index} is unknown"))
    }

    /// Values with a last axis that an operation works over: it may not be the live one.
    fn last_axis(&self, index: usize) -> Result<&Value, String> {
        let value = self.elements(index)?;
        if value.live.is_some() && value.shape.rank() < 2 {
            return Err(format!("input {index} has no axis but the one of live rows"));
        }
        Ok(value)
    }

    /// An activation or an f32 weight that is read element by element.
    fn elements(&self, index: usize) -> Result<&Value, String> {
        let value = self.value(index)?;
        if value.dtype != DType::F32 || matches!(value.kind, ValueKind::State(_)) {
            return Err(format!("input {index} must be f32 elements, not {}", value.dtype));
        }
        Ok(value)
    }

    fn elements_of(&self, index: usize, dims: &[u32]) -> Result<&Value, String> {
        let value = self.elements(index)?;
        if value.shape.dims() != dims {
            return Err(format!("input {index} is {}, expected {dims:?}", value.shape));
        }
        Ok(value)
    }

    fn indices(&self, index: usize, rank: usize) -> Result<&Value, String> {
        let value = self.value(index)?;
        let is_list = matches!(value.kind, ValueKind::Parameter { .. } | ValueKind::Node);
        if value.dtype != DType::I32 || value.shape.rank() != rank || !is_list {
            return Err(format!("input {index} must be i32 of {rank} dimensions"));
        }
        Ok(value)
    }

    fn sequences(&self, index: usize) -> Result<&Value, String> {
        let value = self.indices(index, 2)?;
        if value.shape.last() != 4 {
            return Err(format!("input {index} must be sequences [S,4], not {}", value.shape));
        }
        Ok(value)
    }

    /// The plane, bank and keep of each of the sequences in input `sequences`.
    fn rollback(&self, index: usize, sequences: usize) -> Result<(), String> {
        let (value, sequences) = (self.indices(index, 2)?, self.sequences(sequences)?);
        if value.shape != sequences.shape.with_last(3) || value.live != sequences.live {
            return Err(format!("input {index} must be a rollback [S,3] live with the sequences"));
        }
        Ok(())
    }

    /// The attribute `planes`, of which the slots of a state are made.
    fn planes(&self, state: &Value) -> Result<u32, String> {
        let planes = dimension(self.attributes.integer("planes"))?;
        if !state.shape.first().is_multiple_of(planes) {
            return Err(format!("the state {} has no whole slots of {planes} planes", state.shape));
        }
        Ok(planes)
    }

    fn state(&self, index: usize, kind: StateKind, rank: usize) -> Result<&Value, String> {
        let value = self.value(index)?;
        if value.kind != ValueKind::State(kind) || value.shape.rank() != rank {
            return Err(format!("input {index} must be a state ({kind:?}) of {rank} dimensions"));
        }
        Ok(value)
    }

    /// A state of rows, `f32 [N, D]`.
    fn row_state(&self, index: usize) -> Result<&Value, String> {
        let value = self.value(index)?;
        let is_state = matches!(value.kind, ValueKind::State(kind) if kind != StateKind::Table);
        if !is_state || value.dtype != DType::F32 || value.shape.rank() != 2 {
            return Err(format!(
                "input {index} must be a state f32 [N,D], not {} {}",
                value.dtype, value.shape
            ));
        }
        Ok(value)
    }

    /// A KV cache `[blocks, 256, heads, d]`.
    fn cache(&self, index: usize, head_dim: Option<u32>) -> Result<&Value, String> {
        let value = self.state(index, StateKind::PerPosition, 4)?;
        let dims = value.shape.dims();
        if dims[1] != KV_BLOCK || head_dim.is_some_and(|d| d != dims[3]) {
            return Err(format!("input {index} is {}, not a cache of this head size", value.shape));
        }
        if value.bytes().is_none() {
            return Err(format!("input {index}: {} does not fit a head of {}", value.dtype, dims[3]));
        }
        Ok(value)
    }
}

fn dimension(value: i64) -> Result<u32, String> {
    u32::try_from(value).ok().filter(|&d| d > 0).ok_or_else(|| format!("{value} is not a dimension"))
}
