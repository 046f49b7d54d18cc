//! Writes the seed corpus of the `read` target: small files, valid and broken.

use std::path::Path;

#[path = "../tests/reader/common.rs"]
mod common;

use common::*;

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/read");
    std::fs::create_dir_all(&folder)?;
    let toy = toy();
    let aligned = bytes_of(toy_writer().alignment(24));
    let unknown = file(&[], &[tensor("a", &[8], 0, 0), tensor("odd", &[7, 3], 105, 32)], 96);
    let part = file(&[entry("split.count", TYPE_U32, &3_u32.to_le_bytes())], &[], 0);
    let nested = file(&[array_entry("deep", TYPE_ARRAY, 1, &[0; 12])], &[], 0);
    for (name, bytes) in [
        ("cut", &toy[..toy.len() - 33]),
        ("toy", &toy),
        ("aligned", &aligned),
        ("unknown-type", &unknown),
        ("part", &part),
        ("nested", &nested),
        ("empty-model", &header(3, 0, 0)),
        ("big-endian", &header(0x0300_0000, 0, 0)),
    ] {
        std::fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}
