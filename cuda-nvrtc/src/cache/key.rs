//! The keys of entries.

use crate::call::version;
use crate::error::Result;
use crate::options::CompileOptions;
use crate::program::Program;
use crate::sys::NVRTC;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

/// A hash of everything that affects the result of a compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key(pub(super) [u8; 32]);

impl Key {
    /// Returns the key of a program that is compiled with these options, which have the form of arguments too.
    #[inline]
    pub(super) fn new(
        program: &Program,
        options: &CompileOptions,
        arguments: &[CString],
    ) -> Result<Self> {
        let Program { source, name, headers, name_expressions } = program;
        let mut hash = Hash(blake3::Hasher::new());
        hash.bytes(b"cuda-nvrtc 2");
        hash.number(u64::from(version()?.number().unsigned_abs()));
        hash.bytes(library());
        // Debug information has the path of the program in the current folder.
        let has_paths = options.debug || options.line_info || !options.extra.is_empty();
        let folder = std::env::current_dir().ok().filter(|_| has_paths);
        hash.bytes(folder.unwrap_or_default().as_os_str().as_encoded_bytes());
        hash.number(arguments.len() as u64);
        for argument in arguments {
            hash.bytes(argument.as_bytes());
        }
        hash.bytes(source.as_bytes());
        hash.bytes(name.as_bytes());
        hash.number(headers.len() as u64);
        for (name, text) in headers {
            hash.bytes(name.as_bytes());
            hash.bytes(text.as_bytes());
        }
        hash.number(name_expressions.len() as u64);
        for name in name_expressions {
            hash.bytes(name.as_bytes());
        }
        Ok(Self(*hash.0.finalize().as_bytes()))
    }

    /// Returns the key as the name of a file.
    #[inline]
    pub(super) fn file_name(&self) -> String {
        format!("{}{}", blake3::Hash::from_bytes(self.0).to_hex(), super::disk::SUFFIX)
    }
}

/// A hash of fields. Each has its length before it, so that two lists of fields have the same hash only if they
/// are equal.
struct Hash(blake3::Hasher);

impl Hash {
    #[inline]
    fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }
}

/// Returns what distinguishes two builds of a version of the library: the path, size and time of its file. They are
/// read once, because another file may replace this one while the process still uses it.
#[inline]
fn library() -> &'static [u8] {
    static LIBRARY: OnceLock<Vec<u8>> = OnceLock::new();
    LIBRARY.get_or_init(|| build(&file().unwrap_or_default()))
}

/// Returns the path, size and time of a file.
#[inline]
fn build(path: &Path) -> Vec<u8> {
    let mut bytes = path.as_os_str().as_encoded_bytes().to_owned();
    if let Ok(file) = path.metadata() {
        let modified = file.modified().ok();
        let age = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        bytes.extend(file.len().to_le_bytes());
        bytes.extend(age.map_or(0, |age| age.as_nanos()).to_le_bytes());
    }
    bytes
}

/// Returns the file of the library. If the dynamic linker has found the library by its name, the file is the one of
/// its functions.
#[cfg(unix)]
#[inline]
fn file() -> Option<PathBuf> {
    use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
    use std::os::unix::ffi::OsStrExt;

    /// `Dl_info` of the C library.
    #[repr(C)]
    struct Info {
        file: *const c_char,
        start: *mut c_void,
        symbol: *const c_char,
        address: *mut c_void,
    }
    unsafe extern "C" {
        fn dladdr(address: *const c_void, info: *mut Info) -> c_int;
    }

    let address = NVRTC.symbol(c"nvrtcVersion").ok()?;
    let mut info = Info {
        file: std::ptr::null(),
        start: std::ptr::null_mut(),
        symbol: std::ptr::null(),
        address: std::ptr::null_mut(),
    };
    // SAFETY: the function accepts any address, and the pointer is to a local variable of its type.
    let is_found = unsafe { dladdr(address.as_ptr(), &raw mut info) } != 0;
    if !is_found || info.file.is_null() {
        return NVRTC.path().map(ToOwned::to_owned);
    }
    // SAFETY: the name of the file ends with a NUL and stays valid, because the library is never closed.
    let name = unsafe { CStr::from_ptr(info.file) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Returns the file or the name of the library.
#[cfg(not(unix))]
#[inline]
fn file() -> Option<PathBuf> {
    NVRTC.path().map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{Hash, UNIX_EPOCH, build};
    use std::time::Duration;

    #[test]
    fn files_of_another_size_or_time_are_other_builds() {
        let path = std::env::temp_dir().join(format!("cuda-nvrtc-build-{}", std::process::id()));
        let of = |text: &str, seconds| {
            std::fs::write(&path, text).expect("a file");
            let file = std::fs::File::options().write(true).open(&path).expect("the file");
            file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).expect("the owner");
            build(&path)
        };
        let first = of("abc", 1000);
        assert_eq!(of("xyz", 1000), first);
        assert_ne!(of("abcd", 1000), first);
        assert_ne!(of("abc", 1001), first);
        std::fs::remove_file(&path).expect("the file");
        assert_eq!(build(&path), path.as_os_str().as_encoded_bytes());
    }

    #[test]
    fn fields_with_the_same_bytes_in_another_division_have_another_hash() {
        let hash = |fields: &[&str]| {
            let mut hash = Hash(blake3::Hasher::new());
            fields.iter().for_each(|field| hash.bytes(field.as_bytes()));
            hash.0.finalize()
        };
        assert_eq!(hash(&["a", "bc"]), hash(&["a", "bc"]));
        assert_ne!(hash(&["a", "bc"]), hash(&["ab", "c"]));
        assert_ne!(hash(&["a", "bc"]), hash(&["a", "bc", ""]));
    }
}
