//! Memory of arenas: zeros that take up room only where they were touched, in huge pages where the system has them.

/// Size of a huge page, which is also where large memory begins.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Asks for huge pages, from which products read weights faster. The range is the caller's own.
pub(crate) fn advise_huge_pages(start: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    if bytes >= HUGE_PAGE {
        // SAFETY: advice changes no contents, and may fail without harm.
        unsafe { libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

/// Memory of its own.
pub(crate) struct Pages {
    start: *mut u8,
    #[cfg(target_os = "linux")]
    map: (*mut libc::c_void, usize),
    #[cfg(not(target_os = "linux"))]
    layout: std::alloc::Layout,
}

// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Pages {}
// SAFETY: as above; it gives out an address and nothing else.
unsafe impl Sync for Pages {}

impl Pages {
    /// The first byte.
    pub fn start(&self) -> *mut u8 {
        self.start
    }
}

#[cfg(target_os = "linux")]
impl Pages {
    /// `size` zeros, more than none, at a multiple of `alignment`; else what the system says.
    pub fn zeroed(size: usize, alignment: usize) -> Result<Self, String> {
        let length = size.checked_add(alignment).ok_or("more than this machine can address")?;
        // SAFETY: a new map somewhere, of no file.
        let map = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().to_string());
        }
        let padding = (map as usize).next_multiple_of(alignment) - map as usize;
        let start = map.cast::<u8>().wrapping_add(padding);
        // Before anything is written: small pages stay small.
        advise_huge_pages(start, size);
        Ok(Self { start, map: (map, length) })
    }

    /// # Safety
    /// Nobody uses the memory any more, and this is called once.
    pub unsafe fn free(&mut self) {
        // SAFETY: the map is this one's; the rest is the caller's promise.
        unsafe { libc::munmap(self.map.0, self.map.1) };
    }
}

#[cfg(not(target_os = "linux"))]
impl Pages {
    /// `size` zeros, more than none, at a multiple of `alignment`; else why not.
    pub fn zeroed(size: usize, alignment: usize) -> Result<Self, String> {
        let layout = std::alloc::Layout::from_size_align(size, alignment).map_err(|e| e.to_string())?;
        // SAFETY: the size is not 0.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        if start.is_null() { Err("the system refused".into()) } else { Ok(Self { start, layout }) }
    }

    /// # Safety
    /// Nobody uses the memory any more, and this is called once.
    pub unsafe fn free(&mut self) {
        // SAFETY: allocated with this layout; the rest is the caller's promise.
        unsafe { std::alloc::dealloc(self.start, self.layout) };
    }
}
