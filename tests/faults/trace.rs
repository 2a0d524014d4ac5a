//! What a scenario says of itself while it runs.

use std::ops::Range;

/// Why a failure in some of a scenario's calls need not come back as its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// Only drops: what fails there has nobody to tell.
    Drops,
    /// What is asked there only makes an error's text better.
    ForAText,
    /// A pool looks for memory of others: where it cannot have that, it goes on elsewhere.
    Elsewhere,
}

/// Which of a scenario's calls are of a special kind, and how its threads ended.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    spans: Vec<(Span, Range<usize>)>,
    depths: Vec<usize>,
}

impl Trace {
    /// From here to the end of the scenario there are only drops.
    pub(crate) fn drops_from_here(&mut self) {
        self.spans.push((Span::Drops, calls_so_far()..usize::MAX));
    }

    /// Drops something.
    pub(crate) fn drop<T>(&mut self, value: T) {
        self.drops(|| drop(value));
    }

    /// Does nothing but drop something.
    pub(crate) fn drops(&mut self, f: impl FnOnce()) {
        let start = calls_so_far();
        f();
        self.spans.push((Span::Drops, start..calls_so_far()));
    }

    /// Makes one call of the driver, the last to end; those before it are of drops.
    pub(crate) fn drops_before<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let start = calls_so_far();
        let done = f();
        let end = calls_so_far().saturating_sub(1);
        self.spans.push((Span::Drops, start..end));
        done
    }

    /// Calls a function of the driver, and after it only what is of drops.
    pub(crate) fn drops_after<T>(&mut self, function: &str, f: impl FnOnce() -> T) -> T {
        let start = calls_so_far();
        let done = f();
        let calls = cuda_sim::calls();
        let its = calls[start..]
            .iter()
            .position(|call| call.function == function);
        if let Some(place) = its {
            self.spans
                .push((Span::Drops, start + place + 1..calls.len()));
        }
        done
    }

    /// Calls a function of the driver, several times, and after the last only what is of drops.
    pub(crate) fn drops_after_last<T>(&mut self, function: &str, f: impl FnOnce() -> T) -> T {
        let start = calls_so_far();
        let done = f();
        let calls = cuda_sim::calls();
        let is_its = |call: &cuda_sim::Call| call.function == function;
        if let Some(place) = calls[start..].iter().rposition(is_its) {
            self.spans
                .push((Span::Drops, start + place + 1..calls.len()));
        }
        done
    }

    /// Provokes an error whose text takes further calls: all but the first.
    pub(crate) fn provoke<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let start = calls_so_far() + 1;
        let done = f();
        self.spans.push((Span::ForAText, start..calls_so_far()));
        done
    }

    /// Has a pool look for memory that others have used.
    pub(crate) fn looks_elsewhere<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let start = calls_so_far();
        let done = f();
        self.spans.push((Span::Elsewhere, start..calls_so_far()));
        done
    }

    /// Runs a part of the scenario on a thread of its own, to its end.
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

    /// The kind of a call, by its place in the account of the run.
    pub(crate) fn span(&self, call: usize) -> Option<Span> {
        let of = |(span, range): &(Span, Range<usize>)| range.contains(&call).then_some(*span);
        self.spans.iter().find_map(of)
    }

    /// How many contexts the scenario's other threads left on their stacks.
    pub(crate) fn depths(&self) -> &[usize] {
        &self.depths
    }
}

fn calls_so_far() -> usize {
    cuda_sim::calls().len()
}
