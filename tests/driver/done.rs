//! Futures of a stream's work, with an executor of a few lines.

use crate::common::{self, child};
use crate::kernels::{Busy, Scale};
use crate::need;
use cuda_safe::{DeviceBuffer, Error};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Task, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// Wakes a thread, and counts.
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
        Arc::new(Self {
            thread: std::thread::current(),
            wakes: AtomicUsize::new(0),
        })
    }

    fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }
}

/// What a GPU does by itself: the software driver works only when somebody waits or asks.
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

fn poll(future: &mut cuda_safe::Done, waking: &Arc<Waking>) -> Poll<cuda_safe::Result<()>> {
    let waker = Waker::from(Arc::clone(waking));
    pin!(future).poll(&mut Task::from_waker(&waker))
}

#[test]
fn a_future_is_ready_when_the_work_before_it_is_done() {
    need!(common::gpu());
    child::in_child(&[], || {
        let context = need!(common::context());
        let stream = context.stream().expect("a stream");
        let busy = Busy::new(&context, &stream);
        let mut done = stream.done().expect("a future");
        assert_eq!(done.stream(), &stream);
        let waking = Waking::this_thread();
        assert!(
            poll(&mut done, &waking).is_pending(),
            "there is work before it"
        );
        assert_eq!(waking.wakes(), 0);
        block_on(&mut done).expect("no error");
        // What is left of it is the end of the callback.
        stream.synchronize().expect("a wait");
        assert!(stream.is_idle().expect("a query"));
        // Once more does no harm.
        block_on(done).expect("no error");
        drop(busy);
    });
}

#[test]
fn futures_of_several_streams_are_awaited_together_and_on_other_threads() {
    let context = need!(common::context());
    let scale = Scale::new(&context);
    let mut futures = Vec::new();
    for factor in 1..5 {
        let stream = context.stream().expect("a stream");
        let mut x = DeviceBuffer::from_slice(&stream, &[1, 2, 3]).expect("memory");
        scale.run(&stream, &mut x, factor, 0).expect("a launch");
        futures.push(async move {
            stream.done()?.await?;
            stream.done()?.await?;
            x.to_vec()
        });
    }
    let (last, first) = (futures.pop().expect("four"), futures.remove(0));
    // It is Send, as is what holds it across an await.
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
    need!(common::gpu());
    child::in_child(&[], || {
        let context = need!(common::context());
        let stream = context.stream().expect("a stream");
        let busy = Busy::new(&context, &stream);
        let mut done = stream.done().expect("a future");
        let (first, last) = (Waking::this_thread(), Waking::this_thread());
        assert!(poll(&mut done, &first).is_pending());
        assert!(poll(&mut done, &last).is_pending());
        assert_eq!(Arc::strong_count(&first), 1, "it is not kept");
        stream.synchronize().expect("a wait");
        assert_eq!((first.wakes(), last.wakes()), (0, 1));
        assert_eq!(Arc::strong_count(&last), 1, "it is not kept");
        assert!(matches!(poll(&mut done, &first), Poll::Ready(Ok(()))));
        drop(busy);
    });
}

#[test]
fn a_future_that_is_dropped_wakes_nobody_and_the_work_goes_on() {
    need!(common::gpu());
    child::in_child(&[], || {
        let context = need!(common::context());
        let stream = context.stream().expect("a stream");
        let busy = Busy::new(&context, &stream);
        let mut done = stream.done().expect("a future");
        let never_polled = stream.done().expect("a future");
        let waking = Waking::this_thread();
        assert!(poll(&mut done, &waking).is_pending());
        drop((done, never_polled));
        assert_eq!(Arc::strong_count(&waking), 1, "it is not kept");
        stream.synchronize().expect("a wait");
        assert_eq!(waking.wakes(), 0);
        drop(busy);
    });
}

#[test]
fn a_future_that_is_forgotten_does_no_harm() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let mut done = stream.done().expect("a future");
    let waking = Waking::this_thread();
    let _ = poll(&mut done, &waking);
    std::mem::forget(done);
    stream.synchronize().expect("a wait");
    stream.synchronize().expect("and another");
}

#[test]
fn a_panic_of_a_host_function_is_the_futures_error() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let fails = || panic!("on purpose, in a host function");
    stream.launch_host_function(fails).expect("a launch");
    match block_on(stream.done().expect("a future")) {
        Err(Error::HostFunctionPanicked(message)) => assert!(message.contains("on purpose")),
        done => panic!("{done:?}"),
    }
    stream.synchronize().expect("told once");
}

