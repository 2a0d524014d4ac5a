//! Multidimensional arrays in device memory.
//!
//! A contiguous array is copied like a slice. Another array is copied as a two- or
//! three-dimensional region with one driver call; an array that cannot be described as such a
//! region is refused.

use super::address::grant_for_export;
use super::import::{Element, Imported, type_of};
use super::layout::{Index, no_view, regions};
use super::{ArrayInterface, Dtype, ExportedStream, ImportedArray, Kind, Layout};
use crate::call::{Invalid, Result, convert, debug};
use crate::launch::{Argument, LaunchArgument, sealed};
use crate::memory::{DeviceSlice, DeviceSliceMut};
use crate::stream::Stream;
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_sys::CUdeviceptr;
use std::fmt;
use std::marker::PhantomData;

/// A read-only array in borrowed device memory, whose elements are arranged according to a
/// [`Layout`].
///
/// Views of the same elements ([`index`](Self::index), [`transposed`](Self::transposed),
/// [`broadcast_to`](Self::broadcast_to), [`reshaped`](Self::reshaped)) are created without a driver
/// call. Like the memory, the view is bound to a stream. As a kernel argument, by reference, it
/// passes the address of its first element; the strides must be passed as separate arguments.
///
/// ```no_run
/// use cuda_safe::interop::{ArrayView, Index};
/// use cuda_safe::{Context, Device, DeviceBuffer};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// let buffer = DeviceBuffer::from_slice(&stream, &[0, 1, 2, 10, 11, 12])?;
/// let array = ArrayView::new(&buffer, &[2, 3])?;
/// let column = array.index(&[Index::ALL, Index::At(-1)])?;
/// assert_eq!((column.layout().shape(), column.to_vec()?), (&[2][..], vec![2, 12]));
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct ArrayView<'a, T> {
    /// The address of the first element.
    address: u64,
    layout: Layout,
    stream: &'a Stream,
    elements: PhantomData<&'a T>,
}

/// A writable array in mutably borrowed device memory, like [`ArrayView`]. Its elements do not
/// overlap.
///
/// ```no_run
/// use cuda_safe::interop::{ArrayViewMut, Index};
/// use cuda_safe::{Context, Device, DeviceBuffer};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 6)?;
/// let array = ArrayViewMut::new(&mut buffer, &[2, 3])?;
/// let mut column = array.index(&[Index::ALL, Index::At(1)])?;
/// column.fill(7)?;
/// assert_eq!(buffer.to_vec()?, [0, 7, 0, 0, 7, 0]);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct ArrayViewMut<'a, T> {
    view: ArrayView<'a, T>,
    elements: PhantomData<&'a mut T>,
}

/// Returns the address of an array's first element in memory with `len` elements of `T` at `start`.
fn address_of_first<T>(
    start: u64,
    len: usize,
    first: usize,
    layout: &Layout,
) -> Result<u64, Invalid> {
    check_elements::<T>(layout)?;
    if layout.is_empty() {
        return Ok(start);
    }
    let (memory_bytes, range) = ((len * size_of::<T>()) as i128, layout.byte_range());
    let first = first as i128 * size_of::<T>() as i128;
    let is_within = first + range.start as i128 >= 0 && first + range.end as i128 <= memory_bytes;
    match u64::try_from(first) {
        Ok(first) if is_within => Ok(start + first),
        _ => {
            let problem = format!(
                "{:?} with strides {:?} goes beyond {len} elements of {} bytes",
                layout.shape(),
                layout.strides(),
                size_of::<T>()
            );
            Err(no_view("memory", problem))
        }
    }
}

/// Checks that elements in the layout can have the type `T`: that the size is equal, and that all
/// elements are aligned if the first one is.
fn check_elements<T>(layout: &Layout) -> Result<(), Invalid> {
    if layout.item_size() != size_of::<T>() {
        let problem = format!("of {} bytes, not {}", size_of::<T>(), layout.item_size());
        return Err(no_view("elements", problem));
    }
    let align = align_of::<T>() as isize;
    let mut strides = layout.shape().iter().zip(layout.strides());
    let misaligned = strides.find(|(extent, stride)| **extent > 1 && **stride % align != 0);
    match misaligned {
        Some((_, stride)) if !layout.is_empty() => {
            let problem = format!("{stride} bytes apart, not aligned to {align}");
            Err(no_view("elements", problem))
        }
        _ => Ok(()),
    }
}

