//! Cached partitionings, where only the software driver shows what happens.

use crate::prelude::*;
use cuda_safe::green::PooledPartition;

fn pool(context: &Context) -> GreenPool {
    GreenPool::new(&context.device(), GreenPoolOptions::default())
        .expect("no other pool has the device")
}

fn of(size: u32) -> PartitionRequest {
    PartitionRequest { sizes: vec![PartitionSize::Sms(size)], ..Default::default() }
}

#[test]
fn a_partitioning_without_streams_passes_on_the_work_it_must_wait_for() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let pool = pool(&context);
    let ran = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&ran);
    let stream = pool.try_lease(&of(16)).expect("a lease")[0].stream();
    let work = move || runs.store(true, Ordering::SeqCst);
    let stream = stream.expect("a stream");
    stream.launch_host_function(work).expect("launched");
    drop(stream);
    pool.try_lease(&of(32)).expect("the work is not waited for");
    let stream = pool.try_lease(&of(64)).expect("a lease")[0].stream();
    stream.expect("a stream").synchronize().expect("a wait");
    assert!(ran.load(Ordering::SeqCst), "after the work of 16");
}

#[test]
fn a_split_that_is_leased_again_waits_for_the_work_of_other_partitionings() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let pool = pool(&context);
    let stream_of_split = || {
        let whole = pool.try_lease(&of(16)).expect("a lease").into_partitions().remove(0);
        whole.split(&of(8)).expect("a split")[0].stream().expect("a stream")
    };
    drop(stream_of_split());
    let ran = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&ran);
    let stream = pool.try_lease(&of(32)).expect("a lease")[0].stream().expect("a stream");
    stream.launch_host_function(move || runs.store(true, Ordering::SeqCst)).expect("launched");
    drop(stream);
    stream_of_split().synchronize().expect("a wait");
    assert!(ran.load(Ordering::SeqCst), "after the work of 32");
}

#[test]
fn a_kernel_node_does_not_take_the_context_of_a_pooled_stream() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = pool(&context).try_lease(&of(16)).expect("a lease")[0].stream();
    let stream = stream.expect("a stream");
    let module = Module::from_ptx(&context, include_str!("../../kernels/vector.ptx"));
    let nothing = module.expect("a module").kernel("nothing");
    let nothing = nothing.and_then(|kernel| kernel.typed::<()>()).expect("a kernel");
    let mut graph = Graph::new(&context).expect("a graph");
    let config = LaunchConfig::linear(1, 1);
    // SAFETY: the kernel accesses no memory.
    let added = unsafe { graph.add_kernel(&[], &stream, &nothing, config, ()) };
    match added {
        Err(Error::Invalid(why)) => assert_eq!(*why, Invalid::UnknownGreenContext),
        other => panic!("the kernel would use all SMs: {other:?}"),
    }
}

#[test]
fn a_created_partitioning_is_counted_even_if_the_lease_fails() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let pool = pool(&context);
    let stream = pool.try_lease(&of(16)).expect("a lease")[0].stream();
    drop(stream.expect("a stream"));
    let refused = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    let fault = Fault::of_function("cuEventRecord").with(refused).inject(Scope::Process);
    let why = pool.try_lease(&of(32)).expect_err("the end is not recorded");
    assert_eq!(why.code(), Some(refused));
    drop(fault);
    let stats = pool.stats().expect("stats");
    assert_eq!((stats.created, stats.cached, stats.leases), (2, 2, 1));
    pool.try_lease(&of(32)).expect("a lease");
    let stats = pool.stats().expect("stats");
    assert_eq!((stats.created, stats.cached, stats.leases), (2, 2, 2));
}

/// Creates a stream when it is dropped, and sends it to the test.
#[derive(Debug)]
struct Owner(Arc<PooledPartition>, Sender<Stream>);

impl Drop for Owner {
    fn drop(&mut self) {
        let stream = self.0.stream().expect("a stream");
        self.1.send(stream).expect("is received");
    }
}

#[test]
fn a_partition_holds_no_lock_during_deferred_releases() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let partitions = pool(&context).try_lease(&of(16)).expect("a lease").into_partitions();
    let partition = Arc::new(partitions.into_iter().next().expect("one"));
    let (sender, streams) = channel();
    let owner = Owner(Arc::clone(&partition), sender);
    // SAFETY: the context outlives the foreign context.
    let theirs = unsafe { Context::from_foreign(context.as_raw(), owner) };
    let theirs = theirs.expect("a context");
    let pinned = PinnedBuffer::<u8>::zeroed(&theirs, 64).expect("memory");
    let helper = context.stream().expect("a stream");
    let launched = helper.launch_host_function(move || {
        drop((pinned, theirs));
    });
    launched.expect("launched");
    helper.synchronize().expect("a wait");
    let stream = partition.stream().expect("a stream");
    assert!(stream != streams.recv().expect("made by the owner"));
}

/// The driver refuses to destroy the green context, as on the thread of a callback.
#[test]
fn a_refused_split_names_the_dropped_pool_of_a_green_context_that_is_not_destroyed_yet() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let options = GreenPoolOptions { label: "decoding".to_owned(), ..Default::default() };
    let pool = GreenPool::new(&context.device(), options).expect("no other pool");
    drop(pool.try_lease(&of(16)).expect("a lease"));
    let split = || {
        let resource = SmResource::of_device(&context.device()).expect("SMs");
        resource.split_by_count(SplitByCount::default())
    };
    let fault = Fault::of_function("cuGreenCtxDestroy")
        .with(CUresult::CUDA_ERROR_NOT_PERMITTED)
        .from_then_on()
        .inject(Scope::Process);
    drop(pool);
    let why = split().expect_err("the green context has the SMs");
    assert!(
        matches!(&why, Error::Invalid(why) if matches!(&**why, Invalid::SplitInUse { holder, .. } if holder == "decoding")),
        "{why}"
    );
    drop(fault);
    split().expect("the SMs are unused");
}
