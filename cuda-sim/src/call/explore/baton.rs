//! The baton: the right to run, which one thread has at a time, and its transfer between threads.

use crate::call;
use crate::thread;
use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of threads that are not explored.
const NONE: usize = usize::MAX;

/// After this number of consecutive points a thread drops to the lowest priority, because it may be
/// waiting for another thread in a loop.
const STREAK: u64 = 2_000;

/// A schedule with more points than this is treated as endless.
const ENDLESS: u64 = 200_000;

/// The thread that has the baton.
static TURN: AtomicUsize = AtomicUsize::new(NONE);

static RUN: Mutex<Run> = Mutex::new(Run::new());

thread_local! {
    /// The number of this thread, if it is a worker of the explorer.
    static ME: Cell<usize> = const { Cell::new(NONE) };
    /// Whether this thread evaluates a condition, in which there are no scheduling points.
    static IN_CONDITION: Cell<bool> = const { Cell::new(false) };
}

/// A condition of [`wait_until`], on the stack of the thread that waits.
type Condition = *mut (dyn FnMut() -> bool + Send);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Waiting,
    Done,
}

struct Thread {
    name: String,
    state: State,
    priority: u64,
    condition: Option<Condition>,
    place: &'static Location<'static>,
    /// The driver calls that the thread is inside.
    calls: Vec<&'static str>,
    /// The last driver call that the thread made.
    last_call: Option<&'static str>,
    is_callback: bool,
}

impl Thread {
    /// Names the driver call that the thread is inside, or its last one.
    fn call(&self) -> String {
        match (self.calls.last(), self.last_call) {
            (Some(call), _) => format!(" in {call}"),
            (None, Some(call)) => format!(" after {call}"),
            (None, None) => String::new(),
        }
    }
}

// SAFETY: the condition is `Send`, and its thread stays blocked while it is stored here.
unsafe impl Send for Thread {}

/// The parameters of a schedule.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// For a serial schedule, in which threads run one after another: the order of the threads.
    pub(super) serial: Option<bool>,
    /// The steps at which the running thread drops to the lowest priority, in ascending order.
    pub(super) changes: Vec<u64>,
    /// A thread is chosen at random at one point out of `walk` on average; never if 0.
    pub(super) walk: u64,
    /// The device runs an operation by itself at one point out of `eager` on average; never if 0.
    pub(super) eager: u64,
}

/// The schedule under way.
struct Run {
    plan: Plan,
    random: Random,
    threads: Vec<Thread>,
    /// Scheduling points since the second thread was added.
    steps: u64,
    streak: u64,
    last: usize,
    /// The priority of the last thread that dropped below all others.
    lowest: u64,
    /// The priority of the last thread that rose above all others.
    top: u64,
    is_over: bool,
    failure: Option<String>,
}

// SAFETY: see `Thread`.
unsafe impl Sync for Run {}

impl Run {
    const fn new() -> Self {
        Self {
            plan: Plan { seed: 0, serial: None, changes: Vec::new(), walk: 0, eager: 0 },
            random: Random(0),
            threads: Vec::new(),
            steps: 0,
            streak: 0,
            last: NONE,
            lowest: LOWEST,
            top: TOP,
            is_over: true,
            failure: None,
        }
    }

    fn highest(&self) -> Option<usize> {
        let threads = self.threads.iter().enumerate();
        let ready = threads.filter(|(_, thread)| thread.state == State::Ready);
        ready.max_by_key(|(_, thread)| thread.priority).map(|(number, _)| number)
    }

    fn drop_priority(&mut self, thread: usize) {
        self.lowest -= 1;
        self.threads[thread].priority = self.lowest;
    }

    /// Counts a scheduling point of `me` and preempts it there if the schedule says so.
    fn step(&mut self, me: usize) {
        self.steps += 1;
        self.streak = if self.last == me { self.streak + 1 } else { 0 };
        self.last = me;
        let is_change = self.plan.changes.first() == Some(&self.steps);
        if is_change {
            self.plan.changes.remove(0);
        }
        if is_change || self.streak > STREAK {
            self.streak = 0;
            self.drop_priority(me);
        }
        let walk = self.plan.walk;
        if walk != 0 && self.random.below(walk) == 0 {
            let ready = |its: &Thread| its.state == State::Ready;
            let count = self.threads.iter().filter(|its| ready(its)).count();
            let chosen = self.random.below(count as u64) as usize;
            self.top += 1;
            let top = self.top;
            if let Some(its) = self.threads.iter_mut().filter(|its| ready(its)).nth(chosen) {
                its.priority = top;
            }
        }
    }

