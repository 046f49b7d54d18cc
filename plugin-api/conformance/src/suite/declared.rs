//! Weight types that the plugin declares: their reader, and `embed` and `linear` on them, compared with the reference
//! executor on the values that the reader gives.

use super::samples::{RowSample, declared_samples};
use super::{CaseError, Context, rows, wrong};
use crate::harness::HarnessError;
use crate::quant;
use crate::random::Random;
use paceline_plugin_api::ErrorKind;
use paceline_plugin_api::client::WeightTypesClient;
use paceline_plugin_api::graph::{DType, Graph};
use paceline_plugin_api::weight_types::WeightType;

/// Group of the cases that are about the reader.
const GROUP: &str = "weight_types";
/// Blocks that are read in a case.
const BLOCKS: usize = 5;
/// Random blocks are drawn so often before one of zeros is taken: most bytes may be no finite values.
const DRAWS: usize = 16;

/// A declared type with its reader.
#[derive(Clone)]
pub(super) struct Declared {
    pub kind: WeightType,
    reader: WeightTypesClient,
}

/// Runs all cases of the types that the options name.
pub(super) fn run(context: &mut Context<'_>) {
    let options = context.options;
    for kind in &options.weight_types {
        if let Err(what) = kind.check() {
            context.record(GROUP, &format!("{} can be", kind.name), wrong(what));
            continue;
        }
        let Some(reader) = options.weight_type_reader else {
            let what = format!(
                "the plugin declares it and offers no interface {}",
                paceline_plugin_api::abi::WEIGHT_TYPES_INTERFACE
            );
            context.record(GROUP, &format!("{} has a reader", kind.name), wrong(what));
            continue;
        };
        let declared = Declared { kind: kind.clone(), reader };
        if context.wants(GROUP) {
            for (name, case) in CASES {
                let result = case(context, &declared).map(|()| 0.0);
                context.record(GROUP, &format!("{} {name}", kind.name), result);
            }
        }
        for sample in declared_samples(options.seed, &declared) {
            if context.wants(sample.operation) {
                rows::run(context, &sample);
            }
        }
    }
}

/// One case about a type.
type Case = (&'static str, fn(&Context<'_>, &Declared) -> Result<(), CaseError>);

const CASES: &[Case] = &[
    ("is read block by block, always to the same bits", reads_blocks),
    ("is not read where lengths do not fit", refuses_lengths),
    ("is read under its own id only", refuses_other_ids),
    ("is written so that it can be read", writes),
    ("is taken by an operation", is_taken),
];

fn reads_blocks(context: &Context<'_>, declared: &Declared) -> Result<(), CaseError> {
    let mut random = Random::named(context.options.seed, &declared.kind.name);
    let bytes = declared.random_bytes(BLOCKS, &mut random);
    let whole = declared.read(&bytes)?;
    if whole.iter().any(|value| !value.is_finite()) {
        return wrong("no bytes were found, and not zeros either, that are finite values");
    }
    let single: Result<Vec<Vec<f32>>, CaseError> =
        bytes.chunks_exact(declared.block().1).map(|block| declared.read(block)).collect();
    match super::compare::first_difference(&whole, &single?.concat()) {
        None => Ok(()),
        Some(what) => wrong(format!("blocks together and one by one: {what}")),
    }
}

fn refuses_lengths(_: &Context<'_>, declared: &Declared) -> Result<(), CaseError> {
    let (elements, bytes) = declared.block();
    for (given, places) in
        [(bytes * 2, elements), (bytes, elements * 2), (bytes + 1, elements), (bytes - 1, elements)]
    {
        let mut out = vec![0.0; places];
        if declared.reader.dequantize(declared.dtype(), &vec![0; given], &mut out).is_ok() {
            return wrong(format!("{given} bytes were read into {places} places"));
        }
    }
    Ok(())
}

fn refuses_other_ids(context: &Context<'_>, declared: &Declared) -> Result<(), CaseError> {
    let taken = |id: &u32| context.options.weight_types.iter().any(|other| other.id == *id);
    let other = (declared.kind.id..).find(|id| !taken(id)).unwrap_or(0);
    let (elements, bytes) = declared.block();
    match declared.reader.dequantize(DType(other), &vec![0; bytes], &mut vec![0.0; elements]) {
        Ok(()) => wrong(format!("type {other}, which is not declared, was read")),
        Err(_) => Ok(()),
    }
}

