//! Cubins and fat binaries: their length, and the code for a device.

use super::ptx::{self, Refusal};
use super::{Contents, KernelInfo, Variable};
use crate::compression;
use cuda_sys::image::{Code, CodeKind, Compressed, Compression, Cubin, codes};
use std::borrow::Cow;

/// The first bytes of a cubin (64 bits, little-endian), and of a fat binary of version 1.
const CUBIN: [u8; 7] = [0x7f, b'E', b'L', b'F', 2, 1, 1];
const FATBIN: [u8; 6] = [0x50, 0xed, 0x55, 0xba, 1, 0];

/// Limits the length of an image, and of the code that is decompressed, in bytes.
const LARGEST: u64 = 1 << 30;

/// The reason why an image cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unloadable {
    /// The image, or its code for the device, is damaged.
    Damaged,
    /// It has no code for the device and the driver.
    NoCode,
    /// The code for the device is compressed in a format that is not simulated.
    Compression(Compression),
    /// The code for the device is PTX, which is refused.
    Text(Refusal),
}

/// Returns the length of an image whose bytes `byte` returns by their index, or `None` if it is no image. No byte
/// is read after one that already shows this.
pub(crate) fn length(mut byte: impl FnMut(usize) -> u8) -> Option<usize> {
    const HEADER: u64 = 64;
    const SECTION: u64 = 64;
    const NO_BITS: u64 = 8;
    let mut starts_with = |start: &[u8]| start.iter().enumerate().all(|(at, its)| byte(at) == *its);
    let is_cubin = starts_with(&CUBIN);
    if !is_cubin && !starts_with(&FATBIN) {
        return None;
    }
    // Returns the little-endian number at `start`.
    let mut number = |start: u64, size: u64| -> Option<u64> {
        let end = start.checked_add(size).filter(|end| *end <= LARGEST)?;
        let bytes = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
        let bytes = bytes.rev().map(&mut byte);
        Some(bytes.fold(0, |number, byte| number << 8 | u64::from(byte)))
    };
    let mut length;
    if is_cubin {
        let (table, count) = (number(40, 8)?, number(60, 2)?);
        length = HEADER.max(table.checked_add(count * SECTION)?);
        for at in 0..count {
            let section = table + at * SECTION;
            if number(section + 4, 4)? != NO_BITS {
                let end = number(section + 24, 8)?.checked_add(number(section + 32, 8)?)?;
                length = length.max(end);
            }
        }
    } else {
        length = number(6, 2)?.checked_add(number(8, 8)?)?;
    }
    usize::try_from(length).ok().filter(|_| length <= LARGEST)
}

/// Returns the contents of the code in an image that a driver of a major version loads for devices of a compute
/// capability: a cubin, or PTX. Other code is only read if there is none for the device: a damaged cubin then makes
/// the image a damaged one.
pub(crate) fn parse(
    image: &[u8],
    capability: (u32, u32),
    driver: i32,
    newest_ptx: (u32, u32),
) -> Result<Contents, Unloadable> {
    let damaged = || Unloadable::Damaged;
    let codes = codes(image).map_err(|_| Unloadable::Damaged)?;
    let number = capability.0 * 10 + capability.1;
    let is_specific = |code: &Code| code.suffix == "a" && code.architecture != number;
    let is_of_family = |code: &Code| code.architecture / 10 == capability.0;
    let runs = |code: &&Code| code.architecture <= number && !is_specific(code);
    let cubins = || codes.iter().filter(|code| code.kind == CodeKind::Cubin);
    let of_device = cubins().filter(runs).filter(|code| is_of_family(code));
    let texts = codes.iter().filter(|code| code.kind == CodeKind::Ptx);
    let texts = texts.filter(runs).filter(|code| code.suffix.is_empty() || is_of_family(code));
    let text = texts.max_by_key(|code| code.architecture);
    if let Some(code) = of_device.max_by_key(|code| code.architecture) {
        let bytes = decompressed(code)?;
        let cubin = Cubin::read(&bytes).map_err(|_| Unloadable::Damaged)?;
        // Unverified (from documentation): a driver does not know the format of a later major version.
        if cubin.format_since.major() <= driver {
            let contents = contents(&cubin).ok_or_else(damaged)?;
            // The driver does not compile the PTX, so its version does not matter.
            let text = text.and_then(|code| text_of(code).ok());
            let text = text.and_then(|text| ptx::parse(&text, (u32::MAX, 0)).ok());
            return Ok(match text {
                Some(text) => run_by_text(text, contents),
                None => contents,
            });
        }
    }
    if let Some(code) = text {
        return ptx::parse(&text_of(code)?, newest_ptx).map_err(Unloadable::Text);
    }
    let is_damaged = |code: &Code| code.bytes.is_some_and(|its| Cubin::read(its).is_err());
    Err(match cubins().any(is_damaged) {
        true => Unloadable::Damaged,
        false => Unloadable::NoCode,
    })
}

