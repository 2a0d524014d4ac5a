//! Maps whose keys no adversary chooses: names and numbers of a program.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map with a hasher of a few instructions. That of the standard library takes a fifth of the time of decoding, and
/// more under Miri.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

#[derive(Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}
