//! Pool memory shared between processes, with the software driver in the role of the other process.
#![cfg(unix)]

use crate::prelude::*;
use cuda_safe::manager::IpcKind;
use cuda_safe::memory::ImportedPool;
use cuda_safe::memory::IpcMemory;
use cuda_safe::memory::pool::attribute::USED_CURRENT;
use cuda_sim::{
    pool_memory_shared_by_another, pool_of_device_shared_by_another, pool_shared_by_another,
    shared_by_another,
};
use std::os::fd::OwnedFd;

fn shareable() -> MemoryPoolOptions {
    MemoryPoolOptions { shareable: true, ..Default::default() }
}

/// A pool of another process, which creates handles of its memory.
struct Another {
    descriptor: OwnedFd,
    like: IpcHandle,
}

impl Another {
    fn new(context: &Context) -> Self {
        let pool = MemoryPool::new(context, shareable()).expect("a pool");
        let stream = context.stream().expect("a stream");
        let buffer = DeviceBuffer::<u8>::uninit_from_pool(&pool, &stream, 1).expect("memory");
        Self {
            descriptor: pool_shared_by_another().expect("a file"),
            like: pool.handle_of(&buffer).expect("it is shareable"),
        }
    }

    fn handle(&self, size: usize, offset: u64, part: u64) -> IpcHandle {
        let mut bytes = self.like.to_bytes();
        bytes[..64].copy_from_slice(&pool_memory_shared_by_another(&self.descriptor, size));
        bytes[64..72].copy_from_slice(&offset.to_le_bytes());
        bytes[72..80].copy_from_slice(&part.to_le_bytes());
        IpcHandle::from_bytes(&bytes)
    }

    fn import(&self, context: &Context) -> ImportedPool {
        // SAFETY: the software driver acts as the other process.
        unsafe { ImportedPool::import(context, &self.descriptor) }.expect("a matching pool")
    }
}

#[test]
fn memory_of_an_imported_pool_is_opened_once_and_freed_once() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let another = Another::new(&context);
    let pool = another.import(&context);
    assert_eq!(pool.context(), &context);
    let handle = another.handle(4096, 512, 100);
    let mut part = handle.to_bytes();
    part[64..72].copy_from_slice(&1024u64.to_le_bytes());
    let part = IpcHandle::from_bytes(&part);
    // SAFETY: the software driver acts as the other process.
    let open = |handle: &IpcHandle| unsafe { pool.open_memory(handle) }.expect("opened");
    let freed = count("cuMemFree_v2", || {
        let imported = count("cuMemPoolImportPointer", || {
            let (one, two, other) = (open(&handle), open(&handle), open(&part));
            assert_eq!(one.as_raw(), two.as_raw());
            assert_eq!(other.as_raw() - one.as_raw(), 512);
            assert_eq!((one.size(), one.context()), (100, &context));
            assert_eq!(pool.attribute(USED_CURRENT).expect("known"), 4096);
            drop((one, two));
            let stream = context.stream().expect("a stream");
            let address = other.as_raw();
            // SAFETY: the memory has this size, and nothing else uses it.
            let mut buffer =
                unsafe { DeviceBuffer::<u8>::from_foreign(address, 100, &stream, other) }
                    .expect("memory");
            buffer.fill(3).expect("a fill");
            assert_eq!(buffer.to_vec().expect("a copy"), [3; 100]);
        });
        assert_eq!(imported, 1);
    });
    assert_eq!(freed, 1);
    // Memory keeps its pool alive, and can be opened again after it was freed.
    let again = open(&handle);
    drop(pool);
    assert_eq!(cuda_sim::alive().pools, 1);
    drop(again);
}

#[test]
fn handles_are_opened_by_their_kind() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let another = Another::new(&context);
    let pool = another.import(&context);
    let handle = another.handle(4096, 0, 4096);
    assert_eq!(handle.kind(), IpcKind::Pool);
    // SAFETY: the call fails and opens nothing.
    let error = unsafe { context.open_memory(&handle) }.expect_err("a pool's");
    assert!(error.to_string().contains("imported pool"), "{error}");
    let mut bytes = handle.to_bytes();
    bytes[96] = 0;
    let plain = IpcHandle::from_bytes(&bytes);
    assert_eq!(plain.kind(), IpcKind::Synchronous);
    // SAFETY: the call fails and opens nothing.
    let error = unsafe { pool.open_memory(&plain) }.expect_err("synchronous memory");
    assert!(error.to_string().contains("synchronous memory"), "{error}");
    bytes[96] = 9;
    let newer = IpcHandle::from_bytes(&bytes);
    assert_eq!((newer.kind(), newer.to_bytes()), (IpcKind::Other(9), bytes));
    // SAFETY: the call fails and opens nothing.
    let error = unsafe { pool.open_memory(&newer) }.expect_err("an unknown handle");
    assert!(error.to_string().contains("kind 9"), "{error}");
    // A handle of another pool, and a descriptor that is not a pool.
    let third = Another::new(&context);
    // SAFETY: the call fails and opens nothing.
    let error = unsafe { pool.open_memory(&third.handle(64, 0, 64)) };
    let error = error.expect_err("another pool's");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    // A range whose end overflows.
    let far = another.handle(64, u64::MAX - 8, 4096);
    // SAFETY: as above.
    let error = unsafe { pool.open_memory(&far) }.expect_err("beyond the address space");
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    // SAFETY: as above.
    let error = unsafe { ImportedPool::import(&context, &std::io::stderr()) };
    assert!(error.expect_err("no pool").code().is_some());
}

