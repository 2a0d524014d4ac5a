//! Settings of contexts, devices, streams and kernels, and functions of memory managers.

use super::{Held, LEN, Layered, Operations, Skip, VECTOR, wrong};
use cuda_memory::{CachingManager, CachingOptions, OrderedManager};
use cuda_safe::context::{Limit, RdmaScope};
use cuda_safe::device::attribute;
use cuda_safe::device::{AtomicOperation, PeerAttribute};
use cuda_safe::event::EventIpcHandle;
use cuda_safe::launch::{LaunchAttributes, OccupancyOptions};
use cuda_safe::manager::{
    CleanupGuard, DeferOptions, DriverManager, DriverMemory, FreeCounter, HostPointer,
    MappedMemory, MemoryPointer, Order, OrderEvent, PinnedMemory, in_forked_child,
    in_host_function, in_report_hook, is_out_of_memory, may_block, set_default_memory_manager,
    with_current_context, without_invalidating_captures,
};
use cuda_safe::memory::{MemoryPool, PinnedFlags};
use cuda_safe::module::attribute::{CARVEOUT, MAX_DYNAMIC_SHARED_BYTES, MAX_THREADS_PER_BLOCK};
use cuda_safe::module::{JitOptions, Library, Linker};
use cuda_safe::process::logs::{LogCallback, LogPosition};
use cuda_safe::{
    Context, ContextFlags, Device, DeviceBuffer, Error, Event, EventOptions, LaunchConfig, Module,
    Stream,
};
use std::sync::Arc;

const ONE: LaunchConfig = LaunchConfig::linear(1, 32);

