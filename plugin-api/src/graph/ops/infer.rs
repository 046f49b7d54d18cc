//! The shapes of each operation: what its inputs must be, and what its outputs are.

use super::{Context, DType, Output, Shape, StateKind, Value, ValueKind, dimension};

type Outputs = Result<Vec<Output>, String>;

fn like(value: &Value) -> Output {
    Output { dtype: DType::F32, shape: value.shape, live: value.live }
}

fn shaped(dtype: DType, dims: &[u32], live: Option<super::ValueId>) -> Result<Output, String> {
    let shape = Shape::new(dims).ok_or("more than 4 dimensions")?;
    Ok(Output { dtype, shape, live })
}

fn faults() -> Result<Output, String> {
    shaped(DType::I32, &[1], None)
}

fn matrix(context: &Context<'_>, index: usize) -> Result<(u32, u32), String> {
    let value = context.value(index)?;
    match (value.kind, value.shape.dims()) {
        (ValueKind::Weight, &[rows, columns]) => Ok((rows, columns)),
        _ => Err(format!("input {index} must be a weight of 2 dimensions")),
    }
}

pub fn same_as_first(c: &Context<'_>) -> Outputs {
    c.count(1)?;
    Ok(vec![like(c.elements(0)?)])
}

pub fn over_last_axis(c: &Context<'_>) -> Outputs {
    c.count(1)?;
    Ok(vec![like(c.last_axis(0)?)])
}

pub fn embed(c: &Context<'_>) -> Outputs {
    c.count(2)?;
    let ids = c.indices(0, 1)?;
    let (_, width) = matrix(c, 1)?;
    Ok(vec![shaped(DType::F32, &[ids.shape.first(), width], ids.live)?, faults()?])
}

pub fn rms_norm(c: &Context<'_>) -> Outputs {
    let (weight, gate) = (c.attributes.flag("weight"), c.attributes.flag("gate"));
    c.count(1 + usize::from(weight) + usize::from(gate))?;
    let x = c.last_axis(0)?;
    if weight {
        c.elements_of(1, &[x.shape.last()])?;
    }
    if gate {
        let gate = c.elements(1 + usize::from(weight))?;
        if gate.shape != x.shape || gate.live != x.live {
            return Err("the gate has another shape or live count than x".into());
        }
    }
    Ok(vec![like(x)])
}

pub fn linear(c: &Context<'_>) -> Outputs {
    let bias = c.attributes.flag("bias");
    c.count(2 + usize::from(bias))?;
    let x = c.elements(0)?;
    let (rows, columns) = matrix(c, 1)?;
    if x.shape.rank() != 2 || x.shape.last() != columns {
        return Err(format!("x is {}, the weight takes [R,{columns}]", x.shape));
    }
    if bias {
        c.elements_of(2, &[rows])?;
    }
    Ok(vec![Output { dtype: DType::F32, shape: x.shape.with_last(rows), live: x.live }])
}

pub fn broadcast(c: &Context<'_>) -> Outputs {
    c.count(2)?;
    let (x, y) = (c.elements(0)?, c.elements(1)?);
    let same_rows = y.shape.rank() < x.shape.rank() || y.live == x.live;
    if !x.shape.dims().ends_with(y.shape.dims()) || y.shape.rank() == 0 || !same_rows {
        return Err(format!("{} does not broadcast to {}", y.shape, x.shape));
    }
    Ok(vec![like(x)])
}

pub fn activation(c: &Context<'_>) -> Outputs {
    let kind = c.attributes.text("kind");
    if !["silu", "gelu", "gelu_tanh", "sigmoid", "softplus", "tanh", "exp"].contains(&kind) {
        return Err(format!("activation `{kind}` is not known"));
    }
    same_as_first(c)
}

/// The attribute `kind` of what has a gate.
fn gated_kind(c: &Context<'_>) -> Result<(), String> {
    let kind = c.attributes.text("kind");
    if !["silu", "gelu", "gelu_tanh", "sigmoid"].contains(&kind) {
        return Err(format!("activation `{kind}` is not known"));
    }
    Ok(())
}

pub fn glu(c: &Context<'_>) -> Outputs {
    c.count(2)?;
    gated_kind(c)?;
    let (gate, up) = (c.elements(0)?, c.elements(1)?);
    if gate.shape != up.shape || gate.live != up.live {
        return Err(format!("gate {} and up {} differ", gate.shape, up.shape));
    }
    Ok(vec![like(gate)])
}

