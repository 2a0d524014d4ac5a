//! Exports and views of arrays, and the pointers of memory managers.

use super::{Held, LEN, Operations, check};
use cuda_safe::Stream;
use cuda_safe::interop::dlpack::Export;
use cuda_safe::interop::{ArrayView, ArrayViewMut, ExportedStream, Index};
use cuda_safe::manager::{AutoFreePointer, MappedMemory, MemoryPointer, PinnedMemory};
use cuda_safe::memory::PinnedFlags;

pub(super) const SHARING: Operations = &[
    ("view", |s| {
        s.with(|s, held: &mut Held| {
            let value = held.may_be(s.fresh());
            let mut view = ArrayViewMut::new(&mut held.buffer, &[2, LEN / 2])?;
            let _ = (view.as_raw(), view.layout(), view.stream());
            let _ = view.reborrow().fill(value).is_ok();
            let (low, high) = view.split_at(1, LEN / 4)?;
            let mut column = low.index(&[Index::ALL, Index::At(0)])?;
            let copied = column.copy_from(high.index(&[Index::ALL, Index::At(1)])?);
            let _ = copied.is_ok();
            let view = ArrayView::new(&held.buffer, &[2, LEN / 2])?;
            for view in [view.transposed(), view.permuted(&[1, 0])?] {
                if let Ok(read) = view.to_vec() {
                    check(&read, &held.values);
                }
            }
            let mut read = [0; LEN];
            view.reshaped(&[LEN])?.copy_to_slice(&mut read)?;
            view.array_interface()?;
            Ok(check(&read, &held.values))
        })
    }),
    ("export an interface", |s| {
        s.with(|s, held: &mut Held| {
            let array = held.buffer.array_interface()?;
            let stream = s.get::<Stream>()?;
            let joined = ExportedStream::joined(held.buffer.stream(), [&stream])?;
            let _ = (array.clone().with_stream(Some(joined)).stream(), array.address());
            let raw = array.read_only().to_raw();
            let _ = raw.check(Default::default());
            Ok(())
        })
    }),
    ("export a tensor", |s| {
        let held = s.take::<Held>()?;
        match held.buffer.try_into_dlpack() {
            Ok(export) => s.put(export),
            Err(rejected) => s.put(Held { buffer: rejected.value, values: held.values }),
        }
        Ok(())
    }),
    ("drop a tensor", |s| Ok(drop(s.take::<Export>()?))),
    ("allocate a pointer", |s| {
        let pointer = match s.below(3) {
            0 => MemoryPointer::allocate(s.context(), 64)?,
            1 => MemoryPointer::allocate_on(&s.get()?, 64)?,
            _ => MemoryPointer::allocate_managed(s.context(), 64, true)?,
        };
        let _ = (pointer.as_raw(), pointer.size(), pointer.id(), pointer.owner().is_some());
        Ok(s.put(AutoFreePointer::from(pointer)))
    }),
    ("part of a pointer", |s| {
        let pointer = s.get::<AutoFreePointer>()?;
        let _ = (pointer.references(), pointer.memory().block(), pointer.as_raw());
        if let Some(part) = pointer.part(16, 32) {
            s.put(part);
        }
        Ok(())
    }),
    ("export a pointer", |s| {
        let exported = s.get::<AutoFreePointer>()?.export()?;
        let _ = (exported.handle().to_bytes(), exported.memory().size());
        Ok(s.put(exported))
    }),
    ("drop a pointer", |s| Ok(drop(s.take::<AutoFreePointer>()?))),
    ("allocate host memory", |s| {
        let flags = PinnedFlags::empty();
        match s.one_in(2) {
            true => s.put(PinnedMemory::allocate(s.context(), 64, flags)?),
            false => s.put(MappedMemory::allocate(s.context(), 64, flags)?),
        }
        Ok(())
    }),
    ("drop host memory", |s| {
        Ok(drop((s.take::<PinnedMemory>().ok(), s.take::<MappedMemory>().ok())))
    }),
];
