//! Reads cubins, which are ELF files: the names and parameters of kernels, their limits, and variables.

use super::{ImageError, half, position, slice, word};
use crate::version::CudaVersion;
use std::collections::HashMap;

/// The first bytes of a cubin: ELF, 64 bits, little-endian, version 1.
const START: [u8; 7] = [0x7f, b'E', b'L', b'F', 2, 1, 1];

/// A version of the format.
struct Format {
    /// `EI_OSABI` and `EI_ABIVERSION`.
    abi: [u8; 2],
    /// The position of the architecture in the flags of the file.
    shift: u32,
    since: CudaVersion,
}

/// The formats that NVIDIA's tools write.
const FORMATS: [Format; 2] = [
    Format { abi: [51, 7], shift: 0, since: CudaVersion::new(8, 0) },
    Format { abi: [65, 8], shift: 8, since: CudaVersion::new(13, 0) },
];

/// The size of the header of a section.
const SECTION: usize = 64;
/// The size of an entry of a symbol table.
const SYMBOL: usize = 24;

/// The section of the variables in constant memory.
const CONSTANTS: &str = ".nv.constant3";

/// The shared memory that the system reserves in each block. If a cubin says so by a section of its own, it is
/// part of the sections of kernels.
const RESERVED: usize = 1024;

// Types of sections and symbols, and the bit of a kernel in the symbol's `st_other`.
const SYMBOLS: u32 = 2;
const NO_BITS: u32 = 8;
const OBJECT: u8 = 1;
const FUNCTION: u8 = 2;
const ENTRY: u8 = 0x10;

/// The contents of a cubin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cubin<'a> {
    /// The architecture: 90 for `sm_90`.
    pub architecture: u32,
    /// The CUDA version that introduced the format. Older drivers do not load the cubin.
    pub format_since: CudaVersion,
    /// The kernels.
    pub kernels: Vec<CubinKernel<'a>>,
    /// The size of all variables in constant memory, in bytes.
    pub constant_bytes: usize,
    /// The variables in device and constant memory.
    pub variables: Vec<CubinVariable<'a>>,
    /// The functions that other code may link to.
    pub functions: Vec<&'a str>,
    /// The functions that other code must define. A cubin that is loaded has none.
    pub undefined: Vec<&'a str>,
}

/// A kernel of a [`Cubin`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CubinKernel<'a> {
    /// The symbol: the mangled name of a C++ function.
    pub name: &'a str,
    /// The parameters, in their order.
    pub parameters: Vec<CubinParameter>,
    /// The maximum number of threads of a block that the source declares (`__launch_bounds__`).
    pub max_threads: Option<u32>,
    /// The cluster size that the source declares (`__cluster_dims__`).
    pub cluster: Option<[u32; 3]>,
    /// The static shared memory of a block, in bytes. It does not include the memory that the system
    /// reserves in each block.
    pub shared_bytes: usize,
    /// The number of registers of a thread.
    pub registers: u32,
    /// The local memory of a thread, in bytes.
    pub local_bytes: usize,
}

/// A parameter of a [`CubinKernel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CubinParameter {
    /// The position among the bytes of all parameters.
    pub offset: usize,
    /// The size in bytes.
    pub size: usize,
}

/// A variable of a [`Cubin`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CubinVariable<'a> {
    /// The symbol.
    pub name: &'a str,
    /// The size in bytes.
    pub size: usize,
    /// The alignment of the section of the variable, in bytes.
    pub align: usize,
    /// The first bytes of the initial value. The others are zero.
    pub initial: &'a [u8],
}

/// Returns the architecture of a cubin.
#[inline]
pub(super) fn architecture(image: &[u8]) -> Result<u32, ImageError> {
    let format = format(image)?;
    let flags = word(image, 48).ok_or(ImageError::Damaged("the header of the cubin"))?;
    Ok(flags >> format.shift & 0xff)
}