#[test]
fn only_shareable_pools_are_shared() {
    let (_end, context, stream) = in_child!(on_stream());
    let own = MemoryPool::new(&context, MemoryPoolOptions::default()).expect("a pool");
    let default = MemoryPool::default_of(&context).expect("there is one");
    for pool in [&own, &default] {
        let error = pool.export().expect_err("for this process only");
        assert!(error.to_string().contains("shareable"), "{error}");
    }
    let buffer = DeviceBuffer::<u8>::uninit_from_pool(&own, &stream, 64).expect("memory");
    let error = own.handle_of(&buffer).expect_err("as above");
    assert!(error.to_string().contains("shareable"), "{error}");
    let shared = MemoryPool::new(&context, shareable()).expect("a pool");
    drop(shared.export().expect("a descriptor"));
    let error = shared.handle_of(&buffer).expect_err("another pool's");
    assert!(matches!(error, Error::Invalid(ref what) if **what == Invalid::NotOfPool));
}

/// Starts the software driver with a manager whose pool is shareable.
fn managed<M: MemoryManager>(
    make: impl Fn(&Context) -> Result<M> + Send + Sync + 'static,
) -> (AtEnd, Context) {
    let (end, context) = with(make);
    let end = end.after(|| {
        crate::context().synchronize().expect("a wait");
        assert_eq!(cuda_safe::leaked(), 0);
    });
    (end, context)
}

#[test]
fn a_manager_over_a_shareable_pool_shares_its_memory() {
    let make = |context: &Context| OrderedManager::with(context, shareable());
    let (_end, context) = in_child!(managed(make));
    let stream = context.stream().expect("a stream");
    let memory = MemoryPointer::allocate_on(&stream, 5000).expect("memory");
    let memory = AutoFreePointer::from(memory);
    let exported = memory.part(1024, 100).expect("within").export().expect("it is shareable");
    let handle = exported.handle();
    assert_eq!((handle.kind(), handle.offset(), handle.size()), (IpcKind::Pool, 1024, 100));
    assert_eq!(memory.export().expect("as above").handle().as_bytes(), handle.as_bytes());
    let manager = context.memory_manager_as::<OrderedManager>();
    let pool = manager.expect("made").expect("the chosen manager").pool().expect("its own");
    drop(pool.export().expect("a descriptor"));
    // Synchronous memory, without a stream order, can still be shared.
    let plain = MemoryPointer::allocate(&context, 100).expect("memory");
    let plain = AutoFreePointer::from(plain).export().expect("plain");
    assert_eq!(plain.handle().kind(), IpcKind::Synchronous);
}

#[test]
fn a_pool_over_a_shareable_pool_shares_its_memory() {
    let make = |context: &Context| {
        let below = OrderedManager::with(context, shareable())?;
        CachingManager::with_upstream(context, below, CachingOptions::default())
    };
    let (_end, context) = in_child!(managed(make));
    let stream = context.stream().expect("a stream");
    let _before = MemoryPointer::allocate_on(&stream, 5000).expect("memory");
    let memory = MemoryPointer::allocate_on(&stream, 5000).expect("memory");
    let memory = AutoFreePointer::from(memory);
    let exported = memory.export().expect("of synchronous slabs");
    assert_eq!(exported.handle().kind(), IpcKind::Synchronous);
    assert_ne!(exported.handle().offset(), 0);
    let managed = MemoryPointer::allocate_managed(&context, 100, true).expect("memory");
    AutoFreePointer::from(managed).export().expect_err("not so");
}

/// Runs `body` with the primary contexts of two devices, in both orders.
fn of_two_devices(body: impl Fn(&Context, &Context)) {
    start(Profile::h200().with_devices(2));
    let context = |ordinal| {
        let device = Device::get(ordinal).expect("one of two");
        Context::primary(&device).expect("a context")
    };
    let (first, second) = (context(0), context(1));
    for (its, other) in [(&first, &second), (&second, &first)] {
        body(its, other);
    }
    drop((first, second));
    check();
}

