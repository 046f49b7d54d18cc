//! What is written comes back the same.

use paceline_gguf::{ArrayValue, Gguf, TensorType, Value, ValueRef, Writer};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::common::bytes_of;

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        any::<u16>().prop_map(Value::from),
        any::<i16>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        vec(any::<u8>(), 0..9).prop_map(Value::from),
        vec(any::<i16>(), 0..9).prop_map(Value::from),
        vec(any::<i32>(), 0..9).prop_map(Value::from),
        vec(any::<u64>(), 0..9).prop_map(Value::from),
        vec(any::<f32>(), 0..9).prop_map(Value::from),
        vec(any::<f64>(), 0..9).prop_map(Value::from),
        vec(any::<bool>(), 0..9).prop_map(Value::from),
        vec(".{0,9}", 0..9).prop_map(Value::from),
    ]
}

/// Rebuilds the value to write from the value read.
fn owned(value: ValueRef<'_>) -> Value {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text was written");
    match value {
        ValueRef::U8(value) => value.into(),
        ValueRef::I8(value) => value.into(),
        ValueRef::U16(value) => value.into(),
        ValueRef::I16(value) => value.into(),
        ValueRef::U32(value) => value.into(),
        ValueRef::I32(value) => value.into(),
        ValueRef::U64(value) => value.into(),
        ValueRef::I64(value) => value.into(),
        ValueRef::F32(value) => value.into(),
        ValueRef::F64(value) => value.into(),
        ValueRef::Bool(value) => value.into(),
        ValueRef::Str(bytes) => text(bytes).into(),
        ValueRef::Array(_) => unreachable!("arrays are compared by element"),
    }
}

fn elements(array: &ArrayValue) -> Vec<Value> {
    fn all<T: Clone + Into<Value>>(values: &[T]) -> Vec<Value> {
        values.iter().cloned().map(Into::into).collect()
    }
    match array {
        ArrayValue::U8(values) => all(values),
        ArrayValue::I8(values) => all(values),
        ArrayValue::U16(values) => all(values),
        ArrayValue::I16(values) => all(values),
        ArrayValue::U32(values) => all(values),
        ArrayValue::I32(values) => all(values),
        ArrayValue::U64(values) => all(values),
        ArrayValue::I64(values) => all(values),
        ArrayValue::F32(values) => all(values),
        ArrayValue::F64(values) => all(values),
        ArrayValue::Bool(values) => all(values),
        ArrayValue::Str(values) => all(values),
    }
}

type Tensor = (Vec<u64>, TensorType, Vec<u8>);

fn any_tensor() -> impl Strategy<Value = Tensor> {
    let types = prop::sample::select(TensorType::KNOWN.to_vec());
    (types, vec(1_u64..4, 1..5), any::<u8>()).prop_map(|(tensor_type, mut dims, fill)| {
        dims[0] *= tensor_type.layout().unwrap().block_elements;
        let size = tensor_type.byte_len(dims.iter().product()).unwrap();
        let bytes = (0..size).map(|index| fill.wrapping_add(index as u8)).collect();
        (dims, tensor_type, bytes)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn everything_written_is_read_back(
        metadata in btree_map("[a-z.é]{1,12}", any_value(), 0..12),
        tensors in btree_map("[a-z.0-9]{0,20}", any_tensor(), 0..6),
        alignment in prop::option::of((1_u32..9).prop_map(|units| units * 8)),
        shards in 1_u16..4,
    ) {
        let mut writer = Writer::new("toy");
        for (key, value) in &metadata {
            writer.metadata(key.as_str(), value.clone());
        }
        if let Some(alignment) = alignment {
            writer.alignment(alignment);
        }
        for (name, (dims, tensor_type, bytes)) in &tensors {
            writer.tensor(name.as_str(), dims, *tensor_type, bytes);
        }
        let folder = tempfile::tempdir().unwrap();
        let parts = writer.write_split(folder.path(), "toy", shards).unwrap();
        let whole = Gguf::from_bytes(bytes_of(&writer)).unwrap();
        let split = Gguf::open(&parts[0], &Default::default()).unwrap();
        for model in [&whole, &split] {
            prop_assert!(bytes_of(&Writer::copy_of(model).unwrap()) == bytes_of(&writer));
        }

        prop_assert!(whole.entries().map(|(key, _)| key).skip(1).take(metadata.len()).eq(metadata.keys()));
        for model in [&whole, &split] {
            for (key, value) in &metadata {
                match (model.value(key).unwrap(), value) {
                    (ValueRef::Array(read), Value::Array(written)) => {
                        prop_assert_eq!(read.iter().map(owned).collect::<Vec<_>>(), elements(written));
                    }
                    (read, written) => prop_assert_eq!(&owned(read), written),
                }
            }
            prop_assert!(model.tensors().map(|tensor| tensor.name).eq(tensors.keys()));
            for (name, (dims, tensor_type, bytes)) in &tensors {
                let tensor = model.require_tensor(name).unwrap();
                prop_assert_eq!(tensor.dims, dims);
                prop_assert_eq!(tensor.tensor_type, *tensor_type);
                prop_assert_eq!(model.tensor_bytes(&tensor).unwrap(), bytes);
            }
        }
    }
}