/// Checks for writable arrays that no two elements overlap.
#[inline]
fn check_no_overlap(layout: &Layout) -> Result<(), Invalid> {
    if layout.may_overlap_itself() {
        let problem = format!(
            "{:?} with strides {:?} may have elements that overlap, which cannot be written",
            layout.shape(),
            layout.strides()
        );
        return Err(no_view("elements", problem));
    }
    Ok(())
}

impl<'a, T> ArrayView<'a, T> {
    /// Creates a C-contiguous array from all of the memory.
    ///
    /// # Errors
    /// [`Invalid::View`] if the shape has a different number of elements.
    pub fn new(memory: impl Into<DeviceSlice<'a, T>>, shape: &[usize]) -> Result<Self> {
        let memory = memory.into();
        Self::with_layout(memory, 0, layout_of_whole::<T>(shape, memory.len())?)
    }

    /// Creates an array whose first element is element `first` of the memory.
    ///
    /// # Errors
    /// [`Invalid::View`] if an element is not within the memory or not aligned, or if the element
    /// sizes differ.
    pub fn with_layout(
        memory: impl Into<DeviceSlice<'a, T>>,
        first: usize,
        layout: Layout,
    ) -> Result<Self> {
        let memory = memory.into();
        let address = address_of_first::<T>(memory.as_raw(), memory.len(), first, &layout)?;
        Ok(Self::from_parts(address, layout, memory.stream()))
    }

    /// Creates an array of elements that are valid for `'a`.
    fn from_parts(address: u64, layout: Layout, stream: &'a Stream) -> Self {
        Self { address, layout, stream, elements: PhantomData }
    }

    /// Creates an array in the same memory with another layout of the same elements.
    fn with_layout_of_same_elements(&self, layout: Layout) -> Self {
        Self::from_parts(self.address, layout, self.stream)
    }

    /// Returns a view of a part, with one index per dimension. See [`Layout::index`].
    ///
    /// # Errors
    /// See [`Layout::index`].
    pub fn index(&self, indices: &[Index]) -> Result<Self> {
        let (offset, layout) = self.layout.index(indices)?;
        // Within the memory, as the array is.
        let address = self.address.wrapping_add_signed(offset as i64);
        Ok(Self::from_parts(address, layout, self.stream))
    }

    /// Returns a view with reversed dimensions.
    #[must_use]
    pub fn transposed(&self) -> Self {
        self.with_layout_of_same_elements(self.layout.clone().transposed())
    }

    /// Returns a view with permuted dimensions. See [`Layout::permuted`].
    ///
    /// # Errors
    /// See [`Layout::permuted`].
    pub fn permuted(&self, order: &[usize]) -> Result<Self> {
        Ok(self.with_layout_of_same_elements(self.layout.permuted(order)?))
    }

    /// Returns a view that repeats the array to another shape. See [`Layout::broadcast_to`].
    ///
    /// # Errors
    /// See [`Layout::broadcast_to`].
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Self> {
        Ok(self.with_layout_of_same_elements(self.layout.broadcast_to(shape)?))
    }

    /// Returns a view with another shape, if this is possible without a copy. See
    /// [`Layout::reshaped`].
    ///
    /// # Errors
    /// See [`Layout::reshaped`].
    pub fn reshaped(&self, shape: &[usize]) -> Result<Self> {
        Ok(self.with_layout_of_same_elements(self.layout.reshaped(shape)?))
    }

    /// Returns the address of the first element. The value has no meaning for an empty array.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// Returns the arrangement of the elements, relative to the first one.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the stream on which all work on the memory runs.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// Returns the elements as a slice, if they are C-contiguous.
    pub fn as_slice(&self) -> Option<DeviceSlice<'a, T>> {
        let len = self.layout.len().filter(|_| self.layout.is_c_contiguous())?;
        Some(DeviceSlice::new(self.address, len, self.stream))
    }
}

impl<T: Element> ArrayViewMut<'_, T> {
    /// Exports the array with the stream on which all work on it runs. See
    /// [`DeviceBuffer::array_interface`](crate::DeviceBuffer::array_interface).
    ///
    /// # Errors
    /// See [`ArrayInterface::new`]; on a machine with several devices, also an error of the driver.
    #[doc(alias = "__cuda_array_interface__")]
    pub fn array_interface(&mut self) -> Result<ArrayInterface> {
        self.view.interface()
    }
}

