//! Reads the images that the driver loads: cubins and fat binaries (fatbins).
//!
//! A cubin is an ELF file with the code of kernels for one architecture. A fat binary has several cubins and PTX
//! texts, and the driver chooses one of them. [`codes`] lists what an image has, and [`Cubin::read`] returns the
//! kernels of a cubin with their parameters. The instructions are not read.
//!
//! NVIDIA documents neither format. What the numbers mean was found out with the compilers of CUDA 12.4 to 13.5,
//! so the result is for error messages and tools. It does not show that the driver accepts an image.
//!
//! ```
//! use cuda_sys::image;
//!
//! # let image: &[u8] = include_bytes!("image/vector.fatbin");
//! for code in image::codes(image)? {
//!     println!("{code}");
//!     if let Some(Ok(cubin)) = code.bytes.map(image::Cubin::read) {
//!         for kernel in &cubin.kernels {
//!             println!("  {} has {} parameters", kernel.name, kernel.parameters.len());
//!         }
//!     }
//! }
//! # Ok::<_, image::ImageError>(())
//! ```

mod cubin;

pub use cubin::{Cubin, CubinKernel, CubinParameter, CubinVariable};

use std::fmt;

/// The first bytes of an ELF file, and so of a cubin.
const ELF: &[u8] = b"\x7fELF";

/// The first bytes of a fat binary.
const FATBIN: &[u8] = &0xba55_ed50_u32.to_le_bytes();

/// The code for one architecture in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Code<'a> {
    /// The format.
    pub kind: CodeKind,
    /// The architecture: 90 for `sm_90` and `compute_90`.
    pub architecture: u32,
    /// The end of the architecture's name: `a` for code that uses features of exactly this architecture, `f` for
    /// features of its family, otherwise empty. A cubin outside of a fat binary does not show it.
    pub suffix: &'static str,
    /// The cubin or the text, or `None` if it is compressed, as `nvcc` does by default.
    pub bytes: Option<&'a [u8]>,
}

/// The format of a [`Code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CodeKind {
    /// A cubin.
    Cubin,
    /// PTX text.
    Ptx,
    /// A format that this crate does not know, by its number.
    Other(u16),
}

/// The reason why an image cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageError {
    /// It begins neither as a cubin nor as a fat binary.
    NotAnImage,
    /// It has a version of the format that this crate does not know.
    UnknownFormat,
    /// It is shorter than it says, or damaged.
    Damaged(&'static str),
}

impl fmt::Display for Code<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            architecture,
            suffix,
            ..
        } = self;
        match kind {
            CodeKind::Cubin => write!(f, "a cubin for sm_{architecture}{suffix}"),
            CodeKind::Ptx => write!(f, "PTX for compute_{architecture}{suffix}"),
            CodeKind::Other(kind) => {
                write!(f, "code of the kind {kind} for {architecture}{suffix}")
            }
        }
    }
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnImage => f.write_str("neither a cubin nor a fat binary"),
            Self::UnknownFormat => f.write_str("an unknown version of the format"),
            Self::Damaged(what) => write!(f, "damaged or not complete: {what}"),
        }
    }
}

impl std::error::Error for ImageError {}

/// Returns what an image has, in its order: the members of a fat binary, or one cubin.
///
/// # Errors
/// The data is not an image, or is damaged.
pub fn codes(image: &[u8]) -> Result<Vec<Code<'_>>, ImageError> {
    if image.starts_with(ELF) {
        return Ok(vec![Code {
            kind: CodeKind::Cubin,
            architecture: cubin::architecture(image)?,
            suffix: "",
            bytes: Some(image),
        }]);
    }
    if !image.starts_with(FATBIN) {
        return Err(ImageError::NotAnImage);
    }
    let end = ImageError::Damaged("the header of the fat binary");
    if half(image, 4).ok_or(end)? != 1 {
        return Err(ImageError::UnknownFormat);
    }
    let header = usize::from(half(image, 6).ok_or(end)?);
    let length = position(image, 8).ok_or(end)?;
    let mut rest = slice(image, header, length).ok_or(end)?;
    let mut codes = Vec::new();
    while !rest.is_empty() {
        let (code, length) =
            member(rest).ok_or(ImageError::Damaged("a member of the fat binary"))?;
        codes.push(code);
        rest = &rest[length..];
    }
    Ok(codes)
}

