//! Ranges of the process's address space, and files in memory that can be mapped there. Pages take host
//! memory when they are first written.

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd};

    // An offset is an `off_t`, which is a `long`. `cuda-sys` rejects targets where both have 32 bits.
    const _: () = assert!(size_of::<c_long>() == size_of::<i64>());

    unsafe extern "C" {
        // Functions of the C library, which every Rust program on Linux links.
        fn mmap(
            start: *mut c_void,
            len: usize,
            rights: c_int,
            flags: c_int,
            file: c_int,
            offset: i64,
        ) -> *mut c_void;
        fn munmap(start: *mut c_void, len: usize) -> c_int;
        fn memfd_create(name: *const c_char, flags: c_uint) -> c_int;
        fn fallocate(file: c_int, mode: c_int, offset: i64, len: i64) -> c_int;
        fn sysconf(name: c_int) -> c_long;
    }

    const SHARED: c_int = 1;
    const PRIVATE: c_int = 2;
    const FIXED: c_int = 0x10;
    const ANONYMOUS: c_int = 0x20;
    const NO_RESERVE: c_int = 0x4000;
    /// Keeps the size and removes the contents.
    const PUNCH_HOLE: c_int = 1 | 2;
    const CLOSE_ON_EXEC: c_uint = 1;

    fn pointer(address: usize) -> *mut c_void {
        core::ptr::with_exposed_provenance_mut(address)
    }

    /// Maps a range at any address, or at `hint` if that is free.
    pub(super) fn reserve(hint: usize, len: usize, rights: c_int) -> Option<usize> {
        let flags = PRIVATE | ANONYMOUS | NO_RESERVE;
        // SAFETY: without a fixed address, the system chooses addresses that are not in use.
        let start = unsafe { mmap(pointer(hint), len, rights, flags, -1, 0) };
        (start.addr() != usize::MAX).then(|| start.expose_provenance())
    }

    /// Replaces a range by private memory that is zero.
    ///
    /// # Safety
    /// The range belongs to the caller, and nothing refers to it.
    pub(super) unsafe fn clear(start: usize, len: usize, rights: c_int) -> bool {
        let flags = PRIVATE | ANONYMOUS | NO_RESERVE | FIXED;
        // SAFETY: the caller guarantees that the range may be replaced.
        let done = unsafe { mmap(pointer(start), len, rights, flags, -1, 0) };
        done.addr() == start
    }

    /// Replaces a range by a part of a file. If the range does not share it, what is written there does not
    /// change the file.
    ///
    /// # Safety
    /// The range belongs to the caller, and nothing refers to it.
    pub(super) unsafe fn map(
        start: usize,
        len: usize,
        rights: c_int,
        file: &File,
        offset: u64,
        is_shared: bool,
    ) -> bool {
        let Ok(offset) = i64::try_from(offset) else {
            return false;
        };
        let flags = NO_RESERVE | FIXED | if is_shared { SHARED } else { PRIVATE };
        // SAFETY: the caller guarantees that the range may be replaced.
        let done = unsafe { mmap(pointer(start), len, rights, flags, file.as_raw_fd(), offset) };
        done.addr() == start
    }

    /// # Safety
    /// The range belongs to the caller, and nothing uses it any more.
    pub(super) unsafe fn unmap(start: usize, len: usize) {
        // SAFETY: the caller guarantees that nothing uses the range.
        unsafe { munmap(pointer(start), len) };
    }

    pub(super) fn create_file(name: &core::ffi::CStr) -> Option<File> {
        // SAFETY: the name is a string that lives through the call.
        let made = unsafe { memfd_create(name.as_ptr(), CLOSE_ON_EXEC) };
        // SAFETY: the descriptor is new, so nothing else owns it.
        (made >= 0).then(|| unsafe { File::from_raw_fd(made) })
    }

    pub(super) fn punch(file: &File, offset: u64, len: u64) {
        if let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) {
            // SAFETY: the function accesses no memory of this process. The file has no mapping that a
            // reference goes to: the caller removes memory that nothing maps.
            unsafe { fallocate(file.as_raw_fd(), PUNCH_HOLE, offset, len) };
        }
    }

    pub(super) fn page() -> usize {
        const PAGE_SIZE: c_int = 30;
        // SAFETY: the function accesses no memory of the caller.
        let size = unsafe { sysconf(PAGE_SIZE) };
        usize::try_from(size).unwrap_or(4096)
    }
}