impl<T: Element> ArrayView<'_, T> {
    /// Exports the array as read-only, with the stream on which all work on it runs. See
    /// [`DeviceBuffer::array_interface`](crate::DeviceBuffer::array_interface).
    ///
    /// # Errors
    /// See [`ArrayInterface::new`]; on a machine with several devices, also an error of the driver.
    #[doc(alias = "__cuda_array_interface__")]
    pub fn array_interface(&self) -> Result<ArrayInterface> {
        Ok(self.interface()?.read_only())
    }

    fn interface(&self) -> Result<ArrayInterface> {
        let array = ArrayInterface::new(type_of::<T>()?, self.layout.clone(), self.address)?;
        if !self.layout.is_empty() {
            // SAFETY: the view borrows its memory.
            unsafe { grant_for_export(self.stream.context(), self.address) }?;
        }
        Ok(array.with_stream(Some(ExportedStream::of(self.stream))))
    }
}

impl<'a, T> ArrayViewMut<'a, T> {
    /// Creates a C-contiguous array from all of the memory.
    ///
    /// # Errors
    /// [`Invalid::View`] if the shape has a different number of elements.
    pub fn new(memory: impl Into<DeviceSliceMut<'a, T>>, shape: &[usize]) -> Result<Self> {
        let memory = memory.into();
        let layout = layout_of_whole::<T>(shape, memory.len())?;
        Self::with_layout(memory, 0, layout)
    }

    /// Creates an array whose first element is element `first` of the memory.
    ///
    /// # Errors
    /// [`Invalid::View`] if an element is not within the memory or not aligned, if the element
    /// sizes differ, or if elements may overlap.
    pub fn with_layout(
        memory: impl Into<DeviceSliceMut<'a, T>>,
        first: usize,
        layout: Layout,
    ) -> Result<Self> {
        let memory = memory.into();
        check_no_overlap(&layout)?;
        let address = address_of_first::<T>(memory.as_raw(), memory.len(), first, &layout)?;
        Ok(Self::from_view(ArrayView::from_parts(address, layout, memory.stream())))
    }

    /// Wraps elements that are borrowed exclusively and do not overlap.
    fn from_view(view: ArrayView<'a, T>) -> Self {
        Self { view, elements: PhantomData }
    }

    /// Returns a view of a part, with one index per dimension. See [`Layout::index`].
    ///
    /// # Errors
    /// See [`Layout::index`].
    pub fn index(self, indices: &[Index]) -> Result<Self> {
        Ok(Self::from_view(self.view.index(indices)?))
    }

    /// Splits the array along a dimension into the parts before and from `middle`.
    ///
    /// # Errors
    /// [`Invalid::View`] if the dimension does not exist, or if `middle` is greater than its
    /// extent.
    pub fn split_at(self, dimension: usize, middle: usize) -> Result<(Self, Self)> {
        let extent = self.layout().shape().get(dimension);
        let middle = match (extent, isize::try_from(middle)) {
            (Some(extent), Ok(signed)) if middle <= *extent => signed,
            _ => {
                let problem =
                    format!("{middle} in dimension {dimension} of {:?}", self.layout().shape());
                return Err(no_view("split", problem).into());
            }
        };
        let part = |range: Index| {
            let mut indices = vec![Index::ALL; dimension];
            indices.push(range);
            self.view.index(&indices)
        };
        Ok((Self::from_view(part((..middle).into())?), Self::from_view(part((middle..).into())?)))
    }

