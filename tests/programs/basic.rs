//! Streams, events, buffers and pools.

use super::{Held, LEN, Operations, Step, check};
use cuda_safe::green::{PartitionRequest, PartitionSize};
use cuda_safe::memory::MemoryPool;
use cuda_safe::{DeviceBuffer, Event, LaunchConfig, SharedBuffer, Stream, StreamOptions};

/// Memory that all streams may read, and its possible values.
#[derive(Clone)]
struct Shared {
    buffer: SharedBuffer<u32>,
    values: Vec<u32>,
}

pub(super) const STREAMS: Operations = &[
    ("new stream", |s| Ok(s.put(s.world.first.stream()?))),
    ("new blocking stream", |s| {
        let blocking = StreamOptions { blocking: true, ..Default::default() };
        Ok(s.put(s.world.first.stream_with(blocking)?))
    }),
    ("new stream of a lease", |s| {
        let sizes = vec![PartitionSize::Sms(16)];
        let request = PartitionRequest { sizes, ..Default::default() };
        let lease = s.world.partitions.try_lease(&request)?;
        Ok(s.put(lease[0].stream()?))
    }),
    ("new stream of a peer", |s| Ok(s.put(s.world.second.stream()?))),
    ("drop a stream", |s| Ok(drop(s.take::<Stream>()?))),
    ("new event", |s| Ok(s.put(s.world.first.event()?))),
    ("drop an event", |s| Ok(drop(s.take::<Event>()?))),
    ("record", |s| Ok(s.get::<Event>()?.record(&s.get()?)?)),
    ("record external", |s| Ok(s.get::<Event>()?.record_external(&s.get()?)?)),
    ("wait", |s| Ok(s.get::<Stream>()?.wait_event(&s.get()?)?)),
    ("wait external", |s| Ok(s.get::<Stream>()?.wait_external(&s.get()?)?)),
    ("synchronize", |s| Ok(s.get::<Stream>()?.synchronize()?)),
    ("synchronize an event", |s| Ok(s.get::<Event>()?.synchronize()?)),
    ("synchronize the context", |s| Ok(s.world.first.synchronize()?)),
    ("is complete", |s| {
        s.get::<Stream>()?.is_complete()?;
        s.get::<Event>()?.is_complete()?;
        Ok(())
    }),
    ("probe", |s| {
        let trace = s.world.probe.trace(&s.get()?)?;
        assert!(trace.sms.len() > 1, "wrong contents of a probe: {trace:?}");
        Ok(())
    }),
    ("a thread that exits", |s| {
        let objects = (s.take::<Held>().ok(), s.take::<Stream>().ok());
        Ok((s.world.spawn)(Box::new(move || drop(objects))))
    }),
];

pub(super) const BUFFERS: Operations = &[
    ("new buffer", |s| {
        let buffer = DeviceBuffer::zeroed(&s.get()?, LEN)?;
        Ok(put_zeros(s, buffer))
    }),
    ("new synchronous buffer", |s| {
        let buffer = DeviceBuffer::zeroed_sync(&s.get()?, LEN)?;
        Ok(put_zeros(s, buffer))
    }),
    ("new buffer of a pool", |s| {
        let buffer = DeviceBuffer::zeroed_from_pool(&s.get()?, &s.get()?, LEN)?;
        Ok(put_zeros(s, buffer))
    }),
    ("new buffer from a slice", |s| {
        let held = Held::new(&s.get()?, s.fresh())?;
        Ok(s.put(held))
    }),
    ("drop a buffer", |s| Ok(drop(s.take::<Held>()?))),
    ("new pool", |s| Ok(s.put(MemoryPool::new(s.context(), Default::default())?))),
    ("drop a pool", |s| Ok(drop(s.take::<MemoryPool>()?))),
    ("trim", |s| {
        if let Some(manager) = s.context().memory_manager()? {
            manager.trim(0)?;
        }
        Ok(())
    }),
    ("fill", |s| {
        s.with(|s, held: &mut Held| {
            let value = held.may_be(s.fresh());
            Ok(held.buffer.fill(value)?)
        })
    }),
    ("copy from a slice", |s| {
        s.with(|s, held: &mut Held| {
            let value = held.may_be(s.fresh());
            held.buffer.copy_from_slice(&[value; LEN])?;
            held.values = vec![value];
            Ok(())
        })
    }),
    ("copy a buffer", |s| {
        s.with(|s, held: &mut Held| {
            s.with(|_, other: &mut Held| {
                held.may_be_as(&other.values);
                Ok(held.buffer.copy_from(&other.buffer)?)
            })
        })
    }),
    ("read", |s| s.with(|_, held: &mut Held| Ok(held.check()))),
    ("launch", |s| {
        s.with(|s, held: &mut Held| {
            let stream = held.buffer.stream().clone();
            let arguments = (&mut held.buffer, 1, 0, LEN as u32);
            let config = LaunchConfig::linear(1, 32);
            // SAFETY: the kernel reads and writes as many elements as the last argument says. Safe code
            // cannot launch a captured graph.
            Ok(unsafe { s.world.kernel.launch(&stream, config, arguments) }?)
        })
    }),
    ("rebind", |s| s.with(|s, held: &mut Held| Ok(held.buffer.rebind(&s.get()?)?))),
    ("share", |s| {
        let held = s.take::<Held>()?;
        let (buffer, values) = (held.buffer.share()?, held.values);
        Ok(s.put(Shared { buffer, values }))
    }),
    ("read shared memory", |s| {
        let shared = s.get::<Shared>()?;
        s.with(|_, held: &mut Held| {
            held.may_be_as(&shared.values);
            let reader = shared.buffer.on(held.buffer.stream())?;
            Ok(held.buffer.copy_from(&reader)?)
        })
    }),
    ("read the memory of a peer", |s| {
        let shared = s.get::<Shared>()?;
        s.with(|_, held: &mut Held| {
            held.may_be_as(&shared.values);
            let reader = shared.buffer.on_peer(held.buffer.stream())?;
            Ok(held.buffer.copy_from_peer(&reader)?)
        })
    }),
    ("read shared memory directly", |s| {
        let shared = s.get::<Shared>()?;
        let reader = shared.buffer.on(&s.get()?)?;
        let read = reader.as_slice().to_vec()?;
        Ok(check(&read, &shared.values))
    }),
    ("drop shared memory", |s| Ok(drop(s.take::<Shared>()?))),
    ("drop in a host function", |s| {
        let held = s.take::<Held>()?;
        Ok(s.get::<Stream>()?.launch_host_function(move || drop(held))?)
    }),
];

/// Shares a buffer of zeros.
pub(super) fn put_zeros(s: &mut Step<'_>, buffer: DeviceBuffer<u32>) {
    let values = vec![0];
    s.put(Held { buffer, values });
}
