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
    /// The compressed cubin or text, or `None` if it is not compressed. This crate does not decompress it.
    pub compressed: Option<Compressed<'a>>,
}

/// The compressed bytes of a [`Code`].
///
/// A decompressed cubin has the same bytes as one that was stored without compression. A decompressed text ends
/// with a NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compressed<'a> {
    /// The format.
    pub format: Compression,
    /// The compressed bytes, without the zeros that follow them up to a multiple of 8 bytes.
    pub bytes: &'a [u8],
    /// The number of bytes after decompression, as the image states it. Nothing checks it: a damaged image can
    /// state any number.
    pub decompressed_length: usize,
}

/// The format of compressed code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// zlib data (RFC 1950).
    Zlib,
    /// An LZ4 block: `nvcc` before CUDA 13.0, and later with `--compress-mode=speed`.
    Lz4,
    /// An LZ4 frame, for code that is too long for the other formats.
    Lz4Frame,
    /// A zstd frame (RFC 8878): the default of `nvcc` since CUDA 13.0.
    Zstd,
    /// A format that this crate does not know, by its flags.
    Other(u16),
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
#[derive(Clone, Copy, PartialEq, Eq)]
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
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, architecture, suffix, .. } = self;
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
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnImage => f.write_str("neither a cubin nor a fat binary"),
            Self::UnknownFormat => f.write_str("an unknown version of the format"),
            Self::Damaged(what) => write!(f, "damaged or not complete: {what}"),
        }
    }
}

crate::debug_text! { enum ImageError { NotAnImage, UnknownFormat, Damaged(_) } }

impl std::error::Error for ImageError {}

