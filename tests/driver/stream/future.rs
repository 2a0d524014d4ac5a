//! Futures of a stream's work, with a minimal executor.

use super::check_panicked;
use crate::common::{self, child};
use crate::module::kernels::{Busy, Fault, Scale};
use cuda_safe::stream::StreamFuture;
use cuda_safe::{DeviceBuffer, Error, Stream};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context as Task, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// Wakes a thread and counts the wake-ups.
struct Waking {
    thread: Thread,
    wakes: AtomicUsize,
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

impl Waking {
    fn this_thread() -> Arc<Self> {
        Arc::new(Self { thread: std::thread::current(), wakes: AtomicUsize::new(0) })
    }

    fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }
}

/// Lets the software driver make progress, which a GPU makes by itself: it works only during waits
/// and queries.
fn work() {
    if common::is_software() {
        cuda_sim::alive();
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waking = Waking::this_thread();
    let waker = Waker::from(Arc::clone(&waking));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Task::from_waker(&waker)) {
            return done;
        }
        work();
        while waking.wakes.swap(0, Ordering::SeqCst) == 0 {
            std::thread::park_timeout(Duration::from_secs(60));
        }
    }
}

/// Runs `body` in a child process, with a stream that is busy and a future of its work.
#[track_caller]
fn with_pending(body: impl FnOnce(&Stream, StreamFuture)) {
    child::with_stream(|context, stream| {
        let busy = Busy::new(&context, &stream);
        body(&stream, stream.completion().expect("a future"));
        drop(busy);
    });
}

fn poll(future: &mut StreamFuture, waking: &Arc<Waking>) -> Poll<cuda_safe::Result<()>> {
    let waker = Waker::from(Arc::clone(waking));
    pin!(future).poll(&mut Task::from_waker(&waker))
}

#[test]
fn a_future_is_ready_when_the_work_before_it_has_completed() {
    with_pending(|stream, mut done| {
        assert_eq!(done.stream(), stream);
        let waking = Waking::this_thread();
        assert!(poll(&mut done, &waking).is_pending(), "there is pending work before it");
        assert_eq!(waking.wakes(), 0);
        block_on(&mut done).expect("no error");
        // Only the end of the callback may be left to run.
        stream.synchronize().expect("a wait");
        assert!(stream.is_complete().expect("a query"));
        // Polling once more does no harm.
        block_on(done).expect("no error");
    });
}

#[test]
fn futures_of_several_streams_are_awaited_together_and_on_other_threads() {
    let context = or_skip!(common::context());
    let scale = Scale::new(&context);
    let mut futures = Vec::new();
    for factor in 1..5 {
        let stream = context.stream().expect("a stream");
        let mut x = DeviceBuffer::from_slice(&stream, &[1, 2, 3]).expect("memory");
        scale.run(&stream, &mut x, factor, 0).expect("a launch");
        futures.push(async move {
            stream.completion()?.await?;
            stream.completion()?.await?;
            x.to_vec()
        });
    }
    let (last, first) = (futures.pop().expect("four"), futures.remove(0));
    // The future is `Send`, and so is a future that holds it across an await.
    let elsewhere = std::thread::spawn(|| block_on(last));
    let here = block_on(async {
        let mut results = vec![first.await];
        for future in futures {
            results.push(future.await);
        }
        results
    });
    let mut all: Vec<Vec<i32>> = here.into_iter().map(|x| x.expect("a copy")).collect();
    all.push(elsewhere.join().expect("no panic").expect("a copy"));
    assert_eq!(all, [[1, 2, 3], [2, 4, 6], [3, 6, 9], [4, 8, 12]]);
}

#[test]
fn the_waker_of_the_last_poll_is_woken_once() {
    with_pending(|stream, mut done| {
        let (first, last) = (Waking::this_thread(), Waking::this_thread());
        assert!(poll(&mut done, &first).is_pending());
        assert!(poll(&mut done, &last).is_pending());
        assert_eq!(Arc::strong_count(&first), 1, "the waker was dropped");
        stream.synchronize().expect("a wait");
        assert_eq!((first.wakes(), last.wakes()), (0, 1));
        assert_eq!(Arc::strong_count(&last), 1, "the waker was dropped");
        assert!(matches!(poll(&mut done, &first), Poll::Ready(Ok(()))));
    });
}

