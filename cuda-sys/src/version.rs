//! CUDA versions.

use std::fmt;
use std::str::FromStr;

/// A version of the CUDA driver API, encoded as by `cuDriverGetVersion`: 12040 is 12.4.
///
/// ```
/// use cuda_sys::CudaVersion;
///
/// let version: CudaVersion = "12.4".parse()?;
/// assert_eq!(version, CudaVersion::new(12, 4));
/// assert_eq!(version.number(), 12040);
/// assert!(version < CudaVersion::new(13, 0));
/// # Ok::<_, cuda_sys::ParseVersionError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaVersion(i32);

impl CudaVersion {
    /// The version of the headers from which these bindings were generated.
    #[allow(clippy::cast_possible_wrap, reason = "a small constant")]
    pub const BINDINGS: Self = Self(crate::bindings::CUDA_VERSION as i32);

    /// Returns the version `major.minor`. `minor` must be at most 99, because the number has two digits
    /// for it.
    #[inline]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self(major as i32 * 1000 + minor as i32 * 10)
    }

    /// Returns the version with this number, as returned by `cuDriverGetVersion`.
    #[inline]
    pub const fn from_number(number: i32) -> Self {
        Self(number)
    }

    /// Returns the number of this version, as returned by `cuDriverGetVersion`.
    #[inline]
    pub const fn number(self) -> i32 {
        self.0
    }

    /// Returns the major version: 12 for 12.4.
    #[inline]
    pub const fn major(self) -> i32 {
        self.0 / 1000
    }

    /// Returns the minor version: 4 for 12.4.
    #[inline]
    pub const fn minor(self) -> i32 {
        self.0 % 1000 / 10
    }
}

impl fmt::Display for CudaVersion {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // No version has a negative number, but a driver may return one.
            ..0 => write!(f, "{}", self.0),
            _ => write!(f, "{}.{}", self.major(), self.minor()),
        }
    }
}

impl fmt::Debug for CudaVersion {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaVersion({self})")
    }
}

/// The error of parsing a [`CudaVersion`]: the text does not have the form `12.4`.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseVersionError(String);

impl fmt::Display for ParseVersionError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a CUDA version like 12.4", self.0)
    }
}

crate::debug_text! { struct ParseVersionError(_) }

impl std::error::Error for ParseVersionError {}

impl FromStr for CudaVersion {
    type Err = ParseVersionError;

    #[inline]
    fn from_str(text: &str) -> Result<Self, ParseVersionError> {
        let error = || ParseVersionError(text.to_owned());
        let parts = text.split_once('.').filter(|_| !text.contains('+'));
        let (major, minor) = parts.ok_or_else(error)?;
        let major: u16 = major.parse().map_err(|_| error())?;
        let minor: u16 = minor.parse().map_err(|_| error())?;
        // The number has two digits for the minor version.
        if minor > 99 {
            return Err(error());
        }
        Ok(Self::new(major, minor))
    }
}
