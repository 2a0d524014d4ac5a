//! Virtual memory.

use super::{LEN, Operations, Skip, check};
use cuda_safe::memory::pool::MemoryAccess;
use cuda_safe::virtual_memory::{
    Binding, EndpointDevices, EndpointHandle, EndpointIds, EndpointOptions, FabricCopyBatch,
    FabricHandle, GrowableBuffer, LogicalEndpoint, Mapping, MulticastMapping, MulticastObject,
    MulticastOptions, MulticastTeam, PendingEndpoint, PhysicalMemory, PhysicalOptions, Reservation,
    ReservationOptions, Shareable, unmap_after_work,
};
use cuda_safe::{DeviceBuffer, Stream};

/// Memory that is mapped into addresses, with its possible values.
type Mapped = (DeviceBuffer<u32>, Vec<u32>);

pub(super) const VIRTUAL_MEMORY: Operations = &[
    ("new reservation", |s| Ok(s.put(Reservation::new(8 << 20)?))),
    ("new physical memory", |s| {
        let device = s.context().device();
        let options = PhysicalOptions::new(device);
        let _ = (options.granularity()?, options.recommended_granularity()?);
        let memory = PhysicalMemory::with(2 << 20, &options)?;
        let _ = (memory.size(), memory.granularity(), memory.location(), memory.properties()?);
        Ok(s.put(memory))
    }),
    ("drop physical memory", |s| Ok(drop(s.take::<PhysicalMemory>()?))),
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
            let _ = (buffer.len(), buffer.is_empty(), buffer.capacity(), buffer.mapped_bytes());
            let value = s.fresh();
            buffer.as_mut_slice().fill(value)?;
            let end = buffer.len().min(LEN);
            let read = buffer.as_slice().slice(..end)?.to_vec()?;
            Ok(check(&read, &[value]))
        })
    }),
    ("drop a growable buffer", |s| Ok(drop(s.take::<GrowableBuffer<u32>>()?))),
    ("map more", |s| {
        let space = s.take::<Reservation>()?;
        let memory = PhysicalMemory::new(s.context().device(), 2 << 20)?;
        let mapping = space.map(s.below(4) << 21, memory)?;
        s.put(space);
        Ok(s.put(mapping))
    }),
    ("try to make a buffer of a mapping", |s| {
        let (mapping, stream, value) = (s.take::<Mapping>()?, s.get()?, s.fresh());
        match mapping.try_into_buffer::<u32>(&stream) {
            Ok(mut buffer) => {
                buffer.slice_mut(..LEN)?.fill(value)?;
                s.put((buffer, vec![value]));
            }
            Err(rejected) => s.put(rejected.value),
        }
        Ok(())
    }),
    ("unmap after work", |s| {
        let mapping = s.take::<Mapping>()?;
        Ok(unmap_after_work(vec![s.context().clone()], vec![mapping]))
    }),
    ("reservations with options", |s| {
        let space = Reservation::with(8 << 20, &ReservationOptions::default())?;
        Ok(s.put(space))
    }),
    ("growable buffer with options", |s| {
        let stream = s.get::<Stream>()?;
        let made = GrowableBuffer::<u32>::with(&stream, 4 << 20, &Default::default())?;
        let _ = (made.stream().id()?, made.as_raw());
        Ok(s.put(made))
    }),
    ("shareable memory", |s| {
        let options = PhysicalOptions::new(s.context().device());
        let memory = match s.one_in(2) {
            true => PhysicalMemory::with(2 << 20, &options.shareable(Shareable::Descriptor))?,
            false => PhysicalMemory::with(2 << 20, &options.shareable(Shareable::Fabric))?,
        };
        let _ = (memory.as_raw(), memory.export().is_ok());
        if let Ok(handle) = memory.export_fabric() {
            let _ = FabricHandle::from_bytes(&handle.to_bytes());
        }
        Ok(s.put(memory))
    }),
    ("give physical memory away", |s| {
        let memory = s.take::<PhysicalMemory>()?;
        let (size, raw) = (memory.size(), memory.into_raw());
        s.at_the_end(move || {
            // SAFETY: no other code owns the memory.
            drop(unsafe { PhysicalMemory::from_raw(raw, size) });
        });
        Ok(())
    }),
    ("new multicast object", |s| {
        let options = MulticastOptions::new(2, 2 << 20).shareable(Shareable::Descriptor);
        let _ = (options.granularity()?, options.recommended_granularity()?);
        let mut team = MulticastTeam::new(&options)?;
        for context in [&s.world.first, &s.world.second] {
            team.add(&context.device())?;
        }
        let _ = (team.devices().len(), team.export().is_ok());
        let object = match s.one_in(2) {
            true => team.complete().map_err(|_| Skip)?,
            false => team.complete_elsewhere(),
        };
        let _ = (object.size(), object.granularity(), object.as_raw());
        Ok(s.put(object))
    }),
    ("bind memory to a multicast object", |s| {
        let device = s.context().device();
        let memory = PhysicalMemory::new(device, 2 << 20)?;
        s.with(|s, object: &mut MulticastObject| {
            if s.one_in(2) {
                let binding = object.bind(device, 0, memory)?;
                return Ok(s.put(binding));
            }
            match object.try_bind(device, 0, memory) {
                Ok(binding) => s.put(binding),
                Err(rejected) => s.put(rejected.value),
            }
            Ok(())
        })
    }),
    ("bind a mapping to a multicast object", |s| {
        let device = s.context().device();
        let space = Reservation::new(2 << 20)?;
        let mapping = space.map(0, PhysicalMemory::new(device, 2 << 20)?)?;
        s.with(|s, object: &mut MulticastObject| {
            if s.one_in(2) {
                let binding = object.bind(device, 0, mapping)?;
                return Ok(s.put(binding));
            }
            match object.try_bind(device, 0, mapping) {
                Ok(binding) => s.put(binding),
                Err(rejected) => s.put(rejected.value),
            }
            Ok(())
        })
    }),
    ("unbind memory", |s| {
        let binding = s.take::<Binding<MulticastObject, PhysicalMemory>>()?;
        let _ = (binding.device(), binding.offset(), binding.memory().size());
        let memory = binding.unbind()?;
        Ok(s.put(memory))
    }),
    ("unbind a mapping", |s| {
        let mapping = s.take::<Binding<MulticastObject, Mapping>>()?.unbind()?;
        Ok(s.put(mapping))
    }),
    ("map a multicast object", |s| {
        s.with(|s, object: &mut MulticastObject| {
            let device = s.context().device();
            let space = Reservation::new(8 << 20)?;
            let mut mapping = object.map(&space, 0)?;
            let _ = mapping.set_access(device, MemoryAccess::ReadWrite).is_ok();
            let _ = (mapping.address(), mapping.size(), mapping.reservation().size());
            Ok(s.put(mapping))
        })
    }),
    ("unmap a multicast object", |s| Ok(s.take::<MulticastMapping>()?.unmap()?)),
    ("drop a multicast object", |s| Ok(drop(s.take::<MulticastObject>()?))),
];

