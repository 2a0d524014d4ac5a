//! Architectures of GPUs, and kinds of code.

use std::fmt;
use std::str::FromStr;

/// The architecture of a GPU: its compute capability, and whether code uses features that other GPUs do not
/// have.
///
/// ```
/// use cuda_nvrtc::{Architecture, Features};
///
/// let hopper = Architecture::new(9, 0);
/// assert_eq!(hopper.to_string(), "90");
/// assert_eq!("90a".parse(), Ok(hopper.with_features(Features::Specific)));
/// assert!("sm_100f".parse::<Architecture>().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Architecture {
    major: u16,
    minor: u8,
    features: Features,
}

/// The features of an [`Architecture`] that code may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Features {
    /// Features that all later architectures have too.
    #[default]
    Portable,
    /// Also features of this family of architectures (`sm_100f`). Since CUDA 12.9.
    Family,
    /// Also features of exactly this architecture (`sm_90a`). Since CUDA 12.0.
    Specific,
}

impl Architecture {
    /// Returns the architecture of a compute capability: `new(8, 6)` is `sm_86`. `minor` must be at most 9,
    /// because the name has one digit for it.
    #[inline]
    pub const fn new(major: u16, minor: u8) -> Self {
        Self { major, minor, features: Features::Portable }
    }

    /// Returns this architecture with these features.
    #[must_use]
    #[inline]
    pub const fn with_features(self, features: Features) -> Self {
        Self { features, ..self }
    }

    /// Returns the architecture with the number that NVIDIA's tools use: 86 is compute capability 8.6.
    #[inline]
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        let minor = u8::try_from(number % 10).ok()?;
        Some(Self::new(u16::try_from(number / 10).ok()?, minor))
    }

    /// Returns the compute capability, for example (8, 6).
    #[inline]
    pub const fn compute_capability(self) -> (u16, u8) {
        (self.major, self.minor)
    }

    /// Returns the features that code for this architecture may use.
    #[inline]
    pub const fn features(self) -> Features {
        self.features
    }

    /// Returns whether a device of the architecture `device` can run a cubin for this architecture.
    #[inline]
    pub(crate) fn runs_cubin_on(self, device: Self) -> bool {
        match self.features {
            Features::Specific => self.compute_capability() == device.compute_capability(),
            _ => self.major == device.major && self.minor <= device.minor,
        }
    }

    /// Returns whether a linker for the architecture `output` accepts a cubin for this architecture.
    #[inline]
    pub(crate) fn links_to(self, output: Self) -> bool {
        match self.features {
            Features::Specific => self == output,
            _ => self.runs_cubin_on(output),
        }
    }

    /// Returns the end of the name.
    #[inline]
    pub(crate) fn suffix(self) -> &'static str {
        match self.features {
            Features::Portable => "",
            Features::Family => "f",
            Features::Specific => "a",
        }
    }

    /// Returns whether a driver can compile PTX for this architecture for a device of the architecture
    /// `device`.
    #[inline]
    pub(crate) fn runs_ptx_on(self, device: Self) -> bool {
        match self.features {
            Features::Portable => self.compute_capability() <= device.compute_capability(),
            _ => self.runs_cubin_on(device),
        }
    }
}

impl fmt::Display for Architecture {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.major, self.minor, self.suffix())
    }
}

/// The error of parsing an [`Architecture`]: the text does not have the form `90`, `90a` or `sm_90`.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseArchitectureError(String);

impl fmt::Display for ParseArchitectureError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an architecture like 90a or sm_90a", self.0)
    }
}

cuda_sys::debug_text! { struct ParseArchitectureError(_) }

impl std::error::Error for ParseArchitectureError {}

impl FromStr for Architecture {
    type Err = ParseArchitectureError;

    #[inline]
    fn from_str(text: &str) -> Result<Self, ParseArchitectureError> {
        let error = || ParseArchitectureError(text.to_owned());
        let name =
            text.strip_prefix("sm_").or_else(|| text.strip_prefix("compute_")).unwrap_or(text);
        let (digits, features) = match name.strip_suffix('a') {
            Some(digits) => (digits, Features::Specific),
            None => match name.strip_suffix('f') {
                Some(digits) => (digits, Features::Family),
                None => (name, Features::Portable),
            },
        };
        if digits.len() < 2 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(error());
        }
        let number = digits.parse().map_err(|_| error())?;
        let architecture = Self::from_number(number).ok_or_else(error)?;
        Ok(architecture.with_features(features))
    }
}

/// The kind of code that a compilation produces, and its architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// PTX text (`compute_90`), which the driver compiles for its device when it is loaded. It runs on devices
    /// of this architecture and later ones, and needs a driver of at least the compiler's CUDA version.
    Ptx(Architecture),
    /// A cubin (`sm_90`), which the driver loads without compiling, and PTX. A cubin runs on devices with this
    /// or a later minor compute capability, and needs a driver of at least the compiler's major CUDA version.
    Cubin(Architecture),
    /// LTO-IR, the input of a [`Linker`](crate::Linker) that optimizes across units. Since CUDA 12.0.
    LtoIr(Architecture),
}

impl Target {
    /// Returns the architecture.
    #[inline]
    pub const fn architecture(self) -> Architecture {
        match self {
            Self::Ptx(architecture) | Self::Cubin(architecture) | Self::LtoIr(architecture) => {
                architecture
            }
        }
    }
}

impl fmt::Display for Target {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ptx(architecture) => write!(f, "compute_{architecture}"),
            Self::Cubin(architecture) => write!(f, "sm_{architecture}"),
            Self::LtoIr(architecture) => write!(f, "LTO-IR for compute_{architecture}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Architecture, Features};

    fn parsed(text: &str) -> Architecture {
        text.parse().expect(text)
    }

    #[test]
    fn names_are_parsed_and_printed() {
        for name in ["75", "90a", "100f", "121"] {
            assert_eq!(parsed(name).to_string(), name);
            assert_eq!(parsed(&format!("sm_{name}")), parsed(name));
        }
        assert_eq!(parsed("compute_103a").compute_capability(), (10, 3));
        for wrong in ["", "9", "a", "90b", "sm_", "+90", "99999999999", "9 0"] {
            assert!(wrong.parse::<Architecture>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_cubin_runs_on_later_minor_capabilities_and_ptx_on_all_later_ones() {
        let cases = [
            ("80", "86", true, true),
            ("86", "80", false, false),
            ("80", "90", false, true),
            ("90a", "90", true, true),
            ("90a", "100", false, false),
            ("100a", "103", false, false),
            ("100f", "103", true, true),
            ("100f", "120", false, false),
        ];
        for (code, device, cubin, ptx) in cases {
            assert_eq!(parsed(code).runs_cubin_on(parsed(device)), cubin, "{code} on {device}");
            assert_eq!(parsed(code).runs_ptx_on(parsed(device)), ptx, "{code} on {device}");
        }
        assert_eq!(parsed("90").features(), Features::Portable);
    }

    #[test]
    fn a_cubin_is_linked_for_later_minor_capabilities_with_its_features() {
        // As nvJitLink of CUDA 13.5 does.
        let cases = [
            ("80", "86", true),
            ("80", "90", false),
            ("86", "80", false),
            ("90", "90a", true),
            ("90a", "90", false),
            ("90a", "90a", true),
            ("100", "103", true),
            ("100f", "103", true),
            ("100f", "103f", true),
        ];
        for (code, output, is_accepted) in cases {
            assert_eq!(parsed(code).links_to(parsed(output)), is_accepted, "{code} to {output}");
        }
    }
}
