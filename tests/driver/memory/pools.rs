//! Memory pools.

use crate::common;
use crate::module::kernels::{LONG, RecordSmid, Scale};
use cuda_safe::memory::pool::attribute::{
    LOCATION_TYPE, RELEASE_THRESHOLD, RESERVED_CURRENT, RESERVED_HIGH, REUSE_ALLOW_OPPORTUNISTIC,
    USED_CURRENT, USED_HIGH,
};
use cuda_safe::memory::{MemoryAccess, MemoryLocation, MemoryPool, MemoryPoolOptions};
use cuda_safe::sys::{CUmemPoolPtrExportData, CUresult, cuMemPoolExportPointer};
use cuda_safe::{Context, CudaVersion, DeviceBuffer, Error, Invalid};

fn new(context: &Context) -> MemoryPool {
    MemoryPool::new(context, MemoryPoolOptions::default()).expect("a pool")
}

#[test]
fn memory_of_a_pool_works_like_any_other_and_is_counted() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let pool = new(&context);
    assert_eq!(pool.attribute(USED_CURRENT).expect("known"), 0);
    let mut buffer = DeviceBuffer::<i32>::zeroed_from_pool(&pool, &stream, 1000).expect("memory");
    Scale::new(&context).run(&stream, &mut buffer, 1, 5).expect("a launch");
    assert_eq!(buffer.to_vec().expect("a copy"), [5; 1000]);
    let used = pool.attribute(USED_CURRENT).expect("known");
    assert!(used >= 4000, "{used} bytes");
    assert!(pool.attribute(RESERVED_CURRENT).expect("known") >= used);
    drop(buffer);
    stream.synchronize().expect("a wait");
    assert_eq!(pool.attribute(USED_CURRENT).expect("known"), 0);
    assert!(pool.attribute(USED_HIGH).expect("known") >= used);
    pool.reset_high_water(USED_HIGH).expect("reset");
    pool.reset_high_water(RESERVED_HIGH).expect("reset");
    assert_eq!(pool.attribute(USED_HIGH).expect("known"), 0);
    let none = DeviceBuffer::<i32>::uninit_from_pool(&pool, &stream, 0).expect("no memory");
    assert_eq!(none.as_raw(), 0);
}

#[test]
fn a_pool_caches_memory_up_to_its_threshold_until_it_is_trimmed() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let pool = new(&context);
    assert_eq!(pool.attribute(RELEASE_THRESHOLD).expect("known"), 0);
    pool.set_attribute(RELEASE_THRESHOLD, u64::MAX).expect("set");
    assert_eq!(pool.attribute(RELEASE_THRESHOLD).expect("known"), u64::MAX);
    drop(DeviceBuffer::<u8>::zeroed_from_pool(&pool, &stream, 1 << 20).expect("memory"));
    stream.synchronize().expect("a wait");
    let kept = pool.attribute(RESERVED_CURRENT).expect("known");
    assert!(kept >= 1 << 20, "{kept} bytes");
    pool.trim_to(0).expect("a trim");
    assert_eq!(pool.attribute(RESERVED_CURRENT).expect("known"), 0);
}

#[test]
fn the_reuse_policies_of_a_pool_can_be_set() {
    let context = or_skip!(common::context());
    let pool = new(&context);
    assert!(pool.attribute(REUSE_ALLOW_OPPORTUNISTIC).expect("known"));
    pool.set_attribute(REUSE_ALLOW_OPPORTUNISTIC, false).expect("set");
    assert!(!pool.attribute(REUSE_ALLOW_OPPORTUNISTIC).expect("known"));
}

#[test]
fn memory_outlives_its_pool() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let pool = new(&context);
    let mut buffer = DeviceBuffer::<u16>::uninit_from_pool(&pool, &stream, 300).expect("memory");
    drop(pool);
    buffer.fill(9).expect("a fill");
    assert_eq!(buffer.to_vec().expect("a copy"), [9; 300]);
}

#[test]
fn dropping_a_pool_waits_only_for_the_frees_of_its_memory() {
    common::child::with_context(|context| {
        let [stream, other] = common::streams(&context);
        let (pool, unused) = (new(&context), new(&context));
        let record = RecordSmid::new(&context);
        let work = [&stream, &other].map(|stream| record.run(stream, 1, LONG));
        let buffer = DeviceBuffer::<u8>::zeroed_from_pool(&pool, &stream, 100).expect("memory");
        drop((buffer, unused));
        assert!(!stream.is_complete().expect("a query"), "nothing waited");
        drop(pool);
        assert!(stream.is_complete().expect("a query"), "the free has completed");
        other.synchronize().expect("a wait");
        drop(work);
    });
}

