//! The instructions and threads of kernels that made the accesses of the log.
//!
//! The log joins the accesses of an operation to adjacent bytes. A report names the instruction and the thread of one
//! of them, which is looked up here.

use super::report::{Access, ThreadAccess};
use cuda_ptx::check::SiteId;
use cuda_ptx::{Launch, Program};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The most entries, of all kernels together. Those of the oldest kernels are forgotten.
const LIMIT: usize = 1 << 18;

/// The most threads of an entry.
const THREADS: u32 = 1024;

/// Accesses of consecutive threads, at one instruction, to addresses with a constant distance.
#[derive(Debug)]
struct Run {
    first: SiteId,
    access: Access,
    threads: u32,
    bytes: Range<u64>,
    /// The distance between the addresses of two threads.
    step: u64,
}

impl Run {
    fn bytes_of(&self, thread: u32) -> Range<u64> {
        let distance = self.step.wrapping_mul(thread.into());
        self.bytes.start.wrapping_add(distance)..self.bytes.end.wrapping_add(distance)
    }

    /// Adds an access if it is that of the next thread.
    fn extend(&mut self, site: SiteId, bytes: &Range<u64>, access: Access) -> bool {
        let next = SiteId { thread: self.first.thread + self.threads, ..self.first };
        let step = match self.threads {
            1 => bytes.start.wrapping_sub(self.bytes.start),
            _ => self.step,
        };
        let expected = Self { step, bytes: self.bytes.clone(), ..*self }.bytes_of(self.threads);
        let is_next = site == next && access == self.access && *bytes == expected;
        if is_next && self.threads < THREADS {
            (self.threads, self.step) = (self.threads + 1, step);
            return true;
        }
        false
    }

    /// Returns the first thread that accesses some of the bytes.
    fn find(&self, bytes: &Range<u64>) -> Option<(SiteId, Range<u64>)> {
        let all = (0..self.threads).map(|thread| (thread, self.bytes_of(thread)));
        let mut found = all.filter(|(_, its)| its.start < bytes.end && bytes.start < its.end);
        let (thread, its) = found.next()?;
        Some((SiteId { thread: self.first.thread + thread, ..self.first }, its))
    }
}

/// A launch of a kernel.
#[derive(Debug)]
struct Kernel {
    program: Arc<Program>,
    /// The index of the kernel in the program.
    kernel: usize,
    /// The number of threads of a block along x, y and z.
    block: [u32; 3],
    runs: Vec<Run>,
}

/// The accesses of kernels, by the numbers of the operations.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    kernels: BTreeMap<u64, Kernel>,
    /// The number of entries of all kernels.
    count: usize,
}

impl Sites {
    /// Begins a kernel, which is an operation.
    pub(super) fn begin(
        &mut self,
        operation: u64,
        program: Arc<Program>,
        kernel: usize,
        block: [u32; 3],
    ) {
        let its = Kernel { program, kernel, block, runs: Vec::new() };
        let replaced = self.kernels.insert(operation, its);
        self.count -= replaced.map_or(0, |its| its.runs.len());
    }

    /// Adds an access of a kernel.
    pub(super) fn add(&mut self, operation: u64, site: SiteId, bytes: &Range<u64>, access: Access) {
        let Some(its) = self.kernels.get_mut(&operation) else { return };
        if its.runs.last_mut().is_some_and(|last| last.extend(site, bytes, access)) {
            return;
        }
        its.runs.push(Run { first: site, access, threads: 1, bytes: bytes.clone(), step: 0 });
        self.count += 1;
        if self.count > LIMIT {
            let oldest = self.kernels.pop_first();
            self.count -= oldest.map_or(0, |(_, its)| its.runs.len());
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the last access that an operation made to some of the bytes in this way. `None` if the operation is not
    /// a kernel that ran by its PTX, or is forgotten.
    pub(super) fn find(
        &self,
        operation: u64,
        access: Access,
        bytes: &Range<u64>,
    ) -> Option<ThreadAccess> {
        let Kernel { program, kernel, block, runs } = self.kernels.get(&operation)?;
        let mut last = runs.iter().rev().filter(|run| run.access == access);
        let (site, bytes) = last.find_map(|run| run.find(bytes))?;
        let mut launch = Launch::new(program, *kernel);
        launch.block = *block;
        Some(ThreadAccess { site: launch.site(site), bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, LIMIT, Sites};
    use cuda_ptx::check::SiteId;
    use cuda_ptx::{Program, syntax};
    use std::sync::Arc;

    fn program() -> Arc<Program> {
        let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\nret;\n}";
        let module = syntax::parse(text).expect("it is PTX");
        Arc::new(Program::link(&[module]).expect("it has no symbols"))
    }

    fn site(thread: u32) -> SiteId {
        SiteId { block: [3, 0, 0], thread, pc: 0 }
    }

    #[test]
    fn consecutive_threads_share_an_entry_and_each_is_found() {
        let mut sites = Sites::default();
        sites.begin(1, program(), 0, [8, 8, 1]);
        // The addresses of the second block fall.
        let start = |thread: u64| 1000 + 8 * thread;
        let falling = |thread: u64| 9000 - 16 * thread;
        for (access, place) in
            [(Access::Read, &start as &dyn Fn(u64) -> u64), (Access::Write, &falling)]
        {
            for thread in 0..40 {
                let at = place(thread.into());
                sites.add(1, site(thread), &(at..at + 4), access);
            }
        }
        assert_eq!(sites.count, 2);
        let found = |access, at| sites.find(1, access, &(at..at + 2));
        for thread in 0..40 {
            for (access, at) in
                [(Access::Read, start(thread) + 1), (Access::Write, falling(thread) + 3)]
            {
                let its = found(access, at).expect("it was added");
                assert_eq!(its.bytes.start, at & !3);
                assert_eq!(its.site.thread, [thread as u32 % 8, thread as u32 / 8, 0]);
                assert_eq!((its.site.block, its.site.line), ([3, 0, 0], 5));
            }
        }
        assert_eq!(found(Access::Read, start(40)), None);
        assert_eq!(found(Access::Read, start(0) + 4), None);
        assert_eq!(found(Access::Atomic, start(0)), None);
        assert_eq!(sites.find(2, Access::Read, &(1000..1004)), None);
    }

    #[test]
    fn the_accesses_of_the_oldest_kernels_are_forgotten() {
        let mut sites = Sites::default();
        let mut add = |operation, count: usize| {
            sites.begin(operation, program(), 0, [1, 1, 1]);
            for at in 0..count as u64 {
                sites.add(operation, site(0), &(8 * at..8 * at + 4), Access::Read);
            }
            [1, 2, 3].map(|its| sites.find(its, Access::Read, &(0..1)).is_some())
        };
        assert_eq!(add(1, LIMIT / 2), [true, false, false]);
        assert_eq!(add(2, LIMIT / 2), [true, true, false]);
        assert_eq!(add(3, 1), [false, true, true]);
        // One kernel alone has too many.
        assert_eq!(add(3, LIMIT + 1), [false, false, false]);
        assert_eq!(sites.count, 0);
    }
}
