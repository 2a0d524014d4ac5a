//! The items of `cuda_safe::manager` that memory managers of other crates are made of.

use crate::prelude::*;
use crate::software::call_log::transient;
use cuda_safe::error::DriverError;
use cuda_safe::manager::{
    OrderEvent, in_forked_child, in_host_function, in_report_hook, may_block, report_leak,
    with_current_context, without_invalidating_captures,
};

const EXCHANGE: &str = "cuThreadExchangeStreamCaptureMode";

/// Manages memory through another manager, without telling which.
macro_rules! allocates_like {
    ($field:tt) => {
        fn interface_version() -> u32 {
            1
        }

        fn base(&self) -> &DriverMemory {
            self.$field.base()
        }

        fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
            self.$field.allocate(size, order)
        }

        unsafe fn free(&self, block: Block, order: Order<'_>) {
            // SAFETY: the caller upholds the same contract.
            unsafe { self.$field.free(block, order) }
        }
    };
}

mod events {
    use super::*;

    #[test]
    fn an_order_event_is_one_driver_call_in_the_order_of_a_stream() {
        let (_end, context) = in_child!(on(Profile::h200()));
        let (used, next) = (context.stream().expect("a"), context.stream().expect("b"));
        let event = OrderEvent::new(&context).expect("an event");
        let (of_used, of_next) = (Order::of(&used), Order::of(&next));
        let record = || event.record(of_used, &context).expect("recorded");
        assert_eq!(calls(record), ["cuEventRecord"]);
        let wait = || of_next.wait_event(&event, &context).expect("enqueued");
        assert_eq!(calls(wait), ["cuStreamWaitEvent"]);
        next.synchronize().expect("a wait");
        assert!(event.is_complete().expect("an answer"));
    }

    #[test]
    fn an_order_event_is_used_on_default_streams_and_on_streams_of_other_code() {
        let (_end, context, stream) = in_child!(on_stream());
        let event = OrderEvent::new(&context).expect("an event");
        let legacy = persistent(CU_STREAM_LEGACY);
        for order in [legacy, transient(CU_STREAM_PER_THREAD), persistent(stream.as_raw())] {
            let record = calls(|| event.record(order, &context).expect("recorded"));
            let wait = calls(|| order.wait_event(&event, &context).expect("enqueued"));
            // The driver is asked whether the stream is captured.
            for (made, function) in [(record, "cuEventRecord"), (wait, "cuStreamWaitEvent")] {
                let place = |name| made.iter().position(|its| *its == name);
                let asked = place("cuStreamIsCapturing");
                assert!(asked.is_some() && asked < place(function), "{made:?}");
            }
        }
        context.synchronize().expect("a wait");
    }

    #[test]
    fn an_order_without_a_stream_has_no_events() {
        let (_end, context) = in_child!(on(Profile::h200()));
        let event = OrderEvent::new(&context).expect("an event");
        let record = invalid(event.record(Order::NONE, &context));
        let wait = invalid(Order::NONE.wait_event(&event, &context));
        for refused in [record, wait] {
            assert!(matches!(refused, Invalid::OrderWithoutStream { .. }), "{refused}");
        }
    }

    #[test]
    fn an_order_event_is_never_captured() {
        let (_end, context) = in_child!(on(Profile::h200()));
        let (stream, other) = (context.stream().expect("a"), context.stream().expect("b"));
        let event = OrderEvent::new(&context).expect("an event");
        event.record(Order::of(&other), &context).expect("recorded");
        let raw = stream.as_raw();
        let capture = stream.begin_capture(CaptureMode::Relaxed).expect("begun");
        // SAFETY: the stream is alive. That it is captured is the error that is tested.
        for order in [Order::of(&stream), unsafe { Order::persistent(raw) }] {
            let record = invalid(event.record(order, &context));
            let wait = invalid(order.wait_event(&event, &context));
            assert_eq!([record, wait], [Invalid::StreamIsCaptured, Invalid::StreamIsCaptured]);
        }
        drop(capture.end().expect("still valid"));
    }

    #[test]
    fn an_order_event_belongs_to_the_context_of_its_stream() {
        let (_end, context) = in_child!(on(Profile::h200()));
        let created = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
        let (stream, its) = (context.stream().expect("a"), created.stream().expect("b"));
        let event = OrderEvent::new(&created).expect("an event");
        for order in [Order::of(&stream), persistent(CU_STREAM_LEGACY)] {
            let refused = invalid(event.record(order, &context));
            assert!(matches!(refused, Invalid::OtherContext { .. }), "{refused}");
        }
        event.record(Order::of(&its), &context).expect("recorded");
        // A stream of another context may wait for it.
        Order::of(&stream).wait_event(&event, &context).expect("enqueued");
        stream.synchronize().expect("a wait");
    }

