//! Arrays that are exported and imported again.

use super::{Done, Held, LEN, Operations, Skip, Step, check, check_slice};
use cuda_safe::Stream;
use cuda_safe::interop::dlpack::{ConsumerStream, DataType, Export, ManagedTensor, MemoryKind};
use cuda_safe::interop::{
    ArrayView, ArrayViewMut, ExportedStream, Imported, ImportedArray, Index, Layout, StreamSync,
    TypeString,
};
use std::sync::Arc;

/// An imported array, with its possible values.
type Import = (ImportedArray<u32>, Vec<u32>);

/// A tensor that was exported to a stream, with its possible values.
type Tensor = (ManagedTensor, Stream, Vec<u32>);

/// Makes a stream of the same context wait for the producer, and returns it.
fn consumer(s: &mut Step<'_>, producer: &Stream) -> Result<Stream, Skip> {
    let consumer = s.get::<Stream>()?;
    if consumer.context() != producer.context() {
        return Err(Skip);
    }
    // SAFETY: the stream is alive.
    unsafe { ConsumerStream::of(&consumer).wait_stream(producer) }?;
    Ok(consumer)
}

/// Passes an export through a raw pointer, as other libraries do.
fn received(s: &mut Step<'_>, export: Export) -> Result<ManagedTensor, Skip> {
    Ok(match s.one_in(2) {
        true => {
            let raw = export.into_raw()?;
            // SAFETY: this is the only owner of the pointer.
            unsafe { ManagedTensor::from_raw(raw.as_ptr()) }?
        }
        false => {
            let raw = export.into_raw_versioned();
            // SAFETY: this is the only owner of the pointer.
            unsafe { ManagedTensor::from_raw_versioned(raw.as_ptr()) }?
        }
    })
}

/// Fills an imported array with the last one of its possible values.
fn fill(mut import: Imported, values: &[u32]) -> Done {
    let value = *values.last().ok_or(Skip)?;
    import.view_mut::<u32>()?.fill(value)?;
    import.view_bits_mut::<u32>()?.fill(value)?;
    Ok(check(&import.view::<u32>()?.to_vec()?, values))
}

fn sync(s: &mut Step<'_>) -> StreamSync {
    s.choose(&[StreamSync::Synchronize, StreamSync::WaitEvent, StreamSync::ProducerStream])
}

