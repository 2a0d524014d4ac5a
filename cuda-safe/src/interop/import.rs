//! Import of foreign arrays, ordered with the work of their producer, and export of buffers.

use super::address::grant_for_export;
use super::array::ArrayInterface;
use super::dtype::{Dtype, Kind, TypeString};
use super::layout::Layout;
use super::refused;
use super::stream::ExportedStream;
use crate::call::{
    Error, Invalid, Report, Result, call, convert, debug_struct, refuse_in_host_function, report,
    without_current,
};
use crate::capture_state::{ForeignStream, Operation};
use crate::context::Context;
use crate::event::Event;
use crate::memory::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Reads};
use crate::release::{owners, release};
use crate::stream::Stream;
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_sys::CUdeviceptr;
use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

/// An element type that NumPy also has. This trait is sealed.
///
/// | here | NumPy |
/// |---|---|
/// | `u8` … `u64`, `i8` … `i64` | `u1` … `u8`, `i1` … `i8` |
/// | `f32`, `f64` | `f4`, `f8` |
/// | `[f32; 2]`, `[f64; 2]` | `c8`, `c16` |
pub trait Element: AnyBitPattern + NoUninit + sealed::Sealed {
    #[doc(hidden)]
    const KIND: Kind;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($ty:ty: $kind:ident,)*) => {$(
        impl sealed::Sealed for $ty {}
        impl Element for $ty {
            const KIND: Kind = Kind::$kind;
        }
    )*};
}

elements! {
    u8: Uint, u16: Uint, u32: Uint, u64: Uint,
    i8: Int, i16: Int, i32: Int, i64: Int,
    f32: Float, f64: Float,
    [f32; 2]: Complex, [f64; 2]: Complex,
}

pub(super) fn type_of<T: Element>() -> Result<TypeString, Invalid> {
    TypeString::native(T::KIND, size_of::<T>())
}

/// How work on an imported array is ordered with the work of its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum StreamSync {
    /// The host waits for the producer's stream at the import, and for the importing stream when
    /// the import is dropped.
    Synchronize,
    /// At the import, the importing stream waits for an event of the producer's stream. When the
    /// import is dropped, the producer's stream waits for an event of the importing stream. (If the
    /// producer names no stream or the per-thread default stream, the host waits at the drop
    /// instead.)
    WaitEvent,
    /// All work runs on the producer's stream itself, which becomes the stream of the import
    /// ([`Imported::stream`]), so no waits are necessary. If the producer names no stream or a
    /// default stream, this is the same as [`WaitEvent`](Self::WaitEvent): a [`Stream`] cannot be a
    /// default stream.
    ProducerStream,
    /// The import orders nothing. The caller must order the work by other means.
    Ignore,
}

/// A foreign array of any type and layout, ordered on a stream of this crate. Created by
/// [`ArrayInterface::import_untyped`].
///
/// When it is dropped, the producer may continue with the memory as described in [`StreamSync`]. If
/// the driver knows the allocation, the import has checked that the array is within it.
#[must_use = "dropping this lets the producer continue with the memory"]
pub struct Imported {
    /// The address at which the stream's context accesses the first element.
    address: u64,
    dtype: Dtype,
    layout: Layout,
    read_only: bool,
    access: Access,
    mask: Option<Box<Self>>,
}

/// A foreign C-contiguous array, ordered on a stream of this crate. Created by
/// [`ArrayInterface::import`].
///
/// When it is dropped, the producer may continue with the memory as described in [`StreamSync`].
#[must_use = "dropping this lets the producer continue with the memory"]
pub struct ImportedArray<T> {
    whole: Imported,
    len: usize,
    elements: PhantomData<T>,
}

/// The stream of an import, the ordering when it is dropped, and the owner of the memory.
#[derive(Clone)]
struct Access {
    stream: Stream,
    producer_order: ProducerOrder,
    #[allow(dead_code, reason = "held, not read")]
    owner: Arc<dyn Any + Send + Sync>,
}

