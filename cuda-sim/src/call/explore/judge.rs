//! The explorer, and the checks after each schedule.

use super::baton::{self, Plan, Random};
use super::pool;
use crate::call::alive;
use crate::memory::Interleavings;
use crate::{account, state};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// If a schedule makes no step for this long, a thread is blocked in a way that the explorer cannot see.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Explores the schedules of scenarios. See the [module documentation](super).
#[derive(Clone, Debug)]
pub struct Explorer {
    schedules: u64,
    seed: u64,
    preemptions: u32,
    settle: fn(),
    reported: fn() -> u64,
    allows_reported: bool,
}

/// The result of an exploration.
#[derive(Clone, Debug)]
#[must_use = "the report says whether a schedule violated a rule"]
pub struct Report {
    /// Number of schedules that ran. The last of them may have violated a rule.
    pub schedules: u64,
    /// Total number of scheduling points.
    pub points: u64,
    /// The first violation, at which the exploration stops.
    pub violation: Option<Violation>,
}

/// A schedule that violated a rule.
///
/// The objects and threads of that schedule are leaked, so the process cannot run another exploration.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The [`Explorer::seed`] whose first schedule reproduces the violation.
    pub seed: u64,
    /// The rule and what violated it.
    pub reason: String,
    /// The driver calls in the order in which they returned, each with its thread and result.
    pub trace: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.reason)
    }
}

impl Default for Explorer {
    fn default() -> Self {
        Self::new()
    }
}

impl Explorer {
    /// Returns an explorer that runs 1000 schedules with up to 3 preemptions each, starting with seed 0.
    pub const fn new() -> Self {
        Self {
            schedules: 1000,
            seed: 0,
            preemptions: 3,
            settle: || {},
            reported: || 0,
            allows_reported: false,
        }
    }

    /// Sets the number of schedules, not counting the two that run the threads one after another.
    pub const fn schedules(mut self, schedules: u64) -> Self {
        self.schedules = schedules;
        self
    }

    /// Sets the seed of the first schedule. Each further schedule uses the next seed.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the maximum number of preemptions in a schedule that follows PCT.
    pub const fn preemptions(mut self, preemptions: u32) -> Self {
        self.preemptions = preemptions;
        self
    }

    /// Sets a function that completes deferred releases of the tested library. It runs after each
    /// schedule, before live objects are counted. If objects are alive then, it runs again on each
    /// thread of the schedule, one after the other.
    pub const fn settle(mut self, settle: fn()) -> Self {
        self.settle = settle;
        self
    }

    /// Sets a function that returns the number of losses that the tested library has reported so far.
    pub const fn reported(mut self, reported: fn() -> u64) -> Self {
        self.reported = reported;
        self
    }

    /// Sets whether the loss of an object is allowed if the tested library reports it.
    pub const fn allow_reported(mut self, allow: bool) -> Self {
        self.allows_reported = allow;
        self
    }

    /// Runs a scenario under the schedules and stops at the first violation.
    ///
    /// `scenario` runs on a thread of the explorer, once for each schedule, and must drop all objects
    /// that it creates. Each schedule starts with a new driver.
    ///
    /// # Panics
    /// The software driver is not installed, an object is alive, or the calling thread is itself
    /// explored.
    pub fn explore(&self, scenario: impl Fn() + Send + Sync + 'static) -> Report {
        assert!(!baton::is_explored(), "`explore` was called inside an exploration");
        let before = alive();
        assert_eq!(before, account::Alive::default(), "objects are alive before the exploration");
        clear();
        let scenario: Arc<dyn Fn() + Send + Sync> = Arc::new(scenario);
        let mut report = Report { schedules: 0, points: 0, violation: None };
        let mut longest = 0;
        let serial = [false, true].map(Some).into_iter();
        let seeds = serial.chain((0..self.schedules).map(|_| None));
        for (number, serial) in seeds.enumerate() {
            // The two serial schedules come first and share the first seed.
            let seed = self.seed.wrapping_add((number as u64).saturating_sub(2));
            let plan = match serial {
                Some(_) => Plan { seed, serial, ..Plan::default() },
                None => self.plan(seed, longest),
            };
            let (steps, calls, broken) = self.run(plan, &scenario);
            report.schedules += 1;
            report.points += steps;
            if serial.is_some() {
                longest = longest.max(steps);
            }
            if let Some(reason) = broken {
                report.violation = Some(Violation { seed, reason, trace: trace(calls) });
                break;
            }
        }
        report
    }

    fn plan(&self, seed: u64, longest: u64) -> Plan {
        // Independent of the numbers that the schedule itself draws.
        let mut random = Random(seed ^ 0x5bd1_e995_0000_0000);
        let walk = [0, 0, 0, 2, 4, 8][random.below(6) as usize];
        let count = match walk {
            0 => random.below(u64::from(self.preemptions) + 1),
            _ => 0,
        };
        let mut changes: Vec<u64> = (0..count).map(|_| random.below(longest) + 1).collect();
        changes.sort_unstable();
        changes.dedup();
        Plan { seed, serial: None, changes, walk, eager: [0, 0, 4, 16][random.below(4) as usize] }
    }

