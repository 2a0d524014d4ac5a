//! The works through cudarc, in the style of its documentation.

use crate::Fallible;
use crate::operations::{HOSTS, PTX};
use crate::work::{Work, Works, ok};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PinnedHostSlice, PushKernelArg,
};
use std::hint::black_box;
use std::sync::Arc;

const KIB4: usize = 4096;
const CONFIG: LaunchConfig =
    LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };

/// Returns the works on the default stream alone, and with created streams. Operations that cudarc does
/// not support are left out: a guard that restores the context, launch attributes, and green contexts.
pub(crate) fn works() -> Fallible<(Works, Works)> {
    let plain = CudaContext::new(0)?;
    let stream = plain.default_stream();
    let alone = of_context(&plain, &[stream])?;
    // A second object for the same context of the driver, which counts its streams separately.
    let tracked = CudaContext::new(0)?;
    let streams: Vec<_> = (0..4).map(|_| tracked.new_stream()).collect::<Result<_, _>>()?;
    let with_streams = of_context(&tracked, &streams)?;
    Ok((alone, with_streams))
}

fn of_context(context: &Arc<CudaContext>, streams: &[Arc<CudaStream>]) -> Fallible<Works> {
    let stream = &streams[0];
    let module = context.load_module(PTX.into())?;
    // As in the other layers, events are recorded on a stream with stream-ordered memory.
    let (s, mut set) = (stream.clone(), stream.alloc_zeros::<u8>(KIB4)?);
    let mut works = around(context, stream)?;
    let kernel = |name| module.load_function(name);
    works.extend(launches(stream, kernel("none")?, kernel("three")?, kernel("sixteen")?)?);
    works.push(("memset 4 KiB", Work::each(move || ok(s.memset_zeros(&mut set)))));
    let (s, from) = (stream.clone(), stream.alloc_zeros::<u8>(KIB4)?);
    let mut to = stream.alloc_zeros::<u8>(KIB4)?;
    works.push(("copy 4 KiB on the device", Work::each(move || ok(s.memcpy_dtod(&from, &mut to)))));
    let s = stream.clone();
    works.push((
        "allocate, free 1 MiB in stream order",
        Work::each(move || {
            // SAFETY: the memory is not read.
            drop(ok(unsafe { s.alloc::<u8>(1 << 20) }));
        }),
    ));
    let one = &streams[..1];
    works.push(("copy 4 KiB to the device", copies(context, one, Copies::give)?));
    works.push(("copy 4 KiB from the device", copies(context, one, Copies::take)?));
    if streams.len() > 1 {
        works.push(("copy to the device, 4 streams", copies(context, streams, Copies::give)?));
        works.push(("copy from the device, 4 streams", copies(context, streams, Copies::take)?));
    }
    Ok(works)
}

fn around(context: &Arc<CudaContext>, stream: &Arc<CudaStream>) -> Fallible<Works> {
    let (event, query, s) = (context.new_event(None)?, context.new_event(None)?, stream.clone());
    query.record(stream)?;
    let (waited, waiting) = (context.new_event(None)?, stream.clone());
    waited.record(stream)?;
    let (current, bound, events) = (context.clone(), context.clone(), context.clone());
    let mut works: Works = vec![
        ("make current, current already", Work::each(move || ok(current.bind_to_thread()))),
        ("bind to the thread, bound already", Work::each(move || ok(bound.bind_to_thread()))),
        ("event record", Work::each(move || ok(event.record(&s)))),
        ("stream waits for an event", Work::each(move || ok(waiting.wait(&waited)))),
        (
            "event query",
            Work::each(move || {
                black_box(ok(query.try_is_complete()));
            }),
        ),
        ("event create, destroy", Work::each(move || drop(ok(events.new_event(None))))),
    ];
    // Creating a stream is what distinguishes the two layers.
    if context.is_in_multi_stream_mode() {
        let streams = context.clone();
        works.push(("stream create, destroy", Work::each(move || drop(ok(streams.new_stream())))));
    }
    Ok(works)
}

fn launches(
    stream: &Arc<CudaStream>,
    none: CudaFunction,
    three: CudaFunction,
    sixteen: CudaFunction,
) -> Fallible<Works> {
    let (one, two, s) = (stream.clone(), stream.clone(), stream.clone());
    let a = stream.alloc_zeros::<f32>(1024)?;
    let mut b = stream.alloc_zeros::<f32>(1024)?;
    let c = stream.alloc_zeros::<f32>(1024)?;
    Ok(vec![
        (
            "launch, no argument",
            Work::each(move || {
                // SAFETY: the kernel does nothing.
                ok(unsafe { s.launch_builder(&none).launch(CONFIG) });
            }),
        ),
        (
            "launch, 3 arguments",
            Work::each(move || {
                let mut launch = one.launch_builder(&three);
                launch.arg(&a).arg(&mut b).arg(&8u32);
                // SAFETY: the kernel does nothing.
                ok(unsafe { launch.launch(CONFIG) });
            }),
        ),
        (
            "launch, 16 arguments",
            Work::each(move || {
                let mut launch = two.launch_builder(&sixteen);
                launch.arg(&c).arg(&c).arg(&c).arg(&c).arg(&c).arg(&c).arg(&c).arg(&c);
                launch.arg(&1u32).arg(&2u32).arg(&3u32).arg(&4u32);
                launch.arg(&5u32).arg(&6u32).arg(&7u32).arg(&8u32);
                // SAFETY: the kernel does nothing.
                ok(unsafe { launch.launch(CONFIG) });
            }),
        ),
    ])
}

struct Copies {
    streams: Vec<Arc<CudaStream>>,
    buffers: Vec<CudaSlice<u8>>,
    hosts: Vec<PinnedHostSlice<u8>>,
}

impl Copies {
    fn give(&mut self, n: usize) {
        for i in 0..n {
            let (place, host) = (i % self.streams.len(), &self.hosts[i % HOSTS]);
            ok(self.streams[place].memcpy_htod(host, &mut self.buffers[place]));
        }
    }

    fn take(&mut self, n: usize) {
        for i in 0..n {
            let (place, host) = (i % self.streams.len(), &mut self.hosts[i % HOSTS]);
            ok(self.streams[place].memcpy_dtoh(&self.buffers[place], host));
        }
    }
}

fn copies(
    context: &Arc<CudaContext>,
    streams: &[Arc<CudaStream>],
    run: fn(&mut Copies, usize),
) -> Fallible<Work> {
    let buffer = |stream: &Arc<CudaStream>| stream.alloc_zeros::<u8>(KIB4);
    // SAFETY: the memory is not read before it is written. (It is not write-combined, as in the other
    // layers.)
    let host = |_| unsafe { context.alloc_pinned_with_flags::<u8>(KIB4, 1) };
    let mut copies = Copies {
        streams: streams.to_vec(),
        buffers: streams.iter().map(buffer).collect::<Result<_, _>>()?,
        hosts: (0..HOSTS).map(host).collect::<Result<_, _>>()?,
    };
    Ok(Work::batch(move |n| run(&mut copies, n)))
}