pub fn reshape(c: &Context<'_>) -> Outputs {
    c.count(1)?;
    let x = c.elements(0)?;
    let dims: Vec<u32> =
        c.attributes.integers("dims").iter().map(|&d| dimension(d)).collect::<Result<_, _>>()?;
    let output = shaped(DType::F32, &dims, x.live)?;
    if output.shape.elements() != x.shape.elements()
        || (x.live.is_some() && output.shape.first() != x.shape.first())
    {
        return Err(format!("{} cannot become {}", x.shape, output.shape));
    }
    Ok(vec![output])
}

pub fn slice(c: &Context<'_>) -> Outputs {
    c.count(1)?;
    let x = c.last_axis(0)?;
    let (offset, length) = (c.attributes.integer("offset"), c.attributes.integer("length"));
    let width = i64::from(x.shape.last());
    if offset < 0 || length < 1 || offset > width || length > width - offset {
        return Err(format!("{offset}+{length} is outside of {}", x.shape));
    }
    Ok(vec![Output { shape: x.shape.with_last(dimension(length)?), ..like(x) }])
}

pub fn concat(c: &Context<'_>) -> Outputs {
    let first = c.last_axis(0)?;
    let mut width = 0u32;
    for index in 0..c.inputs.len() {
        let part = c.elements(index)?;
        if part.shape.with_last(1) != first.shape.with_last(1) || part.live != first.live {
            return Err(format!("{} and {} differ in more than the last axis", first.shape, part.shape));
        }
        width = width.checked_add(part.shape.last()).ok_or("too wide")?;
    }
    Ok(vec![Output { shape: first.shape.with_last(width), ..like(first) }])
}

pub fn rope(c: &Context<'_>) -> Outputs {
    let factors = c.attributes.flag("factors");
    c.count(2 + usize::from(factors))?;
    let x = c.elements(0)?;
    let positions = c.indices(1, 1)?;
    let rotary = c.attributes.integer("rotary");
    if x.shape.rank() != 3 || positions.shape.first() != x.shape.first() || positions.live != x.live {
        return Err(format!("x is {}, positions are {}", x.shape, positions.shape));
    }
    if rotary < 2 || rotary % 2 != 0 || rotary > i64::from(x.shape.last()) {
        return Err(format!("a rotary width of {rotary} does not fit a head of {}", x.shape.last()));
    }
    let positive = ["base", "divisor"].iter().all(|key| c.attributes.float(key) > 0.0);
    if !["half", "adjacent"].contains(&c.attributes.text("pairing")) || !positive {
        return Err("pairing must be half or adjacent, base and divisor positive".into());
    }
    if factors {
        let value = c.elements_of(2, &[rotary as u32 / 2])?;
        if value.kind != ValueKind::Weight {
            return Err("factors must be a weight".into());
        }
    }
    Ok(vec![like(x)])
}

pub fn table_update(c: &Context<'_>) -> Outputs {
    c.count(2)?;
    let table = c.state(0, StateKind::Table, 2)?;
    let updates = c.indices(1, 2)?;
    if table.dtype != DType::I32 || updates.shape.last() != 3 {
        return Err("the table must be i32 and updates [U,3]".into());
    }
    Ok(Vec::new())
}

pub fn kv_append(c: &Context<'_>) -> Outputs {
    c.count(5)?;
    let (k, v) = (c.elements(0)?, c.elements(1)?);
    let cells = c.indices(4, 1)?;
    if c.cache(2, None)?.shape.first() != c.cache(3, None)?.shape.first() {
        return Err("the caches of keys and values differ in their number of blocks".into());
    }
    for (index, rows) in [(2, k), (3, v)] {
        let &[count, heads, width] = rows.shape.dims() else {
            return Err("k and v must be [R,H,d]".into());
        };
        if c.cache(index, Some(width))?.shape.dims()[2] != heads {
            return Err(format!("input {index} has another number of heads"));
        }
        if cells.shape.first() != count || cells.live != rows.live {
            return Err("cells and rows differ in number".into());
        }
    }
    Ok(Vec::new())
}

pub fn attention(c: &Context<'_>) -> Outputs {
    let sinks = c.attributes.flag("sinks");
    c.count(5 + usize::from(sinks))?;
    let q = c.elements(0)?;
    let &[_, heads, width] = q.shape.dims() else {
        return Err("q must be [R,H,d]".into());
    };
    let kv_heads = c.cache(1, Some(width))?.shape.dims()[2];
    if c.cache(2, Some(width))?.shape.dims()[..3] != c.cache(1, None)?.shape.dims()[..3]
        || heads % kv_heads != 0
    {
        return Err(format!("{heads} query heads do not share {kv_heads} KV heads"));
    }
    if c.state(3, StateKind::Table, 2)?.dtype != DType::I32 || c.attributes.integer("window") < 0 {
        return Err("the block table must be i32 and the window not negative".into());
    }
    c.sequences(4)?;
    if sinks {
        c.elements_of(5, &[heads])?;
    }
    Ok(vec![like(q)])
}

