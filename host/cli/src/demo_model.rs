//! The demo model, which is part of the program.

use crate::failure::Failure;

/// The name by which it is called.
pub const DEMO: &str = "demo";

#[cfg(feature = "demo-model")]
mod embedded {
    /// Tensors keep the alignment that they have in the file.
    #[repr(C, align(64))]
    struct Aligned<Bytes: ?Sized>(Bytes);

    static FILE: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/models/demo-qwen35-Q8_0.gguf"
    )));

    pub const fn bytes() -> &'static [u8] {
        &FILE.0
    }
}

/// The bytes of its GGUF file.
#[cfg(feature = "demo-model")]
pub fn bytes() -> Result<&'static [u8], Failure> {
    Ok(embedded::bytes())
}

/// The bytes of its GGUF file, which this build does not have.
#[cfg(not(feature = "demo-model"))]
pub fn bytes() -> Result<&'static [u8], Failure> {
    let message = "this program was built without the demo model";
    Err(Failure::new(crate::exit::Exit::Model, message)
        .hint("build it with `--features demo-model`, or give the path of a .gguf file"))
}

#[cfg(all(test, feature = "demo-model"))]
mod tests {
    #[test]
    fn the_file_is_aligned() {
        assert!(super::bytes().unwrap().as_ptr().addr().is_multiple_of(64));
    }
}
