//! The contents of `__cuda_array_interface__`.

use super::dtype::{DescrEntry, Dtype};
use super::layout::Layout;
use super::refused;
use super::stream::ExportedStream;
use crate::call::{Invalid, refuse_if};

/// The keys of a `__cuda_array_interface__` without any checks. A field is `None` if the key is
/// missing or `None`.
///
/// ```
/// use cuda_safe::interop::{RawInterface, ReadOptions};
///
/// let raw = RawInterface {
///     version: Some(3),
///     shape: Some(vec![2, 3]),
///     typestr: Some("<f4".to_owned()),
///     data: Some((0x7f00_0000_0000, false)),
///     stream: Some(1),
///     ..RawInterface::default()
/// };
/// let array = raw.check(ReadOptions::default())?;
/// assert!(array.layout().is_c_contiguous());
/// assert_eq!(array.layout().strides(), [12, 4]);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the keys")]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct RawInterface {
    pub version: Option<i128>,
    pub shape: Option<Vec<i128>>,
    pub typestr: Option<String>,
    pub descr: Option<Vec<DescrEntry>>,
    /// The address, and whether the memory is read-only.
    pub data: Option<(i128, bool)>,
    pub strides: Option<Vec<i128>>,
    pub mask: Option<Box<Self>>,
    pub stream: Option<i128>,
}

