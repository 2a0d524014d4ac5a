//! Host functions that run while other threads, or the host functions themselves, call the driver.

use crate::prelude::*;
use CUstreamCaptureMode as Mode;

const NOT_PERMITTED: CUresult = CUresult::CUDA_ERROR_NOT_PERMITTED;

/// Enqueues a host function with a raw call, because the safe layer would refuse the waits in it.
pub(crate) fn launch(stream: &Stream, function: impl FnOnce() + Send + 'static) {
    type Boxed = Box<dyn FnOnce() + Send>;
    unsafe extern "C" fn run(data: *mut c_void) {
        // SAFETY: the data is the box below, and this function runs once.
        let function = unsafe { Box::from_raw(data.cast::<Boxed>()) };
        function();
    }
    let function: Boxed = Box::new(function);
    let data = Box::into_raw(Box::new(function)).cast();
    // SAFETY: the function takes ownership of the box, once.
    let code = unsafe { cuLaunchHostFunc(stream.as_raw(), Some(run), data) };
    assert!(code.is_success(), "{code}");
}

/// The handle of a stream, for functions that run on other threads.
#[derive(Clone, Copy)]
struct Raw(usize);

impl Raw {
    fn of(stream: &Stream) -> Self {
        Self(stream.as_raw().expose_provenance())
    }

    fn synchronize(self) -> CUresult {
        // SAFETY: the tests keep the stream alive.
        unsafe { cuStreamSynchronize(std::ptr::with_exposed_provenance_mut(self.0)) }
    }

    fn query(self) -> CUresult {
        // SAFETY: the tests keep the stream alive.
        unsafe { cuStreamQuery(std::ptr::with_exposed_provenance_mut(self.0)) }
    }
}

/// Checks the misuses, which must be the expected one, and exits the process without the checks of
/// `on`.
#[track_caller]
pub(crate) fn one_misuse(words: &str) {
    let misuses = cuda_sim::misuses();
    assert_eq!(misuses.len(), 1, "{misuses:?}");
    assert!(misuses[0].contains(words), "{misuses:?}");
}

pub(crate) fn with_misuse(words: &'static str) -> (AtEnd, Context) {
    start(Profile::h200());
    (AtEnd::new(|| one_misuse(words)), context())
}

#[test]
fn a_wait_ends_after_a_host_function_that_another_thread_runs() {
    let (_end, _context, stream) = in_child!(on_stream());
    let (begins, begun) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let (tell, order) = mpsc::channel();
    let inside = tell.clone();
    launch(&stream, move || {
        begins.send(()).expect("the test receives it");
        ends.recv().expect("the test says when to continue");
        inside.send("the function ends").expect("the test receives it");
    });
    // The work after it waits too.
    launch(&stream, {
        let tell = tell.clone();
        move || tell.send("the next").expect("the test receives it")
    });
    let raw = Raw::of(&stream);
    std::thread::scope(|scope| {
        scope.spawn(|| stream.synchronize().expect("a wait"));
        begun.recv().expect("it begins");
        assert_eq!(raw.query(), CUresult::CUDA_ERROR_NOT_READY);
        let waiting = scope.spawn(|| {
            tell.send("waiting").expect("the test receives it");
            stream.synchronize().expect("a wait");
            tell.send("waited").expect("the test receives it");
        });
        assert_eq!(order.recv(), Ok("waiting"));
        end.send(()).expect("the function listens");
        waiting.join().expect("no panic");
    });
    let order: Vec<_> = order.try_iter().collect();
    assert_eq!(order, ["the function ends", "the next", "waited"]);
}

#[test]
fn a_host_function_that_waits_for_its_own_stream_is_refused() {
    let (_end, context) = in_child!(with_misuse("waits for work that comes after it"));
    let stream = context.stream().expect("a stream");
    let (sender, answers) = mpsc::channel();
    let (raw, after) = (Raw::of(&stream), sender.clone());
    launch(&stream, move || {
        assert_eq!(raw.query(), CUresult::CUDA_ERROR_NOT_READY);
        sender.send(raw.synchronize()).expect("the test receives it");
    });
    launch(&stream, move || {
        after.send(CUresult::CUDA_SUCCESS).expect("the test receives it");
    });
    stream.synchronize().expect("a wait");
    let answers: Vec<_> = answers.try_iter().collect();
    assert_eq!(answers, [NOT_PERMITTED, CUresult::CUDA_SUCCESS]);
}