/// Returns the first member of the rest of a fat binary, and its length with its header, which is not zero.
fn member(rest: &[u8]) -> Option<(Code<'_>, usize)> {
    /// The length of the header that every member has. Options follow it.
    const HEADER: usize = 64;
    // Bits of the flags.
    const COMPRESSED: u64 = 0x2000 | 0x8000;
    const SPECIFIC: u64 = 1 << 20;
    const FAMILY: u64 = 1 << 21;
    let header = word(rest, 4)? as usize;
    let length = position(rest, 8)?;
    let data = slice(rest, header, length).filter(|_| header >= HEADER)?;
    let flags = u64::from_le_bytes(rest.get(40..48)?.try_into().ok()?);
    let kind = match half(rest, 0)? {
        1 => CodeKind::Ptx,
        2 => CodeKind::Cubin,
        other => CodeKind::Other(other),
    };
    // A text ends with zeros up to a multiple of 8 bytes.
    let text = data.iter().rposition(|byte| *byte != 0);
    let data = match kind {
        CodeKind::Ptx => &data[..text.map_or(0, |last| last + 1)],
        _ => data,
    };
    let code = Code {
        kind,
        architecture: word(rest, 28)?,
        suffix: match (flags & SPECIFIC, flags & FAMILY) {
            (0, 0) => "",
            (0, _) => "f",
            _ => "a",
        },
        bytes: (flags & COMPRESSED == 0).then_some(data),
    };
    Some((code, header + length))
}

/// Returns the bytes of a range, or `None` if they do not exist.
fn slice(bytes: &[u8], start: usize, length: usize) -> Option<&[u8]> {
    bytes.get(start..)?.get(..length)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(slice(bytes, at, 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(slice(bytes, at, 4)?.try_into().ok()?))
}

/// Returns a number of 64 bits.
fn position(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(slice(bytes, at, 8)?.try_into().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::{Code, CodeKind, Cubin, ImageError, codes};

    /// Two cubins and the PTX of tests/kernels/vector.ptx, as `fatbinary` of CUDA 13.0 writes them.
    const STORED: &[u8] = include_bytes!("image/vector.fatbin");
    /// The same with `--compress-all`.
    const COMPRESSED: &[u8] = include_bytes!("image/compressed.fatbin");

    fn texts(image: &[u8]) -> Vec<String> {
        let codes = codes(image).expect("a fat binary");
        codes.iter().map(Code::to_string).collect()
    }

    #[test]
    fn the_members_of_a_fat_binary_have_kinds_and_architectures() {
        let expected = [
            "a cubin for sm_80",
            "a cubin for sm_90a",
            "PTX for compute_52",
        ];
        assert_eq!(texts(STORED), expected);
        assert_eq!(texts(COMPRESSED), expected);
        let compressed = codes(COMPRESSED).expect("a fat binary");
        assert!(compressed.iter().all(|code| code.bytes.is_none()));
        let ptx = codes(STORED).expect("a fat binary")[2];
        let ptx = std::str::from_utf8(ptx.bytes.expect("not compressed")).expect("text");
        assert!(ptx.contains(".entry") && ptx.ends_with("}\n"), "{ptx}");
    }

    #[test]
    fn the_cubins_of_a_fat_binary_have_its_kernels() {
        for (code, architecture) in codes(STORED).expect("a fat binary").iter().zip([80, 90]) {
            assert_eq!(code.kind, CodeKind::Cubin);
            let cubin = Cubin::read(code.bytes.expect("not compressed")).expect("a cubin");
            assert_eq!(cubin.architecture, architecture);
            let kernels: Vec<&str> = cubin.kernels.iter().map(|kernel| kernel.name).collect();
            assert!(kernels.contains(&"add"), "{kernels:?}");
        }
    }

    #[test]
    fn a_shortened_fat_binary_is_damaged() {
        for length in 4..STORED.len() {
            let error = codes(&STORED[..length]).expect_err("a part");
            assert!(matches!(error, ImageError::Damaged(_)), "{length}: {error}");
        }
        for image in [&b""[..], b"\x7fEL", b".version 8.0"] {
            assert_eq!(codes(image), Err(ImageError::NotAnImage));
        }
    }

    #[test]
    fn wrong_bytes_in_headers_neither_panic_nor_loop() {
        for image in [STORED, COMPRESSED] {
            for at in (0..200).chain(image.len().saturating_sub(3000)..image.len()) {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut damaged = image.to_vec();
                    damaged[at] = value;
                    let _ = codes(&damaged);
                }
            }
        }
    }
}
