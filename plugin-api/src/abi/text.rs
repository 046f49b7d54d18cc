//! Strings and byte ranges as pointer and length.

/// UTF-8 text, not terminated. A null pointer with length 0 is the empty string.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Str {
    /// First byte, or null.
    pub ptr: *const u8,
    /// Length in bytes.
    pub len: usize,
}

// SAFETY: a `Str` is a plain pointer and length; whoever dereferences it vouches for its lifetime.
unsafe impl Send for Str {}
// SAFETY: as above, nothing is changed through a `Str`.
unsafe impl Sync for Str {}

impl Str {
    /// The empty string.
    pub const EMPTY: Str = Str { ptr: core::ptr::null(), len: 0 };

    /// Borrows `text`; the caller keeps it alive while the other side may read it.
    pub const fn new(text: &str) -> Str {
        Str { ptr: text.as_ptr(), len: text.len() }
    }

    /// The bytes, whatever they hold.
    ///
    /// # Safety
    /// `ptr` must be null or point to `len` readable bytes that outlive `'a`.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.ptr.is_null() || self.len == 0 {
            return &[];
        }
        // SAFETY: by the contract of this function.
        unsafe { core::slice::from_raw_parts(self.ptr, self.len) }
    }

    /// The text, with invalid UTF-8 replaced.
    ///
    /// # Safety
    /// As for [`Str::bytes`].
    pub unsafe fn to_text(self) -> String {
        // SAFETY: by the contract of this function.
        String::from_utf8_lossy(unsafe { self.bytes() }).into_owned()
    }
}

/// A range of bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes {
    /// First byte, or null.
    pub ptr: *const u8,
    /// Length in bytes.
    pub len: usize,
}

impl Bytes {
    /// Borrows `bytes`; the caller keeps them alive while the other side may read them.
    pub const fn new(bytes: &[u8]) -> Bytes {
        Bytes { ptr: bytes.as_ptr(), len: bytes.len() }
    }

    /// The bytes.
    ///
    /// # Safety
    /// `ptr` must be null or point to `len` readable bytes that outlive `'a`.
    pub unsafe fn get<'a>(self) -> &'a [u8] {
        // SAFETY: by the contract of this function.
        unsafe { Str { ptr: self.ptr, len: self.len }.bytes() }
    }
}
