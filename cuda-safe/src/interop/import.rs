//! Arrays of others as memory here, in order with their producer; and buffers for others.

use super::array::ArrayInterface;
use super::dtype::Dtype;
use super::layout::Layout;
use super::peers::grant_for_export;
use super::refused;
use super::stream::ExportedStream;
use super::typestr::{Kind, TypeString};
use crate::call::{call, without_current};
use crate::capture::Operation;
use crate::context::Context;
use crate::error::{Error, Rejected, Result};
use crate::event::Event;
use crate::invalid::Invalid;
use crate::memory::{DeviceBuffer, DeviceSlice, DeviceSliceMut};
use crate::release::{Parent, Resource, release};
use crate::report::{Report, report};
use crate::stream::{ForeignStream, OrderedOn, Stream, refuse_inside};
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_sys::CUdeviceptr;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A type of elements that NumPy has as well. Sealed.
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

/// How work on an imported array is put in order with that of its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Handover {
    /// The host waits for the producer's stream at the import, and for one's own at the end.
    Synchronize,
    /// One's own stream waits for the producer's at the import, and that for one's own at the end, by
    /// events. (At the end the host waits where the producer names no stream, or that of a thread.)
    WaitByEvent,
    /// All work is given to the producer's stream itself, which is the import's
    /// ([`Imported::stream`]): nobody waits, at either end. Where the producer names no stream, or a
    /// default one, which is no [`Stream`], it is one's own, as for [`WaitByEvent`](Self::WaitByEvent).
    OnProducersStream,
    /// Nothing is put in order: whoever says so does it by other means.
    Ignore,
}

/// An array of somebody else's, of any type and layout, in order on a stream of one's own; of
/// [`ArrayInterface::import_untyped`].
///
/// At its end the producer may go on: see [`Handover`]. Whether it goes beyond its allocation was
/// looked at, where the driver knows that.
#[must_use = "the producer goes on when this is dropped"]
pub struct Imported {
    /// By which the stream's context reaches the first element.
    address: u64,
    dtype: Dtype,
    layout: Layout,
    read_only: bool,
    lent: Lent,
    mask: Option<Box<Self>>,
}

/// A C-contiguous array of somebody else's, in order on a stream of one's own; of
/// [`ArrayInterface::import`].
///
/// At its end the producer may go on: see [`Handover`].
#[must_use = "the producer goes on when this is dropped"]
pub struct ImportedArray<T> {
    whole: Imported,
    len: usize,
    elements: PhantomData<T>,
}

/// What is used, and until when.
#[derive(Clone)]
struct Lent {
    stream: Stream,
    end: End,
    #[allow(dead_code, reason = "held, not read")]
    owner: Arc<dyn Any + Send + Sync>,
}

/// What the producer has to come behind.
#[derive(Clone)]
enum End {
    Nothing,
    /// The host waits.
    Wait,
    /// The producer's stream waits for an event.
    Event(Event, ForeignStream),
}

/// What was found out of an array, before its owner is taken.
struct Found {
    address: u64,
    end: End,
}

