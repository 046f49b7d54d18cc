//! Files that are not GGUF, or not a GGUF we read.

use paceline_gguf::{Fault, Gguf, Load, OpenOptions};

use crate::common::{HUGE, assert_refused, header, toy};

#[test]
fn other_files_are_recognised() {
    let mut safetensors = 64_u64.to_le_bytes().to_vec();
    safetensors.extend(b"{\"a\":1}");
    for (bytes, expected) in [
        (&b""[..], "an empty file"),
        (&[0; 100], "zeros"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"\xef\xbb\xbf\n  <html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "git lfs pull"),
        (b"{\"error\":\"not found\"}", "JSON"),
        (b"PK\x03\x04....", "zip"),
        (b"tjgg\x03\0\0\0", "format before GGUF"),
        (&safetensors, "safetensors"),
        (b"Invalid username", "\"Inva\""),
        (b"\x1b[2J", "\\u{1b}"),
        (b"FUGG\0\0\0\x03", "byte-swapped"),
    ] {
        assert_refused(bytes.to_vec(), &[expected, "byte 0"]);
    }
}

#[test]
fn only_versions_2_and_3_are_read() {
    for version in [2, 3] {
        let mut bytes = toy();
        bytes[4..8].copy_from_slice(&u32::to_le_bytes(version));
        assert_eq!(Gguf::from_bytes(bytes).unwrap().version(), version);
    }
    for (version, expected) in [
        (0, "version 0 (at byte 4)"),
        (1, "convert the model again"),
        (4, "newer than this program"),
        (u32::MAX, "version 4294967295"),
        (0x0300_0000, "big-endian GGUF file (version field at byte 4 reads 0x03000000)"),
        (0x0200_0000, "big-endian"),
    ] {
        assert_refused(header(version, 0, 0), &[expected]);
        assert_eq!(crate::common::refusal(header(version, 0, 0)).lines().count(), 1);
    }
}

#[test]
fn huge_counts_are_refused() {
    for count in HUGE {
        assert_refused(header(3, 0, count), &["number of metadata keys at byte 16", &count.to_string()]);
        assert_refused(header(3, count, 0), &["number of tensors at byte 8", &count.to_string()]);
    }
    // Within the limits, but more than the file can hold.
    assert_refused(header(3, 0, 60_000), &["60000 metadata keys", "at byte 24", "cut short"]);
    assert_refused(header(3, 900_000, 0), &["900000 tensors", "at byte 24", "cut short"]);
}

#[test]
fn a_file_without_anything_is_whole() {
    let model = Gguf::from_bytes(header(3, 0, 0)).unwrap();
    assert_eq!((model.key_count(), model.tensor_count()), (0, 0));
    assert!(matches!(model.architecture().unwrap_err().fault(), Fault::MissingKey { .. }));
}

#[test]
fn every_way_of_loading_reads_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toy.gguf");
    std::fs::write(&path, toy()).unwrap();
    let models = [
        Gguf::open(&path, &OpenOptions { load: Load::Map, ..OpenOptions::default() }).unwrap(),
        Gguf::open(&path, &OpenOptions { load: Load::Read, ..OpenOptions::default() }).unwrap(),
        Gguf::from_bytes(toy()).unwrap(),
        Gguf::from_static(toy().leak()).unwrap(),
    ];
    for model in &models {
        assert_eq!(model.file_bytes(), toy().len() as u64);
        assert_eq!(model.architecture().unwrap(), "toy");
        let tensor = model.require_tensor("norm.weight").unwrap();
        assert_eq!(model.tensor_bytes(&tensor).unwrap(), [2; 32]);
    }
}

#[test]
fn errors_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.gguf");
    std::fs::write(&path, "<!DOCTYPE html>").unwrap();
    for load in [Load::Map, Load::Read] {
        let options = OpenOptions { load, ..OpenOptions::default() };
        let message = Gguf::open(&path, &options).unwrap_err().to_string();
        assert!(message.contains("page.gguf: not a GGUF file"), "{message}");
        std::fs::write(folder.path().join("empty.gguf"), "").unwrap();
        let message = Gguf::open(folder.path().join("empty.gguf"), &options).unwrap_err().to_string();
        assert!(message.contains("an empty file"), "{message}");
    }
    let message = Gguf::open(folder.path(), &OpenOptions::default()).unwrap_err().to_string();
    assert!(message.contains("not a regular file"), "{message}");
    let message =
        Gguf::open(folder.path().join("absent.gguf"), &OpenOptions::default()).unwrap_err().to_string();
    assert!(message.contains("absent.gguf: cannot open the file"), "{message}");
}
