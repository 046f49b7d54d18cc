//! The demo model with a trimmed draft head.

use paceline_gguf::{Gguf, TensorType, Writer};
use std::sync::Arc;

/// The model with a draft head over `kept` token ids, in ascending order, whose rows are those of its embedding.
pub fn with_draft_head(gguf: &Gguf, kept: &[u32]) -> Arc<Gguf> {
    let ids: Vec<i32> = kept.iter().map(|&id| id as i32).collect();
    with_draft_head_ids(gguf, kept, &ids)
}

/// As [`with_draft_head`], but the file says that the rows are of `ids`.
pub fn with_draft_head_ids(gguf: &Gguf, kept: &[u32], ids: &[i32]) -> Arc<Gguf> {
    let block = gguf.get_u32("qwen35.block_count").expect("a key").expect("a qwen35 model") - 1;
    let head = gguf.require_tensor("token_embd.weight").expect("an embedding");
    let bytes = gguf.tensor_bytes(&head).expect("whole");
    let row = bytes.len() / head.dims[1] as usize;
    let rows: Vec<u8> =
        kept.iter().flat_map(|&id| &bytes[id as usize * row..(id as usize + 1) * row]).copied().collect();
    let ids: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let mut writer = Writer::copy_of(gguf).expect("it can be copied");
    let name = |part: &str| format!("blk.{block}.nextn.{part}");
    let count = kept.len() as u64;
    writer.tensor(name("draft_head.weight"), &[head.dims[0], count], head.tensor_type, rows);
    writer.tensor(name("draft_head_ids"), &[count], TensorType::I32, ids);
    let mut file = Vec::new();
    writer.write_to(&mut file).expect("it can be written");
    Arc::new(Gguf::from_bytes(file).expect("it can be read"))
}