    /// Describes where each thread waits.
    fn waits(&self) -> String {
        let mut text = String::from("deadlock");
        let mut separator = ": ";
        for its in self.threads.iter().filter(|its| its.state != State::Done) {
            text += &format!("{separator}{} waits{} at {}", its.name, its.call(), its.place);
            separator = "; ";
        }
        text
    }
}

/// Priorities of threads that were preempted are below this, and others above.
const LOWEST: u64 = 1 << 32;

/// Priorities of threads that were chosen at random are above this.
const TOP: u64 = 1 << 63;

/// The splitmix64 generator.
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

fn run() -> MutexGuard<'static, Run> {
    RUN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether the calling thread is run by an [`Explorer`](super::Explorer).
pub fn is_explored() -> bool {
    // During the destruction of its thread-local variables a thread is not explored.
    ME.try_with(Cell::get).is_ok_and(|me| me != NONE)
}

/// Returns the number of the calling thread, if it may be preempted here.
fn explored() -> Option<usize> {
    let me = ME.try_with(Cell::get).ok().filter(|me| *me != NONE)?;
    (!IN_CONDITION.get() && !thread::in_kernel()).then_some(me)
}

/// Lets another thread run, if the schedule says so. Does nothing on threads that are not explored.
#[track_caller]
pub fn point() {
    point_at(Location::caller());
}

/// The same as [`point`], with the source location to name in reports.
pub fn point_at(place: &'static Location<'static>) {
    let Some(me) = explored() else { return };
    let device = {
        let mut run = run();
        run.threads[me].place = place;
        if run.threads.len() > 1 {
            run.step(me);
        }
        if run.steps > ENDLESS {
            let text = format!("no end after {ENDLESS} scheduling points");
            fail(&mut run, text);
            drop(run);
            stay_for_ever();
        }
        let eager = run.plan.eager;
        eager != 0 && run.threads.len() > 1 && run.random.below(eager) == 0
    };
    if device {
        call::device_step();
    }
    switch(me);
}

/// Lets every other thread that is ready run first.
#[track_caller]
pub fn yield_now() {
    yield_at(Location::caller());
}

/// The same as [`yield_now`], with the source location to name in reports.
pub fn yield_at(place: &'static Location<'static>) {
    let Some(me) = explored() else { return };
    run().drop_priority(me);
    point_at(place);
}

/// Blocks the calling thread until `condition` holds.
///
/// The explorer evaluates `condition` at scheduling points, on any of its threads. It must not call
/// the driver and must not block. On a thread that is not explored this spins.
#[track_caller]
pub fn wait_until(mut condition: impl FnMut() -> bool + Send) {
    wait_at(Location::caller(), &mut condition);
}