pub fn rows_store(c: &Context<'_>) -> Outputs {
    c.count(3)?;
    let (x, state, cells) = (c.elements(0)?, c.row_state(1)?, c.indices(2, 1)?);
    if x.shape.rank() != 2 || x.shape.last() != state.shape.last() {
        return Err(format!("x {} does not fit a state of {}", x.shape, state.shape));
    }
    if cells.shape.first() != x.shape.first() || cells.live != x.live {
        return Err("cells and rows differ in number".into());
    }
    Ok(Vec::new())
}

pub fn rows_load(c: &Context<'_>) -> Outputs {
    c.count(2)?;
    let (state, cells) = (c.row_state(0)?, c.indices(1, 1)?);
    Ok(vec![shaped(DType::F32, &[cells.shape.first(), state.shape.last()], cells.live)?])
}

pub fn conv_causal(c: &Context<'_>) -> Outputs {
    let (x, w) = (c.elements(0)?, c.elements(1)?);
    let state = c.state(2, StateKind::PerSlot, 3)?;
    c.sequences(3)?;
    if c.planes(state)? == 1 {
        c.count(4)?;
    } else {
        c.count(5)?;
        c.rollback(4, 3)?;
    }
    let (&[_, channels], &[rows, taps]) = (x.shape.dims(), w.shape.dims()) else {
        return Err("x must be [R,C] and w [C,k]".into());
    };
    if rows != channels || taps < 2 || state.shape.dims()[1..] != [taps - 1, channels] {
        return Err(format!("x {}, w {} and state {} do not fit", x.shape, w.shape, state.shape));
    }
    if state.dtype != DType::F32 || !["none", "silu"].contains(&c.attributes.text("activation")) {
        return Err("the state must be f32 and the activation none or silu".into());
    }
    Ok(vec![like(x)])
}

pub fn gated_delta_net(c: &Context<'_>) -> Outputs {
    let (q, k, v) = (c.elements(0)?, c.elements(1)?, c.elements(2)?);
    let state = c.state(5, StateKind::PerSlot, 4)?;
    c.sequences(6)?;
    let (&[rows, key_heads, key_width], &[_, value_heads, value_width]) = (q.shape.dims(), v.shape.dims())
    else {
        return Err("q and v must have 3 dimensions".into());
    };
    if k.shape != q.shape || v.shape.first() != rows || value_heads % key_heads != 0 {
        return Err(format!("q {}, k {} and v {} do not fit", q.shape, k.shape, v.shape));
    }
    for index in [3, 4] {
        c.elements_of(index, &[rows, value_heads])?;
    }
    if (0..5).any(|index| c.value(index).is_ok_and(|value| value.live != q.live)) {
        return Err("the inputs differ in their live counts".into());
    }
    if state.dtype != DType::F32 || state.shape.dims()[1..] != [value_heads, key_width, value_width] {
        return Err(format!("the state is {} {}", state.dtype, state.shape));
    }
    let mode = c.attributes.text("mode");
    if c.planes(state)? != 1 && mode != "snapshots" {
        return Err(format!("mode `{mode}` has no planes"));
    }
    match mode {
        "plain" => c.count(7)?,
        "snapshots" => {
            c.count(8)?;
            c.rollback(7, 6)?;
        }
        "records" => {
            c.count(9)?;
            c.rollback(8, 6)?;
            if records(c, 7, state)? != Some(key_heads) {
                return Err("the records are not made for these heads".into());
            }
        }
        _ => return Err(format!("mode `{mode}` is not known")),
    }
    Ok(vec![like(v)])
}

/// Checks records against the state that they belong to, `[slots,Hv,d,e]`. Returns the key heads of a record; none if
/// its width does not fit any number of them.
fn records(c: &Context<'_>, index: usize, state: &Value) -> Result<Option<u32>, String> {
    let records = c.state(index, StateKind::PerSlot, 3)?;
    let (&[slots, heads, key_width, value_width], &[banks, count, width]) =
        (state.shape.dims(), records.shape.dims())
    else {
        return Err("a state must have 4 dimensions and records 3".into());
    };
    if records.dtype != DType::F32 || u64::from(banks) != u64::from(slots) * 2 || count == 0 {
        return Err(format!("records {} {} do not fit {slots} slots", records.dtype, records.shape));
    }
    let keys = u64::from(width).checked_sub(u64::from(heads) * (u64::from(value_width) + 1));
    let whole = keys.filter(|&keys| keys > 0 && keys.checked_rem(u64::from(key_width)) == Some(0));
    // A key head serves whole groups of value heads.
    let key_heads = whole.map(|keys| (keys / u64::from(key_width)) as u32);
    Ok(key_heads.filter(|key_heads| heads % key_heads == 0))
}