    /// Runs one schedule. Returns its numbers of steps and calls, and the reason if it violates a rule.
    fn run(
        &self,
        plan: Plan,
        scenario: &Arc<dyn Fn() + Send + Sync>,
    ) -> (u64, usize, Option<String>) {
        let reported = (self.reported)();
        let is_serial = plan.serial.is_some();
        state::renew(plan.seed, Interleavings((!is_serial).then_some(plan.seed)));
        let scenario = Arc::clone(scenario);
        let (steps, failure) = execute(plan, || pool::add("the scenario", move || scenario()));
        let calls = account::call_count();
        if let Some(failure) = failure {
            // The misuse is usually the cause of a panic.
            let reason = match account::first_misuse() {
                Some(misuse) => format!("misuse: {misuse}; then {failure}"),
                None => failure,
            };
            return (steps, calls, Some(reason));
        }
        (steps, calls, self.judge(reported))
    }

    /// Checks a schedule that has ended. Returns the rule that it violated, if any.
    fn judge(&self, reported: u64) -> Option<String> {
        let misuse = || {
            let first = account::first_misuse();
            first.map(|first| format!("misuse: {first}"))
        };
        if let Some(misuse) = misuse() {
            return Some(misuse);
        }
        (self.settle)();
        if alive() != account::Alive::default() {
            if let Some(failure) = self.settle_on_threads() {
                return Some(failure);
            }
        }
        let alive = alive();
        if let Some(misuse) = misuse() {
            return Some(misuse);
        }
        let depths = account::stack_depths();
        if !depths.is_empty() {
            return Some("a thread ends with a context on its stack".to_owned());
        }
        let lost = (self.reported)().saturating_sub(reported);
        let is_all = alive == account::Alive::default();
        match (is_all, lost) {
            (true, 0) => {
                clear();
                None
            }
            (false, 0) => Some(format!("unreported loss: still alive: {}", brief(&alive))),
            _ if self.allows_reported => {
                clear();
                None
            }
            _ => Some(format!("reported loss: {lost}, still alive: {}", brief(&alive))),
        }
    }

    /// Calls the function of [`settle`](Self::settle) on each thread of the schedule that has ended. Returns the
    /// failure, if any.
    fn settle_on_threads(&self) -> Option<String> {
        let (settle, threads) = (self.settle, baton::count());
        let plan = Plan { serial: Some(false), ..Plan::default() };
        execute(plan, || (0..threads).for_each(|_| pool::add("a thread at its end", settle))).1
    }
}

/// Clears the records of calls, misuses, races and findings.
fn clear() {
    account::clear();
    crate::races::report::clear();
    crate::checks::clear();
}

/// Runs the threads that `add` adds to a schedule. Returns its steps and its failure, if any.
fn execute(plan: Plan, add: impl FnOnce()) -> (u64, Option<String>) {
    baton::begin(plan);
    pool::set_judge(Some(std::thread::current()));
    add();
    baton::start();
    let (steps, stuck) = wait();
    pool::set_judge(None);
    // Taken in any case, since this also ends the turn of the last thread.
    let failure = baton::take_failure();
    (steps, stuck.or(failure))
}

/// Waits for the end of a schedule. Returns its steps and, if it does not end, a description of the
/// thread that blocks.
fn wait() -> (u64, Option<String>) {
    let (mut last, mut since) = (0, Instant::now());
    loop {
        let (is_over, steps) = baton::progress();
        if is_over {
            return (steps, None);
        }
        if steps != last {
            (last, since) = (steps, Instant::now());
        }
        if since.elapsed() > TIMEOUT {
            let text =
                format!("a thread blocks outside of the explorer: {}", baton::where_they_are());
            return (steps, Some(text));
        }
        std::thread::park_timeout(Duration::from_secs(1));
    }
}

/// Lists the counts that are not zero.
fn brief(alive: &account::Alive) -> String {
    let all = alive.to_string();
    let some: Vec<&str> = all.split(", ").filter(|part| !part.starts_with("0 ")).collect();
    match some.is_empty() {
        true => "no driver objects".to_owned(),
        false => some.join(", "),
    }
}

/// Formats the first driver calls.
fn trace(count: usize) -> Vec<String> {
    let ids = pool::ids();
    let calls = account::calls();
    let line = |call: &account::Call| {
        let worker = ids.iter().position(|id| *id == call.thread);
        let name = worker.map_or_else(|| "another thread".to_owned(), baton::name_of);
        format!("{name}: {} -> {:?}", call.function, call.result)
    };
    calls.iter().take(count).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::Explorer;
    use std::collections::BTreeSet;

    #[test]
    fn preemptions_are_planned_at_every_step_and_up_to_their_number() {
        let explorer = Explorer::new().preemptions(2);
        let plans: Vec<_> = (0..1000).map(|seed| explorer.plan(seed, 3).changes).collect();
        let steps: BTreeSet<u64> = plans.iter().flatten().copied().collect();
        let counts: BTreeSet<usize> = plans.iter().map(Vec::len).collect();
        assert_eq!((steps, counts), ([1, 2, 3].into(), [0, 1, 2].into()));
    }
}