#[inline]
fn format(image: &[u8]) -> Result<&'static Format, ImageError> {
    if !image.starts_with(&START[..4]) {
        return Err(ImageError::NotAnImage);
    }
    let header = image.get(..64);
    let header = header.ok_or(ImageError::Damaged("the header of the cubin"))?;
    let mut known = FORMATS.iter();
    known
        .find(|format| header.starts_with(&START) && header[7..9] == format.abi)
        .ok_or(ImageError::UnknownFormat)
}

impl<'a> Cubin<'a> {
    /// Reads a cubin.
    ///
    /// # Errors
    /// The data is not a cubin, or is damaged.
    #[inline]
    pub fn read(image: &'a [u8]) -> Result<Self, ImageError> {
        let mut cubin = Self {
            architecture: architecture(image)?,
            format_since: format(image)?.since,
            kernels: Vec::new(),
            constant_bytes: 0,
            variables: Vec::new(),
            functions: Vec::new(),
            undefined: Vec::new(),
        };
        let sections = Sections::new(image).ok_or(ImageError::Damaged("a section of the cubin"))?;
        let constants = sections.named(CONSTANTS);
        cubin.constant_bytes = constants.map_or(0, |section| section.size);
        cubin.read_symbols(&sections).ok_or(ImageError::Damaged("a symbol of the cubin"))?;
        Ok(cubin)
    }

    #[inline]
    fn read_symbols(&mut self, sections: &Sections<'a>) -> Option<()> {
        let tables = sections.all.iter().filter(|section| section.kind == SYMBOLS);
        for table in tables {
            let first = self.kernels.len();
            // The index of each kernel in the symbol table.
            let mut indices = Vec::new();
            for (index, symbol) in sections.data(table)?.chunks_exact(SYMBOL).enumerate() {
                let name = sections.text(table.link, word(symbol, 0)?)?;
                let (kind, is_local) = (symbol[4] & 15, symbol[4] >> 4 == 0);
                let section = usize::from(half(symbol, 6)?);
                match kind {
                    FUNCTION if section == 0 => self.undefined.push(name),
                    FUNCTION if symbol[5] & ENTRY != 0 => {
                        indices.push(index);
                        self.kernels.push(sections.kernel(name)?);
                    }
                    FUNCTION if !is_local => self.functions.push(name),
                    OBJECT if section != 0 => {
                        self.variables.extend(sections.variable(name, section, symbol)?);
                    }
                    _ => {}
                }
            }
            let kernels = self.kernels.get_mut(first..)?;
            sections.read_needs(kernels, &indices)?;
        }
        Some(())
    }
}

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
    /// The index of each section.
    by_name: HashMap<&'a str, usize>,
}

