//! Runs a random program.

use super::{BufferKind, Manager, Place, Program, Step, StreamKind, THREADS};
use crate::scenarios::{VECTOR, context, small_slabs};
use cuda_memory::{CachingManager, OrderedManager};
use cuda_safe::green::{GreenPool, GreenPoolOptions, PartitionRequest, PartitionSize, SmProbe};
use cuda_safe::manager::{DriverManager, set_memory_manager};
use cuda_safe::{
    Capture, Context, DeviceBuffer, Event, Graph, LaunchConfig, MemoryPool, Module, Result,
    SharedBuffer, Stream, StreamOptions, TypedKernel,
};
use cuda_sim::explore;
use std::sync::{Arc, Mutex, PoisonError};

const LEN: usize = 8;

/// An object that threads share or take. No driver call is made while the lock is held.
struct Slot<T>(Mutex<Option<T>>);

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Slot<T> {
    fn replace(&self, object: Option<T>) -> Option<T> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *place, object)
    }

    fn put(&self, object: T) {
        // The previous object is dropped after the lock is released.
        drop(self.replace(Some(object)));
    }

    fn take(&self) -> Option<T> {
        self.replace(None)
    }
}

impl<T: Clone> Slot<T> {
    fn get(&self) -> Option<T> {
        let place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        place.clone()
    }
}

/// Memory and the values that its elements may have. A fill that was captured into a graph has not
/// run, so there may be several.
struct Held {
    buffer: DeviceBuffer<u32>,
    values: Vec<u32>,
}

impl Held {
    fn may_be(&mut self, value: u32) {
        if !self.values.contains(&value) {
            self.values.push(value);
        }
    }

    #[track_caller]
    fn check(&self) {
        if let Ok(read) = self.buffer.to_vec() {
            check(&read, &self.values);
        }
    }
}

#[track_caller]
fn check(read: &[u32], values: &[u32]) {
    let is_one = read.iter().all(|element| *element == read[0]);
    assert!(
        is_one && values.contains(&read[0]),
        "wrong contents: {read:x?}, not one of {values:x?}"
    );
}

/// Memory that all streams may read, and its possible values.
type Shared = (Arc<SharedBuffer<u32>>, Vec<u32>);

