//! Drops in other orders, with other contexts current, and on other threads.

use crate::scenarios::{VECTOR, primary, primary_and_streams};
use crate::trace::Trace;
use cuda_safe::green::{GreenContext, SmResource, SplitByCount};
use cuda_safe::module::Library;
use cuda_safe::{
    Context, ContextFlags, DeviceBuffer, Event, LaunchConfig, Module, PinnedBuffer, Result, Stream,
    TypedKernel,
};

type Scale = TypedKernel<(&'static mut [i32], i32, i32, u32)>;

/// One object of each type, with pending work.
struct All {
    context: Option<Context>,
    stream: Option<Stream>,
    event: Option<Event>,
    buffer: Option<DeviceBuffer<i32>>,
    plain: Option<DeviceBuffer<i32>>,
    pinned: Option<PinnedBuffer<i32>>,
    scale: Option<Scale>,
    library: Option<Library>,
}

impl All {
    const COUNT: usize = 8;

    fn new(context: Context, stream: Stream) -> Result<Self> {
        let module = Module::from_ptx(&context, VECTOR)?;
        let scale = module.kernel("scale")?.typed()?;
        let mut buffer = DeviceBuffer::from_slice(&stream, &[1; 8])?;
        let mut plain = DeviceBuffer::zeroed_sync(&stream, 8)?;
        let pinned = PinnedBuffer::zeroed(&context, 8)?;
        let library = Library::from_ptx(VECTOR)?;
        let event = context.event()?;
        // SAFETY: the kernel accesses 8 elements, and the memory has 8.
        unsafe { scale.launch(&stream, LaunchConfig::linear(1, 8), (&mut buffer, 2, 1, 8)) }?;
        plain.copy_from(&buffer)?;
        event.record(&stream)?;
        Ok(Self {
            context: Some(context),
            stream: Some(stream),
            event: Some(event),
            buffer: Some(buffer),
            plain: Some(plain),
            pinned: Some(pinned),
            scale: Some(scale),
            library: Some(library),
        })
    }

    fn drop_one(&mut self, index: usize) {
        match index {
            0 => drop(self.context.take()),
            1 => drop(self.stream.take()),
            2 => drop(self.event.take()),
            3 => drop(self.buffer.take()),
            4 => drop(self.plain.take()),
            5 => drop(self.pinned.take()),
            6 => drop(self.scale.take()),
            _ => drop(self.library.take()),
        }
    }
}

pub(crate) fn in_other_orders(trace: &mut Trace) -> Result<()> {
    // The step has no divisor in common with the number of objects, so all of them are dropped,
    // each time in another order.
    for (step, start) in [(3, 5), (7, 7)] {
        let (context, [stream]) = primary_and_streams()?;
        let mut all = All::new(context, stream)?;
        for place in 0..All::COUNT {
            let index = (start + step * place) % All::COUNT;
            trace.drops(|| all.drop_one(index));
        }
    }
    let primary = primary()?;
    let own = Context::new(&primary.device(), ContextFlags::empty())?;
    let stream = own.stream()?;
    let all = All::new(own, stream)?;
    primary.with_current(|_| trace.drop(all))?;
    trace.drops_from_here()
}

pub(crate) fn on_other_threads(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let all = All::new(context.clone(), stream)?;
    trace.on_thread(|trace| trace.drop(all));

    // Created on the other thread, and dropped on this one.
    let made = trace.on_thread({
        let context = context.clone();
        move |_| All::new(context.clone(), context.stream()?)
    })?;
    trace.drop(made);

    let split = SmResource::of_device(&context.device())?
        .split_by_count(SplitByCount { max_groups: Some(1), ..Default::default() })?;
    let partition = GreenContext::new(split.groups)?;
    let all = All::new(context, trace.on_thread(|_| partition.stream())?)?;
    trace.on_thread(|trace| trace.drop((partition, all)));
    trace.drops_from_here()
}
