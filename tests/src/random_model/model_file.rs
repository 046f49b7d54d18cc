//! Writing a GGUF file tensor by tensor, so that a big model needs no memory.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use paceline_conformance::quant::quantize;
use paceline_gguf::Writer;
use paceline_plugin_api::graph::DType;

use super::generator::Generator;
use super::random_blocks::{fill_blocks, has_random_blocks};
use super::weight_types::WeightTypes;
use crate::AnyError;

/// Tensors start at multiples of this many bytes, GGUF's default.
const ALIGNMENT: usize = 32;
/// Where the number of tensors stands in a GGUF file.
const TENSOR_COUNT: std::ops::Range<usize> = 8..16;

/// Standard deviation of an embedding's values.
pub(super) const STREAM: f32 = 0.25;
/// What the layers add is half as large as the embedding. If it were larger, as with a small embedding, rounding of
/// weights or activations would grow from layer to layer until nothing is left to compare (Gated DeltaNet normalises
/// its reads, which can be nearly 0 at the first tokens).
pub(super) const BRANCH: f32 = STREAM / 2.0;

/// How the values of a model come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// Normal numbers, stored as the type demands.
    Normal,
    /// Random bytes that are valid blocks with small scales: much faster, for models that are only timed.
    RandomBlocks,
}

/// The distribution of a tensor's values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values {
    Normal {
        deviation: f32,
    },
    /// 1 plus normal numbers of deviation 0.05: norm weights.
    AroundOne,
    /// The same with random signs.
    AroundPlusMinusOne,
    Between {
        low: f32,
        high: f32,
    },
}

impl Values {
    fn next(self, generator: &mut Generator) -> f32 {
        match self {
            Values::Normal { deviation } => (generator.normal() * f64::from(deviation)) as f32,
            Values::AroundOne => (1.0 + 0.05 * generator.normal()) as f32,
            Values::AroundPlusMinusOne => {
                let sign = if generator.bits() & 1 == 0 { 1.0 } else { -1.0 };
                sign * Values::AroundOne.next(generator)
            }
            Values::Between { low, high } => {
                (f64::from(low) + generator.unit() * f64::from(high - low)) as f32
            }
        }
    }
}

struct Tensor {
    name: String,
    /// The contiguous dimension first.
    dims: Vec<u64>,
    dtype: DType,
    values: Values,
}

impl Tensor {
    /// Rows and the bytes of one.
    fn rows(&self) -> (u64, usize) {
        let (elements, bytes) = self.dtype.block().unwrap_or_else(|| panic!("unknown {}", self.dtype));
        assert!(self.dims[0].is_multiple_of(elements.into()), "{}: rows are not whole blocks", self.name);
        let row = self.dims[0] / u64::from(elements) * u64::from(bytes);
        (self.dims[1..].iter().product(), row as usize)
    }

    fn write(&self, seed: u64, source: ValueSource, out: &mut impl Write) -> Result<(), AnyError> {
        let mut generator = Generator::new(seed, &self.name);
        let (rows, row_bytes) = self.rows();
        match (source, self.values) {
            (ValueSource::RandomBlocks, Values::Normal { deviation }) if has_random_blocks(self.dtype) => {
                let mut row = vec![0; row_bytes];
                for _ in 0..rows {
                    fill_blocks(self.dtype, deviation, &mut generator, &mut row);
                    out.write_all(&row)?;
                }
            }
            _ => {
                let mut row = vec![0.0; self.dims[0] as usize];
                for _ in 0..rows {
                    row.fill_with(|| self.values.next(&mut generator));
                    out.write_all(&quantize(self.dtype, &row)?)?;
                }
            }
        }
        let written = rows as usize * row_bytes;
        out.write_all(&vec![0; written.next_multiple_of(ALIGNMENT) - written])?;
        Ok(())
    }
}

/// A file to be written: metadata, and what its tensors shall hold.
pub(super) struct ModelFile {
    /// Metadata only.
    pub header: Writer<'static>,
    tensors: Vec<Tensor>,
    weights: WeightTypes,
    blocks: u32,
    seed: u64,
    source: ValueSource,
}

impl ModelFile {
    pub fn new(
        architecture: &str,
        weights: WeightTypes,
        blocks: u32,
        seed: u64,
        source: ValueSource,
    ) -> Self {
        let mut header = Writer::new(architecture);
        header.metadata("general.name", format!("random-{architecture}"));
        if let Some(file_type) = weights.file_type() {
            header.metadata("general.file_type", file_type);
        }
        header.metadata(format!("{architecture}.block_count"), blocks);
        ModelFile { header, tensors: Vec::new(), weights, blocks, seed, source }
    }