/// How the producer's later work is ordered after the import.
#[derive(Clone)]
enum ProducerOrder {
    Unordered,
    /// The host waits for the stream of the import.
    HostWait,
    /// The producer's stream waits for an event.
    Event(Event, ForeignStream),
}

/// The results of the checks.
struct CheckedArray {
    address: u64,
    producer_order: ProducerOrder,
}

impl ArrayInterface {
    /// Imports the array for work on `stream`, ordered with the producer's stream according to
    /// `sync`.
    ///
    /// The address of the import is the one at which the stream's context accesses the memory
    /// (`CU_POINTER_ATTRIBUTE_DEVICE_POINTER`). If the driver knows the allocation, the array must
    /// be within it.
    ///
    /// # Errors
    /// On an error, `owner` is dropped. To keep it, pass a clone of an `Arc`.
    ///
    /// - [`Invalid::ArrayInterface`] if the elements have another type than `T`, or if the array is
    ///   not C-contiguous, is misaligned, has a mask, or exceeds its allocation.
    /// - [`Invalid::StreamIsCaptured`] if the import enqueues work on a stream that is being captured.
    /// - With [`StreamSync::Synchronize`], [`Error::InHostFunction`] inside a host function.
    /// - With [`StreamSync::ProducerStream`], [`Invalid::OtherContext`] if the producer's stream
    ///   belongs to another context.
    /// - An error of the driver.
    ///
    /// # Safety
    /// - `owner` must keep alive the memory and the stream that the interface names. (With
    ///   [`StreamSync::ProducerStream`], the owner is dropped after the last clone of the import's
    ///   stream.)
    /// - The device of `stream` must be able to read the memory and, unless the interface marks it
    ///   as read-only, to write it. The elements must be valid values of `T`.
    /// - The named stream must belong to the context of `stream`.
    /// - All earlier work on the memory must be enqueued on the named stream, or be complete if the
    ///   interface names no stream.
    /// - Until the import is dropped, no other code may enqueue work on the memory. Afterwards,
    ///   other work must be ordered after the named stream's work. If one of the streams is being
    ///   captured when the import is dropped, or the drop runs in a host function, the release is
    ///   deferred, and this applies until `owner` is dropped.
    ///
    /// With [`StreamSync::Ignore`], the caller must order the earlier and the later work itself.
    #[doc(alias = "__cuda_array_interface__")]
    pub unsafe fn import<T: Element>(
        &self,
        stream: &Stream,
        sync: StreamSync,
        owner: impl Any + Send + Sync,
    ) -> Result<ImportedArray<T>> {
        let len = self.check_for::<T>()?;
        let whole = self.import_checked(stream, sync, align_of::<T>(), false, owner)?;
        Ok(ImportedArray { whole, len, elements: PhantomData })
    }

    /// Imports an array of any type and layout for work on `stream`. This is like
    /// [`import`](Self::import), but the caller must check the type and the layout.
    ///
    /// # Errors
    /// On an error, `owner` is dropped. To keep it, pass a clone of an `Arc`.
    ///
    /// - [`Invalid::ArrayInterface`] if the array has a mask or exceeds its allocation.
    /// - [`Invalid::StreamIsCaptured`] if the import enqueues work on a stream that is being captured.
    /// - With [`StreamSync::Synchronize`], [`Error::InHostFunction`] inside a host function.
    /// - With [`StreamSync::ProducerStream`], [`Invalid::OtherContext`] if the producer's stream
    ///   belongs to another context.
    /// - An error of the driver.
    ///
    /// # Safety
    /// See [`import`](Self::import). The elements must be valid values of every type as which the
    /// caller uses them.
    #[doc(alias = "__cuda_array_interface__")]
    pub unsafe fn import_untyped(
        &self,
        stream: &Stream,
        sync: StreamSync,
        owner: impl Any + Send + Sync,
    ) -> Result<Imported> {
        self.import_checked(stream, sync, 1, false, owner)
    }