/// Options for [`RawInterface::check`].
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReadOptions {
    /// Whether the reader supports masks ([`ArrayInterface::import_masked`]). Otherwise an array
    /// with a mask is refused.
    pub masks: bool,
    /// Whether to ignore the stream. The caller must then order the work by other means. The value
    /// 0, which is otherwise an error, is accepted.
    pub ignore_stream: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// A checked description of an array in memory that a device can access, as in the CUDA Array
/// Interface.
///
/// It does not own the memory. The interface does not tell who owns it, or how long it stays valid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "RawInterface", into = "RawInterface"))]
pub struct ArrayInterface {
    version: u32,
    dtype: Dtype,
    layout: Layout,
    address: u64,
    read_only: bool,
    mask: Option<Box<Self>>,
    stream: Option<ExportedStream>,
}

/// The newest version, which is used for writing.
const VERSION: u32 = 3;

impl RawInterface {
    /// Checks the interface according to the rules of its version: `mask` has a meaning since
    /// version 1, `stream` since version 3. A version above 3 is read as version 3, as other
    /// consumers do.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] with the key that is missing or invalid. This includes a mask
    /// unless `options.masks` is set, and the stream 0 unless `options.ignore_stream` is set.
    #[inline]
    pub fn check(&self, options: ReadOptions) -> Result<ArrayInterface, Invalid> {
        let version = self.version.ok_or_else(|| missing("version"))?;
        let version = u32::try_from(version)
            .map_err(|_| refused("version", format!("{version} is not a version")))?;
        let dtype = {
            let typestr = self.typestr.as_deref().ok_or_else(|| missing("typestr"))?;
            Dtype::read(typestr, self.descr.as_deref())?
        };
        let layout = self.layout(dtype.item_size())?;
        let (address, read_only) = self.data.ok_or_else(|| missing("data"))?;
        let address = u64::try_from(address)
            .map_err(|_| refused("data", format!("{address} is not an address")))?;
        if address == 0 && !layout.is_empty() {
            let problem =
                format!("the address is 0, but the shape {:?} is not empty", layout.shape());
            return Err(refused("data", problem));
        }
        if !layout.fits_at(address) {
            let problem = format!("the array at {address:#x} exceeds the address space");
            return Err(refused("data", problem));
        }
        let stream = match self.stream {
            Some(0) if options.ignore_stream => None,
            Some(number) if version >= 3 => Some(ExportedStream::from_number(number)?),
            _ => None,
        };
        Ok(ArrayInterface {
            version,
            mask: self.mask(version, &layout, options)?,
            dtype,
            layout,
            address,
            read_only,
            stream: stream.filter(|_| !options.ignore_stream),
        })
    }

    #[inline]
    fn layout(&self, item_size: usize) -> Result<Layout, Invalid> {
        let shape = self.shape.as_ref().ok_or_else(|| missing("shape"))?;
        Layout::from_signed(shape, self.strides.as_deref(), 1, item_size)
    }

    #[inline]
    fn mask(
        &self,
        version: u32,
        layout: &Layout,
        options: ReadOptions,
    ) -> Result<Option<Box<ArrayInterface>>, Invalid> {
        let mask = match &self.mask {
            Some(mask) if version >= 1 => mask,
            _ => return Ok(None),
        };
        if !options.masks {
            return Err(refused("mask", "masked arrays are not supported by this reader"));
        }
        refuse_if!(mask.mask.is_some(), refused("mask", "the mask has a mask"));
        let mask = mask.check(options)?;
        let (mask_shape, shape) = (mask.layout.shape(), layout.shape());
        let matches = |(mask, array): (&usize, &usize)| mask == array || *mask == 1;
        let broadcasts = mask_shape.len() <= shape.len()
            && mask_shape.iter().rev().zip(shape.iter().rev()).all(matches);
        if !broadcasts {
            return Err(refused(
                "mask",
                format!("the shape {mask_shape:?} of the mask cannot be broadcast to {shape:?}"),
            ));
        }
        Ok(Some(Box::new(mask)))
    }
}

#[inline]
fn missing(key: &'static str) -> Invalid {
    refused(key, "the key is missing")
}

impl ArrayInterface {
    /// Creates a writable array for export.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if the element sizes of `dtype` and `layout` differ, or if the
    /// address is 0 and the array is not empty.
    pub fn new(dtype: impl Into<Dtype>, layout: Layout, address: u64) -> Result<Self, Invalid> {
        let dtype = dtype.into();
        if dtype.item_size() != layout.item_size() {
            return Err(refused(
                "typestr",
                format!(
                    "the elements have {} bytes, but those of the layout {}",
                    dtype.item_size(),
                    layout.item_size()
                ),
            ));
        }
        if address == 0 && !layout.is_empty() {
            return Err(refused("data", "the address is 0, but the shape is not empty"));
        }
        Ok(Self {
            version: VERSION,
            dtype,
            layout,
            address,
            read_only: false,
            mask: None,
            stream: None,
        })
    }

    /// Marks the array as read-only.
    #[must_use]
    #[inline]
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// Sets the stream with which consumers must order their work. `None` means that there is no
    /// work to wait for.
    #[must_use]
    #[inline]
    pub fn with_stream(self, stream: Option<ExportedStream>) -> Self {
        Self { stream, ..self }
    }

    /// Sets a mask. Its shape must be that of the array, or be broadcastable to it.
    #[must_use]
    #[inline]
    pub fn with_mask(self, mask: Option<Self>) -> Self {
        Self { mask: mask.map(Box::new), ..self }
    }

    /// Returns the version of the interface from which it was read. It may be newer than version 3,
    /// the newest one that this crate knows.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the type of the elements.
    #[inline]
    pub fn dtype(&self) -> &Dtype {
        &self.dtype
    }

    /// Returns the arrangement of the elements, relative to the address.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the address of the first element. The value has no meaning for an empty array.
    #[inline]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns whether the array must not be written.
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Returns the mask, which marks the valid elements.
    #[inline]
    pub fn mask(&self) -> Option<&Self> {
        self.mask.as_deref()
    }

    /// Returns the stream with which a consumer must order its work. `None` means that there is no
    /// work to wait for, or that the stream was ignored when reading.
    #[inline]
    pub fn stream(&self) -> Option<ExportedStream> {
        self.stream
    }

    /// Returns the interface in version 3 for export. C-contiguous arrays have no strides, and
    /// empty arrays have the address 0.
    #[inline]
    pub fn to_raw(&self) -> RawInterface {
        let is_plain = self.layout.is_c_contiguous();
        let widened = |stride: &isize| *stride as i128;
        RawInterface {
            version: Some(VERSION.into()),
            shape: Some(self.layout.shape().iter().map(|extent| *extent as i128).collect()),
            typestr: Some(self.dtype.typestr()),
            descr: self.dtype.descr(),
            data: Some(match self.layout.is_empty() {
                true => (0, self.read_only),
                false => (self.address.into(), self.read_only),
            }),
            strides: (!is_plain).then(|| self.layout.strides().iter().map(widened).collect()),
            mask: self.mask.as_ref().map(|mask| Box::new(mask.to_raw())),
            stream: self.stream.map(|stream| stream.number().into()),
        }
    }
}
