//! The entries in memory.

use super::key::Key;
use crate::compiled::Compiled;
use std::collections::HashMap;
use std::sync::Arc;

/// The entries that were used last, up to a size.
#[derive(Debug)]
pub(super) struct Memory {
    limit: usize,
    bytes: usize,
    /// Counts uses, to order them.
    uses: u64,
    /// The entries, with the number of their last use.
    entries: HashMap<Key, (Arc<Compiled>, u64)>,
}

impl Memory {
    #[inline]
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, bytes: 0, uses: 0, entries: HashMap::new() }
    }

    #[inline]
    pub(super) fn get(&mut self, key: &Key) -> Option<Arc<Compiled>> {
        self.uses += 1;
        let (compiled, last) = self.entries.get_mut(key)?;
        *last = self.uses;
        Some(Arc::clone(compiled))
    }

    /// Adds an entry, and removes those that were not used for the longest time until the size is at most the
    /// limit. An entry that is larger than the limit is not added.
    #[inline]
    pub(super) fn insert(&mut self, key: Key, compiled: &Arc<Compiled>) {
        let bytes = compiled.bytes();
        if bytes > self.limit {
            return;
        }
        self.uses += 1;
        self.bytes += bytes;
        if let Some((old, _)) = self.entries.insert(key, (Arc::clone(compiled), self.uses)) {
            self.bytes -= old.bytes();
        }
        while self.bytes > self.limit {
            let oldest = self.entries.iter().min_by_key(|(_, (_, last))| *last);
            let Some(oldest) = oldest.map(|(key, _)| *key) else {
                return;
            };
            if let Some((old, _)) = self.entries.remove(&oldest) {
                self.bytes -= old.bytes();
            }
        }
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::Memory;
    use crate::cache::key::Key;
    use crate::compiled::Compiled;
    use crate::{Architecture, Target};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn code(bytes: usize) -> Arc<Compiled> {
        Arc::new(Compiled {
            target: Target::Cubin(Architecture::new(9, 0)),
            ptx: None,
            cubin: Some(vec![0; bytes]),
            lto_ir: None,
            log: String::new(),
            names: BTreeMap::new(),
        })
    }

    #[test]
    fn the_entries_that_were_used_last_remain() {
        let keys = [0, 1, 2, 3].map(|byte| Key([byte; 32]));
        let mut memory = Memory::new(3000);
        for key in &keys[..3] {
            memory.insert(*key, &code(1000));
        }
        assert!(memory.get(&keys[0]).is_some());
        memory.insert(keys[3], &code(1500));
        let is_there = keys.map(|key| memory.get(&key).is_some());
        assert_eq!(is_there, [true, false, false, true]);
        assert!(memory.bytes <= 3000);

        memory.insert(keys[1], &code(4000));
        assert!(memory.get(&keys[1]).is_none(), "larger than the limit");
        assert!(memory.get(&keys[0]).is_some());
        memory.insert(keys[0], &code(10));
        assert_eq!(memory.bytes, 1510);
        memory.clear();
        assert!(memory.get(&keys[0]).is_none());
    }

    #[test]
    fn the_entry_that_was_inserted_first_is_removed_first() {
        let keys: Vec<Key> = (0..8).map(|byte| Key([byte; 32])).collect();
        for order in [[7, 0, 5], [0, 7, 5], [3, 5, 1]] {
            let [first, second, third] = order.map(|at: usize| keys[at]);
            let mut memory = Memory::new(2500);
            for key in [first, second, third] {
                memory.insert(key, &code(1000));
            }
            let is_there = [first, second, third].map(|key| memory.get(&key).is_some());
            assert_eq!(is_there, [false, true, true], "{order:?}");
        }
    }

    #[test]
    fn an_entry_as_large_as_the_limit_remains_without_the_others() {
        let [small, large] = [0, 1].map(|byte| Key([byte; 32]));
        let bytes = code(3000).bytes();
        let mut memory = Memory::new(bytes);
        memory.insert(small, &code(10));
        memory.insert(large, &code(3000));
        assert!(memory.get(&small).is_none());
        assert!(memory.get(&large).is_some());
        assert_eq!(memory.bytes, bytes);
        memory.clear();
        memory.insert(small, &code(3000));
        assert!(memory.get(&small).is_some(), "all bytes are free again");
    }
}
