//! Getters, constructors and batches that the other tables do not use.

use super::arrays::Plane;
use super::graphs::Drawn;
use super::{Held, LEN, Operations, Skip, wrong};
use cuda_memory::trace::Trace;
use cuda_safe::array::{Array, ArrayOptions, ArrayShape, MipmappedArray, SparseArray, Surface};
use cuda_safe::graph::RetainedObjects;
use cuda_safe::manager::{CleanupGuard, MappedMemory};
use cuda_safe::memory::{CompressionFormat, DecompressBatch};
use cuda_safe::process::logs;
use cuda_safe::stream::StreamFuture;
use cuda_safe::virtual_memory::FabricCopyBatch;
use cuda_safe::{DeviceBuffer, Event, SharedBuffer, Stream};
use std::sync::Arc;

const LINE: ArrayShape = ArrayShape::OneD { width: LEN };

pub(super) const MISCELLANY: Operations = &[
    ("read a trace", |s| {
        let size = 1 + s.number();
        let text = format!("a 1 1 {size} 7\na 2 2 {size} 7\nf 3 1 7\n");
        let trace: Trace = text.parse().map_err(|_| Skip)?;
        let last = trace.events().last().map(|its| its.time().as_nanos());
        if (last, trace.high()) != (Some(3), 2 * size as u64) {
            wrong(format!("a trace is not read as written: {text}"));
        }
        Ok(())
    }),
    ("entries of the log", |_| Ok(drop(logs::entries()?))),
    ("leaks", |_| Ok(drop(cuda_safe::leaked()))),
    ("batches of decompressions", |s| {
        let stream = s.get::<Stream>()?;
        let source = DeviceBuffer::<u8>::zeroed(&stream, 16)?;
        let mut target = DeviceBuffer::<u8>::zeroed(&stream, 16)?;
        let mut written = DeviceBuffer::<u32>::zeroed(&stream, 1)?;
        let mut batch = DecompressBatch::new(&stream);
        batch.push(CompressionFormat::Lz4, &mut target, &source, &mut written)?;
        assert_eq!((batch.len(), batch.is_empty()), (1, false));
        Ok(())
    }),
    ("batches of copies over the fabric", |s| {
        let stream = s.get::<Stream>()?;
        let source = DeviceBuffer::<u8>::zeroed(&stream, 16)?;
        let mut target = DeviceBuffer::<u8>::zeroed(&stream, 16)?;
        let mut batch = FabricCopyBatch::new(&stream);
        batch.push(&mut target, &source)?;
        assert_eq!((batch.len(), batch.is_empty()), (1, false));
        Ok(())
    }),
    ("more arrays", |s| {
        let stream = s.get::<Stream>()?;
        let array = Array::<u32>::new(&stream, LINE)?;
        let options = ArrayOptions { surface: true, ..Default::default() };
        let mut other = Array::<u32>::with(&stream, LINE, options)?;
        other.copy_from_slice(&[s.fresh(); LEN])?;
        drop(array);
        let surface = Surface::new(other)?;
        let levels = MipmappedArray::<u32>::new(&stream, LINE, 2)?;
        let _ = (levels.stream().id()?, surface.stream().id()?);
        s.put(levels);
        Ok(s.put(surface))
    }),
    ("options of a sparse array", |s| {
        let shape = ArrayShape::TwoD { width: 300, height: 200 };
        let array = SparseArray::<u32>::with(&s.get()?, shape, Default::default())?;
        let _ = (array.options(), array.shape(), array.stream().id()?);
        let _ = array.as_raw();
        Ok(s.put(array))
    }),
    ("give arrays away", |s| {
        let stream = s.get::<Stream>()?;
        let (raw, _) = Array::<u32>::new(&stream, LINE)?.into_raw();
        // SAFETY: no other code owns the array.
        drop(unsafe { Array::<u32>::from_raw(raw, &stream) }?);
        let (raw, _) = MipmappedArray::<u32>::new(&stream, LINE, 2)?.into_raw();
        // SAFETY: no other code owns the array.
        drop(unsafe { MipmappedArray::<u32>::from_raw(raw, 2, &stream) }?);
        Ok(())
    }),
    ("stream of a future", |s| {
        let future: StreamFuture = s.get::<Stream>()?.completion()?;
        let _ = future.stream().id()?;
        Ok(s.put(future))
    }),
    ("stream of a reader", |s| {
        let held = s.take::<Held>()?;
        let shared: SharedBuffer<u32> = held.buffer.share()?;
        let reader = shared.on(&s.get()?)?;
        let _ = reader.stream().id()?;
        Ok(s.put((shared, held.values)))
    }),
    ("a graph that retains an object", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let object = Arc::new(s.get::<Event>()?);
            drawn.graph()?.retain(object);
            drawn.instantiate(&Default::default())
        })
    }),
    ("context of retained objects", |s| {
        s.with(|_, objects: &mut RetainedObjects| Ok(drop(objects.context().id())))
    }),
    ("stream of a read access", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let stream = s.get::<Stream>()?;
            let running = drawn.executables.last_mut().ok_or(Skip)?;
            let buffer = drawn.memory.first().ok_or(Skip)?;
            let access = running.executable.read_access(buffer, &stream)?;
            Ok(assert_eq!(access.stream(), &stream))
        })
    }),
    ("a drawing for the table", |s| {
        let mut drawn = Drawn::of(cuda_safe::Graph::new(s.context())?);
        let held = Held::new(&s.get()?, s.fresh())?;
        drawn.values.extend(&held.values);
        let buffer = drawn.graph()?.own(held.buffer)?;
        drawn.memory.push(buffer);
        drawn.instantiate(&Default::default())?;
        let given = cuda_safe::Graph::new(s.context())?.into_raw();
        let raw = given.0 as usize;
        s.at_the_end(move || {
            // SAFETY: no code uses the graph.
            assert!(unsafe { cuda_safe::sys::cuGraphDestroy(raw as _) }.is_success());
        });
        s.put(given.1);
        Ok(s.put(drawn))
    }),
    ("owned objects until a guard ends", |s| {
        let guard = CleanupGuard::holding(s.take::<MappedMemory>().ok());
        Ok(s.put(guard))
    }),
    ("parts of an array", |s| {
        s.with(|_, plane: &mut Plane| {
            let mut all = plane.array.as_mut();
            let part = all.reborrow().part([0, 0, 0], cuda_safe::memory::Extent::new_2d(1, 1))?;
            Ok(drop((part.shape(), part.options(), part.as_raw())))
        })
    }),
];
