//! Notes that a scenario makes about itself while it runs.

use std::ops::Range;

/// Why failures in a range of a scenario's calls may be missing from its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// Only drops, which cannot return an error.
    Drops,
    /// Queries that only improve an error text.
    ForAText,
    /// A pool that looks for memory of other streams. If it cannot use any, it continues with other
    /// memory.
    Elsewhere,
}

/// Which of a scenario's calls are special, and how its threads ended.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    spans: Vec<(Span, Range<usize>)>,
    depths: Vec<usize>,
}

impl Trace {
    /// Marks all calls from here to the end of the scenario as drops. Returns `Ok`, the result of a
    /// scenario that ends so.
    pub(crate) fn drops_from_here(&mut self) -> cuda_safe::Result<()> {
        self.spans.push((Span::Drops, calls_so_far()..usize::MAX));
        Ok(())
    }

    /// Drops a value.
    pub(crate) fn drop<T>(&mut self, value: T) {
        self.drops(|| drop(value));
    }

    /// Runs a function that only drops objects.
    pub(crate) fn drops(&mut self, f: impl FnOnce()) {
        let start = calls_so_far();
        f();
        self.spans.push((Span::Drops, start..calls_so_far()));
    }

    /// Runs a function whose last driver call is its own. The calls before it are drops.
    pub(crate) fn drops_before<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let start = calls_so_far();
        let done = f();
        let end = calls_so_far().saturating_sub(1);
        self.spans.push((Span::Drops, start..end));
        done
    }

    /// Runs a function that makes one driver call, after which all calls are drops.
    pub(crate) fn drops_after<T>(&mut self, function: &str, f: impl FnOnce() -> T) -> T {
        let start = calls_so_far();
        let done = f();
        let calls = cuda_sim::calls();
        let its = calls[start..].iter().position(|call| call.function == function);
        if let Some(place) = its {
            self.spans.push((Span::Drops, start + place + 1..calls.len()));
        }
        done
    }

    /// Runs a function that makes one driver call several times, after the last of which all calls
    /// are drops.
    pub(crate) fn drops_after_last<T>(&mut self, function: &str, f: impl FnOnce() -> T) -> T {
        let start = calls_so_far();
        let done = f();
        let calls = cuda_sim::calls();
        let is_its = |call: &cuda_sim::Call| call.function == function;
        if let Some(place) = calls[start..].iter().rposition(is_its) {
            self.spans.push((Span::Drops, start + place + 1..calls.len()));
        }
        done
    }

    /// Provokes an error whose text needs further calls: all but the first.
    pub(crate) fn provoke<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let start = calls_so_far() + 1;
        let done = f();
        self.spans.push((Span::ForAText, start..calls_so_far()));
        done
    }

    /// Runs a function in which a pool looks for memory that other streams have used.
    pub(crate) fn looks_elsewhere<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let start = calls_so_far();
        let done = f();
        self.spans.push((Span::Elsewhere, start..calls_so_far()));
        done
    }

    /// Runs part of the scenario on another thread and waits for it.
    pub(crate) fn on_thread<T: Send>(&mut self, f: impl FnOnce(&mut Self) -> T + Send) -> T {
        let joined = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let done = f(self);
                    self.depths.push(cuda_sim::stack_depth());
                    done
                })
                .join()
        });
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs the scenario on another thread, with what happens when the thread ends, and waits for it.
    pub(crate) fn until_the_thread_ends<T: Send>(
        &mut self,
        f: impl FnOnce(&mut Self) -> T + Send,
    ) -> T {
        let (id, joined) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| f(self));
            (thread.thread().id(), thread.join())
        });
        let depths = cuda_sim::stack_depths().into_iter();
        self.depths.extend(depths.filter(|its| its.0 == id).map(|its| its.1));
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns the kind of a call, by its index in the run.
    pub(crate) fn span(&self, call: usize) -> Option<Span> {
        let of = |(span, range): &(Span, Range<usize>)| range.contains(&call).then_some(*span);
        self.spans.iter().find_map(of)
    }

    /// Returns how many contexts each of the scenario's other threads left on its stack.
    pub(crate) fn depths(&self) -> &[usize] {
        &self.depths
    }
}

fn calls_so_far() -> usize {
    cuda_sim::calls().len()
}
