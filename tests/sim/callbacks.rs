//! Host functions that run while other threads, or they themselves, call the driver.

use crate::on;
use core::ffi::c_void;
use cuda_safe::Stream;
use cuda_safe::sys::{CUresult, cuLaunchHostFunc, cuStreamQuery, cuStreamSynchronize};
use cuda_sim::Profile;
use std::sync::mpsc;

const NOT_PERMITTED: CUresult = CUresult::CUDA_ERROR_NOT_PERMITTED;

/// Gives a stream a function by a raw call: the safe layer would refuse the waits in it.
fn launch(stream: &Stream, function: impl FnOnce() + Send + 'static) {
    type Boxed = Box<dyn FnOnce() + Send>;
    unsafe extern "C" fn run(data: *mut c_void) {
        // SAFETY: the data is the box below, and this runs once.
        let function = unsafe { Box::from_raw(data.cast::<Boxed>()) };
        function();
    }
    let function: Boxed = Box::new(function);
    let data = Box::into_raw(Box::new(function)).cast();
    // SAFETY: the function takes the box, once.
    let code = unsafe { cuLaunchHostFunc(stream.as_raw(), Some(run), data) };
    assert!(code.is_success(), "{code}");
}

/// A stream's handle, for functions that run on other threads.
#[derive(Clone, Copy)]
struct Raw(usize);

impl Raw {
    fn of(stream: &Stream) -> Self {
        Self(stream.as_raw().expose_provenance())
    }

    fn synchronize(self) -> CUresult {
        // SAFETY: the tests keep the stream.
        unsafe { cuStreamSynchronize(std::ptr::with_exposed_provenance_mut(self.0)) }
    }

    fn query(self) -> CUresult {
        // SAFETY: the tests keep the stream.
        unsafe { cuStreamQuery(std::ptr::with_exposed_provenance_mut(self.0)) }
    }
}

/// The mistakes, of which a test expects this one; the process then ends without `on`'s checks.
#[track_caller]
fn one_mistake(words: &str) {
    let mistakes = cuda_sim::mistakes();
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    assert!(mistakes[0].contains(words), "{mistakes:?}");
}

#[track_caller]
fn with_mistake(words: &str, body: impl FnOnce(cuda_safe::Context)) {
    crate::common::child::in_child(&[], || {
        crate::start(Profile::h200());
        body(crate::context());
        one_mistake(words);
    });
}

#[test]
fn a_wait_ends_after_the_host_function_that_another_thread_runs() {
    on(Profile::h200(), |context| {
        let stream = context.stream().expect("a stream");
        let (begins, begun) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let (tell, order) = mpsc::channel();
        let inside = tell.clone();
        launch(&stream, move || {
            begins.send(()).expect("the test listens");
            ends.recv().expect("the test says when");
            inside.send("the function ends").expect("the test listens");
        });
        // What is behind it waits as well.
        launch(&stream, {
            let tell = tell.clone();
            move || tell.send("the next").expect("the test listens")
        });
        let raw = Raw::of(&stream);
        std::thread::scope(|scope| {
            scope.spawn(|| stream.synchronize().expect("a wait"));
            begun.recv().expect("it begins");
            assert_eq!(raw.query(), CUresult::CUDA_ERROR_NOT_READY);
            let waiting = scope.spawn(|| {
                tell.send("waiting").expect("the test listens");
                stream.synchronize().expect("a wait");
                tell.send("waited").expect("the test listens");
            });
            assert_eq!(order.recv(), Ok("waiting"));
            end.send(()).expect("the function listens");
            waiting.join().expect("no panic");
        });
        let order: Vec<_> = order.try_iter().collect();
        assert_eq!(order, ["the function ends", "the next", "waited"]);
    });
}

#[test]
fn a_host_function_that_waits_for_its_own_stream_is_refused() {
    with_mistake("waits for work that is behind it", |context| {
        let stream = context.stream().expect("a stream");
        let (sender, answers) = mpsc::channel();
        let (raw, after) = (Raw::of(&stream), sender.clone());
        launch(&stream, move || {
            assert_eq!(raw.query(), CUresult::CUDA_ERROR_NOT_READY);
            sender.send(raw.synchronize()).expect("the test listens");
        });
        launch(&stream, move || {
            let answer = CUresult::CUDA_SUCCESS;
            after.send(answer).expect("the test listens");
        });
        stream.synchronize().expect("a wait");
        let answers: Vec<_> = answers.try_iter().collect();
        assert_eq!(answers, [NOT_PERMITTED, CUresult::CUDA_SUCCESS]);
    });
}

#[test]
fn host_functions_of_two_threads_that_wait_for_each_other_are_refused() {
    with_mistake("waits for work that is behind it", |context| {
        let streams = [(); 2].map(|()| context.stream().expect("a stream"));
        let barrier = std::sync::Arc::new(std::sync::Barrier::new(2));
        let (sender, answers) = mpsc::channel();
        for (own, other) in [(0, 1), (1, 0)] {
            let (raw, sender) = (Raw::of(&streams[other]), sender.clone());
            let barrier = barrier.clone();
            launch(&streams[own], move || {
                barrier.wait();
                sender.send(raw.synchronize()).expect("the test listens");
            });
        }
        std::thread::scope(|scope| {
            for stream in &streams {
                scope.spawn(|| stream.synchronize().expect("a wait"));
            }
        });
        // One is refused, so that its function ends and the other's wait with it.
        let mut answers: Vec<_> = answers.try_iter().map(|code| code.0).collect();
        answers.sort_unstable();
        assert_eq!(answers, [CUresult::CUDA_SUCCESS.0, NOT_PERMITTED.0]);
    });
}

#[test]
fn what_is_alive_can_be_asked_in_a_host_function() {
    on(Profile::h200(), |context| {
        let (a, b) = (
            context.stream().expect("a stream"),
            context.stream().expect("a stream"),
        );
        let (sender, order) = mpsc::channel();
        let (first, behind) = (sender.clone(), sender.clone());
        launch(&a, move || {
            cuda_sim::alive();
            first.send("asked").expect("the test listens");
        });
        launch(&a, move || behind.send("behind").expect("listens"));
        launch(&b, move || sender.send("beside").expect("listens"));
        a.synchronize().expect("a wait");
        b.synchronize().expect("a wait");
        let order: Vec<_> = order.try_iter().collect();
        let position = |what| order.iter().position(|it| *it == what);
        assert!(position("asked") < position("behind"), "{order:?}");
        assert!(position("beside") < position("asked"), "{order:?}");
    });
}
