//! The function that fuzzing and the mutation tests run on arbitrary bytes.

use paceline_gguf::{Array, Gguf, Numbers, Strings, verify_bytes};

/// Reads everything a file offers, by every accessor. Must not panic on any input.
pub fn touch_everything(bytes: &[u8]) {
    let report = verify_bytes(bytes.to_vec());
    let shown = report.to_string();
    assert!(!shown.contains('\u{1b}'), "no control characters in messages");
    let model = match Gguf::from_bytes(bytes.to_vec()) {
        Ok(model) => model,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(!report.is_ok(), "verify finds what open refuses: {error}");
            return;
        }
    };
    let keys: Vec<String> = model.entries().map(|(key, _)| key.to_owned()).collect();
    for key in &keys {
        touch_key(&model, key);
    }
    for tensor in model.tensors() {
        assert_eq!(model.tensor(tensor.name), Some(tensor));
        let size = tensor.tensor_type.byte_len(tensor.element_count());
        match model.tensor_bytes(&tensor) {
            Ok(bytes) => assert_eq!(Some(bytes.len() as u128), size),
            Err(error) => assert!(size.is_none(), "{error}"),
        }
    }
}

fn touch_key(model: &Gguf, key: &str) {
    let value = model.value(key).expect("listed keys are found");
    assert!(!value.to_string().contains('\u{1b}'));
    let integer = value.as_integer();
    assert_eq!(model.get_u32(key).is_ok(), integer.is_some_and(|it| u32::try_from(it).is_ok()));
    assert_eq!(model.get_i64(key).is_ok(), integer.is_some_and(|it| i64::try_from(it).is_ok()));
    let _ = (model.get_f32(key), model.get_bool(key), model.get_str(key), model.get_bytes(key));
    let Ok(Some(array)) = model.get::<Array<'_>>(key) else { return };
    assert_eq!(array.iter().count(), array.len());
    if let Ok(Some(strings)) = model.get::<Strings<'_>>(key) {
        assert_eq!(strings.len(), strings.count());
    }
    if let Ok(Some(bytes)) = model.array_bytes(key) {
        assert_eq!(bytes.count(), array.len());
    }
    if let Ok(Some(numbers)) = model.get::<Numbers<'_, i32>>(key) {
        assert_eq!(numbers.count(), array.len());
    }
    if let Ok(Some(numbers)) = model.array_f32(key) {
        assert_eq!(numbers.count(), array.len());
    }
}