/// A driver (580) uses a pool after its destruction if memory of the pool has a pending free and
/// other threads allocate and free at that time.
#[test]
fn memory_keeps_its_pool_alive_while_other_threads_allocate() {
    let context = or_skip!(common::context());
    let (threads, rounds) = if cfg!(miri) { (3, 3) } else { (16, 50) };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let stream = context.stream().expect("a stream");
                for round in 0..rounds {
                    let pool = new(&context);
                    let mut buffer =
                        DeviceBuffer::<u8>::zeroed_from_pool(&pool, &stream, 4096).expect("memory");
                    drop(pool);
                    stream.synchronize().expect("a wait");
                    buffer.fill(round).expect("a fill");
                    assert_eq!(buffer.to_vec().expect("a copy"), [round; 4096]);
                }
            });
        }
    });
}

#[test]
fn a_device_keeps_its_default_pool() {
    or_skip!(common::gpu());
    // In a child process, because other tests would keep the context alive.
    common::child::with_context(|context| {
        let device = context.device();
        let default = MemoryPool::default_of(&context).expect("a pool").as_raw();
        // The primary context is destroyed with its last owner, and is then created again.
        drop(context);
        let context = Context::primary(&device).expect("a context");
        let again = MemoryPool::default_of(&context).expect("a pool");
        assert_eq!(again.as_raw(), default);
        let stream = context.stream().expect("a stream");
        let buffer = DeviceBuffer::<u8>::zeroed_from_pool(&again, &stream, 9).expect("memory");
        assert_eq!(buffer.to_vec().expect("a copy"), [0; 9]);
    });
}

#[test]
fn a_device_allocates_from_the_pool_that_was_set() {
    // In a child process, because every thread of the process would use the pool.
    common::child::with_context(|context| {
        let (device, stream) = (context.device(), context.stream().expect("a stream"));
        let default = MemoryPool::default_of(&context).expect("a pool");
        assert_eq!(device.memory_pool().expect("known"), default.as_raw());
        let pool = new(&context);
        assert_ne!(pool, default);
        device.set_memory_pool(&pool).expect("set");
        assert_eq!(device.memory_pool().expect("known"), pool.as_raw());
        let buffer = DeviceBuffer::<u8>::zeroed(&stream, 100).expect("memory");
        assert!(pool.attribute(USED_CURRENT).expect("known") >= 100);
        // The pool is leaked, because other code may have memory from it.
        let (raw, leaked) = (pool.as_raw(), cuda_safe::leaked());
        drop(pool);
        assert_eq!(cuda_safe::leaked(), leaked + 1);
        assert_eq!(device.memory_pool().expect("known"), raw);
        assert_eq!(buffer.to_vec().expect("a copy"), [0; 100]);
        device.set_memory_pool(&default).expect("set");
        assert_eq!(device.memory_pool().expect("known"), default.as_raw());
    });
}

#[test]
fn the_pools_of_a_location_are_those_of_its_device() {
    let context = or_skip!(common::context_since(13, 0));
    let place = MemoryLocation::Device(context.device());
    let default = MemoryPool::default_at(&context, place, false).expect("a pool");
    assert_eq!(default, MemoryPool::default_of(&context).expect("a pool"));
    // Other tests may have replaced the pool; each time it is one of this process.
    assert!(!MemoryPool::current_at(&context, place, false).expect("a pool").is_null());
    default.set_current_at(place, false).expect("set");
}

#[test]
fn a_device_has_access_to_its_own_pools() {
    let context = or_skip!(common::context());
    let device = context.device();
    let pool = new(&context);
    assert_eq!(pool.access(&device).expect("known"), MemoryAccess::ReadWrite);
    pool.grant_access(&device).expect("it has access already");
}

#[test]
fn a_pool_survives_into_raw_and_from_raw() {
    let context = or_skip!(common::context());
    let raw = new(&context).into_raw();
    let owner = std::sync::Arc::new(());
    // SAFETY: `into_raw` released ownership of the pool, which is alive.
    let foreign = unsafe { MemoryPool::from_foreign(raw, &context, std::sync::Arc::clone(&owner)) }
        .expect("a pool");
    // SAFETY: as above.
    let borrowed = unsafe { MemoryPool::borrow_raw(raw, &context) }.expect("a pool");
    assert_eq!(foreign, borrowed);
    let stream = context.stream().expect("a stream");
    // The location of the pool is unknown, so the driver is asked.
    let buffer = DeviceBuffer::<u8>::zeroed_from_pool(&borrowed, &stream, 8).expect("memory");
    assert_eq!(buffer.to_vec().expect("a copy"), [0; 8]);
    drop((buffer, foreign, borrowed));
    assert_eq!(std::sync::Arc::strong_count(&owner), 1);
    stream.synchronize().expect("a wait");
    // SAFETY: as above, this is the only owner, and the memory of the pool is freed.
    drop(unsafe { MemoryPool::from_raw(raw, &context) }.expect("a pool"));
}

