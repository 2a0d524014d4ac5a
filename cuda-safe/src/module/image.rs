//! Checks of module images before they are passed to the driver.

use crate::call::{Error, Invalid, Result, c_text, init, refuse_if};
use crate::context::Context;
use cuda_sys::CUresult;
use cuda_sys::image::{self, CodeKind};
use std::ffi::CString;

/// Checks PTX text and converts it to a C string.
///
/// The driver distinguishes formats by their first bytes. Some of the binary formats, which it trusts,
/// can be valid UTF-8, so the text must begin as PTX does.
#[inline]
pub(super) fn ptx(text: &str) -> Result<CString> {
    refuse_if!(text.trim().is_empty(), Invalid::EmptyImage);
    let c_text = c_text(text)?;
    let start = after_comments(text);
    if start.starts_with(".version") {
        return Ok(c_text);
    }
    Err(if is_cuda_source(start) { Invalid::CudaSource.into() } else { Invalid::NotPtx.into() })
}

/// Returns whether text that is not PTX is probably CUDA C++.
#[inline]
fn is_cuda_source(text: &str) -> bool {
    const WORDS: [&str; 5] = ["__global__", "__device__", "#include", "#define", "extern \"C\""];
    WORDS.iter().any(|word| text.contains(word))
}

/// Returns the text after the white space and comments at the start of PTX.
#[inline]
fn after_comments(mut text: &str) -> &str {
    loop {
        text = text.trim_start_matches([' ', '\t', '\r', '\n']);
        let rest = if let Some(comment) = text.strip_prefix("//") {
            comment.split_once('\n')
        } else if let Some(comment) = text.strip_prefix("/*") {
            comment.split_once("*/")
        } else {
            return text;
        };
        // Nothing follows a comment that extends to the end.
        text = rest.map_or("", |(_, rest)| rest);
    }
}

const ELF: [u8; 4] = [0x7f, b'E', b'L', b'F'];
const FATBIN: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();

/// Rejects data that is obviously not a complete cubin or fatbin. The driver trusts the rest, so this
/// is a convenience and not a guarantee.
#[inline]
pub(super) fn check(image: &[u8]) -> Result<()> {
    refuse_if!(image.is_empty(), Invalid::EmptyImage);
    let mut starts_with = [0; 4];
    let copied = image.len().min(4);
    starts_with[..copied].copy_from_slice(&image[..copied]);
    let needed = match starts_with {
        ELF => elf_length(image),
        FATBIN => fatbin_length(image),
        _ => return Err(Invalid::NotAnImage { starts_with }.into()),
    };
    let given = image.len() as u64;
    if needed > given { Err(Invalid::TruncatedImage { needed, given }.into()) } else { Ok(()) }
}

/// Returns the length that an ELF file's headers imply, in bytes.
#[inline]
fn elf_length(image: &[u8]) -> u64 {
    const HEADER: u64 = 64;
    const NO_BITS: u64 = 8;
    let (Some(table), Some(entry), Some(count)) =
        (number(image, 40, 8), number(image, 58, 2), number(image, 60, 2))
    else {
        return HEADER;
    };
    let mut length = HEADER.max(table.saturating_add(entry * count));
    for section in 0..count {
        let section_start = table.saturating_add(entry * section);
        let field = |offset, size| number(image, section_start.saturating_add(offset), size);
        match (field(4, 4), field(24, 8), field(32, 8)) {
            (Some(NO_BITS), ..) => {}
            (Some(_), Some(start), Some(size)) => length = length.max(start.saturating_add(size)),
            // The table itself is truncated. Its length, computed above, reveals that.
            _ => {}
        }
    }
    length
}

/// Returns the length that a fatbin's header implies, in bytes: the header and the images after it.
#[inline]
fn fatbin_length(image: &[u8]) -> u64 {
    const HEADER: u64 = 16;
    match (number(image, 6, 2), number(image, 8, 8)) {
        (Some(header), Some(images)) => header.saturating_add(images),
        _ => HEADER,
    }
}

