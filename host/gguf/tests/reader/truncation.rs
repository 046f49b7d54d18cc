//! Files cut short.

use paceline_gguf::Gguf;

use crate::common::{bytes_of, refusal, toy, toy_writer};

#[test]
fn a_cut_at_any_byte_is_noticed() {
    let whole = toy();
    Gguf::from_bytes(whole.clone()).expect("the whole file is valid");
    for length in 0..whole.len() {
        let message = refusal(whole[..length].to_vec());
        assert!(length == 0 || message.contains("cut short"), "at {length}: {message}");
    }
}

#[test]
fn only_padding_after_the_last_tensor_may_be_missing() {
    let mut writer = toy_writer();
    writer.tensor("last", &[5], paceline_gguf::TensorType::I8, vec![9; 5]);
    let whole = bytes_of(&writer);
    let data_end = whole.len() - 27;
    for length in data_end..whole.len() {
        Gguf::from_bytes(whole[..length].to_vec()).unwrap();
    }
    assert!(refusal(whole[..data_end - 1].to_vec()).contains("tensor 'last'"));
}
