//! Reader of cubins, which are ELF files: the names and parameters of kernels, their limits, and variables.
//!
//! The instructions are not read. What the numbers mean was found out with the compilers of CUDA 12.4 and 13.5.

use super::{Contents, KernelInfo, Variable};

/// The first bytes of a cubin: ELF, 64 bits, little-endian, version 1.
const START: [u8; 7] = [0x7f, b'E', b'L', b'F', 2, 1, 1];

/// The formats that NVIDIA's tools write (`EI_OSABI` and `EI_ABIVERSION`), before and since CUDA 13, with the
/// position of the architecture in the flags of the file.
const FORMATS: [([u8; 2], u32); 2] = [([51, 7], 0), ([65, 8], 8)];

const HEADER: usize = 64;
const SECTION: usize = 64;
const SYMBOL: usize = 24;

/// Limits the length of an image, in bytes.
const LARGEST: usize = 1 << 30;

/// Returns the length of a cubin whose bytes `byte` returns by their index, or `None` if it is no cubin. No byte
/// is read after one that already shows this.
pub(crate) fn length(mut byte: impl FnMut(usize) -> u8) -> Option<usize> {
    let mut is_cubin = START.iter().enumerate().all(|(at, its)| byte(at) == *its);
    is_cubin = is_cubin && FORMATS.iter().any(|(format, _)| byte(7) == format[0]);
    is_cubin = is_cubin && FORMATS.iter().any(|(format, _)| byte(8) == format[1]);
    if !is_cubin {
        return None;
    }
    let mut bytes = |start: usize, count: usize| -> Option<Vec<u8>> {
        let end = start.checked_add(count).filter(|end| *end <= LARGEST)?;
        Some((start..end).map(&mut byte).collect())
    };
    let header = bytes(0, HEADER)?;
    let table = bytes(
        position(&header, 40)?,
        usize::from(half(&header, 60)?) * SECTION,
    )?;
    let mut length = HEADER.max(position(&header, 40)?.checked_add(table.len())?);
    for section in table.chunks_exact(SECTION) {
        if word(section, 4)? != NO_BITS {
            length = length.max(position(section, 24)?.checked_add(position(section, 32)?)?);
        }
    }
    (length <= LARGEST).then_some(length)
}

/// Returns the major CUDA version that introduced the format of a cubin.
pub(crate) fn format_since(image: &[u8]) -> i32 {
    match image.get(8) {
        Some(7) => 8,
        _ => 13,
    }
}

/// Returns the contents of a cubin, or `None` if it is damaged, or is not for devices of this compute capability.
pub(crate) fn parse(image: &[u8], capability: (u32, u32)) -> Option<Contents> {
    let file = Sections::new(image)?;
    let target = architecture(image)?;
    if target / 10 != capability.0 || target % 10 > capability.1 {
        return None;
    }
    let mut contents = Contents::default();
    for table in file.all.iter().filter(|section| section.kind == SYMBOLS) {
        for symbol in file.data(table)?.chunks_exact(SYMBOL) {
            let name = file.text(table.link, word(symbol, 0)?)?;
            let (kind, other) = (symbol[4] & 15, symbol[5]);
            let index = usize::from(half(symbol, 6)?);
            match kind {
                FUNCTION if index == 0 => contents.wanted.push(name.to_owned()),
                FUNCTION if other & ENTRY != 0 => {
                    contents.kernels.push(file.kernel(name, target)?);
                }
                FUNCTION if symbol[4] >> 4 != 0 => contents.offered.push(name.to_owned()),
                OBJECT if index != 0 => contents.variables.extend(file.variable(name, symbol)),
                _ => {}
            }
        }
    }
    Some(contents)
}

/// Returns the architecture: 90 for `sm_90`.
fn architecture(image: &[u8]) -> Option<u32> {
    let format = image.get(7..9)?;
    let (_, shift) = FORMATS.iter().find(|(its, _)| its == format)?;
    Some(word(image, 48)? >> shift & 0xff)
}

