//! The threads on which explorations run. They are reused by later schedules.

use super::baton;
use std::any::Any;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Thread, ThreadId};

type Job = Box<dyn FnOnce() + Send>;

struct Worker {
    thread: Thread,
    job: Option<Job>,
}

static WORKERS: Mutex<Vec<Worker>> = Mutex::new(Vec::new());

/// The thread that runs the exploration and waits for the end of a schedule.
static JUDGE: Mutex<Option<Thread>> = Mutex::new(None);

fn workers() -> MutexGuard<'static, Vec<Worker>> {
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn wake(number: usize) {
    if let Some(worker) = workers().get(number) {
        worker.thread.unpark();
    }
}

pub(super) fn wake_judge() {
    let judge = JUDGE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(judge) = &*judge {
        judge.unpark();
    }
}

pub(super) fn set_judge(judge: Option<Thread>) {
    *JUDGE.lock().unwrap_or_else(PoisonError::into_inner) = judge;
}

/// Returns the ids of the workers in the order of their numbers.
pub(super) fn ids() -> Vec<ThreadId> {
    workers().iter().map(|its| its.thread.id()).collect()
}

/// Assigns a job to a worker, which runs it when it gets the baton.
fn give(number: usize, job: Job) -> ThreadId {
    let mut workers = workers();
    if workers.len() == number {
        let name = format!("explorer {number}");
        let thread = std::thread::Builder::new().name(name);
        let spawned = thread.spawn(move || work(number));
        let thread = spawned.expect("the system has threads").thread().clone();
        workers.push(Worker { thread, job: None });
    }
    let worker = &mut workers[number];
    worker.job = Some(job);
    worker.thread.id()
}

fn work(number: usize) {
    baton::become_worker(number);
    loop {
        let Some(job) = take(number) else {
            // The worker has no job, or another thread has the baton.
            std::thread::park();
            continue;
        };
        let panic = catch_unwind(AssertUnwindSafe(job)).err().map(words_of);
        baton::end(number, panic);
    }
}

fn take(number: usize) -> Option<Job> {
    let mut workers = workers();
    let job = workers.get_mut(number).map(|its| &mut its.job);
    job.filter(|_| baton::has_turn(number))?.take()
}

fn words_of(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast::<String>().map(|text| *text);
    let text = text.or_else(|other| other.downcast::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|other| {
        // Leaked, because dropping the payload may panic again.
        std::mem::forget(other);
        "with a payload that is not a string".to_owned()
    })
}

/// Handle of a thread of a scenario, returned by [`spawn`].
#[derive(Debug)]
pub struct JoinHandle<T> {
    result: Arc<Mutex<Option<T>>>,
    is_over: Arc<AtomicBool>,
}

impl<T> JoinHandle<T> {
    /// Waits until the thread ends and returns its result.
    ///
    /// # Panics
    /// The thread has panicked, so there is no result. The explorer reports the panic and does not run
    /// any thread of the scenario again.
    #[track_caller]
    pub fn join(self) -> T {
        self.wait();
        let result = self.result.lock();
        let result = result.unwrap_or_else(PoisonError::into_inner).take();
        result.expect("the thread panicked")
    }

    #[track_caller]
    fn wait(&self) {
        let is_over = &self.is_over;
        baton::wait_until(|| is_over.load(Ordering::Acquire));
    }

    /// Returns whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// Starts a thread of the scenario. Reports identify it by `name`.
///
/// # Panics
/// The calling thread is not explored.
#[track_caller]
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    assert!(baton::is_explored(), "`explore::spawn` was called outside of an exploration");
    let handle = JoinHandle { result: Arc::default(), is_over: Arc::default() };
    let (result, is_over) = (Arc::clone(&handle.result), Arc::clone(&handle.is_over));
    let number = baton::add(name, false, Location::caller());
    give(
        number,
        Box::new(move || {
            let made = body();
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
            is_over.store(true, Ordering::Release);
        }),
    );
    handle
}

/// Starts a driver thread that runs a callback.
#[track_caller]
pub(crate) fn spawn_callback(body: impl FnOnce() + Send + 'static) -> ThreadId {
    let number = baton::add("the driver's thread", true, Location::caller());
    give(number, Box::new(body))
}

/// Adds a thread to a schedule that [`baton::start`] starts.
pub(super) fn add(name: &str, body: impl FnOnce() + Send + 'static) {
    let number = baton::add(name, false, Location::caller());
    give(number, Box::new(body));
}
