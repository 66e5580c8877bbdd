//! A hint to the processor about memory for a coming read.
#![allow(unsafe_code)]

/// Begins to bring a value's first bytes into the processor's cache. A read some 100 ns later does not wait
/// for memory; there is no other effect.
#[inline]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it changes nothing that a program can see, whatever the address; and this one is a
        // reference's.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