/// Whether virtual memory is simulated.
pub(crate) const IS_SIMULATED: bool = cfg!(all(target_os = "linux", not(miri)));

/// Systems where virtual memory is not simulated, and Miri, which cannot map files.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use core::ffi::c_int;
    use std::fs::File;

    pub(super) fn reserve(_: usize, _: usize, _: c_int) -> Option<usize> {
        None
    }

    /// # Safety
    /// None.
    pub(super) unsafe fn clear(_: usize, _: usize, _: c_int) -> bool {
        false
    }

    /// # Safety
    /// None.
    pub(super) unsafe fn map(_: usize, _: usize, _: c_int, _: &File, _: u64, _: bool) -> bool {
        false
    }

    /// # Safety
    /// None.
    pub(super) unsafe fn unmap(_: usize, _: usize) {}

    pub(super) fn create_file(_: &core::ffi::CStr) -> Option<File> {
        None
    }

    pub(super) fn punch(_: &File, _: u64, _: u64) {}

    pub(super) fn page() -> usize {
        4096
    }
}

use std::fs::File;

/// The accesses that the host's threads, this driver included, may make to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    None = 0,
    Read = 1,
    ReadWrite = 3,
}

/// A range of addresses that belongs to this value.
#[derive(Debug)]
pub(super) struct Space {
    start: usize,
    len: usize,
}

impl Space {
    /// Reserves a range, at `hint` if that is free. The start is a multiple of `alignment`, which is a
    /// power of two.
    pub(super) fn reserve(hint: usize, len: usize, alignment: usize) -> Option<Self> {
        Self::with_rights(hint, len, alignment, Rights::None)
    }

    /// Returns a range of memory that is zero, at `hint` if that is free.
    pub(super) fn of_zeros(hint: usize, len: usize) -> Option<Self> {
        let len = len.checked_next_multiple_of(system::page())?;
        Self::with_rights(hint, len, system::page(), Rights::ReadWrite)
    }

    /// Returns a range of memory that repeats the contents of a file of `period` bytes, a multiple of the
    /// page size, at `hint` if that is free. Pages take memory when they are written.
    pub(super) fn of_copies(hint: usize, len: usize, file: &File, period: usize) -> Option<Self> {
        let mut made = Self::of_zeros(hint, len)?;
        made.copy_from(file, period).then_some(made)
    }

    /// Makes the contents those of [`of_copies`](Self::of_copies) again. Returns whether it could.
    pub(super) fn copy_from(&mut self, file: &File, period: usize) -> bool {
        let rights = Rights::ReadWrite as i32;
        (0..self.len).step_by(period).all(|at| {
            let len = period.min(self.len - at);
            // SAFETY: the part is in this range, which belongs to this value, and references to the range's
            // memory borrow the value.
            unsafe { system::map(self.start + at, len, rights, file, 0, false) }
        })
    }

    /// Returns a range that shares a part of a file, and where the part begins in it.
    pub(super) fn of_file(file: &File, offset: u64, len: usize) -> Option<(Self, usize)> {
        let page = system::page();
        let before = usize::try_from(offset % page as u64).ok()?;
        let whole = before.checked_add(len)?.checked_next_multiple_of(page)?;
        let mut made = Self::reserve(0, whole, page)?;
        let contents = (file, offset - before as u64);
        made.map(0, whole, Rights::ReadWrite, contents).then_some((made, before))
    }

    fn with_rights(hint: usize, len: usize, alignment: usize, rights: Rights) -> Option<Self> {
        if hint != 0 {
            let at = system::reserve(hint, len, rights as i32)?;
            let made = Self { start: at, len };
            if at == hint && at % alignment == 0 {
                return Some(made);
            }
        }
        let more = len.checked_add(alignment)?;
        let whole = system::reserve(0, more, rights as i32)?;
        let start = whole.next_multiple_of(alignment);
        let (before, after) = (start - whole, whole + more - start - len);
        if before != 0 {
            // SAFETY: the range was made here, and only the part from `start` on is returned.
            unsafe { system::unmap(whole, before) };
        }
        if after != 0 {
            // SAFETY: the range was made here, and only the part before this one is returned.
            unsafe { system::unmap(start + len, after) };
        }
        Some(Self { start, len })
    }