    /// Imports the array and its mask, if it has one, for work on `stream`. This is like
    /// [`import_untyped`](Self::import_untyped), for callers that support masks. [`Imported::mask`]
    /// returns the mask.
    ///
    /// If the mask names another stream than the array, the work is ordered with that stream too.
    /// With [`StreamSync::ProducerStream`], events order it.
    ///
    /// # Errors
    /// See [`import_untyped`](Self::import_untyped). The mask is checked like the array.
    ///
    /// # Safety
    /// See [`import_untyped`](Self::import_untyped). The conditions apply to the mask too.
    #[doc(alias = "__cuda_array_interface__")]
    pub unsafe fn import_masked(
        &self,
        stream: &Stream,
        sync: StreamSync,
        owner: impl Any + Send + Sync,
    ) -> Result<Imported> {
        self.import_checked(stream, sync, 1, true, owner)
    }

    /// Imports the array under the conditions of `import`. Checks that the elements are aligned to
    /// `align`. Rejects an array with a mask unless `masks` is true.
    fn import_checked(
        &self,
        stream: &Stream,
        sync: StreamSync,
        align: usize,
        masks: bool,
        owner: impl Any + Send + Sync,
    ) -> Result<Imported> {
        if self.mask().is_some() && !masks {
            return Err(refused("mask", "use import_masked for arrays with a mask").into());
        }
        if sync == StreamSync::Synchronize {
            // The producer's stream may be the one that runs this host function. Waiting for it
            // here would deadlock.
            refuse_in_host_function()?;
        }
        // Declared after `owner`, which keeps this stream alive, so it is dropped before it.
        let producer_stream = match sync {
            StreamSync::ProducerStream => self.foreign_producer_stream(stream)?,
            _ => None,
        };
        let address = self.checked_address(stream.context(), align)?;
        let (work_stream, producer_order) = match &producer_stream {
            Some(producer_stream) => (producer_stream, ProducerOrder::Unordered),
            None => (stream, self.order_after_producer(stream, sync)?),
        };
        let mask = self.mask().map(|mask| {
            let address = mask.checked_address(work_stream.context(), 1)?;
            // If the mask names another stream than `work_stream`, this orders the two streams.
            let producer_order = mask.order_after_producer(work_stream, sync)?;
            Ok::<_, Error>((mask, CheckedArray { address, producer_order }))
        });
        let mask = mask.transpose()?;
        let array = CheckedArray { address, producer_order };
        let owner: Arc<dyn Any + Send + Sync> = Arc::new(owner);
        let stream = match producer_stream {
            // The owner keeps the stream alive.
            Some(producer_stream) => Stream::leased(&producer_stream, Arc::clone(&owner)),
            None => stream.clone(),
        };
        let imported = |array: &Self, checked: CheckedArray, mask| Imported {
            address: checked.address,
            dtype: array.dtype().clone(),
            layout: array.layout().clone(),
            read_only: array.is_read_only(),
            access: Access {
                stream: stream.clone(),
                producer_order: checked.producer_order,
                owner: Arc::clone(&owner),
            },
            mask,
        };
        let mask = mask.map(|(mask, checked)| Box::new(imported(mask, checked, None)));
        Ok(imported(self, array, mask))
    }

    /// Returns the number of contiguous elements after checking their type.
    fn check_for<T: Element>(&self) -> Result<usize, Invalid> {
        let expected = type_of::<T>()?;
        if *self.dtype() != Dtype::Plain(expected) {
            let problem = format!("{} where {expected} is expected", self.dtype());
            return Err(refused("typestr", problem));
        }
        let layout = self.layout();
        match layout.len() {
            Some(len) if layout.is_c_contiguous() => Ok(len),
            _ => {
                let problem = format!("the strides {:?} are not C-contiguous", layout.strides());
                Err(refused("strides", problem))
            }
        }
    }

