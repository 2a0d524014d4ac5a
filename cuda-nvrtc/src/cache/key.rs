//! The keys of entries.

use crate::call::version;
use crate::error::Result;
use crate::program::Program;
use crate::sys::NVRTC;
use std::ffi::CString;
use std::time::UNIX_EPOCH;

/// A hash of everything that affects the result of a compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key(pub(super) [u8; 32]);

impl Key {
    /// Returns the key of a program that is compiled with these arguments.
    pub(super) fn new(program: &Program, arguments: &[CString]) -> Result<Self> {
        let Program {
            source,
            name,
            headers,
            name_expressions,
        } = program;
        let mut hash = Hash(blake3::Hasher::new());
        hash.bytes(b"cuda-nvrtc 1");
        hash.number(u64::from(version()?.number().unsigned_abs()));
        hash.library();
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
    pub(super) fn file_name(&self) -> String {
        format!(
            "{}{}",
            blake3::Hash::from_bytes(self.0).to_hex(),
            super::disk::SUFFIX
        )
    }
}

/// A hash of fields. Each has its length before it, so that two lists of fields have the same hash only if they
/// are equal.
struct Hash(blake3::Hasher);

impl Hash {
    fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    /// Adds what distinguishes two builds of a version of the library: its file, if its path is known.
    fn library(&mut self) {
        let path = NVRTC.path().unwrap_or(std::path::Path::new(""));
        self.bytes(path.as_os_str().as_encoded_bytes());
        let Some(file) = path.is_absolute().then(|| path.metadata().ok()).flatten() else {
            return self.number(u64::MAX);
        };
        self.number(file.len());
        let modified = file
            .modified()
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        self.number(modified.map_or(0, |time| time.as_secs()));
    }
}

#[cfg(test)]
mod tests {
    use super::Hash;

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