    #[test]
    fn an_order_event_does_not_keep_a_manager_alive() {
        let (_end, context) = in_child!(with(DriverManager::new));
        assert!(context.memory_manager().expect("made").is_some());
        let event = OrderEvent::new(&context).expect("an event");
        let its = event.context();
        assert_eq!(*its, context);
        assert!(its.memory_manager().expect("none").is_none());
    }
}

mod orders {
    use super::*;

    #[test]
    fn the_key_of_a_stream_identifies_it_without_sharing_its_handle() {
        let (_end, context) = in_child!(on(Profile::h200()));
        let (one, two) = (context.stream().expect("a"), context.stream().expect("b"));
        let key = Order::of(&one).key().expect("a stream");
        assert_ne!(Some(key), Order::of(&two).key());
        assert_eq!(Some(key), Order::of(&one.clone()).key());
        let allocate = || drop(DeviceBuffer::<u8>::uninit(&one, 100).expect("memory"));
        let asks = |calls: Vec<_>| calls.contains(&"cuStreamIsCapturing");
        assert!(!asks(calls(allocate)), "no other code knows the stream");
        let raw = one.as_raw();
        assert!(asks(calls(allocate)));
        assert_eq!(key, raw.addr());
        assert_eq!(persistent(raw).key(), Some(key));
    }

    #[test]
    fn default_streams_have_fixed_keys() {
        assert_eq!(Order::NONE.key(), None);
        assert_eq!(persistent(std::ptr::null_mut()).key(), Some(1));
        assert_eq!(persistent(CU_STREAM_LEGACY).key(), Some(1));
        assert_eq!(transient(CU_STREAM_PER_THREAD).key(), Some(2));
        assert!(persistent(CU_STREAM_PER_THREAD).is_transient());
        assert!(!persistent(CU_STREAM_LEGACY).is_transient());
    }

    /// Has the address of its inner manager, and does not tell that it has one.
    #[derive(Debug)]
    #[repr(transparent)]
    struct Hiding(DriverManager);

    // SAFETY: all memory is that of the inner manager.
    unsafe impl MemoryManager for Hiding {
        allocates_like!(0);
    }

    #[test]
    fn a_stream_is_transient_for_managers_that_are_not_notified_of_its_end() {
        type Manager = StatisticsManager<LimitManager<CachingManager>>;
        let make = |context: &Context| {
            Ok(StatisticsManager::new(LimitManager::new(CachingManager::new(context)?, 1 << 20)))
        };
        let (_end, context) = in_child!(with(make));
        let stream = context.stream().expect("a stream");
        let order = Order::of(&stream);
        let apart = DriverManager::new(&context).expect("a manager");
        assert!(order.is_transient_for(&apart));
        let manager = context.memory_manager_as::<Manager>().expect("made");
        let manager = manager.expect("the chosen manager");
        assert!(!order.is_transient_for(manager));
        assert!(!order.is_transient_for(manager.inner()));
        assert!(!order.is_transient_for(manager.inner().inner()));
        // The owner of a persistent stream notifies the manager.
        assert!(!persistent(stream.as_raw()).is_transient_for(&apart));
        assert!(transient(stream.as_raw()).is_transient_for(manager));
        // SAFETY: the stream outlives the borrowed one.
        let borrowed = unsafe { Stream::borrow_raw(stream.as_raw(), &context) };
        assert!(Order::of(&borrowed.expect("a stream")).is_transient_for(manager));
    }

    #[test]
    fn a_wrapper_at_the_address_of_its_inner_manager_is_another_manager() {
        let make = |context: &Context| Ok(Hiding(DriverManager::new(context)?));
        let (_end, context) = in_child!(with(make));
        let stream = context.stream().expect("a stream");
        let manager = context.memory_manager_as::<Hiding>().expect("made");
        let manager = manager.expect("the chosen manager");
        assert!(!Order::of(&stream).is_transient_for(manager));
        assert!(Order::of(&stream).is_transient_for(&manager.0));
    }

    type Ended = Arc<Mutex<Vec<(bool, Option<usize>, OrderEvent)>>>;

    /// Records an event at the end of each stream.
    #[derive(Debug)]
    struct Last {
        inner: DriverManager,
        ended: Ended,
    }

    // SAFETY: all memory is that of the inner manager.
    unsafe impl MemoryManager for Last {
        allocates_like!(inner);

        fn stream_ends(&self, end: &StreamEnd<'_>) {
            let (order, context) = (end.order(), self.base().context());
            let event = OrderEvent::new(context).expect("an event");
            event.record(order, context).expect("the stream is alive");
            let mut ended = self.ended.lock().expect("no panic");
            ended.push((order.is_transient(), order.key(), event));
        }
    }

