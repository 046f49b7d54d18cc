//! No small file makes the reader allocate much: counted by the allocator of this test program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use paceline_gguf::{Gguf, Writer, verify_bytes};

#[path = "reader/common.rs"]
mod common;

use common::*;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system allocator unchanged; counting touches two atomics only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes held at once during `work`, beyond those held before.
fn peak_of(work: impl FnOnce()) -> usize {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    work();
    PEAK.load(Ordering::Relaxed) - before
}

/// Small files that ask for much.
fn greedy_files() -> Vec<Vec<u8>> {
    let mut files = vec![toy()];
    // Around every limit, since a count within the limits is the more dangerous one.
    let counts = HUGE.into_iter().chain([60_000, 65_536, 900_000, 1_000_000, 1 << 24, 1 << 31]);
    for count in counts {
        files.push(header(3, 0, count));
        files.push(header(3, count, 0));
        files.push([header(3, count, count), vec![0; 4000]].concat());
        files.push(file(&[entry("text", TYPE_STRING, &count.to_le_bytes())], &[], 0));
        for element_type in 0..13 {
            files.push(file(&[array_entry("list", element_type, count, &[0; 64])], &[], 0));
        }
        files.push(file(&[], &[tensor("t", &[count, count], 0, 0)], 32));
        files.push(file(&[], &[tensor("t", &[32], 0, count)], 32));
        files.push(file(&[entry("split.count", 10, &count.to_le_bytes())], &[], 0));
        files.push(file(&[entry("general.alignment", TYPE_U32, &(count as u32).to_le_bytes())], &[], 0));
    }
    // As many table entries as fit, all of them faulty.
    let tensors: Vec<_> = (0..110).map(|_| tensor("", &[0], 0, 7)).collect();
    files.push(file(&[], &tensors, 32));
    let keys: Vec<_> = (0..310).map(|_| entry("", 0, &[0])).collect();
    files.push(file(&keys, &[], 0));
    // Every field of a valid file, made large.
    for at in 8..toy().len() - 8 {
        let mut bytes = toy();
        bytes[at..at + 8].copy_from_slice(&65_000_u64.to_le_bytes());
        files.push(bytes);
    }
    files
}

/// One test, so that no other thread allocates meanwhile.
#[test]
fn memory_is_bounded_by_the_file() {
    for bytes in greedy_files() {
        assert!(bytes.len() <= 4096 + 32, "{} bytes", bytes.len());
        let copies = [bytes.clone(), bytes.clone()];
        let peak = peak_of(|| {
            let [first, second] = copies;
            drop(Gguf::from_bytes(first));
            drop(verify_bytes(second));
        });
        // Required are 64 MiB; a file of 4 KiB has no business with more than some hundred KiB.
        assert!(peak < 512 << 10, "{peak} bytes for {:?}", &bytes[..bytes.len().min(100)]);
    }

    let tokens: Vec<String> = (0..250_000).map(|id| format!("token{id}")).collect();
    let mut writer = Writer::new("toy");
    writer.metadata("tokenizer.ggml.tokens", tokens);
    let bytes = bytes_of(&writer);
    let peak = peak_of(|| drop(Gguf::from_bytes(bytes)));
    assert!(peak < 4096, "a vocabulary stays in the file's bytes, but opening it took {peak}");

    let mut writer = Writer::new("toy");
    for index in 0..100_000 {
        writer.tensor(format!("blk.{index}"), &[1], paceline_gguf::TensorType::I8, &[0][..]);
    }
    let bytes = bytes_of(&writer);
    let peak = peak_of(|| drop(Gguf::from_bytes(bytes)));
    // A million tensors, the most accepted, then take less than 64 MiB beyond their table.
    assert!(peak < 10_000_000, "{peak} bytes for 100,000 tensors");
}