/// Adds the architectures of the image, or the driver that its cubins need, to the error of an image without
/// code for a device.
#[inline]
pub(super) fn explain(error: Error, image: &[u8], context: &Context) -> Error {
    let (mut error, codes) = match (error, image::codes(image)) {
        (Error::Compile(error), Ok(codes)) => (error, codes),
        (error, _) => return error,
    };
    let has_no_code = error.error.code == CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU;
    if !has_no_code && error.error.code != CUresult::CUDA_ERROR_INVALID_IMAGE {
        return Error::Compile(error);
    }
    let mut notes = Vec::new();
    let device = context.device().compute_capability();
    if let (true, Ok((major, minor))) = (has_no_code, device) {
        let codes: Vec<String> = codes.iter().map(ToString::to_string).collect();
        let codes = if codes.is_empty() { "no code".to_owned() } else { codes.join(", ") };
        notes.push(format!("the image has {codes}; the device is sm_{major}{minor}"));
    }
    let cubins = codes.iter().filter(|code| code.kind == CodeKind::Cubin);
    let cubins = cubins.filter_map(|code| image::Cubin::read(code.bytes?).ok());
    let since = cubins.map(|cubin| cubin.format_since).max();
    if let (Some(since), Ok(driver)) = (since, init::version()) {
        if since > driver {
            notes.push(format!(
                "a cubin of the image has the format of CUDA {since}, and the driver is for CUDA {driver}: \
                 install a newer driver, or compile with an older toolkit"
            ));
        }
    }
    for note in notes {
        let separator = if error.log.is_empty() { "" } else { "\n" };
        error.log += separator;
        error.log += &note;
    }
    Error::Compile(error)
}

/// Returns the little-endian number of `size` bytes at `offset`, or `None` if the image ends before.
#[inline]
fn number(image: &[u8], offset: u64, size: usize) -> Option<u64> {
    let start = usize::try_from(offset).ok()?;
    let bytes = image.get(start..start.checked_add(size)?)?;
    let mut number = [0; 8];
    number[..size].copy_from_slice(bytes);
    Some(u64::from_le_bytes(number))
}

