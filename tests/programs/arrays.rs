//! Arrays, and the textures and surfaces that own them.

use super::{Done, Held, LEN, Operations, Skip, Step, check, wrong};
use cuda_safe::array::{
    Array, ArrayOptions, ArrayShape, MipmappedArray, ReadMode, Sampler, SparseArray, Surface,
    Texture,
};
use cuda_safe::memory::{Extent, Pending, PitchedBuffer, Region};
use cuda_safe::{DeviceBuffer, PinnedBuffer, Stream};

const PLANE: ArrayShape = ArrayShape::TwoD { width: LEN / 2, height: 2 };

/// An array with the values that its texels may have.
pub(super) struct Plane {
    pub(super) array: Array<u32>,
    pub(super) values: Vec<u32>,
}

fn of_plane(s: &mut Step<'_>, f: impl FnOnce(&mut Step<'_>, &mut Plane) -> Done) -> Done {
    s.with(f)
}

pub(super) const ARRAYS: Operations = &[
    ("new array", |s| {
        let options = ArrayOptions { surface: true, ..ArrayOptions::default() };
        let (stream, value) = (s.get::<Stream>()?, s.fresh());
        let mut array = Array::with(&stream, PLANE, options)?;
        array.copy_from_slice(&[value; LEN])?;
        let values = vec![value];
        Ok(s.put(Plane { array, values }))
    }),
    ("drop an array", |s| Ok(drop(s.take::<Plane>()?))),
    ("read an array", |s| {
        of_plane(s, |_, plane| {
            let _ = (plane.array.shape(), plane.array.options(), plane.array.len());
            plane.array.descriptor()?;
            let mut read = [0; LEN];
            plane.array.as_ref().copy_to_slice(&mut read)?;
            check(&read, &plane.values);
            Ok(check(&plane.array.to_vec()?, &plane.values))
        })
    }),
    ("rebind an array", |s| of_plane(s, |s, plane| Ok(plane.array.rebind(&s.get()?)?))),
    ("copy an array to a buffer", |s| {
        of_plane(s, |s, plane| {
            s.with(|_, held: &mut Held| {
                held.buffer.rebind(plane.array.stream())?;
                held.may_be_as(&plane.values);
                plane.array.copy_to(&mut held.buffer)?;
                let tight = Region::new(PLANE.extent());
                Ok((plane.array.as_ref()).copy_3d_to(&mut held.buffer, tight)?)
            })
        })
    }),
    ("copy a buffer to an array", |s| {
        of_plane(s, |s, plane| {
            s.with(|_, held: &mut Held| {
                plane.array.rebind(held.buffer.stream())?;
                plane.values.extend(&held.values);
                plane.array.copy_from(&held.buffer)?;
                let tight = Region::new(PLANE.extent());
                Ok((plane.array.as_mut()).copy_3d_from(&held.buffer, tight)?)
            })
        })
    }),
    ("copy an array", |s| {
        of_plane(s, |s, plane| {
            of_plane(s, |_, other| {
                other.values.extend(&plane.values);
                other.array.rebind(plane.array.stream())?;
                let mut part = other.array.as_mut().part([0, 1, 0], Extent::new_2d(2, 1))?;
                part.copy_from_array(plane.array.as_ref().part([1, 0, 0], Extent::new_2d(2, 1))?)?;
                Ok(other.array.as_mut().copy_from_array(&plane.array)?)
            })
        })
    }),
    ("copy an array to pinned memory", |s| {
        of_plane(s, |s, plane| {
            let host = s.take::<PinnedBuffer<u32>>()?;
            Ok(s.put(plane.array.as_ref().copy_to_pinned(host)?))
        })
    }),
    ("copy pinned memory to an array", |s| {
        of_plane(s, |s, plane| {
            let mut host = PinnedBuffer::zeroed(s.context(), LEN)?;
            plane.values.push(s.fresh());
            host.fill(plane.values[plane.values.len() - 1]);
            let pending: Pending<u32, _> = plane.array.as_mut().copy_from_pinned(host)?;
            Ok(s.put(pending))
        })
    }),
    ("new texture", |s| {
        let Plane { array, values } = s.take()?;
        match Texture::try_new(array, &Sampler::default()) {
            Ok(texture) => s.put((texture, values)),
            Err(rejected) => s.put(Plane { array: rejected.value, values }),
        }
        Ok(())
    }),
    ("array of a texture", |s| {
        let (texture, values) = s.take::<(Texture<Array<u32>>, Vec<u32>)>()?;
        let _ = (texture.sampler()?, texture.as_raw(), texture.stream(), texture.source());
        let array = texture.into_source();
        Ok(s.put(Plane { array, values }))
    }),
    ("new surface", |s| {
        let Plane { array, values } = s.take()?;
        match Surface::try_new(array) {
            Ok(surface) => s.put((surface, values)),
            Err(rejected) => s.put(Plane { array: rejected.value, values }),
        }
        Ok(())
    }),
    ("array of a surface", |s| {
        let (surface, values) = s.take::<(Surface<Array<u32>>, Vec<u32>)>()?;
        let _ = (surface.as_raw(), surface.stream(), surface.target());
        let array = surface.into_target();
        Ok(s.put(Plane { array, values }))
    }),
    ("linear texture", |s| {
        let buffer = DeviceBuffer::<f32>::zeroed(&s.get()?, 64)?;
        Ok(s.put(Texture::linear(buffer, ReadMode::Element)?))
    }),
    ("drop a linear texture", |s| Ok(drop(s.take::<Texture<DeviceBuffer<f32>>>()?))),
    ("texture of rows", |s| {
        let rows = PitchedBuffer::<f32>::zeroed(&s.get()?, 4, 2)?;
        Ok(s.put(Texture::new(rows, &Sampler::default())?))
    }),
    ("new mipmapped array", |s| {
        let (stream, value) = (s.get::<Stream>()?, s.fresh());
        let mut levels = MipmappedArray::<u32>::new(&stream, PLANE, 2)?;
        levels.level_mut(1)?.copy_from_slice(&[value; 2])?;
        Ok(s.put((levels, value)))
    }),
    ("use a mipmapped array", |s| {
        s.with(|s, (levels, value): &mut (MipmappedArray<u32>, u32)| {
            let _ = (levels.levels(), levels.shape(), levels.options(), levels.as_raw());
            check(&levels.level(1)?.to_vec()?, &[*value]);
            Ok(levels.rebind(&s.get()?)?)
        })
    }),
    ("new sparse array", |s| {
        let shape = ArrayShape::TwoD { width: 300, height: 200 };
        let made = SparseArray::<u32>::new(&s.get()?, shape)?;
        Ok(s.put(made))
    }),
    ("use a sparse array", |s| {
        s.with(|s, plane: &mut SparseArray<u32>| {
            let (dot, value) = (Extent::new_2d(1, 1), s.fresh());
            let at = [s.below(2) * 200, s.below(2) * 150, 0];
            plane.map(at, dot)?;
            plane.part_mut(at, dot)?.copy_from_slice(&[value])?;
            if plane.part(at, dot)?.to_vec()? != [value] {
                wrong("wrong contents of a sparse array".to_owned());
            }
            let _ = (
                plane.tile(),
                plane.mapped_tiles(),
                plane.memory_bytes(),
                plane.is_mapped(at, dot)?,
            );
            match s.below(3) {
                0 => plane.unmap(at, dot)?,
                1 => plane.rebind(&s.get()?)?,
                _ => {}
            }
            Ok(())
        })
    }),
    ("drop a sparse array", |s| s.take::<SparseArray<u32>>().map(drop).map_err(|_| Skip)),
];