    pub(super) fn start(&self) -> usize {
        self.start
    }

    /// Replaces a part by a part of a file. Returns whether it could. No reference to the part may exist.
    pub(super) fn map(
        &mut self,
        at: usize,
        len: usize,
        rights: Rights,
        (file, offset): (&File, u64),
    ) -> bool {
        // SAFETY: the part is in this range, which belongs to this value, and references to the range's
        // memory borrow the value.
        self.has(at, len)
            && unsafe { system::map(self.start + at, len, rights as i32, file, offset, true) }
    }

    /// Replaces a part by memory that cannot be accessed.
    pub(super) fn clear(&mut self, at: usize, len: usize) -> bool {
        // SAFETY: the part is in this range, which belongs to this value, and references to the range's
        // memory borrow the value.
        self.has(at, len) && unsafe { system::clear(self.start + at, len, Rights::None as i32) }
    }

    fn has(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// # Safety
    /// The part is mapped, readable and writable, and nothing else refers to it. Other mappings of the
    /// same file are not accessed while the result is used, except as a device accesses memory that is
    /// shared.
    pub(super) unsafe fn bytes(&mut self, at: usize, len: usize) -> &mut [u8] {
        let start = core::ptr::with_exposed_provenance_mut(self.start + at);
        // SAFETY: the caller guarantees that the bytes can be accessed, and the reference borrows the
        // range.
        unsafe { core::slice::from_raw_parts_mut(start, len) }
    }

    /// # Safety
    /// See [`bytes`](Self::bytes).
    pub(super) unsafe fn bytes_to_read(&self, at: usize, len: usize) -> &[u8] {
        let start = core::ptr::with_exposed_provenance(self.start + at);
        // SAFETY: the caller guarantees that the bytes can be accessed, and the reference borrows the
        // range.
        unsafe { core::slice::from_raw_parts(start, len) }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: the range belongs to this value, and references to its memory borrow the value.
        unsafe { system::unmap(self.start, self.len) };
    }
}

/// Creates an empty file in memory.
pub(super) fn create_file(name: &core::ffi::CStr) -> Option<File> {
    system::create_file(name)
}

/// Returns the name of a file in memory that has this descriptor, and the file by a descriptor of its own.
#[cfg(target_os = "linux")]
pub(super) fn open_file(descriptor: core::ffi::c_int) -> Option<(String, File)> {
    use std::os::fd::BorrowedFd;
    if descriptor < 0 {
        return None;
    }
    let path = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    let name = path.to_str()?.strip_prefix("/memfd:")?.to_owned();
    // SAFETY: the descriptor is not -1, and it is open, because it has a link.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    Some((name, File::from(borrowed.try_clone_to_owned().ok()?)))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn open_file(_: core::ffi::c_int) -> Option<(String, File)> {
    None
}

/// Reads a part of a file.
pub(super) fn read(file: &File, offset: u64, bytes: &mut [u8]) -> std::io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset);
    #[cfg(not(unix))]
    {
        let _ = (file, offset, bytes);
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// Writes a part of a file.
pub(super) fn write(file: &File, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::write_all_at(file, bytes, offset);
    #[cfg(not(unix))]
    {
        let _ = (file, offset, bytes);
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// Returns a descriptor that stands for a range of device memory.
pub(crate) fn range_descriptor() -> Option<core::ffi::c_int> {
    #[cfg(unix)]
    {
        use std::os::fd::IntoRawFd;
        create_file(c"cuda-sim range").map(IntoRawFd::into_raw_fd)
    }
    #[cfg(not(unix))]
    None
}

/// Frees the memory of a part of a file that is not mapped.
pub(super) fn punch(file: &File, offset: u64, len: u64) {
    system::punch(file, offset, len);
}