/// Logical endpoints, which only the newest drivers have.
pub(super) const ENDPOINTS: Operations = &[
    ("new endpoint ids", |s| {
        let ids = EndpointIds::reserve(2)?;
        let _ = (ids.first(), ids.count());
        Ok(s.put(ids))
    }),
    ("new endpoint", |s| {
        let devices = match s.one_in(2) {
            true => EndpointDevices::Unicast(s.context().device()),
            false => EndpointDevices::Multicast(2),
        };
        s.with(|s, ids: &mut EndpointIds| {
            let options = EndpointOptions::new(devices, 4 << 20);
            options.limits()?;
            let mut pending = ids.create(s.below(2) as u32, &options)?;
            if matches!(devices, EndpointDevices::Multicast(_)) {
                for context in [&s.world.first, &s.world.second] {
                    pending.add(&context.device())?;
                }
            }
            let _ = pending.id();
            Ok(s.put(pending))
        })
    }),
    ("finish an endpoint", |s| {
        match s.take::<PendingEndpoint>()?.finish()? {
            Ok(endpoint) => s.put(endpoint),
            Err(pending) => s.put(pending),
        }
        Ok(())
    }),
    ("finish an endpoint again", |s| {
        match s.take::<PendingEndpoint>()?.finish()? {
            Ok(endpoint) => s.put(endpoint),
            Err(pending) => s.put(pending),
        }
        Ok(())
    }),
    ("bind memory to an endpoint", |s| {
        let device = s.context().device();
        let memory = PhysicalMemory::new(device, 2 << 20)?;
        let offset = s.below(2) << 21;
        s.with(|s, endpoint: &mut LogicalEndpoint| {
            let _ = (endpoint.id(), endpoint.size());
            if s.one_in(2) {
                let binding = endpoint.bind(device, offset, memory)?;
                return Ok(s.put(binding));
            }
            match endpoint.try_bind(device, offset, memory) {
                Ok(binding) => s.put(binding),
                Err(rejected) => s.put(rejected.value),
            }
            Ok(())
        })
    }),
    ("bind a mapping to an endpoint", |s| {
        let device = s.context().device();
        let (space, offset) = (Reservation::new(2 << 20)?, s.below(2) << 21);
        let mapping = space.map(0, PhysicalMemory::new(device, 2 << 20)?)?;
        s.with(|s, endpoint: &mut LogicalEndpoint| {
            if s.one_in(2) {
                let binding = endpoint.bind(device, offset, mapping)?;
                return Ok(s.put(binding));
            }
            match endpoint.try_bind(device, offset, mapping) {
                Ok(binding) => s.put(binding),
                Err(rejected) => s.put(rejected.value),
            }
            Ok(())
        })
    }),
    ("unbind memory of an endpoint", |s| {
        let binding = s.take::<Binding<LogicalEndpoint, PhysicalMemory>>()?;
        let _ = (binding.device(), binding.offset(), binding.memory().size());
        let memory = binding.unbind()?;
        Ok(s.put(memory))
    }),
    ("drop a bound mapping", |s| Ok(drop(s.take::<Binding<LogicalEndpoint, Mapping>>()?))),
    ("export an endpoint", |s| {
        s.with(|_, endpoint: &mut LogicalEndpoint| {
            let handle = endpoint.export()?;
            let _ = EndpointHandle::from_bytes(&handle.to_bytes());
            Ok(())
        })
    }),
    ("copy to an endpoint", |s| {
        let stream = s.get::<Stream>()?;
        s.with(|_, endpoint: &mut LogicalEndpoint| {
            let source = DeviceBuffer::<u8>::zeroed(&stream, 16)?;
            let mut target = DeviceBuffer::<u8>::zeroed(&stream, 16)?;
            let mut batch = FabricCopyBatch::new(&stream);
            batch.push_to_endpoint(endpoint, 0, &source)?;
            Ok(batch.push_from_endpoint(&mut target, endpoint, 0)?)
        })
    }),
    ("drop an endpoint", |s| Ok(drop(s.take::<LogicalEndpoint>()?))),
    ("drop endpoint ids", |s| Ok(drop(s.take::<EndpointIds>()?))),
];