pub(super) const SETTINGS: Operations = &[
    ("settings of a context", |s| {
        let context = s.context();
        let size = context.limit(Limit::StackSize)?;
        context.set_limit(Limit::StackSize, size)?;
        context.set_cache_preference(context.cache_preference()?)?;
        context.flush_gpu_direct_rdma_writes(RdmaScope::Owner)?;
        Ok(context.reset_persisting_l2()?)
    }),
    ("flags of contexts", |s| {
        let context = s.context();
        let flags = context.flags()?;
        context.set_flags(flags)?;
        Ok(s.world.second.device().set_primary_flags(flags)?)
    }),
    ("contexts with affinity", |s| {
        let device = s.context().device();
        if device.supports_execution_affinity()? {
            let made = Context::with_affinity(&device, ContextFlags::empty(), 8)?;
            made.execution_affinity()?;
            return Ok(s.put(made));
        }
        drop(Context::with_affinity(&device, ContextFlags::empty(), 8));
        Ok(drop(s.context().execution_affinity()))
    }),
    ("a current context", |s| {
        let done = s.context().with_current(|current| {
            let _ = (current.context().id(), current.legacy_stream().as_raw());
            current.legacy_stream().context().as_raw();
            current.per_thread_stream().synchronize()
        })?;
        Ok(done?)
    }),
    ("more of a device", |s| {
        let (device, peer) = (s.context().device(), s.world.second.device());
        let _ = (
            device.luid().is_ok(),
            device.as_raw(),
            device.attribute_raw(attribute::WARP_SIZE.as_raw())?,
        );
        let _ = (attribute::WARP_SIZE.name(), attribute::WARP_SIZE.since());
        attribute::all(&device)?;
        let _ = Device::by_pci_bus_id("0000:00:00.0").is_ok();
        device.peer_attribute(PeerAttribute::AccessSupported, &peer)?;
        device.peer_atomics(AtomicOperation::IntegerAdd, &peer)?;
        Ok(drop(device.host_atomics(AtomicOperation::IntegerAdd)?))
    }),
    ("versions", |_| {
        cuda_safe::init()?;
        Ok(drop((cuda_safe::version()?, Module::loading_mode()?)))
    }),
    ("attributes of a stream", |s| {
        let stream = s.get::<Stream>()?;
        let _ = (stream.context().id(), stream.as_raw());
        match s.below(4) {
            0 => {
                let policy = stream.synchronization_policy()?;
                stream.set_synchronization_policy(policy.unwrap_or_default())?;
            }
            1 => stream.set_priority(stream.priority()?)?,
            2 => stream.set_memory_sync_domain(stream.memory_sync_domain()?)?,
            _ => stream.set_memory_sync_domain_map(stream.memory_sync_domain_map()?)?,
        }
        Ok(())
    }),
    ("objects of enqueued work", |s| {
        let (stream, event) = (s.get::<Stream>()?, s.get::<Event>()?);
        let object = Arc::new(event.clone());
        Ok(stream.enqueue_retaining(|| vec![object], || event.record(&stream))??)
    }),
    ("timed events", |s| {
        let timed = EventOptions { timing: true, ..Default::default() };
        let (first, second) = (s.context().event_with(timed)?, s.context().event_with(timed)?);
        let stream = s.get::<Stream>()?;
        first.record(&stream)?;
        second.record(&stream)?;
        second.synchronize()?;
        let _ = (first.context().id(), first.as_raw());
        // The driver answers with an invalid handle if a capture that another thread began has recorded them.
        Ok(drop(second.elapsed_since(&first)))
    }),
    ("events for processes", |s| {
        let event =
            s.context().event_with(EventOptions { interprocess: true, ..Default::default() })?;
        let handle = event.ipc_handle()?;
        let same = EventIpcHandle::from_bytes(*handle.as_bytes());
        assert_eq!(same.as_bytes(), handle.as_bytes());
        Ok(s.put(event))
    }),
    ("settings of a kernel", |s| {
        let kernel = s.world.kernel.kernel();
        kernel.set_attribute(MAX_DYNAMIC_SHARED_BYTES, 1024)?;
        kernel.set_attribute(CARVEOUT, kernel.attribute(CARVEOUT)?)?;
        let _ = (MAX_THREADS_PER_BLOCK.name(), MAX_THREADS_PER_BLOCK.since());
        let _ = (MAX_THREADS_PER_BLOCK.as_raw(), kernel.context().id());
        Ok(())
    }),
    ("occupancy", |s| {
        let kernel = s.world.kernel.kernel();
        let attributes = LaunchAttributes::default();
        kernel.suggested_block_with(|threads| threads as usize, OccupancyOptions::default())?;
        kernel.available_shared_bytes(1, 32)?;
        kernel.max_cluster_size(ONE, &attributes)?;
        kernel.max_cluster_size_on(&s.get()?, ONE, &attributes)?;
        let cluster = LaunchAttributes { cluster: Some([1, 1, 1]), ..Default::default() };
        Ok(drop(kernel.max_active_clusters(ONE, &cluster)?))
    }),
    ("launch with a builder", |s| {
        s.with(|s, held: &mut Held| {
            let stream = held.buffer.stream().clone();
            let mut builder = s.world.kernel.kernel().launch_builder(&stream);
            builder.arg(&mut held.buffer).arg(1_i32);
            builder.arg_bytes(&0_i32.to_ne_bytes()).arg(LEN as u32);
            // SAFETY: the kernel reads and writes as many elements as the last argument says.
            Ok(unsafe { builder.launch(ONE) }?)
        })
    }),
    ("code with options", |s| {
        let options = JitOptions { info_log: true, ..Default::default() };
        let module = Module::from_ptx_with(s.context(), VECTOR, &options)?;
        let _ = (module.log(), module.as_raw(), module.global("none").is_ok());
        let library = Library::from_ptx_with(VECTOR, &options)?;
        let _ = (library.as_raw(), library.global(s.context(), "none").is_ok());
        let _ = library.managed(s.context(), "none").is_ok();
        let mut linker = Linker::with(s.context(), &options)?;
        let _ = (linker.context().id(), linker.as_raw());
        linker.add_ptx("vector", VECTOR)?;
        let linked = linker.complete()?;
        let _ = (linked.bytes().len(), linked.log().len());
        drop(Library::from_linked(&linked)?);
        Ok(s.put(module))
    }),
    ("globals", |s| {
        let module = Module::from_ptx(s.context(), GLOBALS)?;
        let global = module.global("numbers")?;
        let _ = (global.as_raw(), global.size_bytes(), global.name().len());
        let _ = global.context().id();
        let library = Library::from_ptx(GLOBALS)?;
        Ok(s.put((library.global(s.context(), "numbers")?, global)))
    }),
    ("profiler", |s| Ok(s.context().profiler_range()?.end()?)),
    ("logs", |_| {
        let mut position = LogPosition::end()?;
        let callback = LogCallback::new(|_, _| ())?;
        position.read()?;
        position.write_to_file("/dev/null")?;
        Ok(drop(callback))
    }),
    ("errors", |s| {
        let made = DeviceBuffer::<u32>::zeroed_sync(&s.get()?, 1 << 50);
        if let Err(error) = made {
            let _ = (error.is_fatal(), error.driver_error().map(|its| its.log().len()));
            let _ = is_out_of_memory(&error.with_requested_bytes(1));
        }
        Ok(())
    }),
];

/// A module with a global variable.
const GLOBALS: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .b32 numbers[4];
";