impl ArrayInterface {
    /// The array as memory for work on `stream`, which `handover` puts in order with the producer's.
    ///
    /// The address is that by which the stream's context reaches the memory
    /// (`CU_POINTER_ATTRIBUTE_DEVICE_POINTER`), and the end of the allocation is looked at, where the
    /// driver knows them.
    ///
    /// # Errors
    /// With the owner given back: elements of another type than `T`, an array that is not
    /// C-contiguous, has a mask or goes beyond its allocation; [`Invalid::StreamIsCaptured`]; with
    /// [`Handover::OnProducersStream`] [`Invalid::OtherContext`], if that is a stream of another context;
    /// those of the driver.
    ///
    /// # Safety
    /// `owner` keeps alive what the interface says: the memory, readable and, unless it is said to be
    /// read-only, writable by the stream's device, with bits allowed for `T`; and the stream that it
    /// names, which is of the same context. All work on the memory up to now is in that stream (or done,
    /// if none is named), and nobody else works on it until this is dropped, but in that stream's
    /// order afterwards. With [`Handover::Ignore`] the caller sees to all of the order. (With
    /// [`Handover::OnProducersStream`] the owner is dropped after the last clone of the import's stream.)
    #[doc(alias = "__cuda_array_interface__")]
    pub unsafe fn import<T: Element, O: Any + Send + Sync>(
        &self,
        stream: &Stream,
        handover: Handover,
        owner: O,
    ) -> Result<ImportedArray<T>, Rejected<O>> {
        let len = match self.check_for::<T>() {
            Ok(len) => len,
            Err(invalid) => return Err(Rejected::new(invalid, owner)),
        };
        let whole = self.lend(stream, handover, align_of::<T>(), false, owner)?;
        Ok(ImportedArray {
            whole,
            len,
            elements: PhantomData,
        })
    }

    /// The array, of whatever type and layout, as memory for work on `stream`: as
    /// [`import`](Self::import), for those who look at the type themselves.
    ///
    /// # Errors
    /// With the owner given back: an array that has a mask or goes beyond its allocation;
    /// [`Invalid::StreamIsCaptured`]; those of the driver.
    ///
    /// # Safety
    /// As for [`import`](Self::import), with bits allowed for whatever it is used as.
    #[doc(alias = "__cuda_array_interface__")]
    pub unsafe fn import_untyped<O: Any + Send + Sync>(
        &self,
        stream: &Stream,
        handover: Handover,
        owner: O,
    ) -> Result<Imported, Rejected<O>> {
        self.lend(stream, handover, 1, false, owner)
    }

    /// The array and its mask, if it has one, as memory for work on `stream`: as
    /// [`import_untyped`](Self::import_untyped), for those who honour masks. [`Imported::mask`] is
    /// that.
    ///
    /// A mask that names another stream than the array does is put in order with that one too: by
    /// events, where the array is worked on in its producer's.
    ///
    /// # Errors
    /// As for `import_untyped`; and those of the mask, which is looked at as the array is.
    ///
    /// # Safety
    /// As for `import_untyped`, of the mask as well.
    #[doc(alias = "__cuda_array_interface__")]
    pub unsafe fn import_masked<O: Any + Send + Sync>(
        &self,
        stream: &Stream,
        handover: Handover,
        owner: O,
    ) -> Result<Imported, Rejected<O>> {
        self.lend(stream, handover, 1, true, owner)
    }

    /// What the promises of `import` are about; elements are to begin at multiples of `align`.
    fn lend<O: Any + Send + Sync>(
        &self,
        stream: &Stream,
        handover: Handover,
        align: usize,
        masks: bool,
        owner: O,
    ) -> Result<Imported, Rejected<O>> {
        let found = || -> Result<_> {
            if self.mask().is_some() && !masks {
                return Err(refused("mask", "masked arrays are taken by import_masked").into());
            }
            if handover == Handover::Synchronize {
                // The stream may have to wait for this host function.
                refuse_inside()?;
            }
            let theirs = match handover {
                Handover::OnProducersStream => self.producers_stream(stream)?,
                _ => None,
            };
            let address = self.place(stream.context(), align)?;
            let (home, end) = match &theirs {
                Some(theirs) => (theirs, End::Nothing),
                None => (stream, self.take_over(stream, handover)?),
            };
            let mask = self.mask().map(|mask| {
                let address = mask.place(home.context(), 1)?;
                // As by events, if it is of another stream than the array is worked on in.
                let end = mask.take_over(home, handover)?;
                Ok::<_, Error>((mask, Found { address, end }))
            });
            let mask = mask.transpose()?;
            Ok((theirs, Found { address, end }, mask))
        };
        let (theirs, array, mask) = match found() {
            Ok(found) => found,
            Err(error) => return Err(Rejected::new(error, owner)),
        };
        let owner: Arc<dyn Any + Send + Sync> = Arc::new(owner);
        let stream = match theirs {
            // Alive for as long as the owner is.
            Some(theirs) => Stream::leased(&theirs, Arc::clone(&owner)),
            None => stream.clone(),
        };
        let lent = |of: &Self, found: Found, mask| Imported {
            address: found.address,
            dtype: of.dtype().clone(),
            layout: of.layout().clone(),
            read_only: of.is_read_only(),
            lent: Lent {
                stream: stream.clone(),
                end: found.end,
                owner: Arc::clone(&owner),
            },
            mask,
        };
        let mask = mask.map(|(mask, found)| Box::new(lent(mask, found, None)));
        Ok(lent(self, array, mask))
    }