    /// Returns the producer's stream if the interface names one that is neither a default stream
    /// nor `stream`. The result does not keep the stream alive.
    #[inline]
    fn foreign_producer_stream(&self, stream: &Stream) -> Result<Option<Stream>> {
        let Some(exported @ ExportedStream::Handle(_)) = self.stream() else { return Ok(None) };
        let raw = exported.raw()?;
        if raw == stream.raw() {
            return Ok(None);
        }
        // SAFETY: the stream is alive as long as the owner, as the caller of `import` promised, and
        // the caller of this function keeps the owner alive.
        let producer_stream = unsafe { Stream::borrow_checked(raw, stream.context()) }?;
        drop(producer_stream.uncaptured(Operation::Wait)?);
        Ok(Some(producer_stream))
    }

    /// Makes later work on `stream` wait for the producer's work. Returns how the producer's later work
    /// is ordered.
    #[inline]
    fn order_after_producer(&self, stream: &Stream, sync: StreamSync) -> Result<ProducerOrder> {
        drop(stream.uncaptured(Operation::Wait)?);
        if sync == StreamSync::Ignore {
            return Ok(ProducerOrder::Unordered);
        }
        let Some(exported) = self.stream() else {
            // The producer's work is complete, but it names no stream that could wait when the
            // import is dropped.
            return Ok(ProducerOrder::HostWait);
        };
        let context = stream.context();
        let (raw, is_default) = (exported.raw()?, exported.is_default());
        if raw == stream.raw() {
            return Ok(ProducerOrder::Unordered);
        }
        if sync == StreamSync::Synchronize {
            let wait = || {
                // SAFETY: `raw` is a default stream of the current context, or a stream that is alive,
                // as the caller of `import` promised.
                unsafe { call!(cuStreamSynchronize(raw)) }
            };
            call_in_context(context, is_default, wait)?;
            return Ok(ProducerOrder::HostWait);
        }
        let (begin, end_event) = (context.event()?, context.event()?);
        let producer_stream = ForeignStream::new(raw);
        {
            // SAFETY: the stream is alive, as above; a default stream is one of `context`.
            let _call = unsafe { producer_stream.uncaptured(Operation::Record, context) }?;
            call_in_context(context, is_default, || {
                // SAFETY: the stream is alive, as above, and so is the event.
                unsafe { call!(cuEventRecord(begin.raw_to_record(), raw)) }
            })?;
        }
        stream.wait_private(&begin)?;
        Ok(match exported {
            // The import may be dropped on another thread, where this handle means another stream.
            ExportedStream::PerThread => ProducerOrder::HostWait,
            _ => ProducerOrder::Event(end_event, producer_stream),
        })
    }
}

/// Calls `call`, which uses a stream of `context`. For a default stream, makes `context` current first,
/// because the handle of a default stream refers to the current context.
pub(super) fn call_in_context(
    context: &Context,
    is_default: bool,
    mut call: impl FnMut() -> Result<()>,
) -> Result<()> {
    if is_default {
        let _current = context.enter()?;
        return call();
    }
    without_current(context, call)
}

impl Imported {
    /// Returns the address at which the stream's context accesses the first element, or 0 if the
    /// array is empty.
    #[inline]
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// Returns the type of the elements that the interface names.
    #[inline]
    pub fn dtype(&self) -> &Dtype {
        &self.dtype
    }

    /// Returns the shape and the strides.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns whether the array must not be written.
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Returns the mask if the array was imported with [`ArrayInterface::import_masked`]: an array
    /// whose nonzero elements mark the valid elements. It is ordered on the same stream, and its
    /// shape can be broadcast to the shape of this array. [`mask_view`](Self::mask_view) is the
    /// usual way to read it.
    #[inline]
    pub fn mask(&self) -> Option<&Self> {
        self.mask.as_deref()
    }