pub(super) const MANAGERS: Operations = &[
    ("pointer of a manager", |s| {
        let stream = s.get::<Stream>()?;
        let order = match s.one_in(2) {
            true => Order::of(&stream),
            false => Order::NONE,
        };
        let _ = (order.key(), order.as_raw(), order.stream().is_some());
        let _ = order.is_transient();
        let pointer = MemoryPointer::allocate_in(stream.context(), 64, order)?;
        let _ = (pointer.context().id(), pointer.block(), pointer.id());
        Ok(s.put(pointer))
    }),
    ("drop a pointer of a manager", |s| Ok(drop(s.take::<MemoryPointer>()?))),
    ("describe host memory", |s| {
        s.with(|_, memory: &mut PinnedMemory| {
            let host: &HostPointer = memory;
            let _ = (host.as_ptr(), host.size(), host.id(), host.context().id());
            Ok(drop(host.owner().is_some()))
        })
    }),
    ("new host memory", |s| {
        let made = PinnedMemory::allocate(s.context(), 64, PinnedFlags::empty())?;
        let mapped = MappedMemory::allocate(s.context(), 64, PinnedFlags::empty())?;
        let _ = mapped.as_raw();
        Ok(s.put(made))
    }),
    ("defer the frees of a manager", |s| {
        let Some(manager) = s.context().memory_manager()? else {
            return Err(Skip);
        };
        let guard = manager.defer_cleanup();
        let other = CleanupGuard::holding(s.take::<Held>().map(|held| held.buffer));
        Ok(s.put(guard.and(other)))
    }),
    ("end the deferral of frees", |s| Ok(drop(s.take::<CleanupGuard>()?))),
    ("memory of a manager", |s| {
        let Some(manager) = s.context().memory_manager()? else {
            return Err(Skip);
        };
        let _ = (manager.memory_info().is_ok(), manager.trim(0)?);
        if let Some(caching) = s.context().memory_manager_as::<CachingManager>()? {
            let stats = caching.stats();
            let _ = (stats.cached(), stats.fragmentation(), caching.options());
            let _ = caching.upstream().memory_info().is_ok();
        }
        if let Some(ordered) = s.context().memory_manager_as::<OrderedManager>()? {
            let _ = ordered.pool().is_some();
        }
        Ok(())
    }),
    ("layers of managers", |s| {
        let Some(limit) = s.context().memory_manager_as::<Layered>()? else {
            return Err(Skip);
        };
        let _ = (limit.limit(), limit.used());
        let statistics = limit.inner();
        let seen = statistics.statistics();
        if seen.freed > seen.allocated {
            wrong(format!("more frees than allocations: {seen:?}"));
        }
        statistics.sample();
        let timeline = statistics.timeline();
        let _ = timeline.samples().iter().map(|its| its.used()).max();
        let leaks = statistics.inner();
        let _ = leaks.outstanding().len();
        let logging = leaks.inner();
        logging.flush().map_err(|_| Skip)?;
        let fallback = logging.inner();
        let _ = (fallback.count(), fallback.inner().stats().cached());
        Ok(())
    }),
    ("other managers", |s| {
        let context = s.context();
        let ordered = OrderedManager::with(context, Default::default())?;
        let caching = CachingManager::with_upstream(context, ordered, CachingOptions::default())?;
        drop(with_current_context(Box::new(caching)));
        let driver = DriverManager::with(context, DeferOptions::default())?;
        drop(with_current_context(Box::new(driver)));
        drop(CachingManager::new(context)?);
        Ok(drop(set_default_memory_manager(DriverManager::new)?))
    }),
    ("memory of the driver", |s| {
        let context = s.context();
        let memory = DriverMemory::new(context, DeferOptions::default())?;
        let guard = memory.defer_cleanup();
        let _ = (memory.pending(), memory.is_cleanup_deferred(), memory.context().id());
        memory.flush();
        drop(guard);
        memory.reset();
        Ok(memory.synchronize()?)
    }),
    ("conditions of managers", |s| {
        let _ = (in_forked_child(), in_host_function(), in_report_hook(), may_block());
        let context = s.context();
        Ok(without_invalidating_captures(|| context.memory_info().map(drop))?)
    }),
    ("events of orders", |s| {
        let stream = s.get::<Stream>()?;
        let event = OrderEvent::new(stream.context())?;
        event.record(Order::of(&stream), stream.context())?;
        let other = s.get::<Stream>()?;
        let _ = (event.is_complete()?, event.context().id());
        if other.context() == stream.context() {
            Order::of(&other).wait_event(&event, stream.context())?;
        }
        Ok(())
    }),
    ("count frees", |_| {
        let counter = FreeCounter::default();
        let before = counter.completed();
        let mut free = counter.begin();
        free.mark_freed();
        drop(free);
        let _ = counter.has_freed_since(before);
        counter.retry(|| Ok(()))?;
        Ok(())
    }),
    ("pool of a manager", |s| {
        let _ = s.get::<MemoryPool>()?.as_raw();
        let error = Error::from(cuda_safe::Invalid::NoGroups);
        Ok(drop(is_out_of_memory(&error)))
    }),
];