#[test]
fn a_panic_of_a_waker_stays_out_of_the_driver_and_is_told() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose, in a waker");
        }
    }
    need!(common::gpu());
    child::in_child(&[], || {
        let context = need!(common::context());
        let stream = context.stream().expect("a stream");
        let busy = Busy::new(&context, &stream);
        let mut done = stream.done().expect("a future");
        let waker = Waker::from(Arc::new(Panics));
        assert!(
            pin!(&mut done)
                .poll(&mut Task::from_waker(&waker))
                .is_pending()
        );
        match stream.synchronize() {
            Err(Error::HostFunctionPanicked(message)) => assert!(message.contains("waker")),
            done => panic!("{done:?}"),
        }
        block_on(done).expect("the work was done");
        drop(busy);
    });
}

#[test]
fn a_waker_may_drop_the_future_and_waits_in_it_are_refused() {
    /// Takes its future along, and waits.
    struct Takes {
        future: std::sync::Mutex<Option<cuda_safe::Done>>,
        waits: std::sync::mpsc::Sender<bool>,
        stream: cuda_safe::Stream,
    }
    impl Wake for Takes {
        fn wake(self: Arc<Self>) {
            drop(self.future.lock().expect("no panic").take());
            let refused = matches!(self.stream.synchronize(), Err(Error::InHostFunction));
            self.waits.send(refused).expect("the test listens");
        }
    }
    need!(common::gpu());
    child::in_child(&[], || {
        let context = need!(common::context());
        let stream = context.stream().expect("a stream");
        let busy = Busy::new(&context, &stream);
        let mut done = stream.done().expect("a future");
        let (waits, refused) = std::sync::mpsc::channel();
        let takes = Arc::new(Takes {
            future: std::sync::Mutex::new(None),
            waits,
            stream: stream.clone(),
        });
        let waker = Waker::from(Arc::clone(&takes));
        assert!(
            pin!(&mut done)
                .poll(&mut Task::from_waker(&waker))
                .is_pending()
        );
        *takes.future.lock().expect("no panic") = Some(done);
        drop(waker);
        stream.synchronize().expect("a wait");
        assert!(refused.recv().expect("it was woken"));
        drop(busy);
    });
}

#[cfg(unix)]
#[test]
fn in_a_forked_child_a_future_is_an_error() {
    need!(common::gpu());
    child::in_child(&[], || {
        let context = need!(common::context());
        let stream = context.stream().expect("a stream");
        let busy = Busy::new(&context, &stream);
        let mut all = Some(stream.done().expect("a future"));
        let waking = Waking::this_thread();
        let waker = Waker::from(waking);
        let clean = common::fork::in_fork(|| {
            let Some(mut done) = all.take() else {
                return false;
            };
            let polled = pin!(&mut done).poll(&mut Task::from_waker(&waker));
            let refused = matches!(polled, Poll::Ready(Err(Error::Forked)));
            drop(done);
            refused && matches!(stream.done(), Err(Error::Forked))
        });
        assert!(clean, "the forked child ended cleanly");
        block_on(all.expect("the child has a copy")).expect("the parent goes on");
        drop(busy);
    });
}

mod provoked {
    use super::block_on;
    use crate::common::{self, child};
    use crate::kernels::vector;
    use crate::need;
    use cuda_safe::LaunchConfig;

    /// The reason for the older kind of callback: the newer is never run.
    #[test]
    fn the_future_of_work_that_fails_is_its_error() {
        need!(common::gpu());
        child::in_child(&[], || {
            let context = need!(common::context());
            let stream = context.stream().expect("a stream");
            let scale = vector(&context).kernel("scale").expect("is in the module");
            let scale = scale.typed::<(u64, i32, i32, u32)>().expect("its sizes");
            // The kernel comes behind this, so that the driver takes the callback.
            let (go, gone) = std::sync::mpsc::channel::<()>();
            let function = move || {
                let _ = gone.recv();
            };
            stream.launch_host_function(function).expect("a launch");
            // SAFETY: not kept, on purpose: the kernel writes to an address that is nobody's. The
            // device notices, and this process does not use it any more.
            unsafe { scale.launch(&stream, LaunchConfig::linear(1, 32), (64, 1, 1, 32)) }
                .expect("a launch does not wait");
            let done = stream.done().expect("a future");
            go.send(()).expect("the function listens");
            let error = block_on(done).expect_err("an illegal address");
            assert!(error.is_fatal(), "{error}");
        });
    }
}