/// Uses opened memory on its device: writes and reads it there.
fn use_opened(memory: IpcMemory, context: &Context) {
    let info = context.pointer_info(memory.as_raw()).expect("asked");
    assert_eq!(info.expect("memory").device, Some(context.device().ordinal()));
    let stream = context.stream().expect("a stream");
    let (address, len) = (memory.as_raw(), memory.size());
    // SAFETY: the memory has this size, and nothing else uses it.
    let mut buffer =
        unsafe { DeviceBuffer::<u8>::from_foreign(address, len, &stream, memory) }.expect("memory");
    buffer.fill(3).expect("a fill");
    assert_eq!(buffer.to_vec().expect("a copy"), vec![3; len]);
}

#[test]
fn synchronous_memory_is_opened_only_on_its_device() {
    in_child!();
    set_memory_manager(CachingManager::new).expect("a matching version");
    of_two_devices(|context, other| {
        let memory = MemoryPointer::allocate(context, 5000).expect("memory");
        let part = AutoFreePointer::from(memory).part(1024, 100);
        let exported = part.expect("within").export().expect("synchronous upstream memory");
        let mut sent = exported.handle().to_bytes();
        let handle = IpcHandle::from_bytes(&sent);
        assert_eq!(handle.device().expect("asked"), Some(context.device()));
        // As if another process had sent it.
        sent[..64].copy_from_slice(&shared_by_another(8192));
        let handle = IpcHandle::from_bytes(&sent);
        assert_eq!(handle.device().expect("asked"), Some(context.device()));
        // SAFETY: the call fails and opens nothing.
        let error = unsafe { other.open_memory(&handle) }.expect_err("on the other device");
        let is_right = |what: &Invalid| matches!(what, Invalid::MemoryOfOtherDevice { .. });
        assert!(matches!(&error, Error::Invalid(what) if is_right(what)), "{error}");
        // SAFETY: the software driver acts as the other process.
        let opened = unsafe { context.open_memory(&handle) }.expect("its own");
        use_opened(opened, context);
        // A device that this process cannot see.
        sent[90] ^= 1;
        assert_eq!(IpcHandle::from_bytes(&sent).device().expect("asked"), None);
    });
}

#[test]
fn pool_memory_is_opened_only_on_its_device() {
    in_child!();
    let make = |context: &Context| OrderedManager::with(context, shareable());
    set_memory_manager(make).expect("a matching version");
    of_two_devices(|context, other| {
        let stream = context.stream().expect("a stream");
        let memory = MemoryPointer::allocate_on(&stream, 5000).expect("memory");
        let exported = AutoFreePointer::from(memory).export().expect("it is shareable");
        let mut sent = exported.handle().to_bytes();
        let ordinal = context.device().ordinal() as usize;
        let descriptor = pool_of_device_shared_by_another(ordinal).expect("a file");
        sent[..64].copy_from_slice(&pool_memory_shared_by_another(&descriptor, 8192));
        let handle = IpcHandle::from_bytes(&sent);
        assert_eq!(handle.kind(), IpcKind::Pool);
        assert_eq!(handle.device().expect("asked"), Some(context.device()));
        let import = |context: &Context| {
            // SAFETY: the software driver acts as the other process.
            unsafe { ImportedPool::import(context, &descriptor) }.expect("a matching pool")
        };
        // SAFETY: the call fails and opens nothing.
        let error = unsafe { import(other).open_memory(&handle) }.expect_err("no access");
        let is_right = |what: &Invalid| matches!(what, Invalid::NoAccessToPool { .. });
        assert!(matches!(&error, Error::Invalid(what) if is_right(what)), "{error}");
        // SAFETY: as above.
        let opened = unsafe { import(context).open_memory(&handle) }.expect("its own");
        use_opened(opened, context);
    });
}

#[test]
fn the_pool_of_a_manager_is_destroyed_after_its_memory() {
    let make = |context: &Context| OrderedManager::with(context, shareable());
    let (_end, context) = in_child!(managed(make));
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 4096).expect("memory");
    buffer.fill(3).expect("a fill");
    let loose = MemoryPointer::allocate_on(&stream, 4096).expect("memory");
    // SAFETY: no work has used the memory.
    unsafe { loose.free_in(Order::NONE) };
    assert_eq!(cuda_sim::alive().pools, 1);
    drop((buffer, stream, context));
    let alive = cuda_sim::alive();
    assert_eq!((alive.pools, alive.device_allocations), (0, 0));
}

#[test]
fn the_pool_of_a_manager_dropped_in_a_host_function_is_destroyed_later() {
    let make = |context: &Context| OrderedManager::with(context, shareable());
    let (_end, context) = in_child!(managed(make));
    let device = context.device();
    let stream = context.stream().expect("a stream");
    drop(DeviceBuffer::<u8>::zeroed(&stream, 4096).expect("memory"));
    let other = Context::new(&device, ContextFlags::empty());
    let helper = other.and_then(|other| other.stream()).expect("a stream");
    drop(context);
    helper.launch_host_function(move || drop(stream)).expect("enqueued");
    helper.synchronize().expect("a wait");
    assert_eq!(cuda_sim::alive().pools, 1);
    helper.synchronize().expect("a wait");
    assert_eq!(cuda_sim::alive().pools, 0);
}
