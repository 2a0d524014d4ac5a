//! Virtual memory.

use super::{LEN, Operations, check};
use cuda_safe::DeviceBuffer;
use cuda_safe::memory::pool::MemoryAccess;
use cuda_safe::virtual_memory::{
    GrowableBuffer, Mapping, PhysicalMemory, PhysicalOptions, Reservation,
};

/// Memory that is mapped into addresses, with its possible values.
type Mapped = (DeviceBuffer<u32>, Vec<u32>);

pub(super) const VIRTUAL_MEMORY: Operations = &[
    ("new reservation", |s| Ok(s.put(Reservation::new(8 << 20)?))),
    ("new physical memory", |s| {
        let device = s.context().device();
        let options = PhysicalOptions::new(device);
        let _ = (options.granularity()?, options.recommended_granularity()?);
        let memory = PhysicalMemory::with_options(2 << 20, &options)?;
        let _ = (
            memory.size(),
            memory.granularity(),
            memory.location(),
            memory.properties()?,
        );
        Ok(s.put(memory))
    }),
    ("drop physical memory", |s| {
        Ok(drop(s.take::<PhysicalMemory>()?))
    }),
    ("map", |s| {
        let memory = s.take::<PhysicalMemory>()?;
        let offset = s.below(4) << 21;
        s.with(|s, space: &mut Reservation| {
            let _ = (space.address(), space.size());
            match space.try_map(offset, memory) {
                Ok(mapping) => s.put(mapping),
                Err(rejected) => s.put(rejected.value),
            }
            Ok(())
        })
    }),
    ("remap", |s| {
        let mapping = s.take::<Mapping>()?;
        let offset = s.below(4) << 21;
        s.with(|s, space: &mut Reservation| Ok(s.put(mapping.remap(space, offset)?)))
    }),
    ("unmap", |s| {
        let made = s.take::<Mapping>()?.unmap()?;
        Ok(s.put(made))
    }),
    ("access of a mapping", |s| {
        s.with(|s, mapping: &mut Mapping| {
            let device = s.context().device();
            mapping.set_access(device, MemoryAccess::ReadWrite)?;
            let _ = (mapping.access(device)?, mapping.size(), mapping.address());
            let _ = (mapping.reservation().size(), mapping.memory().size());
            Ok(())
        })
    }),
    ("buffer of a mapping", |s| {
        let (mapping, stream, value) = (s.take::<Mapping>()?, s.get()?, s.fresh());
        let mut buffer = mapping.into_buffer::<u32>(&stream)?;
        buffer.slice_mut(..LEN)?.fill(value)?;
        Ok(s.put((buffer, vec![value])))
    }),
    ("use a mapped buffer", |s| {
        s.with(|s, (buffer, values): &mut Mapped| {
            values.push(s.fresh());
            buffer.slice_mut(..LEN)?.fill(values[values.len() - 1])?;
            if s.one_in(2) {
                check(&buffer.slice(..LEN)?.to_vec()?, values);
            }
            if s.one_in(2) {
                buffer.rebind(&s.get()?)?;
            }
            Ok(())
        })
    }),
    ("mapping of a buffer", |s| {
        let (buffer, _) = s.take::<Mapped>()?;
        Ok(s.put(buffer.into_mapping()?))
    }),
    ("drop a mapped buffer", |s| Ok(drop(s.take::<Mapped>()?))),
    ("new growable buffer", |s| {
        let made = GrowableBuffer::<u32>::new(&s.get()?, 4 << 20)?;
        Ok(s.put(made))
    }),
    ("extend a growable buffer", |s| {
        s.with(|s, buffer: &mut GrowableBuffer<u32>| {
            Ok(buffer.extend_from_slice(&[s.fresh(); LEN])?)
        })
    }),
    ("grow", |s| {
        s.with(|s, buffer: &mut GrowableBuffer<u32>| {
            match s.below(3) {
                0 => buffer.grow(1 << (16 + s.below(4)))?,
                _ => buffer.resize_zeroed(1 << (16 + s.below(4)))?,
            }
            Ok(())
        })
    }),
    ("truncate", |s| {
        s.with(|s, buffer: &mut GrowableBuffer<u32>| Ok(buffer.truncate(s.below(2) << 16)?))
    }),
    ("use a growable buffer", |s| {
        s.with(|s, buffer: &mut GrowableBuffer<u32>| {
            let _ = (
                buffer.len(),
                buffer.is_empty(),
                buffer.capacity(),
                buffer.mapped_bytes(),
            );
            let value = s.fresh();
            buffer.as_mut_slice().fill(value)?;
            let end = buffer.len().min(LEN);
            let read = buffer.as_slice().slice(..end)?.to_vec()?;
            Ok(check(&read, &[value]))
        })
    }),
    ("drop a growable buffer", |s| {
        Ok(drop(s.take::<GrowableBuffer<u32>>()?))
    }),
];
