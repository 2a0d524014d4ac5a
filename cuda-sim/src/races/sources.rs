//! The sources of enqueued copies from pinned memory. The program must not write them before the copies have run.
//!
//! The driver does not see such a write, but its effect: the bytes of a source when its copy runs are not those
//! when it was enqueued. This is certain only while nothing else can have written them. Bytes that other work
//! writes are therefore left out. A host function can write any byte, or let any thread do so, and a wait for a
//! value can follow writes of the host. After one of these, the sources are forgotten.

use std::collections::BTreeMap;
use std::ops::Range;

/// Longer sources are not compared.
pub(crate) const LIMIT: usize = 16 << 20;

#[derive(Debug)]
struct Source {
    start: u64,
    /// The bytes when the copy was enqueued.
    bytes: Vec<u8>,
    /// What other work has written since.
    written: Vec<Range<u64>>,
}

impl Source {
    fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }

    /// Returns the first addresses at which `now` differs.
    fn changed(&self, now: &[u8]) -> Option<Range<u64>> {
        let is_changed = |(index, (before, now)): (usize, (&u8, &u8))| {
            let at = self.start + index as u64;
            before != now && !self.written.iter().any(|its| its.contains(&at))
        };
        let mut changed = self.bytes.iter().zip(now).enumerate().map(is_changed);
        let first = changed.position(|its| its)? as u64;
        let more = changed.take_while(|its| *its).count() as u64;
        let start = self.start + first;
        Some(start..start + 1 + more)
    }
}

/// The sources, by the operations that copy them.
#[derive(Debug, Default)]
pub(crate) struct Sources(BTreeMap<u64, Vec<Source>>);

impl Sources {
    pub(crate) fn add(&mut self, operation: u64, start: usize, bytes: Vec<u8>) {
        self.0.entry(operation).or_default().push(Source {
            start: start as u64,
            bytes,
            written: Vec::new(),
        });
    }

    /// Keeps the sources of operations that have not run.
    pub(crate) fn retain(&mut self, is_pending: impl Fn(u64) -> bool) {
        self.0.retain(|operation, _| is_pending(*operation));
    }

    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// Notes that work writes bytes.
    pub(crate) fn note_write(&mut self, bytes: &Range<u64>) {
        for source in self.0.values_mut().flatten() {
            let range = source.range();
            if bytes.start < range.end && range.start < bytes.end {
                source.written.push(bytes.clone());
            }
        }
    }

    /// Returns the first addresses that the program has written, for the operation that copies `now`.
    pub(crate) fn changed(&self, operation: u64, start: usize, now: &[u8]) -> Option<Range<u64>> {
        let range = start as u64..start as u64 + now.len() as u64;
        let mut all = self.0.get(&operation)?.iter();
        all.find(|its| its.range() == range)?.changed(now)
    }
}
