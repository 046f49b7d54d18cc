//! A slice that several threads write at disjoint places.

use core::marker::PhantomData;
use core::ops::Range;

/// Memory that the threads of one operation share. Each takes the parts that are its own.
pub struct SharedSlice<'a, T> {
    start: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

impl<T> Clone for SharedSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedSlice<'_, T> {}

// SAFETY: access goes through unsafe functions whose callers promise disjoint parts, so the
// handle is as good as the `&mut [T]` pieces it gives out.
unsafe impl<T: Send> Send for SharedSlice<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedSlice<'_, T> {}

impl<'a, T> SharedSlice<'a, T> {
    /// Shares a slice for as long as it is borrowed.
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), lifetime: PhantomData }
    }

    /// Shares `len` elements at `start`.
    ///
    /// # Safety
    /// They are initialised, aligned and valid for reads and writes during `'a`, and reached by
    /// no other way than copies of this handle while parts are in use.
    pub unsafe fn from_raw(start: *mut T, len: usize) -> Self {
        Self { start, len, lifetime: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements of `range`, to write. Panics if it does not lie inside.
    ///
    /// # Safety
    /// Until the result is dropped nobody else reads or writes any of these elements.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    pub unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: inside the memory by the check; exclusive by the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }

    /// The elements of `range`, to read. Panics if it does not lie inside.
    ///
    /// # Safety
    /// Until the result is dropped nobody writes any of these elements.
    #[inline(always)]
    pub unsafe fn read(&self, range: Range<usize>) -> &'a [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: inside the memory by the check; not written by the caller's promise.
        unsafe { core::slice::from_raw_parts(self.start.add(range.start), range.end - range.start) }
    }

    /// Pointer to element `index`, which may be the end. Panics beyond.
    #[inline(always)]
    pub fn pointer(&self, index: usize) -> *mut T {
        assert!(index <= self.len);
        // SAFETY: inside the memory or at its end.
        unsafe { self.start.add(index) }
    }
}
