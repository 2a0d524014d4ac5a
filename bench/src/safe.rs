//! The works through `cuda-safe`.

use crate::Fallible;
use crate::operations::{HOSTS, PTX};
use crate::plain;
use crate::raw::Objects;
use crate::work::{Work, Works, ok};
use cuda_memory::CachingManager;
use cuda_safe::green::{GreenContext, Overlap, SmGroup, SmResource, SplitByCount};
use cuda_safe::launch::LaunchAttributes;
use cuda_safe::manager::{MemoryManager, Order, clear_memory_manager, set_memory_manager};
use cuda_safe::memory::Pending;
use cuda_safe::sys::{self, CUdevResource, CUdevResourceType, Function};
use cuda_safe::virtual_memory::{GrowableBuffer, PhysicalOptions};
use cuda_safe::{
    Context, ContextFlags, Device, DeviceBuffer, LaunchConfig, Module, PinnedBuffer, Stream,
    TypedKernel,
};
use std::hint::black_box;

const KIB4: usize = 4096;
const CONFIG: LaunchConfig = LaunchConfig::linear(1, 32);

type In = &'static [f32];
type Three = (In, &'static mut [f32], u32);
#[rustfmt::skip]
type Sixteen = (In, In, In, In, In, In, In, In, u32, u32, u32, u32, u32, u32, u32, u32);

/// Returns the works, and raw handles of objects that live until the process exits.
pub(crate) fn works() -> Fallible<(Works, Objects)> {
    let device = Device::get(0)?;
    let context = Context::primary(&device)?;
    let streams = [context.stream()?, context.stream()?, context.stream()?, context.stream()?];
    let module = Module::from_ptx(&context, PTX)?;
    let kernels = Kernels {
        none: module.kernel("none")?.typed()?,
        three: module.kernel("three")?.typed()?,
        sixteen: module.kernel("sixteen")?.typed()?,
    };
    let green = Function::find("cuGreenCtxStreamCreate").is_some_and(Function::is_available);

    // Other code knows the handle of a stream that the works do not use.
    let taken = context.stream()?;
    black_box(taken.as_raw());
    std::mem::forget(taken);
    // The handles are those of the C code. If the handle of a stream of `cuda-safe` were taken,
    // operations on that stream would check whether it is capturing.
    let (raw_streams, [event, waited]) = plain::lent();
    let mut objects = Objects {
        context: context.clone().into_raw(),
        streams: raw_streams,
        event,
        waited,
        buffers: [0; 4],
        hosts: [std::ptr::null_mut(); HOSTS],
        none: kernels.none.kernel().as_raw(),
        three: kernels.three.kernel().as_raw(),
        sixteen: kernels.sixteen.kernel().as_raw(),
        green: None,
    };
    for (place, stream) in objects.buffers.iter_mut().zip(&streams) {
        let buffer = DeviceBuffer::<u8>::zeroed(stream, KIB4)?;
        *place = buffer.into_raw().0;
    }
    for place in &mut objects.hosts {
        let mut host = PinnedBuffer::<u8>::zeroed(&context, KIB4)?;
        *place = host.as_mut_ptr().cast();
        std::mem::forget(host);
    }

    let mut works = around(&context, &streams[0])?;
    works.extend(launches(&streams[0], kernels)?);
    works.extend(memory(&streams)?);
    if green {
        let whole = GreenContext::new(groups(&device, 1)?)?;
        objects.green = Some((whole.as_raw(), group_of(&whole)?));
        works.extend(partitions(device, whole)?);
    }
    Ok((works, objects))
}

fn around(context: &Context, stream: &Stream) -> Fallible<Works> {
    let event = context.event()?;
    let (record, query) = ((event.clone(), stream.clone()), event);
    record.0.record(&record.1)?;
    let wait = (context.event()?, stream.clone());
    wait.0.record(stream)?;
    let current = context.clone();
    let (guard, events, streams) = (context.clone(), context.clone(), context.clone());
    let (bound, bare_events) = (context.clone(), context.clone());
    Ok(vec![
        ("make current, current already", Work::each(move || ok(current.with_current(|_| ())))),
        ("bind to the thread, bound already", Work::each(move || ok(bound.bind_to_thread()))),
        ("make current and back", Work::each(move || ok(guard.with_current(|_| ())))),
        ("event record", Work::each(move || ok(record.0.record(&record.1)))),
        ("stream waits for an event", Work::each(move || ok(wait.1.wait_event(&wait.0)))),
        (
            "event query",
            Work::each(move || {
                black_box(ok(query.is_complete()));
            }),
        ),
        ("event create, destroy", Work::each(move || drop(ok(events.event())))),
        (
            "the same, where no context is current",
            Work::each(move || drop(ok(bare_events.event()))),
        ),
        ("stream create, destroy", Work::each(move || drop(ok(streams.stream())))),
    ])
}

struct Kernels {
    none: TypedKernel<()>,
    three: TypedKernel<Three>,
    sixteen: TypedKernel<Sixteen>,
}

fn launches(stream: &Stream, kernels: Kernels) -> Fallible<Works> {
    let Kernels { none, three, sixteen } = kernels;
    let (none_too, s) = (none.clone(), stream.clone());
    let on = || stream.clone();
    let (one, two, four, built) = (on(), on(), on(), on());
    let three_too = three.kernel().clone();
    let a = DeviceBuffer::<f32>::zeroed(stream, 1024)?;
    let mut b = DeviceBuffer::<f32>::zeroed(stream, 1024)?;
    let c = DeviceBuffer::<f32>::zeroed(stream, 1024)?;
    let from = DeviceBuffer::<f32>::zeroed(stream, 1024)?;
    let mut to = DeviceBuffer::<f32>::zeroed(stream, 1024)?;
    let attributes = LaunchAttributes {
        programmatic_serialization: true,
        priority: Some(0),
        ..Default::default()
    };
    Ok(vec![
        (
            "launch, no argument",
            Work::each(move || {
                // SAFETY: the kernel does nothing.
                ok(unsafe { none.launch(&s, CONFIG, ()) });
            }),
        ),
        (
            "launch, 3 arguments",
            Work::each(move || {
                // SAFETY: the kernel does nothing.
                ok(unsafe { three.launch(&one, CONFIG, (&a, &mut b, 8)) });
            }),
        ),
        (
            "launch, 3 arguments of run-time types",
            Work::each(move || {
                let mut launch = three_too.launch_builder(&built);
                launch.arg(&from).arg(&mut to).arg(8u32);
                // SAFETY: the kernel does nothing.
                ok(unsafe { launch.launch(CONFIG) });
            }),
        ),
        (
            "launch, 16 arguments",
            Work::each(move || {
                let arguments = (&c, &c, &c, &c, &c, &c, &c, &c, 1, 2, 3, 4, 5, 6, 7, 8);
                // SAFETY: the kernel does nothing.
                ok(unsafe { sixteen.launch(&two, CONFIG, arguments) });
            }),
        ),
        (
            "launch, 2 attributes",
            Work::each(move || {
                // SAFETY: the kernel does nothing.
                ok(unsafe { none_too.launch_with(&four, CONFIG, &attributes, ()) });
            }),
        ),
    ])
}

/// Pending copies own their host memory until they are complete.
struct Copies {
    buffers: Vec<DeviceBuffer<u8>>,
    idle: Vec<PinnedBuffer<u8>>,
    under_way: Vec<Pending<u8>>,
}

impl Copies {
    fn new(streams: &[Stream]) -> Fallible<Self> {
        let context = streams[0].context();
        let buffer = |stream| DeviceBuffer::zeroed(stream, KIB4);
        let host = |_| PinnedBuffer::zeroed(context, KIB4);
        Ok(Self {
            buffers: streams.iter().map(buffer).collect::<Result<_, _>>()?,
            idle: (0..HOSTS).map(host).collect::<Result<_, _>>()?,
            under_way: Vec::with_capacity(HOSTS),
        })
    }

    fn give(&mut self, n: usize) {
        for i in 0..n.min(HOSTS) {
            let Some(host) = self.idle.pop() else { return };
            let place = i % self.buffers.len();
            self.under_way.push(ok(self.buffers[place].copy_from_pinned(host)));
        }
    }

    fn take(&mut self, n: usize) {
        for i in 0..n.min(HOSTS) {
            let Some(host) = self.idle.pop() else { return };
            let place = i % self.buffers.len();
            self.under_way.push(ok(self.buffers[place].copy_to_pinned(host)));
        }
    }

    fn settle(&mut self) {
        self.idle.extend(self.under_way.drain(..).map(|copy| ok(copy.synchronize())));
    }
}

fn memory(streams: &[Stream; 4]) -> Fallible<Works> {
    let stream = streams[0].clone();
    let buffer = || DeviceBuffer::<u8>::zeroed(&stream, KIB4);
    let (mut set, mut to, from) = (buffer()?, buffer()?, buffer()?);
    let granule = PhysicalOptions::new(stream.context().device()).granularity()?;
    let mut growable = GrowableBuffer::<u8>::new(&stream, 4 * granule)?;
    growable.grow(granule)?;
    let one = &streams[..1];
    let copies =
        |streams, run| Fallible::Ok(Work::with_rest(Copies::new(streams)?, run, Copies::settle));
    Ok(vec![
        ("allocate, free 1 MiB in stream order", allocate(&streams[0])),
        ("the same, after the handle of another stream was taken", allocate(&streams[0])),
        ("the same, where others capture", allocate(&streams[0])),
        ("the same, by a caching pool", pool(&stream.context().device())?),
        ("copy 4 KiB on the device", Work::each(move || ok(to.copy_from(&from)))),
        ("memset 4 KiB", Work::each(move || ok(set.zero()))),
        (
            "grow by 2 MiB, shrink",
            Work::each(move || {
                ok(growable.grow(2 * granule));
                ok(growable.truncate(granule));
            }),
        ),
        ("copy 4 KiB to the device", copies(one, Copies::give as fn(&mut Copies, usize))?),
        ("copy 4 KiB from the device", copies(one, Copies::take)?),
        ("copy to the device, 4 streams", copies(streams, Copies::give)?),
        ("copy from the device, 4 streams", copies(streams, Copies::take)?),
    ])
}

/// Allocates and frees in a way that invalidates no capture of other code.
fn allocate(stream: &Stream) -> Work {
    let stream = stream.clone();
    Work::each(move || drop(ok(DeviceBuffer::<u8>::uninit(&stream, 1 << 20))))
}

/// Returns a work with the caching pool of a separate context, which is leaked. The pool calls the
/// driver only the first time.
fn pool(device: &Device) -> Fallible<Work> {
    set_memory_manager(CachingManager::new)?;
    let context = Context::new(device, ContextFlags::empty())?;
    clear_memory_manager();
    let stream = context.stream()?;
    let context: &'static Context = Box::leak(Box::new(context));
    let pool = context.memory_manager_as::<CachingManager>()?;
    let pool = pool.ok_or("the context has another memory manager")?;
    Ok(Work::each(move || {
        let block = ok(pool.allocate(1 << 20, Order::of(&stream)));
        // SAFETY: the block is freed once and is not used.
        unsafe { pool.free(black_box(block), Order::of(&stream)) };
    }))
}

/// Returns groups of 16 SMs, which other partitions may also use.
fn groups(device: &Device, count: u32) -> cuda_safe::Result<Vec<SmGroup>> {
    let split = SplitByCount {
        min: 16,
        max_groups: Some(count),
        overlap: Overlap::Allow,
        ..Default::default()
    };
    Ok(SmResource::of_device(device)?.split_by_count(split)?.groups)
}

/// Creates a partition of a device and a stream in it.
fn way(device: &Device) -> cuda_safe::Result<Stream> {
    let partition = GreenContext::new(groups(device, 2)?.into_iter().take(1))?;
    partition.stream()
}

/// Returns the partition's SMs as a driver resource.
fn group_of(green: &GreenContext) -> Fallible<CUdevResource> {
    let mut resource = CUdevResource::default();
    let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    // SAFETY: the green context is alive, and the pointer is to a local variable.
    let code = unsafe { sys::cuGreenCtxGetDevResource(green.as_raw(), &raw mut resource, kind) };
    if code.is_success() {
        return Ok(resource);
    }
    Err(format!("cuGreenCtxGetDevResource returned {code}").into())
}

fn partitions(device: Device, whole: GreenContext) -> Fallible<Works> {
    const BATCH: u32 = 2;
    let prepared = groups(&device, BATCH)?;
    let create = |groups: &mut Vec<SmGroup>, n: usize| {
        for group in groups.drain(..n) {
            drop(ok(GreenContext::new([group])));
        }
    };
    let again = move |left: &mut Vec<SmGroup>| *left = ok(groups(&device, BATCH));
    Ok(vec![
        ("green: split", Work::each(move || drop(ok(groups(&device, 2))))),
        ("green: create, destroy", Work::with_rest(prepared, create, again)),
        ("green: split to stream, and back", Work::each(move || drop(ok(way(&device))))),
        ("green: stream create, destroy", Work::each(move || drop(ok(whole.stream())))),
    ])
}