fn writes(context: &Context<'_>, declared: &Declared) -> Result<(), CaseError> {
    let (elements, bytes) = declared.block();
    let values = Random::named(context.options.seed, "writes").floats(BLOCKS * elements, 1.0);
    let mut written = vec![0; BLOCKS * bytes];
    match declared.reader.quantize(declared.dtype(), &values, &mut written) {
        Err(error) if error.kind == ErrorKind::Unsupported => Err(CaseError::NotOffered(error.message)),
        Err(error) => wrong(format!("quantize: {error}")),
        Ok(()) if declared.read(&written)?.iter().all(|value| value.is_finite()) => Ok(()),
        Ok(()) => wrong("finite values come back as others"),
    }
}

/// A backend may refuse an operation on a type of its own, but not all.
fn is_taken(context: &Context<'_>, declared: &Declared) -> Result<(), CaseError> {
    let mut reasons = Vec::new();
    for sample in declared_samples(context.options.seed, declared) {
        let plan = context.bench.plan(&sample.graph(1));
        match plan.map(|plan| plan.summary().refusal().map(|(_, reason)| reason.to_owned())) {
            Ok(None) => return Ok(()),
            Ok(Some(reason)) | Err(HarnessError::Refused(reason)) => reasons.push(reason),
            Err(error) => return Err(error.into()),
        }
    }
    wrong(format!("it is declared, and refused: {}", reasons.first().map_or("", String::as_str)))
}

impl Declared {
    pub fn dtype(&self) -> DType {
        self.kind.dtype()
    }

    /// Elements and bytes of a block.
    fn block(&self) -> (usize, usize) {
        (self.kind.elements as usize, self.kind.bytes as usize)
    }

    fn read(&self, bytes: &[u8]) -> Result<Vec<f32>, CaseError> {
        let (elements, block_bytes) = self.block();
        let mut out = vec![0.0; bytes.len() / block_bytes * elements];
        match self.reader.dequantize(self.dtype(), bytes, &mut out) {
            Ok(()) => Ok(out),
            Err(error) => wrong(format!("dequantize: {error}")),
        }
    }

    /// Bytes that come near to the values, or random ones if the plugin cannot write.
    pub fn write(&self, values: &[f32], random: &mut Random) -> Vec<u8> {
        let (elements, bytes) = self.block();
        let mut out = vec![0; values.len() / elements * bytes];
        match self.reader.quantize(self.dtype(), values, &mut out) {
            Ok(()) => out,
            Err(_) => self.random_bytes(values.len() / elements, random),
        }
    }

    /// Blocks of random bytes that are finite values.
    fn random_bytes(&self, blocks: usize, random: &mut Random) -> Vec<u8> {
        let is_usable = |block: &Vec<u8>| {
            self.read(block).is_ok_and(|values| values.iter().all(|value| value.abs() < 1e6))
        };
        let bytes = self.block().1;
        (0..blocks)
            .flat_map(|_| {
                let mut draw = || (0..bytes).map(|_| random.bits() as u8).collect::<Vec<u8>>();
                (0..DRAWS).map(|_| draw()).find(is_usable).unwrap_or_else(|| vec![0; bytes])
            })
            .collect()
    }

    /// What the reference executor computes in place of a graph with this type: the same graph with the values that
    /// the reader gives.
    pub fn in_floats(
        &self,
        graph: &Graph,
        weights: Vec<Vec<u8>>,
    ) -> Result<(Graph, Vec<Vec<u8>>), CaseError> {
        let own = self.dtype();
        let read = |(id, bytes): (_, Vec<u8>)| {
            if graph.value(id).dtype != own {
                return Ok(bytes);
            }
            let values = self.read(&bytes)?;
            quant::quantize(DType::F32, &values).or_else(|error| wrong(error.to_string()))
        };
        let weights = graph.weights().zip(weights).map(read).collect::<Result<_, CaseError>>()?;
        let floats = graph.rewritten(
            |value| {
                if value.dtype == own {
                    value.dtype = DType::F32;
                }
            },
            |_| (),
        );
        Ok((floats, weights))
    }
}

impl RowSample {
    /// Graph and weights for the reference executor.
    pub(super) fn for_reference(
        &self,
        graph: &Graph,
        weights: Vec<Vec<u8>>,
    ) -> Result<(Graph, Vec<Vec<u8>>), CaseError> {
        match &self.declared {
            Some(declared) => declared.in_floats(graph, weights),
            None => Ok((graph.clone(), weights)),
        }
    }
}