    /// How many elements of that type there are, one behind the other.
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
                let problem = format!("{:?} are not C-contiguous", layout.strides());
                Err(refused("strides", problem))
            }
        }
    }

    /// The producer's stream, if it names one that is no default stream and another than one's own. It is
    /// not kept alive here.
    fn producers_stream(&self, stream: &Stream) -> Result<Option<Stream>> {
        let Some(exported @ ExportedStream::Handle(_)) = self.stream() else {
            return Ok(None);
        };
        let raw = exported.raw()?;
        if raw == stream.raw() {
            return Ok(None);
        }
        // SAFETY: it is alive for as long as the owner is, as the caller of `import` promised, and
        // whoever gets this keeps that.
        let theirs = unsafe { Stream::borrow_checked(raw, stream.context()) }?;
        drop(theirs.uncaptured(Operation::Wait)?);
        Ok(Some(theirs))
    }

    /// Puts what `stream` is given from now on behind the producer's work.
    fn take_over(&self, stream: &Stream, handover: Handover) -> Result<End> {
        drop(stream.uncaptured(Operation::Wait)?);
        if handover == Handover::Ignore {
            return Ok(End::Nothing);
        }
        let Some(exported) = self.stream() else {
            // The producer is done; but there is no stream of its to come behind at the end.
            return Ok(End::Wait);
        };
        let context = stream.context();
        let (raw, is_default) = (exported.raw()?, exported.is_default());
        if raw == stream.raw() {
            return Ok(End::Nothing);
        }
        if handover == Handover::Synchronize {
            let wait = || {
                // SAFETY: the stream is alive, as the caller of `import` promised, or a default one
                // of the current context.
                unsafe { call!(cuStreamSynchronize(raw)) }
            };
            in_context(context, is_default, wait)?;
            return Ok(End::Wait);
        }
        let (begin, end) = (context.event()?, context.event()?);
        let theirs = ForeignStream::new(raw);
        {
            // SAFETY: as above.
            let _call = unsafe { theirs.uncaptured(Operation::Record, context) }?;
            in_context(context, is_default, || {
                // SAFETY: as above; the event is alive.
                unsafe { call!(cuEventRecord(begin.raw(), raw)) }
            })?;
        }
        stream.wait_private(&begin)?;
        Ok(match exported {
            // At the end it may be another thread's.
            ExportedStream::PerThread => End::Wait,
            _ => End::Event(end, theirs),
        })
    }
}

/// Makes a call with the context current, if it is of a default stream, which is another one in each.
fn in_context(
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
    /// The address of the first element on the device; 0 if there is none.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// What the elements are said to be.
    pub fn dtype(&self) -> &Dtype {
        &self.dtype
    }

    /// Where they lie, from the first on.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether it must not be written.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Which elements are valid: an array of its own, in the order of the same stream, whose shape can
    /// be broadcast to this one's, and whose elements are read as true or not. Of
    /// [`ArrayInterface::import_masked`]; [`mask_view`](Self::mask_view) is the usual way to read it.
    pub fn mask(&self) -> Option<&Self> {
        self.mask.as_deref()
    }

    pub(super) fn check_writable(&self) -> Result<(), Invalid> {
        match self.read_only {
            true => Err(refused("data", "the array is read-only")),
            false => Ok(()),
        }
    }

    /// The stream that work on it runs on.
    pub fn stream(&self) -> &Stream {
        &self.lent.stream
    }
}

