//! Memory that is split, cast, registered, advised and described.

use super::arrays::Plane;
use super::{Held, LEN, Operations, check, wrong};
use cuda_safe::array::{Array, ArrayShape};
use cuda_safe::manager::{Block, IpcHandle};
use cuda_safe::memory::pool::attribute::{RELEASE_THRESHOLD, USED_CURRENT, USED_HIGH};
use cuda_safe::memory::{
    Advice, CompressionFormat, CopyAttributes, CopyBatch, DmaBufOptions, Extent, ManagedBuffer,
    MappedBuffer, MemoryLocation, MemoryPool, MemoryPoolOptions, PinnedOptions, PinnedRange,
    PitchedBuffer, Region, RegisterOptions,
};
use cuda_safe::tensor_map::{
    Im2colBox, Im2colWideBox, Im2colWideMode, TensorDataType, TensorLayout, TensorMap,
    TensorMapOptions, TiledBox,
};
use cuda_safe::{DeviceBuffer, PinnedBuffer, SharedBuffer, Stream};

type Host = PinnedBuffer<u32>;

pub(super) const TENSOR: TensorLayout<'_> =
    TensorLayout { data_type: TensorDataType::F32, dims: &[32, 16, 8], strides: &[128, 2048] };
pub(super) const TENSOR_LEN: usize = 32 * 16 * 8;
pub(super) const TILE: TiledBox<'_> = TiledBox::new(&[8, 4, 2]);
pub(super) const COLUMN: Im2colBox<'_> = Im2colBox {
    lower_corner: &[-1],
    upper_corner: &[1],
    channels_per_pixel: 32,
    pixels_per_column: 16,
    element_strides: &[],
};
pub(super) const WIDE: Im2colWideBox<'_> = Im2colWideBox {
    lower_corner_width: -1,
    upper_corner_width: 1,
    channels_per_pixel: 32,
    pixels_per_column: 16,
    element_strides: &[],
    mode: Im2colWideMode::W,
};

