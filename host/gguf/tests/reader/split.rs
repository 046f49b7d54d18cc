//! Split models: finding their files, and files that do not belong together.

use std::fs;
use std::path::{Path, PathBuf};

use paceline_gguf::{Gguf, OpenOptions, TensorType, Value, Writer, verify};

use crate::common::{bytes_of, toy, toy_writer};

fn open(path: &Path) -> paceline_gguf::Result<Gguf> {
    Gguf::open(path, &OpenOptions::default())
}

#[track_caller]
fn refusal(path: &Path) -> String {
    let message = open(path).expect_err("the model must be refused").to_string();
    assert!(!verify(path).is_ok(), "verify finds a fault: {message}");
    message
}

fn split_toy(folder: &Path) -> Vec<PathBuf> {
    toy_writer().write_split(folder, "toy", 3).unwrap()
}

/// A file that claims to be part `number` (from 0) of `count`, holding one tensor of `total`.
fn part(number: u16, count: u16, total: i32, tensor: &str) -> Vec<u8> {
    let mut writer = Writer::new("toy");
    writer
        .metadata("split.no", number)
        .metadata("split.count", count)
        .metadata("split.tensors.count", total)
        .tensor(tensor, &[8], TensorType::F32, vec![0; 32]);
    bytes_of(&writer)
}

#[test]
fn any_part_opens_the_whole_model() {
    let folder = tempfile::tempdir().unwrap();
    // A folder named like a part must not be taken for one.
    let folder = folder.path().join("toy-00001-of-00013");
    fs::create_dir(&folder).unwrap();
    let whole = Gguf::from_bytes(toy()).unwrap();
    for path in split_toy(&folder) {
        let model = open(&path).unwrap();
        assert_eq!(model.origins().len(), 3);
        assert_eq!(model.architecture().unwrap(), "toy");
        assert_eq!(model.tensor_count(), whole.tensor_count());
        for tensor in whole.tensors() {
            let same = model.require_tensor(tensor.name).unwrap();
            assert_eq!(model.tensor_bytes(&same).unwrap(), whole.tensor_bytes(&tensor).unwrap());
        }
        let report = verify(&path);
        assert!(report.is_ok(), "{report}");
        assert_eq!(report.files.len(), 3);
    }
}

#[test]
fn a_relative_path_without_folder_is_looked_up_here() {
    let missing = refusal(Path::new("no-such-model-00001-of-00002.gguf"));
    assert!(missing.contains("no-such-model-00002-of-00002.gguf"), "{missing}");
}

#[test]
fn missing_parts_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let paths = split_toy(folder.path());
    // Part 1 is damaged as well: the missing part is named before anything is read.
    fs::write(&paths[0], "<!DOCTYPE html>").unwrap();
    fs::remove_file(&paths[1]).unwrap();
    let message = refusal(&paths[2]);
    assert!(message.contains("1 is missing: toy-00002-of-00003.gguf"), "{message}");

    let lone = folder.path().join("m-00009-of-04000.gguf");
    fs::write(&lone, toy()).unwrap();
    let message = refusal(&lone);
    assert!(message.contains("3999 are missing: m-00001-of-04000.gguf"), "{message}");
    assert!(message.contains(", ..."), "{message}");
    let absurd = folder.path().join("m-00009-of-99999.gguf");
    fs::write(&absurd, toy()).unwrap();
    assert!(refusal(&absurd).contains("one of 99999 files"));
}

#[test]
fn names_that_are_no_parts_are_whole_files() {
    let folder = tempfile::tempdir().unwrap();
    for name in
        ["m-00001-of-00001.gguf", "best-of-breed.gguf", "m-00000-of-00003.gguf", "m-00004-of-00003.gguf"]
    {
        let path = folder.path().join(name);
        fs::write(&path, toy()).unwrap();
        assert_eq!(open(&path).unwrap().origins().len(), 1, "{name}");
    }
    let single = toy_writer().write_split(folder.path(), "single", 1).unwrap();
    assert_eq!(open(&single[0]).unwrap().tensor_count(), 3);
}

#[test]
fn a_part_alone_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = part(0, 3, 3, "a");
    for name in ["renamed.gguf", "m-00001-of-00001.gguf", "m-00000-of-00003.gguf"] {
        let path = folder.path().join(name);
        fs::write(&path, &bytes).unwrap();
        let message = refusal(&path);
        assert!(message.contains("'split.count' says this is one part of 3"), "{message}");
        assert!(message.contains("give the parts their names back"), "{message}");
    }
    let message = Gguf::from_bytes(bytes).unwrap_err().to_string();
    assert!(message.contains("merge the parts"), "{message}");
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let good = [part(0, 2, 2, "a"), part(1, 2, 2, "b")];
    for (parts, expected) in [
        ([part(1, 2, 2, "a"), good[1].clone()], "'split.no' is 1, but must be 0"),
        ([good[1].clone(), good[0].clone()], "'split.no' is 1, but must be 0"),
        ([good[0].clone(), part(1, 3, 2, "b")], "'split.count' is 3, but must be 2"),
        ([part(0, 2, 3, "a"), good[1].clone()], "'split.tensors.count' is 3, but must be 2"),
        ([good[0].clone(), part(1, 2, 9, "b")], "'split.tensors.count' is 9, but must be 2"),
        ([good[0].clone(), part(1, 2, 2, "a")], "tensor 'a' appears twice, also in"),
        ([good[0].clone(), toy()], "'split.count' is absent, but must be 2"),
        ([good[0].clone(), b"<!DOCTYPE html>".to_vec()], "m-00002-of-00002.gguf: not a GGUF file"),
        (
            [good[0].clone(), good[1][..good[1].len() - 1].to_vec()],
            "m-00002-of-00002.gguf: file seems cut short",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let paths = [1, 2].map(|index| folder.path().join(format!("m-0000{index}-of-00002.gguf")));
        for (path, bytes) in paths.iter().zip(&good) {
            fs::write(path, bytes).unwrap();
        }
        open(&paths[0]).expect("the good parts open");
        for (path, bytes) in paths.iter().zip(&parts) {
            fs::write(path, bytes).unwrap();
        }
        let message = refusal(&paths[0]);
        assert!(message.contains(expected), "{expected:?} is missing in: {message}");
    }
}

#[test]
fn split_keys_of_other_types_are_refused() {
    for value in [Value::from("two"), Value::from(-2_i32), Value::from(vec![2_u16])] {
        let mut writer = Writer::new("toy");
        writer.metadata("split.count", value);
        let message = Gguf::from_bytes(bytes_of(&writer)).unwrap_err().to_string();
        assert!(message.contains("key 'split.count'"), "{message}");
    }
}