pub(super) const IMPORTS: Operations = &[
    ("export a buffer", export),
    ("export a buffer again", export),
    ("export shared memory of a tensor", |s| {
        let held = s.take::<Held>()?;
        let (address, stream) = (held.buffer.as_raw(), held.buffer.stream().clone());
        let layout = Layout::c_contiguous(&[2, LEN / 2], 4)?;
        let device = stream.context().device().ordinal();
        let kind = MemoryKind::Device;
        let dtype = DataType::of::<u32>();
        let owner = held.buffer.share()?;
        let export = Export::new(dtype, layout, address, kind, device, owner)?;
        let export = export.read_only().copied();
        let consumer = consumer(s, &stream)?;
        let tensor = received(s, export)?;
        Ok(s.put((tensor, consumer, held.values)))
    }),
    ("describe a tensor", |s| {
        s.with(|_, (tensor, ..): &mut Tensor| {
            let _ = (tensor.dtype(), tensor.layout(), tensor.address());
            let _ = (tensor.memory(), tensor.device(), tensor.version());
            let _ = (tensor.is_read_only(), tensor.is_copied());
            tensor.array_interface()?;
            let ty: TypeString = "<u4".parse()?;
            Ok(drop(tensor.array_interface_as(ty)?))
        })
    }),
    ("import a tensor", |s| {
        let (tensor, stream, values) = s.take::<Tensor>()?;
        let sync = sync(s);
        // SAFETY: the memory has elements of this type, only the tensor uses it, and the stream waits for
        // the producer.
        let array = unsafe { tensor.import::<u32>(&stream, sync) }?;
        Ok(s.put((array, values)))
    }),
    ("drop a received tensor", |s| Ok(drop(s.take::<Tensor>()?))),
    ("read an import", |s| {
        s.with(|_, (array, values): &mut Import| {
            let _ = (array.len(), array.is_empty(), array.is_read_only());
            let _ = (array.stream().id()?, array.as_untyped().as_raw());
            let untyped = array.as_untyped();
            let _ = (untyped.dtype(), untyped.layout(), untyped.is_read_only());
            let _ = (untyped.mask().is_some(), untyped.stream().id()?);
            check(&untyped.view::<u32>()?.to_vec()?, values);
            check(&untyped.view_bits::<u32>()?.to_vec()?, values);
            untyped.mask_view()?;
            Ok(check_slice(array.as_slice(), values))
        })
    }),
    ("write an import", |s| {
        s.with(|s, (array, values): &mut Import| {
            values.push(s.fresh());
            Ok(array.as_mut_slice()?.fill(values[values.len() - 1])?)
        })
    }),
    ("copy an import", |s| {
        s.with(|s, (array, values): &mut Import| {
            s.with(|_, held: &mut Held| {
                held.buffer.rebind(array.stream())?;
                held.may_be_as(values);
                Ok(held.buffer.copy_from(&*array)?)
            })
        })
    }),
    ("drop an import", |s| Ok(drop(s.take::<Import>()?))),
    ("import an interface", |s| {
        let held = s.take::<Held>()?;
        let (stream, sync) = (s.get::<Stream>()?, sync(s));
        let (array, mut values) = (held.buffer.array_interface()?, held.values.clone());
        let is_possible = stream.context() == held.buffer.stream().context();
        // The buffer may not be used otherwise before the import drops its owner.
        let owner = Arc::new(held);
        if is_possible {
            // SAFETY: the owner is the buffer, and no other code uses it meanwhile.
            let import = unsafe { array.import_untyped(&stream, sync, Arc::clone(&owner)) };
            values.push(s.fresh());
            // Errors are allowed.
            let _ = import.map_err(Skip::from).and_then(|import| fill(import, &values));
        }
        if let Ok(held) = Arc::try_unwrap(owner) {
            s.put(Held { values, ..held });
        }
        Ok(())
    }),
    ("views with layouts", |s| {
        s.with(|s, held: &mut Held| {
            let layout = Layout::strided(&[2, 2], &[16, 4], 4)?;
            let view = ArrayView::with_layout(&held.buffer, 1, layout.clone())?;
            let _ = (view.as_raw(), view.layout(), view.stream());
            let _ = view.as_slice().is_some();
            for view in [view.broadcast_to(&[2, 2, 2])?, view.index(&[Index::At(-1)])?] {
                if let Ok(read) = view.to_vec() {
                    check(&read, &held.values);
                }
            }
            let values = held.values.clone();
            let value = held.may_be(s.fresh());
            let mut view = ArrayViewMut::with_layout(&mut held.buffer, 1, layout)?;
            let _ = view.copy_from_slice(&[value; 4]).is_ok();
            let _ = view.as_mut_slice().is_some();
            let view = view.transposed().permuted(&[1, 0])?;
            if let Ok(read) = view.as_view().to_vec() {
                check(&read, &[&values[..], &[value]].concat());
            }
            let mut all = ArrayViewMut::new(&mut held.buffer, &[LEN])?.reshaped(&[2, LEN / 2])?;
            all.array_interface()?;
            Ok(())
        })
    }),
];

fn export(s: &mut Step<'_>) -> Done {
    let held = s.take::<Held>()?;
    let producer = held.buffer.stream().clone();
    let export = held.buffer.into_dlpack()?;
    let consumer = consumer(s, &producer)?;
    let tensor = received(s, export)?;
    let tensor = match s.one_in(2) {
        true => tensor.with_producer_stream(Some(ExportedStream::of(&producer))),
        false => tensor,
    };
    Ok(s.put((tensor, consumer, held.values)))
}