    #[test]
    fn a_manager_records_an_event_on_a_stream_that_ends() {
        let ended = Ended::default();
        let seen = Arc::clone(&ended);
        let make = move |context: &Context| {
            Ok(Last { inner: DriverManager::new(context)?, ended: Arc::clone(&seen) })
        };
        let (_end, context) = in_child!(with(make));
        assert!(context.memory_manager().expect("made").is_some());
        let stream = context.stream().expect("a stream");
        let key = Order::of(&stream).key();
        let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 100).expect("memory");
        buffer.fill(1).expect("a fill");
        drop(buffer);
        drop(stream);
        context.synchronize().expect("a wait");
        let (is_transient, its, event) = ended.lock().expect("no panic").remove(0);
        assert_eq!((is_transient, its), (true, key));
        assert!(event.is_complete().expect("an answer"));
    }

    #[test]
    fn a_weak_stream_keeps_neither_the_stream_nor_its_context_alive() {
        let (_end, context, stream) = in_child!(on_stream());
        let weak = stream.downgrade();
        assert_eq!(weak.upgrade().as_ref(), Some(&stream));
        assert_eq!(weak.clone().upgrade().as_ref(), Some(&stream));
        drop(context);
        drop(stream);
        assert_eq!((alive().streams, alive().retains), (0, 0));
        assert!(weak.upgrade().is_none());
    }
}

mod conditions {
    use super::*;

    #[test]
    fn a_host_function_and_the_report_hook_must_not_block() {
        static SEEN: Mutex<Vec<[bool; 3]>> = Mutex::new(Vec::new());
        fn look() -> [bool; 3] {
            [in_host_function(), in_report_hook(), may_block()]
        }
        in_child!();
        start(Profile::h200());
        let context = context();
        assert_eq!(look(), [false, false, true]);
        let (stream, event) =
            (context.stream().expect("a stream"), OrderEvent::new(&context).expect("an event"));
        let (tell, told) = mpsc::channel();
        let other = context.stream().expect("a stream");
        let refused = other.launch_host_function(move || {
            let order = Order::of(&stream);
            let record = event.record(order, stream.context());
            let wait = order.wait_event(&event, stream.context());
            let _ = tell.send((look(), record, wait));
        });
        refused.expect("enqueued");
        other.synchronize().expect("a wait");
        let (seen, record, wait) = told.recv().expect("it ran");
        assert_eq!(seen, [true, false, false]);
        for refused in [record, wait] {
            assert!(matches!(refused, Err(Error::InHostFunction)), "{refused:?}");
        }
        set_report_hook(|_| SEEN.lock().expect("no panic").push(look()));
        report_leak("a test", Error::NoDevice);
        assert_eq!(*SEEN.lock().expect("no panic"), [[false, true, false]]);
    }