#[test]
fn host_functions_of_two_threads_that_wait_for_each_other_are_refused() {
    let (_end, context) = in_child!(with_misuse("waits for work that comes after it"));
    let streams = [(); 2].map(|()| context.stream().expect("a stream"));
    let barrier = Arc::new(std::sync::Barrier::new(2));
    let (sender, answers) = mpsc::channel();
    for (own, other) in [(0, 1), (1, 0)] {
        let (raw, sender) = (Raw::of(&streams[other]), sender.clone());
        let barrier = barrier.clone();
        launch(&streams[own], move || {
            barrier.wait();
            sender.send(raw.synchronize()).expect("the test receives it");
        });
    }
    std::thread::scope(|scope| {
        for stream in &streams {
            scope.spawn(|| stream.synchronize().expect("a wait"));
        }
    });
    // One wait is refused, so its function returns, and then the wait of the other ends.
    let mut answers: Vec<_> = answers.try_iter().map(|code| code.0).collect();
    answers.sort_unstable();
    assert_eq!(answers, [CUresult::CUDA_SUCCESS.0, NOT_PERMITTED.0]);
}

#[test]
fn live_objects_can_be_counted_in_a_host_function() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (a, b) = (context.stream().expect("a stream"), context.stream().expect("a stream"));
    let (sender, order) = mpsc::channel();
    let (first, behind) = (sender.clone(), sender.clone());
    launch(&a, move || {
        cuda_sim::alive();
        first.send("asked").expect("the test receives it");
    });
    launch(&a, move || behind.send("behind").expect("listens"));
    launch(&b, move || sender.send("beside").expect("listens"));
    a.synchronize().expect("a wait");
    b.synchronize().expect("a wait");
    let order: Vec<_> = order.try_iter().collect();
    let position = |what| order.iter().position(|it| *it == what);
    assert!(position("asked") < position("behind"), "{order:?}");
    assert!(position("beside") < position("asked"), "{order:?}");
}

#[test]
fn a_nested_host_function_leaves_the_outer_one_a_callback() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (a, b) = (context.stream().expect("a stream"), context.stream().expect("a stream"));
    let (sender, answers) = mpsc::channel();
    let raw = Raw::of(&b);
    // The other stream gets its function after this one has begun.
    let (begins, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    launch(&a, move || {
        begins.send(()).expect("the test receives it");
        gone.recv().expect("the test says when to continue");
        assert_eq!(raw.synchronize(), CUresult::CUDA_SUCCESS);
        let mut address = 0;
        // SAFETY: the pointer refers to a local variable, and the call is refused.
        let code = unsafe { cuMemAlloc_v2(&raw mut address, 64) };
        sender.send(code).expect("the test receives it");
    });
    std::thread::scope(|scope| {
        scope.spawn(|| a.synchronize().expect("a wait"));
        begun.recv().expect("it begins");
        launch(&b, || {});
        go.send(()).expect("the function listens");
    });
    assert_eq!(answers.try_recv(), Ok(NOT_PERMITTED));
}

fn exchange(mut mode: Mode) -> Mode {
    // SAFETY: the pointer refers to a local variable.
    let code = unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    assert!(code.is_success(), "{code}");
    mode
}