pub(super) const PARTS: Operations = &[
    ("cast a buffer", |s| {
        s.with(|s, held: &mut Held| {
            let value = held.may_be(s.fresh());
            let _ = (held.buffer.len(), held.buffer.is_empty());
            let _ = (held.buffer.size_bytes(), held.buffer.as_slice().size_bytes());
            let mut bytes = held.buffer.as_mut_slice().cast::<[u8; 4]>()?;
            let _ = (bytes.size_bytes(), bytes.len(), bytes.is_empty());
            bytes.fill(value.to_ne_bytes())?;
            let read = held.buffer.as_slice().cast::<[u8; 4]>()?.to_vec()?;
            let read: Vec<u32> = read.into_iter().map(u32::from_ne_bytes).collect();
            Ok(check(&read, &held.values))
        })
    }),
    ("cast a buffer to another type", |s| {
        let held = s.take::<Held>()?;
        let bytes = held.buffer.cast::<[u8; 4]>()?;
        let buffer = bytes.try_cast::<u32>()?;
        let values = held.values;
        Ok(s.put(Held { buffer, values }))
    }),
    ("chunks of a buffer", |s| {
        s.with(|s, held: &mut Held| {
            let value = held.may_be(s.fresh());
            let mut chunks = held.buffer.chunks_exact_mut(3)?;
            let _ = chunks.len();
            for mut chunk in chunks.by_ref().rev() {
                chunk.fill(value)?;
            }
            chunks.into_remainder().fill(value)?;
            let mut chunks = held.buffer.as_slice().chunks_exact(3)?;
            check(&chunks.remainder().to_vec()?, &held.values);
            if let Some(first) = chunks.next() {
                check(&first.to_vec()?, &held.values);
            }
            let _ = held.buffer.as_mut_slice().chunks_exact_mut(2)?.len();
            Ok(drop(held.buffer.chunks_exact(2)?))
        })
    }),
    ("zeros", |s| {
        s.with(|s, held: &mut Held| {
            held.may_be(0);
            match s.one_in(2) {
                true => held.buffer.zero()?,
                false => held.buffer.as_mut_slice().zero()?,
            }
            let (low, high) = held.buffer.split_at(LEN / 2)?;
            check(&low.to_vec()?, &held.values);
            check(&high.slice(1..)?.to_vec()?, &held.values);
            let (low, _) = held.buffer.as_slice().split_at(1)?;
            Ok(check(&low.to_vec()?, &held.values))
        })
    }),
    ("clone a buffer", |s| {
        let mut clone = None;
        s.with(|_, held: &mut Held| {
            let values = held.values.clone();
            let buffer = held.buffer.try_clone()?;
            Ok(clone = Some(Held { buffer, values }))
        })?;
        Ok(clone.map_or((), |clone| s.put(clone)))
    }),
    ("uninitialized buffers", |s| {
        let (stream, value) = (s.get::<Stream>()?, s.fresh());
        let mut buffer = match s.below(3) {
            0 => DeviceBuffer::uninit(&stream, LEN)?,
            1 => DeviceBuffer::uninit_sync(&stream, LEN)?,
            _ => DeviceBuffer::uninit_from_pool(&s.get()?, &stream, LEN)?,
        };
        buffer.fill(value)?;
        // A capture that another thread began may have recorded the fill, so that the elements are unknown.
        let mut values = buffer.to_vec()?;
        values.push(value);
        Ok(s.put(Held { buffer, values }))
    }),
    ("try to share a buffer", |s| {
        let held = s.take::<Held>()?;
        match held.buffer.try_share() {
            Ok(buffer) => s.put((buffer, held.values)),
            Err(rejected) => s.put(Held { buffer: rejected.value, values: held.values }),
        }
        Ok(())
    }),
    ("copy parts of a peer's memory", |s| {
        let (shared, values) = s.get::<(SharedBuffer<u32>, Vec<u32>)>()?;
        let _ = (shared.len(), shared.is_empty(), shared.stream().id()?);
        s.with(|_, held: &mut Held| {
            held.may_be_as(&values);
            let reader = shared.on_peer(held.buffer.stream())?;
            let _ = (reader.len(), reader.is_empty(), reader.stream());
            let all = (Extent::new_2d(LEN, 1), Region::new(Extent::new_2d(LEN, 1)));
            let mut target = held.buffer.as_mut_slice();
            Ok(target.copy_3d_from_peer(all.0, all.1, &reader, all.1)?)
        })
    }),
    ("take shared memory back", |s| {
        let (shared, values) = s.take::<(SharedBuffer<u32>, Vec<u32>)>()?;
        match shared.into_buffer() {
            Ok(buffer) => s.put(Held { buffer, values }),
            Err(shared) => s.put((shared, values)),
        }
        Ok(())
    }),
    ("write a value", |s| {
        s.with(|s, held: &mut Held| {
            let value = held.may_be(s.fresh());
            let index = s.below(LEN);
            Ok(held.buffer.as_mut_slice().write_value(index, value)?)
        })
    }),
    ("write a long value", |s| {
        let mut buffer = DeviceBuffer::<u64>::zeroed(&s.get()?, 1)?;
        buffer.as_mut_slice().write_value(0, 7)?;
        // A capture that another thread began may have recorded the write.
        if !matches!(buffer.to_vec()?[..], [0 | 7]) {
            wrong("wrong contents of a long value".to_owned());
        }
        Ok(())
    }),
    ("describe a pointer", |s| {
        s.with(|s, held: &mut Held| {
            let (context, address) = (held.buffer.stream().context(), held.buffer.as_raw());
            let info = context.pointer_info(address)?;
            let range = context.address_range(address)?;
            if info.is_none() || !range.contains(&address) {
                wrong("the driver does not know the memory of a buffer".to_owned());
            }
            Ok(held.buffer.set_sync_memops(s.one_in(2))?)
        })
    }),
    ("access window", |s| {
        s.with(|_, held: &mut Held| {
            let stream = held.buffer.stream().clone();
            Ok(stream.set_access_window(&held.buffer, Default::default())?)
        })
    }),
    ("export memory", |s| {
        s.with(|_, held: &mut Held| {
            let _ = CompressionFormat::Lz4.mask();
            let slice = held.buffer.as_slice();
            Ok(drop(slice.export_dma_buf(DmaBufOptions::default())?))
        })
    }),
    ("pitched rows", |s| {
        let mut rows = PitchedBuffer::<u32>::zeroed(&s.get()?, 4, 2)?;
        let value = s.fresh();
        let _ = (rows.pitch(), rows.extent(), rows.region());
        rows.copy_from_slice(&[value; 8])?;
        let (extent, region) = (rows.extent(), rows.region());
        let mut copy = PitchedBuffer::<u32>::zeroed(rows.as_slice().stream(), 4, 2)?;
        let to = copy.region();
        let mut target = copy.as_mut_slice();
        target.copy_3d_from(extent, to, rows.as_slice(), region)?;
        // A capture that another thread began may have recorded a copy.
        Ok(check(&copy.to_vec()?, &[0, value]))
    }),
    ("tensor maps", |s| {
        let stream = s.get::<Stream>()?;
        let (first, mut second) = (
            DeviceBuffer::<f32>::zeroed(&stream, TENSOR_LEN)?,
            DeviceBuffer::<f32>::zeroed(&stream, TENSOR_LEN)?,
        );
        let options = TensorMapOptions::default();
        let mut map = TensorMap::new(&first, TENSOR, TILE, options)?;
        let _ = (map.extent_bytes(), map.is_writable(), map.stream());
        let _ = map.as_raw().opaque;
        map.replace_memory(&first)?;
        map.replace_memory_mut(&mut second)?;
        drop(map);
        TensorMap::new_mut(&mut second, TENSOR, TILE, options)?;
        TensorMap::new(&first, TENSOR, COLUMN, options)?;
        TensorMap::new_mut(&mut second, TENSOR, COLUMN, options)?;
        TensorMap::new(&first, TENSOR, WIDE, options)?;
        TensorMap::new_mut(&mut second, TENSOR, WIDE, options)?;
        let _ = TensorDataType::F32.size_bytes();
        Ok(())
    }),
];