    /// A matrix from `inputs` to `outputs` values, normal with deviation 1/sqrt(inputs): it keeps the size of what
    /// it is applied to.
    pub fn matrix(&mut self, name: String, inputs: u32, outputs: u32) {
        self.matrix_of(name, inputs, outputs, 1.0 / (inputs as f32).sqrt());
    }

    /// A matrix whose inputs have deviation 1 and whose outputs are added to the residual stream.
    pub fn branch_output(&mut self, name: String, inputs: u32, outputs: u32) {
        self.matrix_of(name, inputs, outputs, BRANCH / (inputs as f32).sqrt());
    }

    /// A matrix with that deviation.
    pub fn matrix_of(&mut self, name: String, inputs: u32, outputs: u32, deviation: f32) {
        let dtype = self.weights.of(&name, inputs.into(), self.blocks);
        let dims = vec![inputs.into(), outputs.into()];
        self.tensors.push(Tensor { name, dims, dtype, values: Values::Normal { deviation } });
    }

    /// Matrices of experts: inputs and outputs of one, and their number. `gain` is what a matrix makes of the size of its
    /// inputs.
    pub fn experts(&mut self, name: String, dims: [u32; 3], gain: f32) {
        let dtype = self.weights.of(&name, dims[0].into(), self.blocks);
        let values = Values::Normal { deviation: gain / (dims[0] as f32).sqrt() };
        self.tensors.push(Tensor { name, dims: dims.map(u64::from).to_vec(), dtype, values });
    }

    pub fn norm(&mut self, name: String, length: u32) {
        self.floats(name, &[length], Values::AroundOne);
    }

    /// The norm before the output head. With positive weights only, a head that is the embedding would find the last
    /// token the most likely one: it is the largest part of the residual stream.
    pub fn output_norm(&mut self, name: String, length: u32) {
        self.floats(name, &[length], Values::AroundPlusMinusOne);
    }

    pub fn floats(&mut self, name: String, dims: &[u32], values: Values) {
        let dims = dims.iter().map(|dim| u64::from(*dim)).collect();
        self.tensors.push(Tensor { name, dims, dtype: DType::F32, values });
    }

    pub fn write_to(&self, out: &mut impl Write) -> Result<(), AnyError> {
        out.write_all(&self.tables()?)?;
        self.tensors.iter().try_for_each(|tensor| tensor.write(self.seed, self.source, out))
    }

    pub fn write_file(&self, path: &Path) -> Result<(), AnyError> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        self.write_to(&mut out)?;
        Ok(out.flush()?)
    }

    /// The file with a hole in place of the weights, which reads as zeros and takes no room on the disk.
    pub fn write_empty(&self, path: &Path) -> Result<(), AnyError> {
        let tables = self.tables()?;
        let size = |tensor: &Tensor| {
            let (rows, row_bytes) = tensor.rows();
            (rows * row_bytes as u64).next_multiple_of(ALIGNMENT as u64)
        };
        let weights: u64 = self.tensors.iter().map(size).sum();
        let mut file = File::create(path)?;
        file.write_all(&tables)?;
        Ok(file.set_len(tables.len() as u64 + weights)?)
    }

    /// Everything before the tensor data. The writer of `paceline-gguf` wants all tensor bytes at hand, so it makes
    /// the metadata only, and the table of tensors is added here.
    fn tables(&self) -> Result<Vec<u8>, AnyError> {
        let mut tables = Vec::new();
        // The last value is text, so zeros at the end are padding and can go.
        self.header
            .clone()
            .metadata("general.description", "Random weights, for tests.")
            .write_to(&mut tables)?;
        while tables.last() == Some(&0) {
            tables.pop();
        }
        tables[TENSOR_COUNT].copy_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        let mut offset = 0_u64;
        for tensor in &self.tensors {
            tables.extend((tensor.name.len() as u64).to_le_bytes());
            tables.extend(tensor.name.as_bytes());
            tables.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|dim| tables.extend(dim.to_le_bytes()));
            tables.extend(tensor.dtype.0.to_le_bytes());
            tables.extend(offset.to_le_bytes());
            let (rows, row_bytes) = tensor.rows();
            offset += (rows * row_bytes as u64).next_multiple_of(ALIGNMENT as u64);
        }
        tables.resize(tables.len().next_multiple_of(ALIGNMENT), 0);
        Ok(tables)
    }
}
