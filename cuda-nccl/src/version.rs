//! Versions of NCCL.

use std::fmt;

/// A version of NCCL, such as 2.28.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NcclVersion {
    major: u32,
    minor: u32,
    patch: u32,
}

impl NcclVersion {
    /// Returns a version from its parts.
    #[inline]
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Returns the version with the number of `ncclGetVersion`: 22809 for 2.28.9. Before 2.9, a number had one digit
    /// less: 2804 for 2.8.4.
    #[inline]
    pub const fn from_number(number: u32) -> Self {
        let major_digits = if number < 10_000 { 1_000 } else { 10_000 };
        let rest = number % major_digits;
        Self::new(number / major_digits, rest / 100, rest % 100)
    }

    /// Returns the first number.
    #[inline]
    pub const fn major(self) -> u32 {
        self.major
    }

    /// Returns the second number.
    #[inline]
    pub const fn minor(self) -> u32 {
        self.minor
    }

    /// Returns the third number.
    #[inline]
    pub const fn patch(self) -> u32 {
        self.patch
    }
}

impl fmt::Display for NcclVersion {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::NcclVersion;

    #[test]
    fn numbers_before_and_since_2_9_are_read() {
        assert_eq!(NcclVersion::from_number(22_809), NcclVersion::new(2, 28, 9));
        assert_eq!(NcclVersion::from_number(20_905), NcclVersion::new(2, 9, 5));
        assert_eq!(NcclVersion::from_number(2_804), NcclVersion::new(2, 8, 4));
        assert_eq!(NcclVersion::BINDINGS, NcclVersion::from_number(crate::sys::NCCL_VERSION_CODE));
        assert!(NcclVersion::new(2, 9, 5) < NcclVersion::new(2, 18, 1));
    }
}
