//! Aborts: of operations that wait for another rank, of calls, and of drops.

use crate::machine::{communicators, streams};
use cuda_nccl::{Communicator, Config, Error, ReduceOp, UniqueId, group};
use cuda_safe::DeviceBuffer;
use std::time::{Duration, Instant};

/// Returns two communicators that have exchanged something, since the first operation creates connections.
#[track_caller]
fn pair() -> Option<[Communicator; 2]> {
    let pair: [Communicator; 2] = communicators(2)?.try_into().ok()?;
    let buffers = pair.each_ref().map(|its| DeviceBuffer::<f32>::zeroed(its.stream(), 4));
    let mut buffers = buffers.map(|buffer| buffer.expect("memory"));
    group(|group| {
        for (its, buffer) in pair.iter().zip(&mut buffers) {
            group.all_reduce_in_place(its, buffer, ReduceOp::Sum)?;
        }
        Ok(())
    })
    .expect("a sum");
    for its in &pair {
        its.stream().synchronize().expect("complete work");
    }
    Some(pair)
}

/// Enqueues an operation that waits for the other rank.
fn hang(communicator: &Communicator) -> DeviceBuffer<f32> {
    let mut buffer = DeviceBuffer::zeroed(communicator.stream(), 1000).expect("memory");
    communicator.all_reduce_in_place(&mut buffer, ReduceOp::Sum).expect("a sum");
    buffer
}

/// The watchdog of the documentation, with a shorter time.
#[test]
fn a_watchdog_ends_a_hanging_operation_within_a_second() {
    let [first, second] = or_skip!(pair());
    let abort = first.abort_handle();
    let buffer = hang(&first);
    assert!(!first.stream().is_complete().expect("a stream"), "it waits for the other rank");
    assert!(abort.error().is_none());
    let begin = Instant::now();
    let watchdog = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        abort.abort().expect("an abort");
        abort
    });
    first.stream().synchronize().expect("the operation ends");
    let took = begin.elapsed();
    let abort = watchdog.join().expect("no panic");
    assert!(took > Duration::from_millis(90) && took < Duration::from_secs(1), "{took:?}");
    assert!(abort.is_aborted());
    assert!(matches!(abort.error(), Some(Error::Aborted)));
    drop(buffer);

    let mut buffer = DeviceBuffer::<f32>::zeroed(first.stream(), 4).expect("memory");
    let later = first.all_reduce_in_place(&mut buffer, ReduceOp::Sum);
    assert!(matches!(later, Err(Error::Aborted)), "{later:?}");
    assert!(matches!(first.check(), Err(Error::Aborted)));
    assert!(matches!(first.split(Some(0), 0, None), Err(Error::Aborted)));
    abort.abort().expect("a second abort does nothing");
    drop(first);
    abort.abort().expect("an abort after the drop does nothing");
    assert!(abort.error().is_none());
    // The other rank can only be aborted, too.
    second.abort_handle().abort().expect("an abort");
}

#[test]
fn a_drop_that_waits_ends_with_an_abort() {
    let [first, second] = or_skip!(pair());
    let buffer = hang(&first);
    let abort = first.abort_handle();
    let begin = Instant::now();
    let dropping = std::thread::spawn(move || drop(first));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!dropping.is_finished(), "the drop waits for the operation");
    abort.abort().expect("an abort");
    dropping.join().expect("no panic");
    assert!(begin.elapsed() < Duration::from_secs(2));
    drop(buffer);
    second.abort_handle().abort().expect("an abort");
}

#[test]
fn a_panic_aborts_instead_of_waiting() {
    let [first, second] = or_skip!(pair());
    let thread = std::thread::spawn(move || {
        // Dropped after the communicator, and freed in stream order.
        let _buffer = hang(&first);
        let _communicator = first;
        panic!("an expected panic");
    });
    assert!(thread.join().is_err());
    second.abort_handle().abort().expect("an abort");
}

/// Every communicator of the thread is aborted, although each waits for the next one, and although a graph keeps it.
#[test]
fn a_panic_aborts_all_communicators_of_a_thread() {
    let [first, second] = or_skip!(pair());
    let thread = std::thread::spawn(move || {
        let _buffer = hang(&first);
        let mut other = DeviceBuffer::<f32>::zeroed(second.stream(), 10).expect("memory");
        let capture = second.stream().begin_capture(cuda_safe::capture::CaptureMode::ThreadLocal);
        // SAFETY: the graph is not launched.
        unsafe {
            cuda_nccl::capture_group(|group| {
                group.all_reduce_in_place(&second, &mut other, ReduceOp::Sum)
            })
        }
        .expect("a captured sum");
        let _graph = capture.expect("a capture").end().expect("a graph");
        let _communicators = [first, second];
        panic!("an expected panic");
    });
    assert!(thread.join().is_err());
}

#[test]
fn a_missing_rank_is_a_timeout() {
    let streams = or_skip!(streams(1));
    let timeout = Duration::from_millis(300);
    let config = Config { interruptible: true, timeout: Some(timeout), ..Default::default() };
    let id = UniqueId::new().expect("an id");
    let begin = Instant::now();
    let missing = Communicator::init(&streams[0], &id, 0, 2, &config);
    assert!(matches!(missing, Err(Error::Timeout(its)) if its == timeout), "{missing:?}");
    assert!(begin.elapsed() >= timeout);
}

#[test]
fn an_abort_interrupts_a_call_that_waits_for_another_rank() {
    let streams = or_skip!(streams(2));
    let config = Config { interruptible: true, ..Default::default() };
    let all = Communicator::init_all(&streams, &config).expect("communicators");
    let [first, second]: [Communicator; 2] = all.try_into().expect("two");
    let abort = first.abort_handle();
    let waiting =
        std::thread::spawn(move || first.split(Some(0), 0, None).map(|its| its.is_some()));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!waiting.is_finished(), "the other rank does not call it");
    let begin = Instant::now();
    abort.abort().expect("an abort");
    let answer = waiting.join().expect("no panic");
    assert!(matches!(answer, Err(Error::Aborted)), "{answer:?}");
    assert!(begin.elapsed() < Duration::from_secs(2));
    second.abort_handle().abort().expect("an abort");
}

#[test]
fn interruptible_communicators_have_the_same_results() {
    let streams = or_skip!(streams(2));
    let config = Config { interruptible: true, ..Default::default() };
    let all = Communicator::init_all(&streams, &config).expect("communicators");
    let buffers = all.iter().map(|its| DeviceBuffer::from_slice(its.stream(), &[2_u32; 8]));
    let mut buffers: Vec<_> = buffers.collect::<Result<_, _>>().expect("memory");
    group(|group| {
        for (its, buffer) in all.iter().zip(&mut buffers) {
            group.all_reduce_in_place(its, buffer, ReduceOp::Sum)?;
        }
        Ok(())
    })
    .expect("a sum");
    for buffer in &buffers {
        assert_eq!(buffer.to_vec().expect("a copy"), [4; 8]);
    }
}

#[test]
fn a_failure_is_ready_when_the_communicator_ends() {
    let its = or_skip!(communicators(1)).remove(0);
    let interval = Duration::from_millis(5);
    let of_abort = its.abort_handle().failure(interval);
    let of_drop = its.abort_handle().failure(interval);
    let waiting = std::thread::spawn(move || block_on(of_abort));
    std::thread::sleep(Duration::from_millis(30));
    assert!(!waiting.is_finished());
    its.abort_handle().abort().expect("an abort");
    assert!(matches!(waiting.join().expect("no panic"), Some(Error::Aborted)));
    drop(its);
    assert!(block_on(of_drop).is_none());
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}