    /// Returns a view with reversed dimensions.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self::from_view(self.view.transposed())
    }

    /// Returns a view with permuted dimensions. See [`Layout::permuted`].
    ///
    /// # Errors
    /// See [`Layout::permuted`].
    pub fn permuted(self, order: &[usize]) -> Result<Self> {
        Ok(Self::from_view(self.view.permuted(order)?))
    }

    /// Returns a view with another shape, if this is possible without a copy. See
    /// [`Layout::reshaped`].
    ///
    /// # Errors
    /// See [`Layout::reshaped`].
    pub fn reshaped(self, shape: &[usize]) -> Result<Self> {
        Ok(Self::from_view(self.view.reshaped(shape)?))
    }

    /// Returns the array for reading.
    pub(crate) fn view(&self) -> &ArrayView<'a, T> {
        &self.view
    }

    /// Borrows the array for reading.
    pub fn as_view(&self) -> ArrayView<'_, T> {
        self.view.with_layout_of_same_elements(self.view.layout.clone())
    }

    /// Borrows the array mutably.
    pub fn reborrow(&mut self) -> ArrayViewMut<'_, T> {
        ArrayViewMut::from_view(self.view.with_layout_of_same_elements(self.view.layout.clone()))
    }

    /// Returns the address of the first element. The value has no meaning for an empty array.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.view.address
    }

    /// Returns the arrangement of the elements, relative to the first one.
    pub fn layout(&self) -> &Layout {
        &self.view.layout
    }

    /// Returns the stream on which all work on the memory runs.
    pub fn stream(&self) -> &'a Stream {
        self.view.stream
    }

    /// Returns the elements as a slice, if they are C-contiguous.
    pub fn as_mut_slice(&mut self) -> Option<DeviceSliceMut<'_, T>> {
        let slice = self.view.as_slice()?;
        Some(DeviceSliceMut::new(slice.as_raw(), slice.len(), self.stream()))
    }
}

impl Imported {
    /// Returns a view for reading.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if the interface names another type; [`Invalid::View`] if the
    /// elements are not aligned for `T`.
    pub fn view<T: Element>(&self) -> Result<ArrayView<'_, T>> {
        let expected = type_of::<T>()?;
        if *self.dtype() != Dtype::Plain(expected) {
            let problem = format!("{} where {expected} is expected", self.dtype());
            return Err(super::refused("typestr", problem).into());
        }
        self.view_bits()
    }

    /// Returns a view for reading, with the bits interpreted as elements of another type of the
    /// same size: for example a record (`#[repr(C)]`, with bytemuck's derive), `half::f16`, or `u8`
    /// for `bool`. [`dtype`](Self::dtype) returns their meaning and byte order.
    ///
    /// # Errors
    /// [`Invalid::View`] if the elements have another size than `T`, or are not aligned for it.
    ///
    /// ```no_run
    /// use cuda_safe::interop::Imported;
    ///
    /// # fn look(imported: &Imported) -> cuda_safe::Result<()> {
    /// // For `bool`, every value except 0 is true.
    /// let valid = imported.view_bits::<u8>()?.to_vec()?;
    /// println!("{} are", valid.iter().filter(|its| **its != 0).count());
    /// # Ok(())
    /// # }
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn view_bits<T: AnyBitPattern>(&self) -> Result<ArrayView<'_, T>> {
        check_elements::<T>(self.layout())?;
        if self.as_raw() % align_of::<T>() as u64 != 0 {
            let ty = std::any::type_name::<T>();
            let problem = format!("at {:#x}, not aligned for {ty}", self.as_raw());
            return Err(no_view("elements", problem).into());
        }
        Ok(ArrayView::from_parts(self.as_raw(), self.layout().clone(), self.stream()))
    }

    /// Returns the mask as a view with the shape of the array. Nonzero elements mark the valid
    /// elements. Returns `None` if the array has no [mask](Self::mask).
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if the mask's elements are not bytes (`bool` or 8-bit integers).
    /// Use `mask().view()` to read such a mask.
    #[inline]
    pub fn mask_view(&self) -> Result<Option<ArrayView<'_, u8>>> {
        let Some(mask) = self.mask() else { return Ok(None) };
        let is_bytes = match mask.dtype() {
            Dtype::Plain(ty) => {
                ty.item_size() == 1 && matches!(ty.kind(), Kind::Bool | Kind::Int | Kind::Uint)
            }
            Dtype::Record(_) => false,
        };
        if !is_bytes {
            let problem = format!("the elements are {}, not bytes", mask.dtype());
            return Err(super::refused("mask", problem).into());
        }
        let bytes = ArrayView::from_parts(mask.as_raw(), mask.layout().clone(), mask.stream());
        Ok(Some(bytes.broadcast_to(self.layout().shape())?))
    }

    /// Returns a view for reading and writing.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if the interface names another type, or if the producer marked
    /// the array as read-only; [`Invalid::View`] if the elements may overlap, or are not aligned
    /// for `T`.
    pub fn view_mut<T: Element>(&mut self) -> Result<ArrayViewMut<'_, T>> {
        self.check_writable()?;
        check_no_overlap(self.layout())?;
        Ok(ArrayViewMut::from_view(self.view()?))
    }

    /// Returns a view for reading and writing, like [`view_bits`](Self::view_bits).
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if the producer marked the array as read-only; [`Invalid::View`]
    /// if the elements have another size than `T`, are not aligned for it, or may overlap.
    pub fn view_bits_mut<T: AnyBitPattern + NoUninit>(&mut self) -> Result<ArrayViewMut<'_, T>> {
        self.check_writable()?;
        check_no_overlap(self.layout())?;
        Ok(ArrayViewMut::from_view(self.view_bits()?))
    }
}

