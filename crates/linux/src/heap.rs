//! The heap of the C library, which keeps memory that was freed.

/// Returns free memory of the heap to the kernel when it is dropped, where the C library can do that. As the last field of a structure
/// it follows the end of all others: large tables that they have freed no longer stay in DRAM.
#[derive(Debug, Default)]
pub struct HeapTrim;

impl Drop for HeapTrim {
    fn drop(&mut self) {
        #[cfg(target_env = "gnu")]
        // SAFETY: the call changes only memory of the heap that is free.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    fn resident_bytes() -> u64 {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    #[test]
    fn freed_memory_is_returned() {
        // Parts of this size are in the heap proper; the last one keeps the C library from shrinking it.
        let mut parts: Vec<Vec<u8>> = (0..4096).map(|_| vec![1; 16 << 10]).collect();
        let last = parts.pop();
        let before = resident_bytes();
        drop(parts);
        drop(HeapTrim);
        let after = resident_bytes();
        assert!(after + (32 << 20) < before, "{before} bytes before, {after} after");
        drop(last);
    }
}