    #[inline]
    pub(super) fn check_writable(&self) -> Result<(), Invalid> {
        if self.read_only { Err(refused("data", "the array is read-only")) } else { Ok(()) }
    }

    /// Returns the stream on which work on the array must run.
    #[inline]
    pub fn stream(&self) -> &Stream {
        &self.access.stream
    }
}

impl<T> ImportedArray<T> {
    /// Returns the memory for reading.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.whole.address, self.len, self.stream())
    }

    /// Returns the memory for reading and writing.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if the producer marked the array as read-only.
    pub fn as_mut_slice(&mut self) -> Result<DeviceSliceMut<'_, T>> {
        self.whole.check_writable()?;
        Ok(DeviceSliceMut::new(self.whole.address, self.len, self.stream()))
    }

    /// Returns the array without its type.
    pub fn as_untyped(&self) -> &Imported {
        &self.whole
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the array is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the array must not be written.
    pub fn is_read_only(&self) -> bool {
        self.whole.read_only
    }

    /// Returns the stream on which work on the array must run.
    pub fn stream(&self) -> &Stream {
        self.whole.stream()
    }
}

impl<T: Element> DeviceBuffer<T> {
    /// Exports the buffer as a one-dimensional array, with the stream on which all work on it runs.
    ///
    /// The consumer's work must be complete, or ordered on this stream, before this program uses or
    /// drops the buffer again. The interface keeps neither the buffer nor the stream alive.
    ///
    /// If the buffer was allocated from a memory pool, this also grants the other devices access to
    /// that pool. See [`grant_peer_access`](super::grant_peer_access).
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if the length exceeds the address space; on a machine with
    /// several devices, an error of the driver.
    #[doc(alias = "__cuda_array_interface__")]
    pub fn array_interface(&self) -> Result<ArrayInterface> {
        let layout = Layout::c_contiguous(&[self.len()], size_of::<T>())?;
        let array = ArrayInterface::new(type_of::<T>()?, layout, self.as_raw())?;
        // SAFETY: the buffer is borrowed, so its memory is not freed during the call.
        unsafe { grant_for_export(self.stream().context(), self.as_raw()) }?;
        Ok(array.with_stream(Some(ExportedStream::of(self.stream()))))
    }
}

convert! { ['a, T] |array: &'a ImportedArray<T>| -> DeviceSlice<'a, T> { array.as_slice() } }

impl Drop for Imported {
    #[inline]
    fn drop(&mut self) {
        let stream = &self.access.stream;
        match &self.access.producer_order {
            ProducerOrder::Unordered => {}
            ProducerOrder::Event(event, producer) => {
                release(Reads::new(event, stream.raw(), producer.raw()), &self.access);
            }
            ProducerOrder::HostWait => {
                if let Err(error) = stream.wait_for_work() {
                    // The wait failed, so work may still use the memory. The owner is leaked.
                    std::mem::forget(self.access.clone());
                    report(&Report::Leaked {
                        what: "an imported array that work may still use",
                        error,
                    });
                }
            }
        }
    }
}

owners! {
    Access |its| {
        context: Some(its.stream.context()),
        is_borrowed: its.stream.is_borrowed(),
        streams: {
            let producer = match &its.producer_order {
                ProducerOrder::Event(_, producer) => Some(producer.by_ref()),
                ProducerOrder::Unordered | ProducerOrder::HostWait => None,
            };
            [Some(its.stream.by_ref()), producer]

        },
    }
}

debug_struct! {
    Imported |its| {
        address: format_args!("{:#x}", its.address), dtype: format_args!("{}", its.dtype), layout:
        its.layout, read_only: its.read_only, stream: its.stream(), ..
    }
}

debug_struct! {
    [T] ImportedArray<T> |its| { slice: its.as_slice(), read_only: its.is_read_only(), .. }
}