/// Returns what an image has, in its order: the members of a fat binary, or one cubin.
///
/// # Errors
/// The data is not an image, or is damaged.
#[inline]
pub fn codes(image: &[u8]) -> Result<Vec<Code<'_>>, ImageError> {
    if image.starts_with(ELF) {
        return Ok(vec![Code {
            kind: CodeKind::Cubin,
            architecture: cubin::architecture(image)?,
            suffix: "",
            bytes: Some(image),
            compressed: None,
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

/// Returns a fat binary with a cubin and the PTX that it was made from, for the architecture of the cubin. `suffix` is
/// the end of the architecture's name (see [`Code::suffix`]).
///
/// The driver loads the cubin if it can run it, and otherwise compiles the PTX.
///
/// # Errors
/// The cubin is damaged.
#[inline]
pub fn fat_binary(cubin: &[u8], ptx: &str, suffix: &str) -> Result<Vec<u8>, ImageError> {
    let architecture = cubin::architecture(cubin)?;
    // A text ends with a NUL at least.
    let text = [ptx.as_bytes(), b"\0"].concat();
    let specific = match suffix {
        "a" => SPECIFIC,
        "f" => FAMILY,
        _ => 0,
    };
    let mut members = Vec::new();
    // The version of the file's format. For PTX, the driver reads the version in the text.
    for (kind, bytes, version) in [(2u16, cubin, [8, 0, 1, 0]), (1, &text, [0; 4])] {
        let length = bytes.len().next_multiple_of(8);
        let mut header = [0; MEMBER];
        header[..2].copy_from_slice(&kind.to_le_bytes());
        header[2..4].copy_from_slice(&MEMBER_FORMAT.to_le_bytes());
        header[4] = MEMBER as u8;
        header[8..16].copy_from_slice(&(length as u64).to_le_bytes());
        header[24..28].copy_from_slice(&version);
        header[28..32].copy_from_slice(&architecture.to_le_bytes());
        header[40..48].copy_from_slice(&(specific | WIDE).to_le_bytes());
        members.extend(header);
        members.extend_from_slice(bytes);
        members.resize(members.len().next_multiple_of(8), 0);
    }
    let mut image = FATBIN.to_vec();
    image.extend([1, 0, 16, 0]);
    image.extend((members.len() as u64).to_le_bytes());
    image.extend(members);
    Ok(image)
}

/// The length of the header that every member of a fat binary has. Options follow it.
const MEMBER: usize = 64;
/// The version of a member's format.
const MEMBER_FORMAT: u16 = 0x101;

// Bits of the flags of a member.
const COMPRESSED: u64 = 0xf000;
/// The code has addresses of 64 bits. The other bit is set in all images that were seen.
const WIDE: u64 = 0x11;
const SPECIFIC: u64 = 1 << 20;
const FAMILY: u64 = 1 << 21;

/// Returns the first member of the rest of a fat binary, and its length with its header, which is not zero.
#[inline]
fn member(rest: &[u8]) -> Option<(Code<'_>, usize)> {
    let header = word(rest, 4)? as usize;
    let length = position(rest, 8)?;
    let data = slice(rest, header, length).filter(|_| header >= MEMBER)?;
    let flags = u64::from_le_bytes(rest.get(40..48)?.try_into().ok()?);
    let kind = match half(rest, 0)? {
        1 => CodeKind::Ptx,
        2 => CodeKind::Cubin,
        other => CodeKind::Other(other),
    };
    let format = match flags & COMPRESSED {
        0 => None,
        0x1000 => Some(Compression::Zlib),
        0x2000 => Some(Compression::Lz4),
        0x4000 => Some(Compression::Lz4Frame),
        0x8000 => Some(Compression::Zstd),
        other => Some(Compression::Other(other as u16)),
    };
    let compressed = match format {
        None => None,
        Some(format) => Some(Compressed {
            format,
            bytes: data.get(..word(rest, 16)? as usize)?,
            decompressed_length: position(rest, 56)?,
        }),
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
        bytes: compressed.is_none().then_some(data),
        compressed,
    };
    Some((code, header + length))
}

/// Returns the bytes of a range, or `None` if they do not exist.
#[inline]
fn slice(bytes: &[u8], start: usize, length: usize) -> Option<&[u8]> {
    bytes.get(start..)?.get(..length)
}

#[inline]
fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(slice(bytes, at, 2)?.try_into().ok()?))
}

#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(slice(bytes, at, 4)?.try_into().ok()?))
}

/// Returns a number of 64 bits.
#[inline]
fn position(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(slice(bytes, at, 8)?.try_into().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::{Code, CodeKind, Compression, Cubin, ImageError, codes, fat_binary};
    use std::ops::Range;

    /// Two cubins and the PTX of tests/kernels/vector.ptx, as `fatbinary` of CUDA 13.0 writes them.
    const STORED: &[u8] = include_bytes!("image/vector.fatbin");
    /// The same with `--compress-all`.
    const COMPRESSED: &[u8] = include_bytes!("image/compressed.fatbin");
    /// The same with `--compress-all --compress-mode=speed`.
    const LZ4: &[u8] = include_bytes!("image/lz4.fatbin");

    fn texts(image: &[u8]) -> Vec<String> {
        let codes = codes(image).expect("a fat binary");
        codes.iter().map(Code::to_string).collect()
    }

    #[test]
    fn the_members_of_a_fat_binary_have_kinds_and_architectures() {
        let expected = ["a cubin for sm_80", "a cubin for sm_90a", "PTX for compute_52"];
        assert_eq!(texts(STORED), expected);
        assert_eq!(texts(COMPRESSED), expected);
        assert_eq!(texts(LZ4), expected);
        let ptx = codes(STORED).expect("a fat binary")[2];
        let ptx = std::str::from_utf8(ptx.bytes.expect("not compressed")).expect("text");
        assert!(ptx.contains(".entry") && ptx.ends_with("}\n"), "{ptx}");
    }

    #[test]
    fn the_members_of_a_compressed_fat_binary_have_their_format_and_both_lengths() {
        let stored = codes(STORED).expect("a fat binary");
        assert!(stored.iter().all(|code| code.compressed.is_none()));
        let stored: Vec<&[u8]> = stored.iter().filter_map(|code| code.bytes).collect();
        // A compressed text ends with a NUL.
        let lengths = [stored[0].len(), stored[1].len(), stored[2].len() + 1];
        for (image, format, start) in [
            (COMPRESSED, Compression::Zstd, &b"\x28\xb5\x2f\xfd"[..]),
            (LZ4, Compression::Lz4, &[]),
        ] {
            let codes = codes(image).expect("a fat binary");
            assert_eq!(codes.len(), lengths.len());
            for (code, length) in codes.iter().zip(lengths) {
                assert_eq!(code.bytes, None);
                let compressed = code.compressed.expect("it is compressed");
                assert_eq!(compressed.format, format);
                assert_eq!(compressed.decompressed_length, length);
                assert!(compressed.bytes.len() < length && compressed.bytes.starts_with(start));
                assert!(image.windows(compressed.bytes.len()).any(|its| its == compressed.bytes));
            }
        }
    }

    #[test]
    fn flags_of_an_unknown_compression_and_a_length_beyond_the_member_are_noticed() {
        // The flags and the compressed length of the first member.
        const FLAGS: usize = 16 + 40;
        const LENGTH: usize = 16 + 16;
        for (bits, format) in [
            (0x10, Compression::Zlib),
            (0x40, Compression::Lz4Frame),
            (0xa0, Compression::Other(0xa000)),
        ] {
            let mut image = COMPRESSED.to_vec();
            image[FLAGS + 1] = bits;
            let first = codes(&image).expect("a fat binary")[0];
            assert_eq!((first.bytes, first.compressed.map(|its| its.format)), (None, Some(format)));
        }
        let mut image = COMPRESSED.to_vec();
        image[LENGTH + 2] = 1;
        assert!(matches!(codes(&image), Err(ImageError::Damaged(_))));
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
    fn a_fat_binary_of_a_cubin_and_ptx_has_both() {
        let stored = codes(STORED).expect("a fat binary");
        let cubin = stored[1].bytes.expect("not compressed");
        for (text, suffix) in [("", ""), (".version 6.0", "a"), (".version 6.0\n\n\n\n", "f")] {
            let image = fat_binary(cubin, text, suffix).expect("a cubin");
            let [code, ptx] = codes(&image).expect("a fat binary")[..] else {
                panic!("two members");
            };
            assert_eq!(image[40..44], [8, 0, 1, 0], "the version of the format");
            assert_eq!((code.kind, code.bytes), (CodeKind::Cubin, Some(cubin)));
            assert_eq!((ptx.kind, ptx.bytes), (CodeKind::Ptx, Some(text.as_bytes())));
            assert_eq!([code, ptx].map(|its| (its.architecture, its.suffix)), [(90, suffix); 2]);
        }
        assert!(fat_binary(&cubin[..10], "", "").is_err());
    }

    #[test]
    fn a_shortened_fat_binary_is_damaged() {
        for image in [STORED, COMPRESSED] {
            for length in 4..image.len() {
                let error = codes(&image[..length]).expect_err("a part");
                assert!(matches!(error, ImageError::Damaged(_)), "{length}: {error}");
            }
        }
        for image in [&b""[..], b"\x7fEL", b".version 8.0"] {
            assert_eq!(codes(image), Err(ImageError::NotAnImage));
        }
    }

    #[test]
    fn wrong_bytes_in_headers_neither_panic_nor_loop() {
        for image in [STORED, COMPRESSED, LZ4] {
            for at in (0..200).chain(image.len().saturating_sub(3000)..image.len()) {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut damaged = image.to_vec();
                    damaged[at] = value;
                    let _ = codes(&damaged);
                }
            }
        }
    }

    /// Returns a fat binary with a text, a compressed text and a cubin of one byte.
    fn small() -> Vec<u8> {
        let mut image = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];
        image.extend((3 * 64 + 8 + 16 + 1u64).to_le_bytes());
        for (kind, flags, packed, data) in [
            (1u16, 0u64, 0u32, &b"text\n\0\0\0"[..]),
            (1, 0x8000, 9, b"012345678\0\0\0\0\0\0\0"),
            (2, 1 << 20, 0, b"c"),
        ] {
            let mut member = [0; 64];
            member[..2].copy_from_slice(&kind.to_le_bytes());
            member[4] = 64;
            member[8] = data.len() as u8;
            member[16..20].copy_from_slice(&packed.to_le_bytes());
            member[28] = 90;
            member[40..48].copy_from_slice(&flags.to_le_bytes());
            member[56] = 40;
            image.extend(member);
            image.extend(data);
        }
        image
    }

    /// Returns the kind of each member and the range of its bytes without padding, with numbers of 128 bits.
    fn members(image: &[u8]) -> Option<Vec<(u128, Range<u128>)>> {
        let number = |start: u128, size: u128| {
            let mut bytes =
                (start..start + size).rev().map(|at| image.get(usize::try_from(at).ok()?));
            bytes.try_fold(0, |number, byte| Some(number << 8 | u128::from(*byte?)))
        };
        let mut at = number(6, 2)?;
        let end = at + number(8, 8)?;
        if number(0, 4)? != 0xba55_ed50 || number(4, 2)? != 1 || end > image.len() as u128 {
            return None;
        }
        let mut members = Vec::new();
        while at < end {
            let (start, length) = (at + number(at + 4, 4)?, number(at + 8, 8)?);
            if start < at + 64 || start + length > end {
                return None;
            }
            let (kind, mut last) = (number(at, 2)?, start + length);
            if number(at + 40, 8)? & 0xf000 != 0 {
                last = start + number(at + 16, 4)?;
                if last > start + length {
                    return None;
                }
            } else if kind == 1 {
                while last > start && number(last - 1, 1)? == 0 {
                    last -= 1;
                }
            }
            members.push((kind, start..last));
            at = start + length;
        }
        Some(members)
    }

    /// Compares what is found in an image. Returns whether the image is accepted.
    fn compare(image: &[u8]) -> bool {
        let found = codes(image).ok().map(|codes| {
            let place = |code: &Code| {
                let bytes = code.bytes.or(code.compressed.map(|its| its.bytes)).expect("bytes");
                let start = bytes.as_ptr().addr() - image.as_ptr().addr();
                let kind = match code.kind {
                    CodeKind::Ptx => 1,
                    CodeKind::Cubin => 2,
                    CodeKind::Other(other) => other.into(),
                };
                (kind, start as u128..(start + bytes.len()) as u128)
            };
            codes.iter().map(place).collect::<Vec<_>>()
        });
        assert_eq!(found, members(image), "{image:?}");
        found.is_some()
    }

    #[test]
    fn all_shortened_fat_binaries_and_all_with_a_wrong_byte_have_the_members_of_their_headers() {
        let image = small();
        assert_eq!(codes(&image).map(|codes| codes.len()), Ok(3));
        let (mut cases, mut accepted) = (0, 0);
        for at in 0..image.len() {
            assert!(!compare(&image[..at]), "{at} bytes");
            // The first bytes show that it is a fat binary.
            for value in (0..=u8::MAX).filter(|_| at >= 4) {
                let mut damaged = image.clone();
                damaged[at] = value;
                accepted += usize::from(compare(&damaged));
                cases += 1;
            }
        }
        println!("{cases} cases, of which {accepted} are accepted");
        assert!(accepted > 10_000 && accepted < cases);
    }

    #[test]
    fn fat_binaries_with_extreme_lengths_neither_panic_nor_overflow() {
        // The lengths in the header of the image, and in those of the first two members.
        const FIELDS: [(usize, usize); 8] =
            [(6, 2), (8, 8), (20, 4), (24, 8), (32, 4), (92, 4), (96, 8), (104, 4)];
        let mut cases = 0;
        for (one, other) in FIELDS.into_iter().flat_map(|one| FIELDS.map(|other| (one, other))) {
            let image = small();
            let near = |(at, size): (usize, usize)| {
                let mut number = [0; 8];
                number[..size].copy_from_slice(&image[at..at + size]);
                let number = u64::from_le_bytes(number);
                let numbers = [0, 1, 63, 65, u64::MAX / 2, u64::MAX - 80, u64::MAX - 16, u64::MAX];
                numbers.into_iter().chain([number.wrapping_sub(1), number, number + 1])
            };
            for (value, other_value) in
                near(one).flat_map(|value| near(other).map(move |other| (value, other)))
            {
                let mut damaged = image.clone();
                for ((at, size), value) in [(one, value), (other, other_value)] {
                    damaged[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
                }
                compare(&damaged);
                cases += 1;
            }
        }
        println!("{cases} cases");
    }
}