/// Returns the version that PTX text declares: `.version 8.3` is (8, 3).
#[inline]
pub(super) fn ptx_version(text: &str) -> Option<(u32, u32)> {
    let rest = after_comments(text).strip_prefix(".version")?;
    let version = rest.split_whitespace().next()?;
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{check, ptx, ptx_version};
    use crate::{Error, Invalid};

    fn refusal(image: &[u8]) -> Invalid {
        match check(image) {
            Err(Error::Invalid(invalid)) => *invalid,
            other => panic!("expected an invalid image, got {other:?}"),
        }
    }

    /// An ELF file with a 64-byte header and one section of 100 bytes after the section table.
    fn elf() -> Vec<u8> {
        let mut image = vec![0; 64 + 64 + 100];
        image[..4].copy_from_slice(b"\x7fELF");
        image[40] = 64;
        image[58] = 64;
        image[60] = 1;
        image[64 + 4] = 1;
        image[64 + 24] = 128;
        image[64 + 32] = 100;
        image
    }

    #[test]
    fn a_whole_image_passes_and_every_shorter_one_is_refused() {
        let mut fatbin = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 32, 0, 0, 0, 0, 0, 0, 0];
        fatbin.resize(48, 0);
        for image in [elf(), fatbin] {
            assert!(check(&image).is_ok());
            for length in 4..image.len() {
                assert!(
                    matches!(refusal(&image[..length]), Invalid::TruncatedImage { given, .. } if given == length as u64),
                    "{length} of {} bytes",
                    image.len()
                );
            }
        }
    }

    #[test]
    fn a_section_without_bytes_in_the_file_has_any_size() {
        let mut image = elf();
        image[64 + 33] = 100;
        assert!(matches!(refusal(&image), Invalid::TruncatedImage { .. }));
        // `.nv.shared`: it has no bits, is allocated and writable.
        (image[64 + 4], image[64 + 8]) = (8, 3);
        assert!(check(&image).is_ok());
    }

    #[test]
    fn absurd_sizes_in_headers_do_not_overflow() {
        let mut image = elf();
        for byte in &mut image[40..48] {
            *byte = 0xff;
        }
        assert!(matches!(refusal(&image), Invalid::TruncatedImage { .. }));
    }

    #[test]
    fn bytes_that_are_no_image_are_named_in_the_error() {
        assert_eq!(refusal(b""), Invalid::EmptyImage);
        assert_eq!(refusal(b".version 8.0"), Invalid::NotAnImage { starts_with: *b".ver" });
        assert_eq!(refusal(b"\x7f"), Invalid::NotAnImage { starts_with: [0x7f, 0, 0, 0] });
    }

    #[test]
    fn empty_ptx_and_ptx_with_a_nul_byte_are_refused() {
        assert!(
            matches!(ptx(" \n"), Err(Error::Invalid(invalid)) if *invalid == Invalid::EmptyImage)
        );
        assert!(
            matches!(ptx("ab\0c"), Err(Error::Invalid(invalid)) if *invalid == Invalid::NulInText { position: 2 })
        );
    }

    #[test]
    fn text_that_the_driver_would_take_for_a_binary_image_is_refused() {
        for text in [
            "\x7fELF\x02\x01\x01",
            "\x7fTileIR",
            "// only a comment .version",
            "/* never closed .version 8.0",
            ".target sm_90",
            "\u{feff}.version 8.0",
        ] {
            let refused = ptx(text);
            assert!(
                matches!(&refused, Err(Error::Invalid(invalid)) if **invalid == Invalid::NotPtx),
                "{text:?}: {refused:?}"
            );
        }
        for text in [".version 8.0", "\n// made by hand\n/* and\nmore */ // \n\t.version 8.0\n"] {
            assert!(ptx(text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn cuda_source_is_recognized() {
        for text in [
            "extern \"C\" __global__ void f() {}",
            "// a kernel\n#include <cstdint>\n__global__ void f(int *x) { *x = 1; }",
        ] {
            let refused = ptx(text);
            assert!(
                matches!(&refused, Err(Error::Invalid(invalid)) if **invalid == Invalid::CudaSource),
                "{text:?}: {refused:?}"
            );
        }
        // The word in a comment of PTX is not source code.
        assert!(ptx("// made from a __global__ function\n.version 8.0").is_ok());
    }

    #[test]
    fn the_version_of_ptx_is_read_from_its_directive() {
        assert_eq!(ptx_version("// x\n.version 8.3\n.target sm_90"), Some((8, 3)));
        assert_eq!(ptx_version(".version"), None);
        assert_eq!(ptx_version("no directive"), None);
    }

    /// Returns the length that the headers of an image state, without the limits of 64 bits.
    fn stated(image: &[u8]) -> u128 {
        let number = |start: u128, size: u128| {
            let at = |at| image.get(usize::try_from(at).ok()?).copied();
            let mut bytes = (start..start + size).rev().map(at);
            bytes.try_fold(0, |number, byte| Some(number << 8 | u128::from(byte?)))
        };
        let part = |start: u128, fields: [(u128, u128); 2]| {
            let [first, second] = fields.map(|(at, size)| number(start + at, size));
            Some((first?, second?))
        };
        if image.starts_with(&super::FATBIN) {
            return part(0, [(6, 2), (8, 8)]).map_or(16, |(header, rest)| header + rest);
        }
        let table = number(40, 8).zip(part(0, [(58, 2), (60, 2)]));
        let Some((table, (entry, count))) = table else { return 64 };
        let sections = (0..count).map(|index| table + index * entry);
        let ends = sections.filter_map(|section| {
            let (start, size) = part(section, [(24, 8), (32, 8)])?;
            let has_bytes = number(section + 4, 4)? != 8;
            has_bytes.then_some(start + size)
        });
        ends.chain([64, table + entry * count]).max().unwrap_or(0)
    }

    #[test]
    fn an_image_is_refused_exactly_if_it_is_shorter_than_its_headers_state() {
        let mut fatbin = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 32, 0, 0, 0, 0, 0, 0, 0];
        fatbin.resize(48, 0);
        let (mut cases, mut complete) = (0, 0);
        let mut compare = |image: &[u8]| {
            let is_complete = stated(image) <= image.len() as u128;
            assert_eq!(check(image).is_ok(), is_complete, "{image:?}");
            cases += 1;
            complete += usize::from(is_complete);
        };
        for image in [elf(), fatbin] {
            for length in 4..image.len() {
                compare(&image[..length]);
            }
            for at in 4..image.len() {
                // The number of sections of an ELF file ends here. It takes time to read many.
                let values = if at == 61 { 0..=2 } else { 0..=u8::MAX };
                for value in values {
                    let mut damaged = image.clone();
                    damaged[at] = value;
                    compare(&damaged);
                }
            }
            // Fields of 64 bits, alone and in pairs.
            let fields = (0..=image.len() - 8).step_by(8).filter(|at| *at != 56);
            for (one, other) in
                fields.clone().flat_map(|one| fields.clone().map(move |two| (one, two)))
            {
                for value in [0, 1, u64::MAX / 2, u64::MAX - 64, u64::MAX - 1, u64::MAX] {
                    let mut damaged = image.clone();
                    damaged[one..one + 8].copy_from_slice(&value.to_le_bytes());
                    damaged[other..other + 8].copy_from_slice(&(u64::MAX - 40).to_le_bytes());
                    damaged[..4].copy_from_slice(&image[..4]);
                    compare(&damaged);
                }
            }
        }
        println!("{cases} cases, of which {complete} are complete");
        assert!(complete > 1000 && complete < cases);
    }
}