/// All objects of a program.
struct Table {
    first: Context,
    second: Context,
    partitions: GreenPool,
    kernel: TypedKernel<(&'static mut [u32], i32, i32, u32)>,
    probe: SmProbe,
    streams: [Slot<Stream>; 4],
    events: [Slot<Event>; 3],
    buffers: [Slot<Held>; 5],
    shared: [Slot<Shared>; 2],
    graphs: [Slot<Graph>; 2],
    pool: Slot<MemoryPool>,
}

fn at<T>(places: &[T], place: Place) -> &T {
    &places[place.0 as usize % places.len()]
}

impl Table {
    fn new() -> Result<Self> {
        let first = context(0);
        let module = Module::from_ptx(&first, VECTOR)?;
        let table = Self {
            second: context(1),
            partitions: GreenPool::new(&first.device(), GreenPoolOptions::default())?,
            kernel: module.kernel("scale")?.typed()?,
            probe: SmProbe::new(&first)?,
            streams: Default::default(),
            events: Default::default(),
            buffers: Default::default(),
            shared: Default::default(),
            graphs: Default::default(),
            pool: Slot::default(),
            first,
        };
        for slot in &table.streams[..2] {
            slot.put(table.first.stream()?);
        }
        for slot in &table.events {
            slot.put(table.first.event()?);
        }
        for (slot, place) in table.buffers.iter().zip([0, 1, 0]) {
            let stream = table.streams[place].get();
            let buffer = stream.map(|stream| DeviceBuffer::from_slice(&stream, &[7; LEN]));
            if let Some(buffer) = buffer.transpose()? {
                slot.put(Held {
                    buffer,
                    values: vec![7],
                });
            }
        }
        Ok(table)
    }
}

/// Runs a program once.
pub(crate) fn run(program: &Program) {
    match program.manager {
        Manager::None => cuda_safe::manager::clear_memory_manager(),
        Manager::Driver => set_memory_manager(DriverManager::new).expect("a matching version"),
        Manager::Ordered => set_memory_manager(OrderedManager::new).expect("a matching version"),
        Manager::Caching => {
            let make = |context: &Context| CachingManager::with(context, small_slabs());
            set_memory_manager(make).expect("a matching version");
        }
    }
    let table = Arc::new(Table::new().expect("the first objects"));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let steps = program.steps.iter().filter(|(its, _)| *its == number);
            let steps: Vec<Step> = steps.map(|(_, step)| *step).collect();
            let table = Arc::clone(&table);
            explore::spawn(&format!("thread {number}"), move || {
                let mut captures = Vec::new();
                for step in steps {
                    // Errors are allowed.
                    let _ = take(step, &table, &mut captures);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(explore::JoinHandle::join);
    for slot in &table.buffers {
        if let Some(held) = slot.take() {
            held.check();
        }
    }
}

/// Runs one step. Does nothing if an object of the step does not exist.
fn take(step: Step, table: &Table, captures: &mut Vec<Capture>) -> Result<()> {
    let stream = |place| at(&table.streams, place).get();
    let event = |place| at(&table.events, place).get();
    match step {
        Step::NewStream(place, kind) => {
            at(&table.streams, place).put(new_stream(kind, table)?);
        }
        Step::DropStream(place) => drop(at(&table.streams, place).take()),
        Step::NewEvent(place) => at(&table.events, place).put(table.first.event()?),
        Step::DropEvent(place) => drop(at(&table.events, place).take()),
        Step::NewBuffer(place, on, kind) => {
            if let Some(stream) = stream(on) {
                if let Some(held) = new_buffer(kind, &stream, table)? {
                    at(&table.buffers, place).put(held);
                }
            }
        }
        Step::DropBuffer(place) => drop(at(&table.buffers, place).take()),
        Step::NewPool => {
            let pool = MemoryPool::new(&table.first, Default::default())?;
            table.pool.put(pool);
        }
        Step::DropPool => drop(table.pool.take()),
        Step::Synchronize(place) => stream(place).map_or(Ok(()), |its| its.synchronize())?,
        Step::SynchronizeContext => table.first.synchronize()?,
        Step::Trim => {
            if let Some(manager) = table.first.memory_manager()? {
                manager.trim(0)?;
            }
        }
        Step::Probe(place) => {
            if let Some(stream) = stream(place) {
                let trace = table.probe.trace(&stream)?;
                assert!(trace.sms.len() > 1, "wrong contents of a probe: {trace:?}");
            }
        }
        Step::Record(which, place) => {
            if let (Some(event), Some(stream)) = (event(which), stream(place)) {
                event.record(&stream)?;
            }
        }
        Step::RecordExternal(which, place) => {
            if let (Some(event), Some(stream)) = (event(which), stream(place)) {
                event.record_external(&stream)?;
            }
        }
        Step::Wait(place, which) => {
            if let (Some(event), Some(stream)) = (event(which), stream(place)) {
                stream.wait_event(&event)?;
            }
        }
        Step::WaitExternal(place, which) => {
            if let (Some(event), Some(stream)) = (event(which), stream(place)) {
                stream.wait_external(&event)?;
            }
        }
        Step::Begin(place, mode) => {
            if let Some(stream) = stream(place) {
                captures.push(stream.begin_capture(mode.of())?);
            }
        }
        Step::End(place) => {
            if let Some(capture) = captures.pop() {
                at(&table.graphs, place).put(capture.end()?);
            }
        }
        Step::Abandon => drop(captures.pop()),
        Step::Instantiate(place) => {
            let slot = at(&table.graphs, place);
            if let Some(graph) = slot.take() {
                let executable = graph.instantiate();
                slot.put(graph);
                drop(executable?);
            }
        }
        Step::DropGraph(place) => drop(at(&table.graphs, place).take()),
        Step::DropInHostFunction(place, on) => {
            if let (Some(held), Some(stream)) = (at(&table.buffers, place).take(), stream(on)) {
                stream.launch_host_function(move || drop(held))?;
            }
        }
        Step::DropOnAnotherThread(place, on) => {
            let objects = (
                at(&table.buffers, place).take(),
                at(&table.streams, on).take(),
            );
            explore::spawn("a thread that drops", move || drop(objects));
        }
        _ => with_buffer(step, table)?,
    }
    Ok(())
}

/// Runs a step with a buffer that no other thread can use meanwhile.
fn with_buffer(step: Step, table: &Table) -> Result<()> {
    let (Step::Fill(place, _)
    | Step::CopyFromSlice(place, _)
    | Step::CopyBuffer(place, _)
    | Step::Read(place)
    | Step::Launch(place)
    | Step::Rebind(place, _)
    | Step::Share(place, _)
    | Step::ReadShared(place, _)
    | Step::ReadPeer(place, _)
    | Step::DropShared(place)) = step
    else {
        return Ok(());
    };
    if let Step::DropShared(place) = step {
        drop(at(&table.shared, place).take());
        return Ok(());
    }
    let slot = at(&table.buffers, place);
    let Some(mut held) = slot.take() else {
        return Ok(());
    };
    let done = match step {
        Step::Fill(_, value) => {
            held.may_be(value.into());
            held.buffer.fill(value.into())
        }
        Step::CopyFromSlice(_, value) => {
            let copied = held.buffer.copy_from_slice(&[value.into(); LEN]);
            match &copied {
                Ok(()) => held.values = vec![value.into()],
                // The work may have been enqueued anyway.
                Err(_) => held.may_be(value.into()),
            }
            copied
        }
        Step::CopyBuffer(_, other) => {
            let other_slot = at(&table.buffers, other);
            let Some(other) = other_slot.take() else {
                slot.put(held);
                return Ok(());
            };
            other.values.iter().for_each(|value| held.may_be(*value));
            let copied = held.buffer.copy_from(&other.buffer);
            other_slot.put(other);
            copied
        }
        Step::Read(_) => {
            held.check();
            Ok(())
        }
        Step::Launch(_) => {
            let stream = held.buffer.stream().clone();
            let arguments = (&mut held.buffer, 1, 0, LEN as u32);
            let config = LaunchConfig::linear(1, 32);
            // SAFETY: the kernel reads and writes as many elements as the last argument says. No
            // graph is launched here.
            unsafe { table.kernel.launch(&stream, config, arguments) }
        }
        Step::Rebind(_, on) => {
            let Some(stream) = at(&table.streams, on).get() else {
                slot.put(held);
                return Ok(());
            };
            held.buffer.rebind(&stream)
        }
        Step::Share(_, target) => {
            let shared = held.buffer.share()?;
            at(&table.shared, target).put((Arc::new(shared), held.values));
            return Ok(());
        }
        Step::ReadShared(_, source) | Step::ReadPeer(_, source) => {
            let Some((shared, values)) = at(&table.shared, source).get() else {
                slot.put(held);
                return Ok(());
            };
            values.iter().for_each(|value| held.may_be(*value));
            let stream = held.buffer.stream().clone();
            match step {
                Step::ReadPeer(..) => {
                    (shared.on_peer(&stream)).and_then(|reader| held.buffer.copy_from_peer(&reader))
                }
                _ => (shared.on(&stream)).and_then(|reader| held.buffer.copy_from(&reader)),
            }
        }
        _ => Ok(()),
    };
    slot.put(held);
    done
}

fn new_stream(kind: StreamKind, table: &Table) -> Result<Stream> {
    match kind {
        StreamKind::Plain => table.first.stream(),
        StreamKind::Peer => table.second.stream(),
        StreamKind::Blocking => table.first.stream_with(StreamOptions {
            blocking: true,
            ..Default::default()
        }),
        StreamKind::Leased => {
            let partitioning = PartitionRequest {
                sizes: vec![PartitionSize::Sms(16)],
                ..Default::default()
            };
            table.partitions.try_lease(&partitioning)?[0].stream()
        }
    }
}

fn new_buffer(kind: BufferKind, stream: &Stream, table: &Table) -> Result<Option<Held>> {
    let (buffer, value) = match kind {
        BufferKind::Zeroed => (DeviceBuffer::zeroed(stream, LEN)?, 0),
        BufferKind::FromSlice(value) => {
            let value = value.into();
            (DeviceBuffer::from_slice(stream, &[value; LEN])?, value)
        }
        BufferKind::Synchronous => (DeviceBuffer::zeroed_sync(stream, LEN)?, 0),
        BufferKind::OfPool => match table.pool.get() {
            Some(pool) => (DeviceBuffer::zeroed_from_pool(&pool, stream, LEN)?, 0),
            None => return Ok(None),
        },
    };
    let values = vec![value];
    Ok(Some(Held { buffer, values }))
}