// Types of sections and symbols, and the bit of a kernel in the symbol's `st_other`.
const SYMBOLS: u32 = 2;
const NO_BITS: u32 = 8;
const OBJECT: u8 = 1;
const FUNCTION: u8 = 2;
const ENTRY: u8 = 0x10;

struct Section<'a> {
    name: &'a str,
    kind: u32,
    start: usize,
    size: usize,
    link: usize,
    align: usize,
}

struct Sections<'a> {
    image: &'a [u8],
    all: Vec<Section<'a>>,
}

impl<'a> Sections<'a> {
    fn new(image: &'a [u8]) -> Option<Self> {
        let size = usize::from(half(image, 60)?) * SECTION;
        let table = image.get(position(image, 40)?..)?.get(..size)?;
        let mut file = Self {
            image,
            all: Vec::new(),
        };
        for section in table.chunks_exact(SECTION) {
            file.all.push(Section {
                name: "",
                kind: word(section, 4)?,
                start: position(section, 24)?,
                size: position(section, 32)?,
                link: word(section, 40)? as usize,
                align: position(section, 48)?,
            });
        }
        let names = usize::from(half(image, 62)?);
        for (at, section) in table.chunks_exact(SECTION).enumerate() {
            file.all[at].name = file.text(names, word(section, 0)?)?;
        }
        Some(file)
    }

