//! The scenarios. Each file has one subject.

mod captures;
mod collectives;
mod events;
mod graphs;
mod kernels;
mod managers;
mod mapped_memory;
mod memory;
mod objects;
mod order;
mod pairs;
mod regressions;

use cuda_safe::{Context, Device, PinnedBuffer, Stream};
use cuda_sim::explore;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) devices: u32,
    /// Whether objects may be lost if the loss is reported.
    pub(crate) may_report: bool,
    pub(crate) body: Box<dyn Fn() + Send + Sync>,
}

impl Scenario {
    fn new(name: impl Into<String>, body: impl Fn() + Send + Sync + 'static) -> Self {
        Self { name: name.into(), devices: 1, may_report: false, body: Box::new(body) }
    }

    fn on_devices(self, devices: u32) -> Self {
        Self { devices, ..self }
    }
}

/// All scenarios.
pub(crate) fn all() -> Vec<Scenario> {
    let mut all = regressions::all();
    all.extend(collectives::all());
    all.extend(events::all());
    all.extend(graphs::all());
    all.extend(kernels::all());
    all.extend(mapped_memory::all());
    all.extend(pairs::all());
    all
}

/// The number of elements of the buffers here.
const LEN: usize = 16;

pub(crate) const VECTOR: &str = include_str!("../kernels/vector.ptx");

/// Completes deferred releases, with more calls than the number of retries of a release.
pub(crate) fn settle() {
    cuda_safe::manager::clear_memory_manager();
    for _ in 0..24 {
        if cuda_sim::alive() == cuda_sim::Alive::default() {
            return;
        }
        let drain = || context(0).stream()?.synchronize();
        // An error is reported as one of the leaks afterwards.
        let _ = drain();
    }
}

pub(crate) fn context(device: u32) -> Context {
    let device = Device::get(device).expect("a device");
    Context::primary(&device).expect("a primary context")
}

fn pinned(context: &Context, value: u32) -> PinnedBuffer<u32> {
    let mut buffer = PinnedBuffer::zeroed(context, LEN).expect("pinned memory");
    buffer.fill(value);
    buffer
}

/// A flag that threads set and wait for.
#[derive(Clone, Default)]
struct Flag(Arc<AtomicBool>);

impl Flag {
    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    #[track_caller]
    fn wait(&self) {
        explore::wait_until(|| self.is_set());
    }
}

/// State shared by two threads: one runs an operation on the stream, and the other captures the
/// stream.
#[derive(Clone)]
struct Stage {
    context: Context,
    /// The stream that both threads use.
    stream: Stream,
    /// Another stream, on which a joining capture begins.
    other: Stream,
    /// Set when the capture is open.
    open: Flag,
    /// Set when the capturing thread has ended.
    done: Flag,
}

impl Stage {
    fn new() -> Self {
        let context = context(0);
        Self {
            stream: context.stream().expect("a stream"),
            other: context.stream().expect("a stream"),
            context,
            open: Flag::default(),
            done: Flag::default(),
        }
    }
}

/// Objects to keep until both threads have ended.
type Kept = Box<dyn Any + Send>;

/// The code of one thread, with its objects.
type Part = Box<dyn FnOnce() -> Kept + Send>;

/// Wraps code that keeps nothing.
fn part(body: impl FnOnce() + Send + 'static) -> Part {
    Box::new(move || {
        body();
        Box::new(())
    })
}

/// Wraps code that returns objects to keep.
fn keeping<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Part {
    Box::new(move || Box::new(body()))
}