/// Returns the C-contiguous layout of all `len` elements.
fn layout_of_whole<T>(shape: &[usize], len: usize) -> Result<Layout> {
    let layout = Layout::c_contiguous(shape, size_of::<T>())?;
    if layout.len() != Some(len) {
        let problem = format!("{shape:?} for {len} elements");
        return Err(no_view("shape", problem).into());
    }
    Ok(layout)
}

impl<T> Clone for ArrayView<'_, T> {
    fn clone(&self) -> Self {
        self.with_layout_of_same_elements(self.layout.clone())
    }
}

convert! { ['a, T] |view: ArrayViewMut<'a, T>| -> ArrayView<'a, T> { view.view } }

debug! { [T] ArrayView<'_, T> |its, f| debug("ArrayView", its, f) }

debug! { [T] ArrayViewMut<'_, T> |its, f| debug("ArrayViewMut", &its.view, f) }

fn debug<T>(name: &str, view: &ArrayView<'_, T>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_struct(name)
        .field("address", &format_args!("{:#x}", view.address))
        .field("layout", &view.layout)
        .field("element", &std::any::type_name::<T>())
        .field("stream", view.stream)
        .finish()
}

/// Returns the contiguous layout of an array on the host.
#[inline]
fn host_layout(layout: &Layout, len: usize) -> Result<Layout> {
    if layout.len() != Some(len) {
        let problem = format!("{len} elements on the host for {:?}", layout.shape());
        return Err(no_view("copy", problem).into());
    }
    Ok(Layout::c_contiguous(layout.shape(), layout.item_size())?)
}

impl<'a, T> ArrayView<'a, T> {
    /// Returns the memory from the first element to the last, including gaps, which may belong to
    /// others. It is only used for strided copies, which skip the gaps. No stride is negative here.
    fn span(&self) -> DeviceSlice<'a, T> {
        let end = usize::try_from(self.layout().byte_range().end).unwrap_or(0);
        let len = end.checked_div(size_of::<T>()).unwrap_or(0);
        DeviceSlice::new(self.as_raw(), len, self.stream())
    }
}

impl<T: AnyBitPattern> ArrayView<'_, T> {
    /// Copies the elements to `slice`. Blocks the host until the copy and all earlier work on the
    /// stream have completed.
    ///
    /// The elements are in the order of the array, in which the last dimension varies fastest.
    /// Calls [`DeviceSlice::copy_to_slice`] or [`DeviceSlice::copy_3d_to_slice`].
    ///
    /// # Errors
    /// See these functions. Also [`Invalid::View`](crate::Invalid::View) if the numbers of elements
    /// differ, or if the driver cannot copy these strides with one call.
    pub fn copy_to_slice(&self, slice: &mut [T]) -> Result<()> {
        let host = host_layout(self.layout(), slice.len())?;
        if let Some(elements) = self.as_slice() {
            return elements.copy_to_slice(slice);
        }
        let (extent, [from, to]) = regions([self.layout(), &host])?;
        self.span().copy_3d_to_slice(extent, from, slice, to)
    }

    /// Copies the elements to a vector, in the order of the array. Blocks the host until the copy
    /// and all earlier work on the stream have completed.
    ///
    /// # Errors
    /// See [`copy_to_slice`](Self::copy_to_slice). Also [`Invalid::View`](crate::Invalid::View) if
    /// the elements exceed the address space.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let len = self.layout().len().filter(|len| {
            let bytes = len.checked_mul(size_of::<T>());
            bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok())
        });
        let len = len.ok_or_else(|| {
            let problem = format!("{:?} is more than can be addressed", self.layout().shape());
            no_view("copy", problem)
        })?;
        let mut elements = vec![T::zeroed(); len];
        self.copy_to_slice(&mut elements)?;
        Ok(elements)
    }
}