#[test]
fn a_host_function_does_not_change_the_waiting_threads_stack_and_mode() {
    let (_end, context, stream) = in_child!(on_stream());
    let current = context.make_current().expect("current");
    let before = exchange(Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    launch(&stream, || {
        assert_eq!(cuda_sim::stack_depth(), 0);
        let mut popped = std::ptr::null_mut();
        // SAFETY: the pointer refers to a local variable.
        let code = unsafe { cuCtxPopCurrent_v2(&raw mut popped) };
        assert_eq!(code, NOT_PERMITTED);
        // SAFETY: null makes no context current.
        let code = unsafe { cuCtxSetCurrent(std::ptr::null_mut()) };
        assert_eq!(code, NOT_PERMITTED);
        exchange(Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
    });
    stream.synchronize().expect("a wait");
    assert_eq!(cuda_sim::stack_depth(), 1);
    assert_eq!(exchange(before), Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    current.end().expect("still the innermost");
}

#[test]
fn a_call_that_waits_enqueues_its_work_once() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let blocking = StreamOptions { blocking: true, ..Default::default() };
    let stream = context.stream_with(blocking).expect("a stream");
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 8).expect("memory");
    let _current = context.make_current().expect("current");
    // The source is read when the call is made, and not later.
    let mut source = Box::new([1u8; 8]);
    let from = source.as_mut_ptr();
    let place = from.expose_provenance();
    for _ in 0..3 {
        launch(&stream, move || {
            let place = std::ptr::with_exposed_provenance_mut::<u8>(place);
            // SAFETY: the source is alive, and only the call below reads it, on this thread.
            let before = unsafe { place.read() };
            // SAFETY: as above.
            unsafe { place.write(before + 1) };
        });
    }
    // SAFETY: both sides have 8 bytes.
    let code = unsafe { cuMemcpyHtoD_v2(buffer.as_raw(), from.cast(), 8) };
    assert!(code.is_success(), "{code}");
    assert_eq!(buffer.to_vec().expect("a copy"), [1; 8]);
    drop(source);
}

#[test]
fn a_wait_uses_the_record_before_an_event_is_recorded_again_in_a_host_function() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (a, b) = (context.stream().expect("a stream"), context.stream().expect("a stream"));
    let event = context.event().expect("an event");
    let (raw, other) = (event.as_raw().expose_provenance(), Raw::of(&b));
    // The second record is enqueued after this function.
    let (begins, begun) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    launch(&b, move || {
        begins.send(()).expect("the test receives it");
        ends.recv().expect("the test says when to continue");
    });
    std::thread::scope(|scope| {
        scope.spawn(|| b.synchronize().expect("a wait"));
        begun.recv().expect("it begins");
        launch(&a, move || {
            let event = std::ptr::with_exposed_provenance_mut(raw);
            let other = std::ptr::with_exposed_provenance_mut(other.0);
            // SAFETY: both objects are alive.
            let code = unsafe { cuEventRecord(event, other) };
            assert!(code.is_success(), "{code}");
        });
        event.record(&a).expect("a record");
        event.synchronize().expect("not for the work after the function");
        end.send(()).expect("the function listens");
    });
}

#[test]
fn a_green_context_destroyed_before_its_streams_is_one_misuse() {
    let (_end, context) = in_child!(with_misuse("destroyed before its streams"));
    use cuda_safe::green::{GreenContext, SmResource, SplitByCount};
    let resource = SmResource::of_device(&context.device()).expect("an H200 has green contexts");
    let split = resource.split_by_count(SplitByCount { max_groups: Some(1), ..Default::default() });
    let group = split.expect("a split").groups.pop().expect("a group");
    let green = GreenContext::new([group]).expect("a green context");
    let stream = green.stream().expect("a stream");
    launch(&stream, || {});
    launch(&stream, || {});
    // SAFETY: the contract is violated on purpose: the stream still exists, which is the
    // misuse.
    let code = unsafe { cuGreenCtxDestroy(green.as_raw()) };
    assert!(code.is_success(), "{code}");
    std::mem::forget((stream, green));
}

#[test]
fn pinned_memory_may_change_while_a_copy_reads_it() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut pinned = PinnedBuffer::<u8>::zeroed(&context, 4096).expect("memory");
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 4096).expect("memory");
    stream.synchronize().expect("a wait");
    {
        let _fails = Fault::of_function("cuStreamSynchronize").inject(Scope::Thread);
        buffer.copy_from_slice(&pinned).expect_err("the fault");
    }
    // The copy is still pending. The change is not an error, and the copied byte may have
    // either value.
    let start = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            stream.synchronize().expect("a wait");
        });
        start.wait();
        pinned[0] = 7;
    });
    let copied = buffer.to_vec().expect("a copy");
    assert!(matches!(copied[0], 0 | 7), "{}", copied[0]);
    assert_eq!(copied[1..], pinned[1..]);
}