#[test]
fn the_error_for_an_older_driver_names_the_needed_version() {
    let context = or_skip!(common::context());
    let driver = cuda_safe::version().expect("a driver");
    let pool = new(&context);
    match pool.attribute(LOCATION_TYPE) {
        Ok(kind) => assert_eq!(kind, cuda_safe::sys::CUmemLocationType(1)),
        Err(Error::Invalid(invalid)) => {
            let since = CudaVersion::new(13, 2);
            let attribute = "LOCATION_TYPE";
            assert!(driver < since);
            assert_eq!(*invalid, Invalid::UnknownAttribute { attribute, since, driver });
        }
        Err(error) => panic!("{error}"),
    }
    let options = MemoryPoolOptions { max_size: 64 << 20, ..Default::default() };
    match MemoryPool::new(&context, options) {
        Ok(_) => assert!(driver >= CudaVersion::new(12, 2)),
        Err(Error::Invalid(invalid)) => {
            assert!(driver < CudaVersion::new(12, 2));
            assert!(invalid.to_string().contains("12.2"), "{invalid}");
        }
        Err(error) => panic!("{error}"),
    }
}

mod provoked {
    //! The driver reports that a pool has not enough memory, that access cannot be revoked, or that
    //! a pool is not shareable.

    use super::*;

    #[test]
    fn access_of_a_pools_own_device_cannot_be_revoked() {
        let context = or_skip!(common::context());
        let device = context.device();
        let pool = MemoryPool::new(&context, MemoryPoolOptions::default()).expect("a pool");
        // SAFETY: nothing is allocated from the pool, and the call is refused.
        let refused = unsafe { pool.set_access(&device, MemoryAccess::None) };
        refused.expect_err("the device that the memory is on");
        assert_eq!(pool.access(&device).expect("known"), MemoryAccess::ReadWrite);
    }

    #[test]
    fn a_pool_does_not_exceed_its_limit() {
        let (context, stream) = or_skip!(common::context_and_stream());
        or_skip!(common::since(12, 2));
        let options = MemoryPoolOptions { max_size: 64 << 20, ..Default::default() };
        let pool = MemoryPool::new(&context, options).expect("a pool");
        let some = DeviceBuffer::<u8>::uninit_from_pool(&pool, &stream, 1 << 20).expect("memory");
        let error = DeviceBuffer::<u8>::uninit_from_pool(&pool, &stream, 1 << 30);
        let error = error.expect_err("more than its limit");
        assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
        assert!(error.to_string().starts_with("cuMemAllocFromPoolAsync"), "{error}");
        drop(some);
    }

    #[cfg(unix)]
    #[test]
    fn a_pool_that_is_not_shareable_is_not_exported() {
        let (context, stream) = or_skip!(common::context_and_stream());
        let default = MemoryPool::default_of(&context).expect("there is one");
        let own = MemoryPool::new(&context, MemoryPoolOptions::default()).expect("a pool");
        let is_refused = |error: Error| {
            let what = |what: &Invalid| matches!(what, Invalid::NotShareable { .. });
            matches!(&error, Error::Invalid(its) if what(its))
        };
        for pool in [&own, &default] {
            assert!(is_refused(pool.export().expect_err("not created as shareable")));
        }
        let buffer = DeviceBuffer::<u8>::uninit_from_pool(&own, &stream, 64).expect("memory");
        assert!(is_refused(own.handle_of(&buffer).expect_err("not created as shareable")));
    }
}

#[cfg(unix)]
#[test]
fn a_shareable_pool_is_exported_and_others_are_not() {
    use cuda_safe::manager::IpcKind;
    let (context, stream) = or_skip!(common::context_and_stream());
    let options = MemoryPoolOptions { shareable: true, ..Default::default() };
    let pool = match MemoryPool::new(&context, options) {
        Err(error) => return common::skip(&error.to_string()),
        Ok(pool) => pool,
    };
    let buffer = DeviceBuffer::<i32>::zeroed_from_pool(&pool, &stream, 1000).expect("memory");
    // The driver returns no export data before the pool was exported.
    let mut data = CUmemPoolPtrExportData::default();
    // SAFETY: the pointer refers to a local variable, and the memory is alive.
    let code = unsafe { cuMemPoolExportPointer(&raw mut data, buffer.as_raw()) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    let first = pool.handle_of(&buffer).expect("the pool is exported now");
    let (one, two) = (pool.export(), pool.export());
    drop((one.expect("a descriptor"), two.expect("another one")));
    let handle = pool.handle_of(&buffer).expect("it is shareable");
    assert_eq!((handle.kind(), handle.offset(), handle.size()), (IpcKind::Pool, 0, 4000));
    assert_eq!(handle.device().expect("asked"), Some(context.device()));
    // The bytes are the same each time, so a process can recognize memory that it has opened
    // already.
    let again = pool.handle_of(&buffer).expect("as above");
    for its in [again, first] {
        assert_eq!(its.as_bytes(), handle.as_bytes());
    }
    let other = DeviceBuffer::<i32>::zeroed_from_pool(&pool, &stream, 1000).expect("memory");
    let its = pool.handle_of(&other).expect("as above");
    assert_ne!(its.as_bytes(), handle.as_bytes());
    drop((buffer, other));
}