impl<T> ArrayViewMut<'_, T> {
    /// Returns the memory from the first element to the last, including gaps.
    fn span(&mut self) -> DeviceSliceMut<'_, T> {
        let span = self.view().span();
        DeviceSliceMut::new(span.as_raw(), span.len(), self.stream())
    }

    /// Enqueues a copy of an array of the same shape to this array. Does not block the host.
    ///
    /// Calls
    /// [`DeviceSliceMut::copy_from`] or [`DeviceSliceMut::copy_3d_from`].
    ///
    /// # Errors
    /// See these functions. Also [`Invalid::View`](crate::Invalid::View) if the shapes differ, or
    /// if the driver cannot copy these strides with one call.
    pub fn copy_from<'a>(&mut self, source: impl Into<ArrayView<'a, T>>) -> Result<()>
    where
        T: 'a,
    {
        let source = source.into();
        let (source_shape, shape) = (source.layout().shape(), self.layout().shape());
        if source_shape != shape {
            let problem = format!("of {source_shape:?} to {shape:?}");
            return Err(no_view("copy", problem).into());
        }
        if let (Some(mut to), Some(from)) = (self.as_mut_slice(), source.as_slice()) {
            return to.copy_from(from);
        }
        let (extent, [to, from]) = regions([self.layout(), source.layout()])?;
        self.span().copy_3d_from(extent, to, source.span(), from)
    }
}

impl<T: NoUninit> ArrayViewMut<'_, T> {
    /// Copies `slice` to the array. Blocks the host until the copy and all earlier work on the
    /// stream have completed.
    ///
    /// The elements of `slice` are in the order of the array. Calls
    /// [`DeviceSliceMut::copy_from_slice`] or [`DeviceSliceMut::copy_3d_from_slice`].
    ///
    /// # Errors
    /// See these functions. Also [`Invalid::View`](crate::Invalid::View) if the numbers of elements
    /// differ, or if the driver cannot copy these strides with one call.
    pub fn copy_from_slice(&mut self, slice: &[T]) -> Result<()> {
        let host = host_layout(self.layout(), slice.len())?;
        if let Some(mut elements) = self.as_mut_slice() {
            return elements.copy_from_slice(slice);
        }
        let (extent, [to, from]) = regions([self.layout(), &host])?;
        self.span().copy_3d_from_slice(extent, to, slice, from)
    }

    /// Sets all elements to `value` in stream order. Calls [`DeviceSliceMut::fill`] or
    /// [`DeviceSliceMut::fill_3d`].
    ///
    /// # Errors
    /// See these functions. Also [`Invalid::View`](crate::Invalid::View) if the driver cannot fill
    /// these strides.
    pub fn fill(&mut self, value: T) -> Result<()> {
        if let Some(mut elements) = self.as_mut_slice() {
            return elements.fill(value);
        }
        let (extent, [region]) = regions([self.layout()])?;
        self.span().fill_3d(extent, region, value)
    }
}

impl<T: 'static> Argument<&[T]> for &ArrayView<'_, T> {
    #[inline]
    fn bytes(self, index: usize, launch: sealed::Target<'_>) -> Result<CUdeviceptr> {
        address_argument(self, index, launch)
    }
}

impl<T: 'static> Argument<&mut [T]> for &mut ArrayViewMut<'_, T> {
    #[inline]
    fn bytes(self, index: usize, launch: sealed::Target<'_>) -> Result<CUdeviceptr> {
        address_argument(self.view(), index, launch)
    }
}

impl<T: 'static> LaunchArgument for &ArrayView<'_, T> {
    type Param = &'static [T];
}

impl<T: 'static> LaunchArgument for &mut ArrayViewMut<'_, T> {
    type Param = &'static mut [T];
}

impl<T: 'static> LaunchArgument for &ImportedArray<T> {
    type Param = &'static [T];
}

/// Returns the address of the first element.
fn address_argument<T>(
    view: &ArrayView<'_, T>,
    index: usize,
    launch: sealed::Target<'_>,
) -> Result<CUdeviceptr> {
    launch.check_stream(index, view.stream())?;
    Ok(view.as_raw())
}