pub fn gated_delta_net_replay(c: &Context<'_>) -> Outputs {
    c.count(4)?;
    let state = c.state(0, StateKind::PerSlot, 4)?;
    c.sequences(2)?;
    c.rollback(3, 2)?;
    if state.dtype != DType::F32 || records(c, 1, state)?.is_none() {
        return Err(format!("the state is {} {} and does not fit the records", state.dtype, state.shape));
    }
    Ok(Vec::new())
}

pub fn select_rows(c: &Context<'_>) -> Outputs {
    c.count(2)?;
    let x = c.elements(0)?;
    let rows = c.indices(1, 1)?;
    if x.shape.rank() < 2 {
        return Err("x must have at least 2 dimensions".into());
    }
    Ok(vec![Output { dtype: DType::F32, shape: x.shape.with_first(rows.shape.first()), live: rows.live }])
}

pub fn lookup(c: &Context<'_>) -> Outputs {
    c.count(2)?;
    let ids = c.indices(0, 1)?;
    let table = c.value(1)?;
    if table.kind != ValueKind::Weight || table.dtype != DType::I32 || table.shape.rank() != 1 {
        return Err("the table must be a weight i32 [K]".into());
    }
    Ok(vec![shaped(DType::I32, &[ids.shape.first()], ids.live)?])
}

fn logits<'a>(c: &'a Context<'_>) -> Result<&'a Value, String> {
    c.count(1)?;
    let x = c.elements(0)?;
    if x.shape.rank() != 2 {
        return Err("x must be [M,V]".into());
    }
    Ok(x)
}

pub fn argmax(c: &Context<'_>) -> Outputs {
    let x = logits(c)?;
    Ok(vec![shaped(DType::I32, &[x.shape.first()], x.live)?, faults()?])
}

pub fn draw(c: &Context<'_>) -> Outputs {
    let has_tokens = c.attributes.integer("tokens") != 0;
    c.count(2 + usize::from(has_tokens))?;
    let x = c.elements(0)?;
    if x.shape.rank() != 2 {
        return Err("x must be [M,V]".into());
    }
    let noise = c.indices(1, 2)?;
    if noise.shape.dims() != [x.shape.first(), 4] {
        return Err(format!("the noise must be i32 [{}, 4]", x.shape.first()));
    }
    if has_tokens {
        let tokens = c.value(2)?;
        let fits = tokens.dtype == DType::I32 && tokens.shape.dims() == [x.shape.last()];
        if tokens.kind != ValueKind::Weight || !fits {
            return Err(format!("the tokens must be a weight i32 [{}]", x.shape.last()));
        }
    }
    Ok(vec![shaped(DType::I32, &[x.shape.first()], x.live)?, faults()?])
}

pub fn top_k(c: &Context<'_>) -> Outputs {
    let x = logits(c)?;
    let k = dimension(c.attributes.integer("k"))?;
    if k > x.shape.last() {
        return Err(format!("k = {k} is more than {}", x.shape.last()));
    }
    let dims = [x.shape.first(), k];
    Ok(vec![shaped(DType::I32, &dims, x.live)?, shaped(DType::F32, &dims, x.live)?])
}

pub fn route(c: &Context<'_>) -> Outputs {
    if !["softmax", "sigmoid"].contains(&c.attributes.text("scoring")) {
        return Err("the scoring must be softmax or sigmoid".into());
    }
    top_k(c)
}

/// The dimensions of a weight of one matrix per expert.
fn matrices(c: &Context<'_>, index: usize) -> Result<[u32; 3], String> {
    let value = c.value(index)?;
    match (value.kind, value.shape.dims()) {
        (ValueKind::Weight, &[experts, rows, columns]) => Ok([experts, rows, columns]),
        _ => Err(format!("input {index} must be a weight of 3 dimensions")),
    }
}

pub fn experts(c: &Context<'_>) -> Outputs {
    c.count(6)?;
    gated_kind(c)?;
    let x = c.elements(0)?;
    let [gate, up, down] = [matrices(c, 1)?, matrices(c, 2)?, matrices(c, 3)?];
    let [experts, inner, width] = gate;
    if x.shape.rank() != 2 || x.shape.last() != width || up != gate || down != [experts, width, inner] {
        return Err(format!("x {}, gate {gate:?}, up {up:?} and down {down:?} do not fit", x.shape));
    }
    let ids = c.indices(4, 2)?;
    let weights = c.elements_of(5, ids.shape.dims())?;
    if ids.shape.first() != x.shape.first() || ids.live != x.live || weights.live != x.live {
        return Err("ids, weights and x differ in their rows".into());
    }
    Ok(vec![like(x)])
}