impl<'a> Sections<'a> {
    #[inline]
    fn new(image: &'a [u8]) -> Option<Self> {
        let size = usize::from(half(image, 60)?) * SECTION;
        let table = slice(image, position(image, 40)?, size)?;
        let mut sections = Self { image, all: Vec::new(), by_name: HashMap::new() };
        for section in table.chunks_exact(SECTION) {
            sections.all.push(Section {
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
            let name = sections.text(names, word(section, 0)?)?;
            sections.all[at].name = name;
            sections.by_name.entry(name).or_insert(at);
        }
        Some(sections)
    }

    #[inline]
    fn data(&self, section: &Section) -> Option<&'a [u8]> {
        match section.kind {
            NO_BITS => Some(&[]),
            _ => slice(self.image, section.start, section.size),
        }
    }

    /// Returns the text at an offset of the string table in the section `index`.
    #[inline]
    fn text(&self, index: usize, offset: u32) -> Option<&'a str> {
        let texts = self.data(self.all.get(index)?)?.get(offset as usize..)?;
        let end = texts.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&texts[..end]).ok()
    }

    #[inline]
    fn named(&self, name: &str) -> Option<&Section<'a>> {
        self.by_name.get(name).map(|at| &self.all[*at])
    }

    #[inline]
    fn kernel(&self, name: &'a str) -> Option<CubinKernel<'a>> {
        const PARAMETER: u8 = 0x17;
        const MAX_THREADS: u8 = 0x05;
        const CLUSTER: u8 = 0x3d;
        let three = |data| Some([word(data, 0)?, word(data, 4)?, word(data, 8)?]);
        let mut parameters = Vec::new();
        let (mut max_threads, mut cluster) = (None, None);
        for entry in self.info(&format!(".nv.info.{name}"))? {
            let (attribute, data) = entry?;
            match attribute {
                PARAMETER => {
                    let parameter = CubinParameter {
                        offset: usize::from(half(data, 6)?),
                        size: (word(data, 8)? >> 18) as usize,
                    };
                    parameters.push((half(data, 4)?, parameter));
                }
                MAX_THREADS => {
                    let sizes = three(data)?.into_iter();
                    max_threads = Some(sizes.fold(1, u32::saturating_mul));
                }
                CLUSTER => cluster = Some(three(data)?),
                _ => {}
            }
        }
        parameters.sort_by_key(|(ordinal, _)| *ordinal);
        let shared = self.named(&format!(".nv.shared.{name}"));
        let shared = shared.map_or(0, |section| section.size);
        let reserved = self.named(".nv.shared.reserved.0").map_or(0, |_| RESERVED);
        Some(CubinKernel {
            name,
            parameters: parameters.into_iter().map(|(_, parameter)| parameter).collect(),
            max_threads,
            cluster,
            shared_bytes: shared.saturating_sub(reserved),
            registers: 0,
            local_bytes: 0,
        })
    }

    /// Reads the registers and the local memory of kernels, whose symbols have the `indices`.
    #[inline]
    fn read_needs(&self, kernels: &mut [CubinKernel<'a>], indices: &[usize]) -> Option<()> {
        const REGISTERS: u8 = 0x2f;
        const FRAME: u8 = 0x11;
        for entry in self.info(".nv.info")? {
            let (attribute, data) = entry?;
            if !matches!(attribute, REGISTERS | FRAME) {
                continue;
            }
            let (index, value) = (word(data, 0)?, word(data, 4)?);
            // Functions that are not kernels have such entries too.
            let Ok(at) = indices.binary_search(&(index as usize)) else {
                continue;
            };
            let kernel = kernels.get_mut(at)?;
            match attribute {
                REGISTERS => kernel.registers = value,
                _ => kernel.local_bytes = value as usize,
            }
        }
        Some(())
    }

    /// Returns the attributes and data in a section of `.nv.info`. A damaged entry is `None`, and the last.
    #[inline]
    fn info(&self, name: &str) -> Option<impl Iterator<Item = Option<(u8, &'a [u8])>> + use<'a>> {
        let info = self.named(name);
        let mut info = info.map_or(Some(&[][..]), |info| self.data(info))?;
        // Entries of a format, an attribute and a number of 16 bits, which in one format is the size of data.
        Some(std::iter::from_fn(move || {
            let (head, rest) = info.split_at_checked(4)?;
            let size = match head[0] {
                4 => usize::from(u16::from_le_bytes([head[2], head[3]])),
                _ => 0,
            };
            let Some((data, rest)) = rest.split_at_checked(size) else {
                info = &[];
                return Some(None);
            };
            info = rest;
            Some(Some((head[1], data)))
        }))
    }

    /// Returns a variable, or `Some(None)` if the symbol is not one of the program.
    #[inline]
    fn variable(
        &self,
        name: &'a str,
        section: usize,
        symbol: &[u8],
    ) -> Option<Option<CubinVariable<'a>>> {
        let is_of_program = |section: &&Section| {
            section.name.starts_with(".nv.global") || section.name == CONSTANTS
        };
        let Some(section) = self.all.get(section).filter(is_of_program) else {
            return Some(None);
        };
        let (start, size) = (position(symbol, 8)?, position(symbol, 16)?);
        let data = self.data(section)?.get(start..).unwrap_or_default();
        Some(Some(CubinVariable {
            name,
            size,
            align: section.align.max(1),
            initial: &data[..data.len().min(size)],
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{Cubin, CubinParameter, ImageError, START};
    use crate::version::CudaVersion;

    /// Returns a cubin for `sm_90` in the format of CUDA 13, with the kernel `k` of a number and a pointer, and the
    /// variable `v` of 8 bytes, of which 4 have an initial value.
    fn cubin() -> Vec<u8> {
        let names = b"\0.nv.info.k\0k\0.nv.global\0v\0";
        let mut info = Vec::new();
        for (ordinal, offset, size) in [(1u16, 8u16, 8u32), (0, 0, 4)] {
            info.extend([4, 0x17, 12, 0, 0, 0, 0, 0]);
            info.extend(ordinal.to_le_bytes());
            info.extend(offset.to_le_bytes());
            info.extend((size << 18).to_le_bytes());
        }
        let mut symbols = vec![0; 72];
        symbols[24] = 12;
        symbols[28..31].copy_from_slice(&[0x12, 0x10, 1]);
        symbols[48] = 25;
        symbols[52..55].copy_from_slice(&[0x11, 0, 3]);
        symbols[64] = 8;
        let mut image = START.to_vec();
        image.extend([65, 8]);
        image.resize(64, 0);
        image[48..52].copy_from_slice(&0x0600_5a04u32.to_le_bytes());
        image[60] = 4;
        image[62] = 0;
        let mut table = Vec::new();
        for (name, kind, data) in
            [(0u32, 3u32, &names[..]), (1, 1, &info), (0, 2, &symbols), (14, 1, &[1, 2, 3, 4])]
        {
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
        let cubin = Cubin::read(&image).expect("a cubin");
        assert_eq!(cubin.architecture, 90);
        assert_eq!(cubin.format_since, CudaVersion::new(13, 0));
        let [kernel] = &cubin.kernels[..] else {
            panic!("{cubin:?}");
        };
        assert_eq!((kernel.name, kernel.max_threads), ("k", None));
        let places = [(0, 4), (8, 8)];
        let places = places.map(|(offset, size)| CubinParameter { offset, size });
        assert_eq!(kernel.parameters, places);
        let [variable] = &cubin.variables[..] else {
            panic!("{cubin:?}");
        };
        assert_eq!((variable.name, variable.size, variable.initial), ("v", 8, &[1, 2, 3, 4][..]));
    }

    #[test]
    fn registers_and_local_memory_are_found_by_the_index_of_the_symbol() {
        // The name of the section is changed from `.nv.info.k` to `.nv.info`.
        let mut image = cubin();
        let at = image.windows(10).position(|text| text == b".nv.info.k");
        image[at.expect("the name") + 8] = 0;
        let entries = [(0x2f, 1, 25), (0x11, 1, 4000), (0x11, 0, 1), (0x12, 1, 5)];
        let entries = entries.map(|(attribute, index, value)| {
            [4, attribute, 8, 0, index, 0, 0, 0, value as u8, (value >> 8) as u8, 0, 0]
        });
        let at = image.windows(2).position(|text| text == [4, 0x17]);
        let at = at.expect("the entries");
        image[at..at + 32].copy_from_slice(&entries.concat()[..32]);
        // The second entry is complete, and the third is not.
        let error = Cubin::read(&image).expect_err("a damaged entry");
        assert_eq!(error, ImageError::Damaged("a symbol of the cubin"));
        image[at + 24..at + 32].fill(0);
        let cubin = Cubin::read(&image).expect("a cubin");
        let kernel = &cubin.kernels[0];
        assert_eq!((kernel.registers, kernel.local_bytes), (25, 4000));
    }

    #[test]
    fn a_variable_whose_section_exceeds_the_image_makes_it_a_damaged_one() {
        let mut image = cubin();
        // The size of the last section.
        let at = image.len() - 64 + 32;
        image[at + 2] = 1;
        let error = Cubin::read(&image).expect_err("a damaged section");
        assert_eq!(error, ImageError::Damaged("a symbol of the cubin"));
    }

    #[test]
    fn both_versions_of_the_format_have_the_architecture_in_their_flags() {
        // From the compilers of CUDA 12.4 and 13.5.
        for (abi, flags, architecture) in [
            ([51, 7], 0x0050_0550_u32, 80),
            ([65, 8], 0x0600_5a04, 90),
            ([65, 8], 0x0600_7802, 120),
        ] {
            let mut image = cubin();
            image[7..9].copy_from_slice(&abi);
            image[48..52].copy_from_slice(&flags.to_le_bytes());
            assert_eq!(super::architecture(&image), Ok(architecture));
        }
        let mut image = cubin();
        image[8] = 9;
        assert_eq!(Cubin::read(&image), Err(ImageError::UnknownFormat));
    }

    /// Reads a damaged cubin. All that is found lies in the image, and bytes after the image do not change it.
    /// Returns whether the cubin is accepted.
    fn read(image: &[u8]) -> bool {
        let Ok(cubin) = Cubin::read(image) else {
            return false;
        };
        let names = cubin.kernels.iter().map(|kernel| kernel.name).chain(cubin.functions.clone());
        let variables = cubin.variables.iter();
        let texts =
            names.chain(cubin.undefined.clone()).chain(variables.clone().map(|its| its.name));
        for bytes in texts.map(str::as_bytes).chain(variables.clone().map(|its| its.initial)) {
            let found = bytes.as_ptr_range();
            let all = image.as_ptr_range();
            assert!(bytes.is_empty() || all.start <= found.start && found.end <= all.end);
        }
        assert!(variables.clone().all(|its| its.initial.len() <= its.size && its.align > 0));
        let longer = [image, &[0xa5; 100]].concat();
        assert_eq!(Cubin::read(&longer).as_ref(), Ok(&cubin));
        true
    }

    #[test]
    fn all_shortened_cubins_and_all_with_a_wrong_byte_are_read_within_their_bytes() {
        let image = cubin();
        let (mut cases, mut accepted) = (0, 0);
        for at in 0..image.len() {
            assert!(Cubin::read(&image[..at]).is_err(), "{at} bytes");
            for value in 0..=u8::MAX {
                let mut damaged = image.clone();
                damaged[at] = value;
                accepted += usize::from(read(&damaged));
                cases += 1;
            }
        }
        println!("{cases} cases, of which {accepted} are accepted");
        assert!(accepted > 10_000 && accepted < cases);
    }

    #[test]
    fn cubins_with_extreme_numbers_in_two_fields_neither_panic_nor_overflow() {
        let image = cubin();
        let extremes = [0, 1, 64, image.len() as u64 - 1, u64::MAX / 2, u64::MAX - 63, u64::MAX];
        let write = |image: &mut [u8], at: usize, value: u64| {
            let end = image.len().min(at + 8);
            image[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        };
        let mut cases = 0;
        // The fields of the header, of the last section headers, and of the symbols.
        let table = image.len() - 4 * 64;
        let fields = [40, 60, 62].into_iter().chain((table - 80..image.len()).step_by(8));
        for (one, other) in
            fields.clone().flat_map(|one| fields.clone().map(move |other| (one, other)))
        {
            for (value, other_value) in
                extremes.iter().flat_map(|one| extremes.map(|other| (*one, other)))
            {
                let mut damaged = image.clone();
                write(&mut damaged, one, value);
                write(&mut damaged, other, other_value);
                read(&damaged);
                cases += 1;
            }
        }
        println!("{cases} cases");
    }
}