pub(super) const HOST_MEMORY: Operations = &[
    ("new registered memory", |s| {
        let vector = vec![s.fresh(); 4096];
        let host = match s.below(3) {
            0 => Host::register(s.context(), vector)?,
            1 => Host::register_with(s.context(), vector, RegisterOptions::default())?,
            _ => {
                let options = RegisterOptions { mapped: true, ..Default::default() };
                Host::try_register_with(s.context(), vector, options)?
            }
        };
        Ok(s.put((host, ())))
    }),
    ("copy from registered memory", |s| {
        let (mut host, ()) = s.take::<(Host, ())>()?;
        s.with(|s, held: &mut Held| {
            host.fill(held.may_be(s.fresh()));
            let mut range = host.into_range();
            let rest = range.split_off(LEN)?;
            match held.buffer.as_mut_slice().try_copy_from_pinned(range) {
                Ok(pending) => s.put((pending, rest)),
                Err(rejected) => s.put((PinnedRange::try_join([rejected.value, rest])?, ())),
            }
            Ok(())
        })
    }),
    ("end a copy from registered memory", |s| {
        let (pending, rest) =
            s.take::<(cuda_safe::memory::Pending<u32, PinnedRange<u32>>, PinnedRange<u32>)>()?;
        let _ = (pending.is_complete()?, pending.stream().id()?);
        let mut host = PinnedRange::try_join([pending.synchronize()?, rest])?;
        host.fill(s.fresh());
        Ok(s.put((host, ())))
    }),
    ("unregister", |s| {
        let (host, ()) = s.take::<(Host, ())>()?;
        let mut vector = match s.one_in(2) {
            true => host.unregister()?,
            false => host.try_unregister()?,
        };
        Ok(vector.fill(s.fresh()))
    }),
    ("drop registered memory", |s| Ok(drop(s.take::<(Host, ())>()?))),
    ("uninitialized pinned memory", |s| {
        let value = s.fresh();
        let host = match s.one_in(2) {
            true => Host::uninit(s.context(), LEN)?.write_copy_of_slice(&[value; LEN])?,
            false => {
                let options = PinnedOptions { mapped: true, ..Default::default() };
                Host::uninit_with(s.context(), LEN, options)?.write_with(|_| value)
            }
        };
        Ok(s.put(host))
    }),
    ("pinned memory with options", |s| {
        let options = PinnedOptions { write_combined: s.one_in(2), ..Default::default() };
        let host = Host::zeroed_with(s.context(), LEN, options)?;
        let _ = (host.flags()?, host.context());
        Ok(s.put(host))
    }),
    ("chunks of pinned memory", |s| {
        let ranges = s.take::<Host>()?.into_chunks(LEN / 2)?;
        let _ = ranges.first().map(|range| range.context().id());
        Ok(s.put(PinnedRange::join(ranges)?))
    }),
    ("try to copy to pinned memory", |s| {
        let host = s.take::<Host>()?;
        s.with(|s, held: &mut Held| {
            match held.buffer.as_slice().try_copy_to_pinned(host) {
                Ok(pending) => s.put(pending),
                Err(rejected) => s.put(rejected.value),
            }
            Ok(())
        })
    }),
    ("pinned memory in a batch", |s| {
        let mut host = s.take::<(Host, Host)>()?;
        s.with(|s, held: &mut Held| {
            let value = held.may_be(s.fresh());
            host.0.fill(value);
            let stream = held.buffer.stream().clone();
            let all = (Extent::new_2d(LEN, 1), Region::new(Extent::new_2d(LEN, 1)));
            let kind = s.below(4);
            let copied = stream.copy_scope(|scope| {
                let _ = scope.stream().id()?;
                let mut batch = CopyBatch::with_capacity(&stream, 2);
                batch.set_attributes(CopyAttributes::default());
                let buffer = &mut held.buffer;
                let (from, to) = (&mut host.0, &mut host.1);
                match kind {
                    0 => batch.push_from_pinned(buffer, from)?,
                    1 => batch.push_to_pinned(&*buffer, to)?,
                    2 => batch.push_3d_from_pinned(all.0, buffer, all.1, from, all.1)?,
                    _ => batch.push_3d_to_pinned(all.0, &*buffer, all.1, to, all.1)?,
                }
                let _ = (batch.len(), batch.is_empty(), batch.stream());
                scope.enqueue(batch)
            });
            if copied.is_ok() && matches!(kind, 1 | 3) {
                check(&host.1, &held.values);
            }
            s.put(host);
            Ok(copied?)
        })
    }),
    ("new array for batches", |s| {
        let shape = ArrayShape::TwoD { width: LEN / 2, height: 2 };
        let (stream, value) = (s.get::<Stream>()?, s.fresh());
        let mut array = Array::new(&stream, shape)?;
        array.copy_from_slice(&[value; LEN])?;
        let values = vec![value];
        Ok(s.put(Plane { array, values }))
    }),
    ("two pinned buffers", |s| {
        let made = (Host::zeroed(s.context(), LEN)?, Host::zeroed(s.context(), LEN)?);
        Ok(s.put(made))
    }),
    ("copies on the device in a batch", |s| {
        s.with(|s, held: &mut Held| {
            s.with(|s, other: &mut Held| {
                held.may_be_as(&other.values);
                other.buffer.rebind(held.buffer.stream())?;
                let stream = held.buffer.stream().clone();
                let all = (Extent::new_2d(LEN, 1), Region::new(Extent::new_2d(LEN, 1)));
                let mut batch = CopyBatch::new(&stream);
                match s.one_in(2) {
                    true => batch.push(&mut held.buffer, &other.buffer)?,
                    false => {
                        batch.push_3d(all.0, &mut held.buffer, all.1, &other.buffer, all.1)?;
                    }
                }
                Ok(batch.enqueue()?)
            })
        })
    }),
    ("arrays in a batch", |s| {
        s.with(|s, plane: &mut Plane| {
            s.with(|s, held: &mut Held| {
                held.buffer.rebind(plane.array.stream())?;
                let stream = plane.array.stream().clone();
                let region = Region::new(Extent::new_2d(LEN / 2, 2));
                let mut batch = CopyBatch::new(&stream);
                match s.one_in(2) {
                    true => {
                        plane.values.extend(&held.values);
                        batch.push_to_array(&mut plane.array, &held.buffer, region)?;
                    }
                    false => {
                        held.may_be_as(&plane.values);
                        batch.push_from_array(&mut held.buffer, region, &plane.array)?;
                    }
                }
                Ok(batch.enqueue()?)
            })
        })
    }),
    ("an array and an array in a batch", |s| {
        s.with(|s, plane: &mut Plane| {
            s.with(|_, other: &mut Plane| {
                plane.values.extend(&other.values);
                other.array.rebind(plane.array.stream())?;
                let stream = plane.array.stream().clone();
                let mut batch = CopyBatch::new(&stream);
                batch.push_array(&mut plane.array, &other.array)?;
                Ok(batch.enqueue()?)
            })
        })
    }),
    ("shapes of arrays", |s| {
        let shape = ArrayShape::OneD { width: LEN };
        let _ = (shape.extent(), shape.max_levels());
        s.with(|_, plane: &mut Plane| {
            let _ = (plane.array.is_empty(), plane.array.as_raw());
            let all = plane.array.as_ref();
            let _ = (all.extent(), all.shape(), all.options(), all.len());
            let _ = (all.is_empty(), all.stream(), all.as_raw());
            let mut all = plane.array.as_mut();
            let _ = (all.extent(), all.shape(), all.options(), all.len());
            let _ = (all.is_empty(), all.stream(), all.as_raw());
            let _ = all.reborrow().as_ref().len();
            let _ = plane.array.descriptor()?.format.map(|format| {
                let kind = (format.is_integer(), format.is_normalized());
                (format.size_bytes(), kind)
            });
            Ok(())
        })
    }),
    ("ranges of managed memory", |s| {
        s.with(|s, (managed, _): &mut (ManagedBuffer<u32>, Vec<u32>)| {
            let _ = (managed.len(), managed.is_empty(), managed.as_raw());
            let _ = (managed.size_bytes(), managed.stream().id()?);
            managed.device()?;
            let stream = managed.stream().clone();
            let range = managed.range(..)?;
            let _ = (range.as_raw(), range.size_bytes(), range.stream().id()?);
            let device = MemoryLocation::Device(s.context().device());
            match s.below(4) {
                0 => range.advise(Advice::ReadMostly)?,
                1 => range.prefetch(device)?,
                2 => stream.prefetch_batch(&[(range, MemoryLocation::Host)])?,
                _ => drop((range.info()?, range.residency(4096, 4)?)),
            }
            Ok(())
        })
    }),
    ("zeros in managed memory", |s| {
        let managed = ManagedBuffer::<u32>::zeroed(&s.get()?, LEN)?;
        Ok(s.put((managed, vec![0_u32])))
    }),
    ("describe mapped memory", |s| {
        let (host, stream) = (Host::zeroed(s.context(), LEN)?, s.get::<Stream>()?);
        let mapped = MappedBuffer::new(host, &stream)?;
        let _ = (mapped.len(), mapped.is_empty(), mapped.as_raw());
        let _ = mapped.stream().id()?;
        check(&mapped.as_slice().to_vec()?, &[0]);
        Ok(s.put((mapped, vec![0_u32])))
    }),
    ("settings of a pool", |s| {
        let pool = match s.below(3) {
            0 => s.get::<MemoryPool>()?,
            1 => MemoryPool::default_of(s.context())?,
            _ => {
                let place = MemoryLocation::Device(s.context().device());
                MemoryPool::default_at(s.context(), place, false)?
            }
        };
        let _ = (pool.as_raw(), pool.context(), pool.attribute(USED_CURRENT)?);
        let _ = (USED_HIGH.name(), USED_HIGH.since(), USED_HIGH.as_raw());
        pool.set_attribute(RELEASE_THRESHOLD, s.choose(&[0, 1 << 20]))?;
        pool.reset_high_water(USED_HIGH)?;
        let peer = s.world.second.device();
        let _ = pool.access(&peer)?;
        pool.grant_access(&peer)?;
        Ok(pool.trim_to(0)?)
    }),
    ("current pool", |s| {
        let (device, context) = (s.context().device(), s.context());
        let place = MemoryLocation::Device(device);
        device.memory_pool()?;
        MemoryPool::current_at(context, place, false)?;
        let default = MemoryPool::default_of(context)?;
        match s.one_in(2) {
            true => device.set_memory_pool(&default)?,
            false => default.set_current_at(place, false)?,
        }
        Ok(())
    }),
    ("memory of a shared pool", |s| {
        let options = MemoryPoolOptions { shareable: true, ..Default::default() };
        let pool = MemoryPool::new(s.context(), options)?;
        let buffer = DeviceBuffer::<u32>::zeroed_from_pool(&pool, &s.get()?, LEN)?;
        drop(pool.export()?);
        let handle = pool.handle_of(&buffer)?;
        let block = Block { address: buffer.as_raw(), size: buffer.size_bytes(), token: 0 };
        IpcHandle::of_pool_memory(&pool, block.address, &block)?;
        let _ = (handle.kind(), handle.as_bytes().len(), handle.offset());
        let _ = (handle.device_uuid(), handle.device()?, handle.size());
        let same = IpcHandle::from_bytes(&handle.to_bytes());
        Ok(assert_eq!(same.to_bytes(), handle.to_bytes()))
    }),
];
