//! What an object with `__cuda_array_interface__` says of its array.

use super::dtype::{DescrEntry, Dtype};
use super::layout::Layout;
use super::refused;
use super::stream::ExportedStream;
use crate::invalid::Invalid;

/// `__cuda_array_interface__` as it came, or as it is given out: a field for each key, `None` for one
/// that is absent or `None`.
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
    /// The address, and whether it may only be read.
    pub data: Option<(i128, bool)>,
    pub strides: Option<Vec<i128>>,
    pub mask: Option<Box<Self>>,
    pub stream: Option<i128>,
}

/// How an array interface is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReadOptions {
    /// Whether the reader honours masks ([`ArrayInterface::import_masked`]): otherwise an array with one is
    /// refused.
    pub masks: bool,
    /// Whether to ignore the stream. The caller then orders the work by other means. The value 0, which is
    /// an error otherwise, is accepted.
    pub ignore_stream: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// An array in memory that a device reaches, as the CUDA Array Interface describes it, checked for what
/// cannot be.
///
/// It owns nothing: who has the memory, and for how long, the interface does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(try_from = "RawInterface", into = "RawInterface")
)]
pub struct ArrayInterface {
    version: u32,
    dtype: Dtype,
    layout: Layout,
    address: u64,
    read_only: bool,
    mask: Option<Box<Self>>,
    stream: Option<ExportedStream>,
}

/// The newest version, which is written.
const VERSION: u32 = 3;

impl RawInterface {
    /// Checks the interface by the rules of its version: `mask` has a meaning since version 1, `stream` since
    /// version 3. A version above 3 is read as version 3, as other consumers do.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`], with the key that is missing or wrong; a mask, unless the options say that
    /// it is honoured; the stream 0, unless the options say that the stream is ignored.
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
            .map_err(|_| refused("data", format!("{address} is no address")))?;
        if address == 0 && !layout.is_empty() {
            let problem = format!(
                "the address is 0, and the shape {:?} not empty",
                layout.shape()
            );
            return Err(refused("data", problem));
        }
        let range = layout.byte_range();
        let fits = address.checked_add_signed(range.start as i64).is_some()
            && address.checked_add_signed(range.end as i64).is_some();
        if !fits {
            let problem = format!("from {address:#x} on the array goes beyond all addresses");
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

    fn layout(&self, item_size: usize) -> Result<Layout, Invalid> {
        let shape = self.shape.as_ref().ok_or_else(|| missing("shape"))?;
        let extents: Option<Vec<usize>> = shape
            .iter()
            .map(|extent| usize::try_from(*extent).ok())
            .collect();
        let extents = extents
            .ok_or_else(|| refused("shape", format!("{shape:?} is no shape of an array")))?;
        let Some(strides) = &self.strides else {
            return Layout::c_contiguous(&extents, item_size);
        };
        let steps: Option<Vec<isize>> = strides
            .iter()
            .map(|stride| isize::try_from(*stride).ok())
            .collect();
        let steps = steps.ok_or_else(|| {
            refused(
                "strides",
                format!("{strides:?} go further than can be addressed"),
            )
        })?;
        Layout::strided(&extents, &steps, item_size)
    }

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
            return Err(refused("mask", "masked arrays are not honoured here"));
        }
        if mask.mask.is_some() {
            return Err(refused("mask", "it has a mask itself"));
        }
        let mask = mask.check(options)?;
        let (its, whole) = (mask.layout.shape(), layout.shape());
        let matches = |(extent, of): (&usize, &usize)| extent == of || *extent == 1;
        let broadcasts =
            its.len() <= whole.len() && its.iter().rev().zip(whole.iter().rev()).all(matches);
        if !broadcasts {
            return Err(refused(
                "mask",
                format!("its shape {its:?} cannot be broadcast to {whole:?}"),
            ));
        }
        Ok(Some(Box::new(mask)))
    }
}

fn missing(key: &'static str) -> Invalid {
    refused(key, "it is missing")
}

impl ArrayInterface {
    /// An array to be given out, which may be written.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`]: the sizes of the elements differ; no address for an array that has
    /// elements.
    pub fn new(dtype: impl Into<Dtype>, layout: Layout, address: u64) -> Result<Self, Invalid> {
        let dtype = dtype.into();
        if dtype.item_size() != layout.item_size() {
            return Err(refused(
                "typestr",
                format!(
                    "elements of {} bytes in a layout for {}",
                    dtype.item_size(),
                    layout.item_size()
                ),
            ));
        }
        if address == 0 && !layout.is_empty() {
            return Err(refused("data", "the address is 0, and the shape not empty"));
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

    /// The same, to be read only.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self {
            read_only: true,
            ..self
        }
    }

    /// The same with a stream, with which consumers have to get in order; none: there is no work to
    /// wait for.
    #[must_use]
    pub fn with_stream(self, stream: Option<ExportedStream>) -> Self {
        Self { stream, ..self }
    }

    /// The same with a mask, of this shape or one that is broadcast to it.
    #[must_use]
    pub fn with_mask(self, mask: Option<Self>) -> Self {
        Self {
            mask: mask.map(Box::new),
            ..self
        }
    }

    /// Returns the version of the interface that it was read from. It may be newer than version 3, the
    /// newest one that this crate knows.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What the elements are.
    pub fn dtype(&self) -> &Dtype {
        &self.dtype
    }

    /// Where they lie, from the address on.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Of the first element; anything for an array without one.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Whether it must not be written.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Which elements are valid.
    pub fn mask(&self) -> Option<&Self> {
        self.mask.as_deref()
    }

    /// With what a consumer has to get in order; none: there is nothing to wait for, or it was to be
    /// ignored.
    pub fn stream(&self) -> Option<ExportedStream> {
        self.stream
    }

    /// The interface, in version 3, for others: without strides where the array is C-contiguous, and
    /// with address 0 where it has no element.
    pub fn to_raw(&self) -> RawInterface {
        let is_plain = self.layout.is_c_contiguous();
        let wide = |stride: &isize| *stride as i128;
        RawInterface {
            version: Some(VERSION.into()),
            shape: Some(
                self.layout
                    .shape()
                    .iter()
                    .map(|extent| *extent as i128)
                    .collect(),
            ),
            typestr: Some(self.dtype.typestr()),
            descr: self.dtype.descr(),
            data: Some(match self.layout.is_empty() {
                true => (0, self.read_only),
                false => (self.address.into(), self.read_only),
            }),
            strides: (!is_plain).then(|| self.layout.strides().iter().map(wide).collect()),
            mask: self.mask.as_ref().map(|mask| Box::new(mask.to_raw())),
            stream: self.stream.map(|stream| stream.number().into()),
        }
    }
}