    #[test]
    fn a_leak_is_counted_and_reported_unless_it_is_fatal() {
        static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
        in_child!();
        set_report_hook(|report| SEEN.lock().expect("no panic").push(report.to_string()));
        report_leak("a thing", Error::InHostFunction);
        assert_eq!(cuda_safe::leaked(), 1);
        let seen = std::mem::take(&mut *SEEN.lock().expect("no panic"));
        assert_eq!(seen.len(), 1);
        assert!(seen[0].starts_with("a thing was not released: "), "{seen:?}");
        let fatal = DriverError::new(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "cuMemFree_v2");
        report_leak("a thing", fatal.into());
        assert_eq!(cuda_safe::leaked(), 2);
        assert_eq!(SEEN.lock().expect("no panic").len(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn a_forked_child_is_recognized() {
        let (_end, context) = in_child!(on(Profile::h200()));
        assert!(!in_forked_child());
        assert!(common::fork::in_fork(|| {
            let before = cuda_safe::leaked();
            report_leak("memory", Error::Forked);
            in_forked_child() && cuda_safe::leaked() == before + 1
        }));
        assert!(!in_forked_child());
        drop(context);
    }

    #[test]
    fn calls_change_the_capture_mode_only_while_a_capture_may_be_open() {
        let (_end, context, stream) = in_child!(on_stream());
        let run = || without_invalidating_captures(|| Ok(())).expect("no error");
        assert_eq!(calls(run), [""; 0]);
        let capture = stream.begin_capture(CaptureMode::Global).expect("begun");
        assert_eq!(calls(run), [EXCHANGE, EXCHANGE]);
        // The mode is restored after a panic too.
        let panics = || without_invalidating_captures::<()>(|| panic!("a manager"));
        let made = calls(|| {
            catch_unwind(AssertUnwindSafe(panics)).expect_err("the panic");
        });
        assert_eq!(made, [EXCHANGE, EXCHANGE]);
        // An event query would invalidate the capture otherwise.
        let event = OrderEvent::new(&context).expect("an event");
        assert!(without_invalidating_captures(|| event.is_complete()).expect("an answer"));
        drop(capture.end().expect("still valid"));
    }

    #[test]
    fn calls_change_the_capture_mode_if_other_code_may_capture_its_stream() {
        let (_end, _context) = in_child!(on(Profile::h200()));
        let run = || without_invalidating_captures(|| Ok(())).expect("no error");
        assert_eq!(calls(run), [""; 0]);
        // SAFETY: the legacy default stream is alive.
        let _order = unsafe { Order::transient(CU_STREAM_LEGACY) };
        assert_eq!(calls(run), [EXCHANGE, EXCHANGE]);
    }

    #[test]
    fn deferred_releases_are_attempted_on_request() {
        let (_end, context, stream) = in_child!(on_stream());
        let buffer = DeviceBuffer::<u8>::uninit(&stream, 100).expect("memory");
        let capture = stream.begin_capture(CaptureMode::default()).expect("begun");
        drop(buffer);
        cuda_safe::attempt_deferred_releases();
        assert_eq!(cuda_safe::deferred_releases(), 1, "the capture is open");
        drop(capture.end().expect("valid"));
        assert_eq!(cuda_safe::deferred_releases(), 1);
        cuda_safe::attempt_deferred_releases();
        assert_eq!(cuda_safe::deferred_releases(), 0);
        context.synchronize().expect("a wait");
    }
}

mod wrapping {
    use super::*;

    /// Notes whether its context was current.
    #[derive(Debug)]
    struct Current {
        inner: DriverManager,
        seen: Mutex<Vec<bool>>,
    }

    impl Current {
        fn look(&self) {
            let depth = cuda_sim::stack_depth();
            self.seen.lock().expect("no panic").push(depth != 0);
        }
    }

    // SAFETY: all memory is that of the inner manager.
    unsafe impl MemoryManager for Current {
        fn interface_version() -> u32 {
            1
        }

        fn needs_current_context(&self) -> bool {
            true
        }

        fn base(&self) -> &DriverMemory {
            self.inner.base()
        }

        fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
            self.look();
            self.inner.allocate(size, order)
        }

        unsafe fn free(&self, block: Block, order: Order<'_>) {
            self.look();
            // SAFETY: the caller upholds the same contract.
            unsafe { self.inner.free(block, order) }
        }
    }

    #[test]
    fn a_stored_manager_is_called_with_its_context_current() {
        let (_end, context) = in_child!(on(Profile::h200()));
        let inner = DriverManager::new(&context).expect("a manager");
        let seen = Mutex::default();
        let manager = with_current_context(Box::new(Current { inner, seen }));
        let block = manager.allocate(100, Order::NONE).expect("memory");
        // SAFETY: the block is of this manager, and nothing uses it.
        unsafe { manager.free(block, Order::NONE) };
        let its = manager.downcast_ref::<Current>().expect("its type");
        assert_eq!(*its.seen.lock().expect("no panic"), [true, true]);
        assert!(manager.downcast_ref::<DriverManager>().is_none());
        drop(manager);
        // A manager that does not need it is not wrapped.
        let plain = DriverManager::new(&context).expect("a manager");
        let plain = with_current_context(Box::new(plain));
        assert!(plain.wrapped().is_none());
        assert!(plain.downcast_ref::<DriverManager>().is_some());
    }

    #[test]
    fn the_base_knows_whether_clean_up_is_deferred() {
        let (_end, context) = in_child!(on(Profile::h200()));
        let base = DriverMemory::new(&context, DeferOptions::default()).expect("a base");
        assert!(!base.is_cleanup_deferred());
        let outer = base.defer_cleanup();
        let inner = base.defer_cleanup();
        drop(outer);
        assert!(base.is_cleanup_deferred());
        drop(inner);
        assert!(!base.is_cleanup_deferred());
    }

    /// A pool over an upstream manager asks its base, so the guard of either defers the clean-up of
    /// both.
    #[test]
    fn a_guard_of_an_upstream_manager_holds_for_the_pool() {
        let (_end, context) = in_child!(on(Profile::h200()));
        let upstream = OrderedManager::new(&context).expect("a manager");
        let pool = CachingManager::with_upstream(&context, upstream, Default::default());
        let pool = pool.expect("a pool");
        let block = pool.allocate(100, Order::NONE).expect("memory");
        // SAFETY: the block is of this manager, and nothing uses it.
        unsafe { pool.free(block, Order::NONE) };
        for guard in [pool.defer_cleanup(), pool.upstream().defer_cleanup()] {
            assert_eq!(pool.trim(0).expect("a trim"), 0);
            assert_ne!(pool.stats().reserved, 0);
            drop(guard);
        }
        assert_ne!(pool.trim(0).expect("a trim"), 0);
        assert_eq!(pool.stats().reserved, 0);
    }
}