/// The same as [`wait_until`], with the source location to name in reports.
pub fn wait_at(place: &'static Location<'static>, condition: &mut (dyn FnMut() -> bool + Send)) {
    let Some(me) = explored() else {
        while !condition() {
            std::thread::yield_now();
        }
        return;
    };
    let condition: *mut (dyn FnMut() -> bool + Send + '_) = condition;
    // SAFETY: only the lifetime changes. The condition outlives its use, because it is removed before
    // this function returns, and this function does not unwind.
    let condition = unsafe {
        core::mem::transmute::<*mut (dyn FnMut() -> bool + Send + '_), Condition>(condition)
    };
    {
        let mut run = run();
        let thread = &mut run.threads[me];
        thread.place = place;
        thread.condition = Some(condition);
        thread.state = State::Waiting;
    }
    switch(me);
}

/// Marks the start of a driver call.
pub(crate) fn enter_call(name: &'static str) {
    let Some(me) = explored() else { return };
    point_at(Location::caller());
    run().threads[me].calls.push(name);
}

/// Marks the end of a driver call.
pub(crate) fn leave_call() {
    let Some(me) = explored() else { return };
    {
        let thread = &mut run().threads[me];
        thread.last_call = thread.calls.pop();
    }
    point_at(Location::caller());
}

/// Makes the threads ready whose conditions hold.
fn evaluate() {
    let waiting: Vec<(usize, Condition)> = {
        let run = run();
        let threads = run.threads.iter().enumerate();
        threads.filter_map(|(number, its)| Some((number, its.condition?))).collect()
    };
    for (number, condition) in waiting {
        IN_CONDITION.set(true);
        // SAFETY: the thread of the condition waits in `wait_at` until it is ready, and no other thread
        // runs.
        let holds = unsafe { &mut *condition }();
        IN_CONDITION.set(false);
        if holds {
            let mut run = run();
            let thread = &mut run.threads[number];
            thread.condition = None;
            thread.state = State::Ready;
        }
    }
}

/// Passes the baton to the thread that the schedule chooses, and returns when this thread has it again.
fn switch(me: usize) {
    loop {
        evaluate();
        let mut run = run();
        let chosen = run.highest();
        match chosen {
            Some(chosen) if chosen == me => return,
            Some(chosen) => {
                let is_done = run.threads[me].state == State::Done;
                drop(run);
                TURN.store(chosen, Ordering::Release);
                super::pool::wake(chosen);
                if !is_done {
                    wait_for_turn(me);
                }
                return;
            }
            None if run.threads.iter().all(|its| its.state == State::Done) => {
                run.is_over = true;
                drop(run);
                super::pool::wake_judge();
                return;
            }
            None => {
                drop(run);
                if call::device_step() {
                    continue;
                }
                let mut run = self::run();
                let text = run.waits();
                fail(&mut run, text);
                let is_done = run.threads[me].state == State::Done;
                drop(run);
                if is_done {
                    return;
                }
                stay_for_ever();
            }
        }
    }
}

/// Ends the schedule with a failure. None of its threads runs again.
fn fail(run: &mut Run, reason: String) {
    run.failure.get_or_insert(reason);
    run.is_over = true;
    super::pool::wake_judge();
}

fn stay_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

/// Blocks until this thread has the baton.
fn wait_for_turn(me: usize) {
    while TURN.load(Ordering::Acquire) != me {
        std::thread::park();
    }
}

/// Returns whether a thread has the baton.
pub(super) fn has_turn(number: usize) -> bool {
    TURN.load(Ordering::Acquire) == number
}

/// Makes the calling thread a worker of the explorer.
pub(super) fn become_worker(number: usize) {
    ME.set(number);
}

/// Adds a thread to the schedule and returns its number. The number of a callback that has ended is
/// reused.
pub(super) fn add(name: &str, is_callback: bool, place: &'static Location<'static>) -> usize {
    let mut run = run();
    let priority = match run.plan.serial {
        // The scenario's thread waits for the others, which run one after another.
        Some(false) => (u64::MAX >> 1) - run.threads.len() as u64,
        Some(true) => LOWEST + run.threads.len() as u64,
        None => LOWEST + (run.random.next() >> 2),
    };
    let thread = Thread {
        name: name.to_owned(),
        state: State::Ready,
        priority,
        condition: None,
        place,
        calls: Vec::new(),
        last_call: None,
        is_callback,
    };
    let mut threads = run.threads.iter();
    let free = threads.position(|its| is_callback && its.is_callback && its.state == State::Done);
    match free {
        Some(free) => {
            run.threads[free] = thread;
            free
        }
        None => {
            run.threads.push(thread);
            run.threads.len() - 1
        }
    }
}

/// Marks the end of a thread of the schedule.
pub(super) fn end(me: usize, panic: Option<String>) {
    {
        let mut run = run();
        run.threads[me].state = State::Done;
        if let Some(panic) = panic {
            let text = format!("{} panicked: {panic}", run.threads[me].name);
            fail(&mut run, text);
            return;
        }
    }
    switch(me);
}

/// Begins a schedule. The caller must then add its first thread.
pub(super) fn begin(plan: Plan) {
    let mut run = run();
    let random = Random(plan.seed);
    *run = Run { plan, random, is_over: false, ..Run::new() };
}

/// Returns the number of threads that the schedule has had.
pub(super) fn count() -> usize {
    run().threads.len()
}

/// Gives the baton to the first thread.
pub(super) fn start() {
    TURN.store(0, Ordering::Release);
    super::pool::wake(0);
}

/// Returns whether the schedule is over, and the number of its steps.
pub(super) fn progress() -> (bool, u64) {
    let run = run();
    (run.is_over, run.steps)
}

/// Returns the failure of a schedule that has ended, if any.
pub(super) fn take_failure() -> Option<String> {
    TURN.store(NONE, Ordering::Release);
    run().failure.take()
}

/// Describes where the running thread of a stuck schedule was last seen.
pub(super) fn where_they_are() -> String {
    let run = run();
    let turn = TURN.load(Ordering::Acquire);
    let its = run.threads.get(turn);
    its.map_or_else(String::new, |its| {
        format!("{} blocks{}, last seen at {}", its.name, its.call(), its.place)
    })
}

/// Returns the name of a worker's thread in the schedule.
pub(super) fn name_of(number: usize) -> String {
    let run = run();
    let its = run.threads.get(number);
    its.map_or_else(|| format!("thread {number}"), |its| its.name.clone())
}
