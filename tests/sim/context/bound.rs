//! Contexts that are bound to a thread: driver calls, and what becomes of them when the thread ends.

use crate::prelude::*;

fn own(of: &Context) -> Context {
    Context::new(&of.device(), ContextFlags::empty()).expect("a context")
}

#[track_caller]
fn on_a_thread<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(body).join().expect("no panic"))
}

#[test]
fn a_call_in_a_bound_context_pushes_nothing() {
    let (_end, context) = in_child!(on(Profile::h200()));
    cuda_safe::event::set_reuse(false);
    on_a_thread(|| {
        let create = || drop(context.event().expect("an event"));
        let unbound = [
            "cuCtxGetCurrent",
            "cuCtxPushCurrent_v2",
            "cuEventCreate",
            "cuCtxGetCurrent",
            "cuCtxPopCurrent_v2",
            "cuEventDestroy_v2",
        ];
        assert_eq!(calls(create), unbound);
        let bind = || context.bind_to_thread().expect("bound");
        assert_eq!(calls(bind), ["cuCtxGetCurrent", "cuCtxSetCurrent"]);
        assert_eq!(calls(bind), ["cuCtxGetCurrent"]);
        assert_eq!(calls(create), ["cuCtxGetCurrent", "cuEventCreate", "cuEventDestroy_v2"]);
    });
}

#[test]
fn a_bound_context_is_destroyed_when_the_thread_ends() {
    let (_end, context) = in_child!(on(Profile::h200()));
    on_a_thread(|| {
        let own = own(&context);
        own.bind_to_thread().expect("bound");
        drop(own);
        assert_eq!(cuda_sim::alive().contexts, 1);
    });
    assert_eq!(cuda_sim::alive().contexts, 0);
    assert_eq!(cuda_safe::leaked(), 0);
}

#[test]
fn each_bound_context_is_kept_once() {
    let (_end, context) = in_child!(on(Profile::h200()));
    on_a_thread(|| {
        let device = context.device();
        for _ in 0..3 {
            let again = Context::primary(&device).expect("a context");
            again.bind_to_thread().expect("bound");
        }
        // One by the thread, and one by the test.
        assert_eq!(cuda_sim::alive().retains, 2);
    });
}

#[test]
fn the_owner_of_a_bound_foreign_context_is_dropped_when_the_thread_ends() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let owner = Arc::new(());
    on_a_thread(|| {
        let kept = (context.clone(), Arc::clone(&owner));
        // SAFETY: the owner keeps the context alive.
        let foreign = unsafe { Context::from_foreign(context.as_raw(), kept) };
        foreign.expect("a context").bind_to_thread().expect("bound");
        assert_eq!(Arc::strong_count(&owner), 2);
    });
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn a_context_bound_after_a_borrowed_object_of_it_is_kept_alive() {
    let (_end, primary) = in_child!(on(Profile::h200()));
    on_a_thread(|| {
        let context = own(&primary);
        let raw = context.as_raw();
        // SAFETY: the context stays alive until the thread ends, because it is bound below.
        let borrowed = unsafe { Context::borrow_raw(raw) }.expect("alive");
        borrowed.bind_to_thread().expect("bound");
        context.bind_to_thread().expect("bound");
        drop(context);
        assert_eq!(cuda_sim::alive().contexts, 1);
    });
    assert_eq!(cuda_sim::alive().contexts, 0);
}

#[test]
fn a_context_that_could_not_be_bound_is_not_kept() {
    let (_end, context) = in_child!(on(Profile::h200()));
    on_a_thread(|| {
        let own = own(&context);
        let fault = Fault::of_function("cuCtxSetCurrent").with(CUresult::CUDA_ERROR_UNKNOWN);
        let failed = fault.inject(Scope::Thread);
        own.bind_to_thread().expect_err("a fault");
        assert_eq!(failed.hits(), 1);
        drop(own);
        assert_eq!(cuda_sim::alive().contexts, 0);
    });
}

#[test]
fn the_memory_manager_of_a_bound_context_ends_with_its_last_object() {
    in_child!();
    set_memory_manager(DriverManager::new).expect("a matching version");
    start(Profile::h200());
    on_a_thread(|| {
        let context = context();
        context.bind_to_thread().expect("bound");
        // The manager defers this free until its context ends.
        drop(MemoryPointer::allocate(&context, 100).expect("memory"));
        assert_eq!(cuda_sim::alive().device_allocations, 1);
        drop(context);
        assert_eq!(cuda_sim::alive().device_allocations, 0);
        assert_eq!(cuda_sim::alive().retains, 1);
    });
    crate::check();
    assert_eq!(cuda_safe::leaked(), 0);
}

#[test]
fn a_bound_context_below_a_context_of_other_code_is_leaked_and_reported() {
    in_child!();
    start(Profile::h200());
    let (sender, heard) = channel();
    let sender = Mutex::new(sender);
    cuda_safe::set_report_hook(move |report| {
        let sender = sender.lock().expect("no panic while it was locked");
        sender.send(report.to_string()).expect("it is received");
    });
    let primary = context();
    on_a_thread(|| {
        let own = own(&primary);
        own.bind_to_thread().expect("bound");
        // SAFETY: the context outlives the thread.
        assert!(unsafe { cuCtxPushCurrent_v2(primary.as_raw()) }.is_success());
    });
    let report = heard.try_recv().expect("a report");
    assert!(report.contains("other code changed"), "{report}");
    assert_eq!(cuda_safe::leaked(), 1);
    assert_eq!(cuda_sim::alive().contexts, 1, "it may still be on the stack");
}

/// Binds a context when the thread-local variables of a thread are destroyed.
struct BindsAtEnd(Option<Context>);

impl Drop for BindsAtEnd {
    fn drop(&mut self) {
        if let Some(context) = self.0.take() {
            context.bind_to_thread().expect("bound");
        }
    }
}

thread_local! {
    static FIRST: RefCell<BindsAtEnd> = const { RefCell::new(BindsAtEnd(None)) };
    static LAST: RefCell<BindsAtEnd> = const { RefCell::new(BindsAtEnd(None)) };
}

/// The order in which thread-local variables are destroyed is not specified. One of the two binds its
/// context after the bound contexts of the thread were released.
#[test]
fn a_context_that_is_bound_while_the_thread_ends_is_leaked() {
    in_child!();
    start(Profile::h200());
    let primary = context();
    on_a_thread(|| {
        FIRST.replace(BindsAtEnd(Some(own(&primary))));
        primary.bind_to_thread().expect("bound");
        LAST.replace(BindsAtEnd(Some(own(&primary))));
    });
    assert_eq!(cuda_safe::leaked(), 1);
    assert_eq!(cuda_sim::alive().contexts, 1);
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

#[test]
#[cfg(unix)]
fn a_forked_child_binds_nothing() {
    let (_end, context) = in_child!(on(Profile::h200()));
    on_a_thread(|| {
        context.bind_to_thread().expect("bound");
        assert!(common::fork::in_fork(|| {
            matches!(context.bind_to_thread(), Err(Error::Forked))
        }));
    });
}