/// Returns the contents of PTX with the limits of the kernels of a cubin, which the driver loads. The PTX is what runs.
fn run_by_text(mut text: Contents, cubin: Contents) -> Contents {
    for kernel in &mut text.kernels {
        if let Some(other) = cubin.kernels.iter().find(|other| other.name == kernel.name) {
            kernel.clone_from(other);
        }
    }
    let has_all =
        cubin.kernels.iter().all(|one| text.kernels.iter().any(|its| its.name == one.name));
    match has_all {
        true => text,
        false => cubin,
    }
}

/// Returns the text of PTX.
fn text_of(code: &Code) -> Result<String, Unloadable> {
    let bytes = decompressed(code)?;
    // A decompressed text ends with a NUL.
    Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
}

/// Returns the bytes of a cubin or text.
fn decompressed<'a>(code: &Code<'a>) -> Result<Cow<'a, [u8]>, Unloadable> {
    let Some(compressed) = code.compressed else {
        return code.bytes.map(Cow::Borrowed).ok_or(Unloadable::Damaged);
    };
    let Compressed { format, bytes, decompressed_length: length, .. } = compressed;
    if length as u64 > LARGEST {
        return Err(Unloadable::Damaged);
    }
    let decompressed = match format {
        Compression::Lz4 => compression::lz4(bytes, length),
        Compression::Zstd => compression::zstd(bytes, length),
        other => return Err(Unloadable::Compression(other)),
    };
    let decompressed = decompressed.filter(|bytes| bytes.len() == length);
    decompressed.map(Cow::Owned).ok_or(Unloadable::Damaged)
}

/// Returns `None` if a name contains a NUL, or a size is absurd.
fn contents(cubin: &Cubin) -> Option<Contents> {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut contents = Contents {
        wanted: owned(&cubin.undefined),
        offered: owned(&cubin.functions),
        ..Contents::default()
    };
    for kernel in &cubin.kernels {
        let params = kernel.parameters.iter();
        let params = params.map(|parameter| (parameter.offset, parameter.size));
        let mut info = KernelInfo::new(kernel.name, params.collect())?;
        info.limits.target = cubin.architecture;
        info.limits.threads = kernel.max_threads.unwrap_or(1024).clamp(1, 1024);
        info.limits.shared = u32::try_from(kernel.shared_bytes).ok()?;
        info.limits.cluster = kernel.cluster.unwrap_or_default();
        info.limits.registers = kernel.registers;
        info.limits.local = u32::try_from(kernel.local_bytes).ok()?;
        info.limits.constant = u32::try_from(cubin.constant_bytes).ok()?;
        contents.kernels.push(info);
    }
    contents.variables.extend(cubin.variables.iter().map(|variable| Variable {
        name: variable.name.to_owned(),
        size: variable.size,
        align: variable.align,
        initial: variable.initial.to_vec(),
        managed: false,
    }));
    Some(contents)
}

#[cfg(test)]
mod tests {
    use super::{length, parse};

    #[test]
    fn the_length_of_an_image_is_in_its_header() {
        let mut fatbin = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 32, 0, 0, 0, 0, 0, 0, 0];
        fatbin.resize(48, 0);
        // A header, a table of one section, and its 100 bytes.
        let mut cubin = vec![0; 64 + 64 + 100];
        cubin[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        cubin[40] = 64;
        cubin[60] = 1;
        cubin[64 + 7] = 0x70;
        cubin[64 + 24] = 128;
        cubin[64 + 32] = 100;
        for image in [fatbin, cubin] {
            assert_eq!(length(|at| image[at]), Some(image.len()));
            for at in 6..image.len() {
                let mut damaged = image.clone();
                damaged[at] = 0xff;
                let _ = length(|at| damaged.get(at).copied().unwrap_or(0xff));
                let _ = parse(&damaged, (9, 0), 13, (9, 0));
            }
        }
    }

    #[test]
    fn nothing_is_read_after_a_byte_that_shows_that_it_is_no_image() {
        for image in [&b"\x7fELF-"[..], b"\x50-", b"\x50\xed\x55\xba\x02", b"\x7fELF\x02\x01\x02"] {
            assert_eq!(length(|at| image[at]), None);
        }
    }
}