#[test]
fn a_dropped_future_wakes_nothing_and_the_work_continues() {
    with_pending(|stream, mut done| {
        let never_polled = stream.completion().expect("a future");
        let waking = Waking::this_thread();
        assert!(poll(&mut done, &waking).is_pending());
        drop((done, never_polled));
        assert_eq!(Arc::strong_count(&waking), 1, "the waker was dropped");
        stream.synchronize().expect("a wait");
        assert_eq!(waking.wakes(), 0);
    });
}

#[test]
fn a_forgotten_future_does_no_harm() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut done = stream.completion().expect("a future");
    let waking = Waking::this_thread();
    let _ = poll(&mut done, &waking);
    std::mem::forget(done);
    stream.synchronize().expect("a wait");
    stream.synchronize().expect("and another");
}

#[test]
fn a_panic_of_a_host_function_is_the_error_of_the_future() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let fails = || panic!("on purpose, in a host function");
    stream.launch_host_function(fails).expect("a launch");
    check_panicked(block_on(stream.completion().expect("a future")), "on purpose");
    stream.synchronize().expect("reported once");
}

#[test]
fn a_panic_of_a_waker_does_not_unwind_into_the_driver_and_is_reported() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose, in a waker");
        }
    }
    with_pending(|stream, mut done| {
        let waker = Waker::from(Arc::new(Panics));
        assert!(pin!(&mut done).poll(&mut Task::from_waker(&waker)).is_pending());
        check_panicked(stream.synchronize(), "waker");
        block_on(done).expect("the work was done");
    });
}

#[test]
fn a_waker_may_drop_the_future_but_may_not_wait() {
    /// A waker that drops its future and then waits.
    struct Takes {
        future: Mutex<Option<StreamFuture>>,
        waits: Sender<bool>,
        stream: Stream,
    }
    impl Wake for Takes {
        fn wake(self: Arc<Self>) {
            drop(self.future.lock().expect("no panic").take());
            let refused = matches!(self.stream.synchronize(), Err(Error::InHostFunction));
            self.waits.send(refused).expect("the test receives it");
        }
    }
    with_pending(|stream, mut done| {
        let (waits, refused) = channel();
        let (future, stream) = (Mutex::new(None), stream.clone());
        let takes = Arc::new(Takes { future, waits, stream: stream.clone() });
        let waker = Waker::from(Arc::clone(&takes));
        assert!(pin!(&mut done).poll(&mut Task::from_waker(&waker)).is_pending());
        *takes.future.lock().expect("no panic") = Some(done);
        drop(waker);
        stream.synchronize().expect("a wait");
        assert!(refused.recv().expect("the future was woken"));
    });
}

#[cfg(unix)]
#[test]
fn a_future_fails_in_a_forked_child() {
    child::with_stream(|context, stream| {
        let busy = Busy::new(&context, &stream);
        let mut all = Some(stream.completion().expect("a future"));
        let waker = Waker::from(Waking::this_thread());
        let clean = common::fork::in_fork(|| {
            let Some(mut done) = all.take() else {
                return false;
            };
            let polled = pin!(&mut done).poll(&mut Task::from_waker(&waker));
            let refused = matches!(polled, Poll::Ready(Err(Error::Forked)));
            drop(done);
            refused && matches!(stream.completion(), Err(Error::Forked))
        });
        assert!(clean, "the forked child exited cleanly");
        block_on(all.expect("the child has a copy")).expect("the parent continues");
        drop(busy);
    });
}

mod provoked {
    use super::*;

    /// Shows why the older kind of callback is used: after an error the newer kind never runs.
    #[test]
    fn the_future_of_failed_work_returns_its_error() {
        child::with_stream(|context, stream| {
            let fault = Fault::new(&context).expect("a kernel");
            // The kernel waits for this function, so the driver still accepts the callback.
            let (go, gone) = channel::<()>();
            let function = move || {
                let _ = gone.recv();
            };
            stream.launch_host_function(function).expect("a launch");
            fault.launch(&stream).expect("a launch does not wait");
            let done = stream.completion().expect("a future");
            go.send(()).expect("the function listens");
            let error = block_on(done).expect_err("an illegal address");
            assert!(error.is_fatal(), "{error}");
        });
    }
}
