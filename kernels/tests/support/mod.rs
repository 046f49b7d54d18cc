//! Memory for kernels that run on the host, and comparison with the reference executor.
#![allow(dead_code)]

pub mod weights;

use paceline_conformance::ReferenceExecutor;
use paceline_conformance::block::{ParameterBlock, ResultData, result};
use paceline_conformance::suite::compare_values;
use paceline_conformance::suite::tolerance::Tolerance;
use paceline_kernels::host;
use paceline_kernels::params::{Parameters, View};
use paceline_plugin_api::graph::{Attribute, Builder, Graph, ValueId};

/// Wave widths of the GPUs that there are; 16 finds nothing that 8 does not.
pub const WAVES: [u32; 3] = [8, 32, 64];
/// What memory holds that nobody wrote: a NaN, and an index that is out of range everywhere.
const GARBAGE: u32 = 0x7FC0_DEAD;

/// Words in memory that begins `offset` words after a multiple of 16 bytes, and behind which nothing may be read: a page
/// follows that ends the process. Up to three words of garbage may lie between.
pub struct Buffer {
    pages: *mut u8,
    pages_bytes: usize,
    begin: usize,
    count: usize,
}

impl Buffer {
    pub fn garbage(count: usize, offset: usize) -> Self {
        const PAGE: usize = 4096;
        let bytes = ((count + offset) * 4).next_multiple_of(16);
        let pages_bytes = bytes.next_multiple_of(PAGE) + PAGE;
        // SAFETY: new pages, at an address that the system chooses.
        let pages = unsafe {
            let (access, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), pages_bytes, access, kind, -1, 0)
        };
        assert_ne!(pages, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        let pages: *mut u8 = pages.cast();
        // SAFETY: the last of the pages.
        let protected =
            unsafe { libc::mprotect(pages.add(pages_bytes - PAGE).cast(), PAGE, libc::PROT_NONE) };
        assert_eq!(protected, 0, "{}", std::io::Error::last_os_error());
        let start = pages_bytes - PAGE - bytes;
        // SAFETY: aligned words of the pages before the last.
        unsafe { std::slice::from_raw_parts_mut(pages.add(start).cast::<u32>(), bytes / 4) }.fill(GARBAGE);
        Self { pages, pages_bytes, begin: start + offset * 4, count }
    }

    pub fn words(values: impl ExactSizeIterator<Item = u32>) -> Self {
        let mut buffer = Self::garbage(values.len(), 0);
        buffer.slice_mut().iter_mut().zip(values).for_each(|(word, value)| *word = value);
        buffer
    }

    pub fn floats_at(values: &[f32], offset: usize) -> Self {
        let mut buffer = Self::garbage(values.len(), offset);
        buffer.slice_mut().iter_mut().zip(values).for_each(|(word, value)| *word = value.to_bits());
        buffer
    }

    pub fn of_floats(values: &[f32]) -> Self {
        Self::floats_at(values, 0)
    }

    /// `values` first, garbage behind them.
    pub fn of_floats_and_garbage(values: &[f32], count: usize) -> Self {
        let mut buffer = Self::garbage(count, 0);
        buffer.slice_mut().iter_mut().zip(values).for_each(|(word, value)| *word = value.to_bits());
        buffer
    }

    pub fn of_integers(values: &[i32]) -> Self {
        Self::words(values.iter().map(|&value| value as u32))
    }

    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(4), 0);
        let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        Self::words(padded.chunks_exact(4).map(word))
    }

    pub fn address(&self) -> u64 {
        self.pages as u64 + self.begin as u64
    }

    fn slice(&self) -> &[u32] {
        // SAFETY: aligned words of the buffer's pages; any bits are a u32.
        unsafe { std::slice::from_raw_parts(self.pages.add(self.begin).cast(), self.count) }
    }

    fn slice_mut(&mut self) -> &mut [u32] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.pages.add(self.begin).cast(), self.count) }
    }

    pub fn floats(&self) -> Vec<f32> {
        self.slice().iter().map(|&word| f32::from_bits(word)).collect()
    }

    pub fn integers(&self) -> Vec<i32> {
        self.slice().iter().map(|&word| word as i32).collect()
    }

    pub fn bits(&self) -> Vec<u32> {
        self.slice().to_vec()
    }

    pub fn bytes(&self, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.slice().iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(length);
        bytes
    }

    pub fn view(&self, items: u32, width: u32) -> View {
        View::dense(self.address(), items, width)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the pages are this buffer's, and no slice of them outlives it.
        unsafe { libc::munmap(self.pages.cast(), self.pages_bytes) };
    }
}

/// Runs a kernel.
#[track_caller]
pub fn run(parameters: &impl Parameters, wave: u32) {
    // SAFETY: tests give addresses of buffers that live to the end of the call and are as long as they say.
    if let Err(what) = unsafe { host::run(parameters, wave) } {
        panic!("{what}");
    }
}

/// A value that is not live: what lies behind the last live row.
pub fn is_garbage(word: u32) -> bool {
    word == GARBAGE
}

/// The results of a graph by the reference executor, by name.
pub struct Expected<'g> {
    graph: &'g Graph,
    parameters: Vec<u8>,
    results: Vec<u8>,
}

impl<'g> Expected<'g> {
    pub fn of(graph: &'g Graph, weights: Vec<Vec<u8>>, fill: impl FnOnce(&mut ParameterBlock<'_>)) -> Self {
        let mut executor = ReferenceExecutor::new(graph, weights).expect("a graph that the reference knows");
        let mut block = ParameterBlock::new(graph);
        fill(&mut block);
        let results = executor.run(block.bytes()).expect("parameters in range");
        Self { graph, parameters: block.into_bytes(), results }
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        match result(self.graph, &self.parameters, &self.results, name) {
            ResultData::Floats(values) => values,
            ResultData::Integers(_) => panic!("`{name}` is not f32"),
        }
    }

    pub fn integers(&self, name: &str) -> Vec<i32> {
        match result(self.graph, &self.parameters, &self.results, name) {
            ResultData::Integers(values) => values,
            ResultData::Floats(_) => panic!("`{name}` is not i32"),
        }
    }
}

/// Compares rows of `width` elements.
#[track_caller]
pub fn check(what: &str, given: &[f32], expected: &[f32], width: u32, tolerance: Tolerance) {
    if let Err(error) = compare_values(expected, given, width as usize, tolerance) {
        panic!("{what}: {error}");
    }
}

/// Little-endian bytes of f32.
pub fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Adds a node and gives its first output.
pub fn node(
    b: &mut Builder,
    operation: &str,
    inputs: &[ValueId],
    attributes: &[(&str, Attribute)],
) -> ValueId {
    let attributes = attributes.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    b.node(operation, 1, inputs, attributes).expect("a node that the operation allows")[0]
}