impl<T> ImportedArray<T> {
    /// The memory, to read.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.whole.address, self.len, self.stream())
    }

    /// The memory, to read and write.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if the producer says that it is read-only.
    pub fn as_mut_slice(&mut self) -> Result<DeviceSliceMut<'_, T>> {
        self.whole.check_writable()?;
        Ok(DeviceSliceMut::new(
            self.whole.address,
            self.len,
            self.stream(),
        ))
    }

    /// The same without a type.
    pub fn as_untyped(&self) -> &Imported {
        &self.whole
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it must not be written.
    pub fn is_read_only(&self) -> bool {
        self.whole.read_only
    }

    /// The stream that work on it runs on.
    pub fn stream(&self) -> &Stream {
        self.whole.stream()
    }
}

impl<T: Element> DeviceBuffer<T> {
    /// The buffer for others, as an array of one dimension: with its stream, which all work on it is in.
    ///
    /// Whoever takes it has to be done, or in order behind that stream, before the buffer is used
    /// again or dropped here; the interface keeps neither alive.
    ///
    /// Memory of a pool becomes accessible to the other devices: [`grant_peer_access`](super::grant_peer_access).
    ///
    /// # Errors
    /// The length is more than can be addressed; those of the driver, on a machine with several devices.
    #[doc(alias = "__cuda_array_interface__")]
    pub fn array_interface(&self) -> Result<ArrayInterface> {
        let layout = Layout::c_contiguous(&[self.len()], size_of::<T>())?;
        let array = ArrayInterface::new(type_of::<T>()?, layout, self.as_raw())?;
        // SAFETY: the buffer is borrowed.
        unsafe { grant_for_export(self.stream().context(), self.as_raw()) }?;
        Ok(array.with_stream(Some(ExportedStream::of(self.stream()))))
    }
}

impl<'a, T> From<&'a ImportedArray<T>> for DeviceSlice<'a, T> {
    fn from(array: &'a ImportedArray<T>) -> Self {
        array.as_slice()
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        let stream = &self.lent.stream;
        match &self.lent.end {
            End::Nothing => {}
            End::Event(end, home) => {
                let reads = Resource::Reads {
                    end: end.raw(),
                    stream: stream.raw(),
                    home: home.raw(),
                };
                release(reads, &self.lent);
            }
            End::Wait => {
                if let Err(error) = stream.wait_for_work() {
                    // Nobody knows when the producer may go on: it keeps what it lent for ever.
                    std::mem::forget(self.lent.clone());
                    report(&Report::Leaked {
                        what: "an imported array that work may still use",
                        error,
                    });
                }
            }
        }
    }
}

impl Parent for Lent {
    fn context(&self) -> Option<&Context> {
        Some(self.stream.context())
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(self.clone())
    }

    fn is_borrowed(&self) -> bool {
        self.stream.is_borrowed()
    }

    fn ordered_on(&self) -> [Option<OrderedOn<'_>>; 2] {
        let home = match &self.end {
            End::Event(_, home) => Some(OrderedOn::Foreign(home)),
            End::Nothing | End::Wait => None,
        };
        [Some(OrderedOn::Stream(&self.stream)), home]
    }
}

impl fmt::Debug for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Imported")
            .field("address", &format_args!("{:#x}", self.address))
            .field("dtype", &format_args!("{}", self.dtype))
            .field("layout", &self.layout)
            .field("read_only", &self.read_only)
            .field("stream", self.stream())
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for ImportedArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportedArray")
            .field("slice", &self.as_slice())
            .field("read_only", &self.is_read_only())
            .finish_non_exhaustive()
    }
}