    fn data(&self, section: &Section) -> Option<&'a [u8]> {
        match section.kind {
            NO_BITS => Some(&[]),
            _ => self.image.get(section.start..)?.get(..section.size),
        }
    }

    /// Returns the text at an offset of the string table in the section `index`.
    fn text(&self, index: usize, offset: u32) -> Option<&'a str> {
        let texts = self.data(self.all.get(index)?)?.get(offset as usize..)?;
        let end = texts.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&texts[..end]).ok()
    }

    /// Returns the section with the name `prefix` and `name`.
    fn named(&self, prefix: &str, name: &str) -> Option<&Section<'a>> {
        let mut all = self.all.iter();
        all.find(|section| section.name.strip_prefix(prefix) == Some(name))
    }

    fn kernel(&self, name: &str, target: u32) -> Option<KernelInfo> {
        const PARAMETER: u8 = 0x17;
        const MAX_THREADS: u8 = 0x05;
        let mut params: Vec<(u16, (usize, usize))> = Vec::new();
        let mut threads = 1024;
        let info = self.named(".nv.info.", name);
        let mut info = info.map_or(Some(&[][..]), |info| self.data(info))?;
        // Entries of a format, an attribute and a number of 16 bits, which in one format is the size of data.
        while let Some((head, rest)) = info.split_at_checked(4) {
            let size = match head[0] {
                4 => usize::from(half(head, 2)?),
                _ => 0,
            };
            let (data, rest) = rest.split_at_checked(size)?;
            info = rest;
            match head[1] {
                PARAMETER => {
                    let (ordinal, offset) = (half(data, 4)?, half(data, 6)?);
                    params.push((
                        ordinal,
                        (usize::from(offset), (word(data, 8)? >> 18) as usize),
                    ));
                }
                MAX_THREADS => {
                    let sizes = [word(data, 0)?, word(data, 4)?, word(data, 8)?];
                    threads = sizes
                        .into_iter()
                        .fold(1, u32::saturating_mul)
                        .clamp(1, 1024);
                }
                _ => {}
            }
        }
        params.sort_unstable();
        let params = params.into_iter().map(|(_, place)| place).collect();
        let mut kernel = KernelInfo::new(name, params)?;
        kernel.limits.target = target;
        kernel.limits.threads = threads;
        let shared = self
            .named(".nv.shared.", name)
            .map_or(0, |section| section.size);
        kernel.limits.shared = u32::try_from(shared).ok()?;
        Some(kernel)
    }

    /// Returns a variable, unless the symbol is not one of the program.
    fn variable(&self, name: &str, symbol: &[u8]) -> Option<Variable> {
        let section = self.all.get(usize::from(half(symbol, 6)?))?;
        if !section.name.starts_with(".nv.global") && section.name != ".nv.constant3" {
            return None;
        }
        let (start, size) = (position(symbol, 8)?, position(symbol, 16)?);
        let data = self.data(section)?.get(start..).unwrap_or_default();
        Some(Variable {
            name: name.to_owned(),
            size,
            align: section.align.max(1),
            initial: data[..data.len().min(size)].to_vec(),
            managed: false,
        })
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.get(..2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.get(..4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Returns a number of 64 bits.
fn position(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.get(..8)?;
    usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::{START, length, parse};

    /// Returns a cubin for `sm_90` in the format of CUDA 13, with the kernel `k` of a number and a pointer.
    fn cubin() -> Vec<u8> {
        let names = b"\0.nv.info.k\0k\0";
        let mut info = Vec::new();
        for (ordinal, offset, size) in [(1u16, 8u16, 8u32), (0, 0, 4)] {
            info.extend([4, 0x17, 12, 0, 0, 0, 0, 0]);
            info.extend(ordinal.to_le_bytes());
            info.extend(offset.to_le_bytes());
            info.extend((size << 18).to_le_bytes());
        }
        let mut symbols = vec![0; 48];
        symbols[24] = 12;
        symbols[28..31].copy_from_slice(&[0x12, 0x10, 1]);
        let mut image = START.to_vec();
        image.extend([65, 8]);
        image.resize(64, 0);
        image[48..52].copy_from_slice(&0x0600_5a04u32.to_le_bytes());
        image[60] = 3;
        image[62] = 0;
        let mut table = Vec::new();
        for (name, kind, data) in [(0u32, 3u32, &names[..]), (1, 1, &info), (0, 2, &symbols)] {
            let mut section = [0; 64];
            section[..4].copy_from_slice(&name.to_le_bytes());
            section[4..8].copy_from_slice(&kind.to_le_bytes());
            section[24..32].copy_from_slice(&(image.len() as u64).to_le_bytes());
            section[32..40].copy_from_slice(&(data.len() as u64).to_le_bytes());
            image.extend(data);
            table.extend(section);
        }
        let start = image.len() as u64;
        image[40..48].copy_from_slice(&start.to_le_bytes());
        image.extend(table);
        image
    }

    #[test]
    fn kernels_and_their_parameters_are_found() {
        let image = cubin();
        assert_eq!(length(|at| image[at]), Some(image.len()));
        let contents = parse(&image, (9, 0)).expect("a cubin for this device");
        let [kernel] = &contents.kernels[..] else {
            panic!("{contents:?}");
        };
        assert_eq!((kernel.name.as_str(), kernel.limits.target), ("k", 90));
        assert_eq!(kernel.params, [(0, 4), (8, 8)]);
    }

    #[test]
    fn a_cubin_is_for_its_major_compute_capability() {
        for capability in [(8, 0), (10, 0), (8, 9)] {
            assert_eq!(parse(&cubin(), capability), None);
        }
        assert!(parse(&cubin(), (9, 1)).is_some());
    }

    #[test]
    fn damaged_and_shortened_cubins_neither_panic_nor_overflow() {
        let image = cubin();
        for at in 0..image.len() {
            let _ = parse(&image[..at], (9, 0));
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = image.clone();
                damaged[at] = value;
                let _ = parse(&damaged, (9, 0));
                let _ = length(|at| damaged.get(at).copied().unwrap_or(0xff));
            }
        }
    }

    #[test]
    fn nothing_is_read_after_a_byte_that_shows_that_it_is_no_cubin() {
        for image in [
            &b"\x7fELF-"[..],
            b"\x50",
            b"\x7fELF\x02\x01\x02",
            b"\x7fELF\x02\x01\x01\x00",
        ] {
            assert_eq!(length(|at| image[at]), None);
        }
    }
}
