//! The report on everything that a process has done with the driver.

use crate::account::{
    Alive, CallCount, call_counts, limits, misuses, not_simulated, unregistered_kernels,
};
use crate::call::fault::unfired;
use crate::memory::Leak;
use crate::state::try_lock;
use std::fmt;
use std::time::{Duration, Instant};

/// The longest time that [`report`] waits for a thread that is inside the driver.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a process has done with the driver. Returned by [`report`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The functions that were called.
    pub calls: Vec<CallCount>,
    /// The functions that were called and are not simulated. They are among `calls` too.
    pub not_simulated: Vec<&'static str>,
    /// The kernels that were launched and are not registered.
    pub unregistered_kernels: Vec<String>,
    /// The misuses.
    pub misuses: Vec<String>,
    /// The limits that checks have reached. A check may have missed errors.
    pub limits: Vec<String>,
    /// The number of operations that were enqueued and have not run.
    pub pending: usize,
    /// The objects that are alive, before the pending operations run. `None` if the driver is not installed,
    /// or if a thread is inside of it for longer than a second.
    pub alive: Option<Alive>,
    /// The objects that were alive when their context ended. `None` as `alive`.
    pub ended_with_contexts: Option<Alive>,
    /// The memory that is alive, by the places that have allocated it. See [`leaks`](crate::leaks()).
    pub leaks: Vec<Leak>,
    /// The active faults that have made no call fail.
    pub unfired_faults: Vec<String>,
}

/// Returns the report on this process. Unlike [`alive`](crate::alive), it runs no work, so it may be called
/// when the process exits.
pub fn report() -> Report {
    let until = Instant::now() + PATIENCE;
    let (pending, alive, ended_with_contexts, leaks) = loop {
        if let Some(locked) = try_lock() {
            let world = locked.as_ref();
            let pending = world.map_or(0, |world| world.runs.executor.pending());
            let ended = world.map(|world| world.objects.ended_with_contexts);
            let leaks = world.map(|world| world.objects.memory.leaks());
            break (pending, world.map(|world| world.alive()), ended, leaks);
        }
        if Instant::now() >= until {
            break (0, None, None, None);
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    Report {
        calls: call_counts(),
        not_simulated: not_simulated(),
        unregistered_kernels: unregistered_kernels(),
        misuses: misuses(),
        limits: limits(),
        pending,
        alive,
        ended_with_contexts,
        leaks: leaks.unwrap_or_default(),
        unfired_faults: unfired(),
    }
}

/// Prints a section for each list that is not empty, and the objects of each kind that are alive.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut calls, mut failures) = (0, 0);
        for count in &self.calls {
            calls += count.calls;
            failures += count.failures;
        }
        writeln!(f, "calls: {calls}, of which {failures} failed")?;
        for count in &self.calls {
            write!(f, "  {} {}", count.calls, count.function)?;
            match count.failures {
                0 => writeln!(f)?,
                failures => writeln!(f, ", of which {failures} failed")?,
            }
        }
        let mut list = |title: &str, lines: &[&str]| -> fmt::Result {
            if !lines.is_empty() {
                writeln!(f, "{title}: {}", lines.len())?;
            }
            lines.iter().try_for_each(|line| writeln!(f, "  {line}"))
        };
        let kernels = self.unregistered_kernels.iter().map(String::as_str);
        let kernels: Vec<&str> = kernels.collect();
        let misuses: Vec<&str> = self.misuses.iter().map(String::as_str).collect();
        list("functions that are not simulated", &self.not_simulated)?;
        list("kernels that are not registered", &kernels)?;
        list("misuses", &misuses)?;
        let limits: Vec<&str> = self.limits.iter().map(String::as_str).collect();
        list("limits of checks", &limits)?;
        let unfired: Vec<&str> = self.unfired_faults.iter().map(String::as_str).collect();
        list("faults that made no call fail", &unfired)?;
        if self.pending != 0 {
            writeln!(f, "operations that have not run: {}", self.pending)?;
        }
        let Some(alive) = &self.alive else {
            return writeln!(f, "objects alive: unknown, because a thread is inside the driver");
        };
        writeln!(f, "objects alive: {}", Listed(alive))?;
        let ended = self.ended_with_contexts.filter(|its| its.objects() != 0);
        ended.map_or(Ok(()), |its| writeln!(f, "ended with their context: {}", Listed(&its)))?;
        if !self.leaks.is_empty() {
            writeln!(f, "places that leak memory: {}", self.leaks.len())?;
        }
        self.leaks.iter().try_for_each(|leak| writeln!(f, "  {leak}"))
    }
}

/// The counts that are not 0.
struct Listed<'a>(&'a Alive);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.counts().into_iter().filter(|(count, _)| *count != 0);
        let counts: Vec<String> = counts.map(|(count, name)| format!("{count} {name}")).collect();
        match counts.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&counts.join(", ")),
        }
    }
}
