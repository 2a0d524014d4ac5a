//! The engine of `cuda-ptx` as this test calls it.

use crate::create::PITCH;
use crate::form::{Form, Shape};
use crate::kernel;
use crate::object::{self, INTEGERS, NORMALIZED, Object, SRGB};
use cuda_ptx::check::SiteId;
use cuda_ptx::texture::{AddressMode, Format, Level, Number, Sampler, Texels, Texture};
use cuda_ptx::{Access, Device, FaultKind, Launch, Program, Region, run, syntax};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The address of the input. The output is [`STEP`] bytes further.
const BASE: u64 = 0x7000_0000_0000;
/// The distance between two ranges of memory.
const STEP: u64 = 1 << 40;

/// The bytes of the heap of a kernel, and those of each allocation.
const HEAP: usize = 1 << 20;
const ALLOCATION: u64 = 1 << 8;

/// The input, the output, the variables and the heap of a kernel.
struct Memory {
    ranges: Vec<(Vec<AtomicU64>, u64)>,
    heap: u64,
    /// The bytes of the heap that are allocated.
    allocated: AtomicU64,
    texture: Option<Arc<Texture>>,
    surface: Option<Arc<Texels>>,
}

impl Memory {
    fn add(&mut self, bytes: &[u8], size: usize) -> u64 {
        let words = (0..size.div_ceil(8)).map(|word| {
            let bytes = bytes.get(8 * word..).unwrap_or(&[]);
            let mut value = [0; 8];
            let count = bytes.len().min(8);
            value[..count].copy_from_slice(&bytes[..count]);
            AtomicU64::new(u64::from_le_bytes(value))
        });
        self.ranges.push((words.collect(), size as u64));
        BASE + STEP * (self.ranges.len() as u64 - 1)
    }
}

impl Device for Memory {
    fn region(
        &self,
        address: u64,
        _len: u64,
        _access: Access,
        _: SiteId,
    ) -> Result<Region<'_>, String> {
        let index = address.checked_sub(BASE).map(|offset| offset / STEP);
        let found = index.and_then(|index| Some((index, self.ranges.get(index as usize)?)));
        let (index, (words, size)) = found.ok_or("nothing is there")?;
        let start = BASE + STEP * index;
        Ok(Region { end: start + size, ..Region::new(start, words) })
    }

    fn print(&self, _text: &str) {}

    fn allocate(&self, size: u64) -> Option<u64> {
        let start = self.allocated.fetch_add(ALLOCATION, Ordering::Relaxed);
        let fits = size <= ALLOCATION && start + ALLOCATION <= HEAP as u64;
        fits.then_some(self.heap + start)
    }

    fn free(&self, address: u64) -> Result<(), String> {
        let offset = address.wrapping_sub(self.heap);
        let is_start = offset < self.allocated.load(Ordering::Relaxed) && offset % ALLOCATION == 0;
        is_start.then_some(()).ok_or("no allocation starts there".to_owned())
    }

    fn set_conditional(&self, _handle: u64, _value: u32) -> Result<(), String> {
        Err("there is no graph".to_owned())
    }

    fn texture(&self, handle: u64) -> Result<Arc<Texture>, String> {
        let found = self.texture.clone().filter(|_| handle == OBJECT);
        found.ok_or("there is no such texture".to_owned())
    }

    fn surface(&self, handle: u64) -> Result<Arc<Texels>, String> {
        let found = self.surface.clone().filter(|_| handle == OBJECT);
        found.ok_or("there is no such surface".to_owned())
    }
}

/// The handle of the texture or surface.
const OBJECT: u64 = 1;

/// Returns the format of texels.
fn format(object: &Object) -> Format {
    let flags = object.sampler.map_or(INTEGERS, |its| its.flags);
    let is_integer = flags & INTEGERS != 0;
    let number = match object.number {
        object::Number::U32 => Number::Unsigned,
        object::Number::S32 => Number::Signed,
        object::Number::U8 | object::Number::U16 if is_integer => Number::Unsigned,
        object::Number::S8 | object::Number::S16 if is_integer => Number::Signed,
        object::Number::F16 | object::Number::F32 => Number::Float,
        object::Number::S8
        | object::Number::S16
        | object::Number::Snorm8
        | object::Number::Snorm16 => Number::SignedFraction,
        _ => Number::UnsignedFraction,
    };
    Format {
        number,
        bits: 8 * object.number.bytes() as u32,
        channels: object.channels as u32,
        is_srgb: flags & SRGB != 0,
    }
}

impl Memory {
    /// Adds a texture or surface, and returns the address of its texels.
    fn add_object(&mut self, object: &Object) -> u64 {
        let mut levels = Vec::new();
        for level in 0..object.levels {
            let extent = object.extent_of(level);
            let texels = object.texels(level);
            let mut pitch = extent[0] * object.texel();
            let bytes = if object.shape == object::Shape::Pitched {
                let rows = texels.chunks_exact(pitch);
                pitch = PITCH;
                rows.flat_map(|row| {
                    let mut row = row.to_vec();
                    row.resize(PITCH, 0);
                    row
                })
                .collect()
            } else {
                texels
            };
            let address = self.add(&bytes, bytes.len());
            let slice = (pitch * extent[1].max(1)) as u64;
            let mut extent = extent.map(|extent| extent as u32);
            if object.shape != object::Shape::ThreeD {
                extent[2] = 0;
            }
            levels.push(Level { address, extent, pitch: pitch as u64, slice });
        }
        let depth = object.extent[2] as u32;
        let (layers, is_cubemap) = match object.shape {
            object::Shape::OneDLayered | object::Shape::TwoDLayered => (depth, false),
            object::Shape::Cubemap => (0, true),
            object::Shape::CubemapLayered => (depth / 6, true),
            _ => (0, false),
        };
        let address = levels.first().map_or(0, |level| level.address);
        let is_memory = matches!(object.shape, object::Shape::Linear | object::Shape::Pitched);
        let texels = Texels { format: format(object), levels, layers, is_cubemap, is_memory };
        match object.sampler {
            Some(its) => {
                let sampler = Sampler {
                    address_modes: its.modes.map(|mode| match mode {
                        0 => AddressMode::Wrap,
                        1 => AddressMode::Clamp,
                        2 => AddressMode::Mirror,
                        _ => AddressMode::Border,
                    }),
                    is_linear: its.is_linear,
                    is_mipmap_linear: its.is_mipmap_linear,
                    is_normalized: its.flags & NORMALIZED != 0,
                    border: its.border,
                    level_bias: its.bias,
                    levels: its.levels,
                };
                self.texture = Some(Arc::new(Texture { texels, sampler }));
            }
            None => self.surface = Some(Arc::new(texels)),
        }
        address
    }

    /// Returns the bytes at an address that `add` returned.
    fn bytes(&self, address: u64) -> Vec<u8> {
        let (words, size) = &self.ranges[((address - BASE) / STEP) as usize];
        let bytes = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        bytes.take(*size as usize).collect()
    }
}

/// Parses a module.
///
/// # Errors
/// The error of the parser.
pub(crate) fn parse(ptx: &str) -> Result<(), String> {
    syntax::parse(ptx).map(drop).map_err(|error| error.to_string())
}

/// What the engine says about a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Accepted,
    /// It is not PTX.
    Rejected,
    /// An instruction does not run.
    Refused,
}

/// Returns what the engine says about a module, and why.
pub(crate) fn verdict(ptx: &str) -> (Verdict, String) {
    let program = syntax::parse(ptx).map_err(|error| error.to_string());
    let program =
        program.and_then(|module| Program::link(&[module]).map_err(|error| error.to_string()));
    match program {
        Err(why) => (Verdict::Rejected, why),
        Ok(program) => {
            let refused = program
                .kernels()
                .iter()
                .find_map(|kernel| kernel.unsupported().next().map(|why| format!("{why:?}")));
            refused.map_or((Verdict::Accepted, String::new()), |why| (Verdict::Refused, why))
        }
    }
}

/// Returns the name of the error that the driver reports, without its prefix.
fn code(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::IllegalAddress | FaultKind::StackOverflow => "ILLEGAL_ADDRESS",
        FaultKind::Assert => "ASSERT",
        FaultKind::IllegalInstruction | FaultKind::InvalidProgramCounter => "ILLEGAL_INSTRUCTION",
        FaultKind::MisalignedAddress => "MISALIGNED_ADDRESS",
        FaultKind::InvalidAddressSpace => "INVALID_ADDRESS_SPACE",
        FaultKind::Trap => "LAUNCH_FAILED",
        _ => "no error",
    }
}

/// Runs a kernel whose first two parameters are the addresses of `input` and of `output_len` bytes,
/// which are 0 before. `more` are its other parameters. Returns the output, and the texels of a surface.
///
/// # Errors
/// The error of the parser, of the decoder or of the run. That of the run begins with the name of the driver's error.
pub(crate) fn run_on_engine(
    form: &Form,
    ptx: &str,
    kernel: &str,
    shape: Shape,
    input: &[u8],
    output_len: usize,
) -> Result<(Vec<u8>, Vec<u8>), String> {
    let module = syntax::parse(ptx).map_err(|error| error.to_string())?;
    let program = Program::link(&[module]).map_err(|error| error.to_string())?;
    let index = program.kernel(kernel).ok_or("there is no such kernel")?;
    let mut memory = Memory {
        ranges: Vec::new(),
        heap: 0,
        allocated: AtomicU64::new(0),
        texture: None,
        surface: None,
    };
    let addresses = [memory.add(input, input.len()), memory.add(&[], output_len)];
    memory.heap = memory.add(&[], if ptx.contains("malloc") { HEAP } else { 0 });
    let object = form.object.as_ref();
    let texels = object.map(|object| memory.add_object(object));
    let variables: Vec<u64> =
        program.variables().iter().map(|its| memory.add(&its.initial, its.size as usize)).collect();
    for (its, address) in program.variables().iter().zip(&variables) {
        let mut bytes = its.initial.clone();
        its.relocations.iter().for_each(|relocation| relocation.apply(&mut bytes, &variables));
        let (words, _) = &memory.ranges[((address - BASE) / STEP) as usize];
        for (word, chunk) in words.iter().zip(bytes.chunks(8)) {
            let mut value = [0; 8];
            value[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
    }
    let mut values: Vec<&[u8]> = Vec::new();
    let addresses = addresses.map(u64::to_le_bytes);
    values.extend(addresses.iter().map(<[u8; 8]>::as_slice));
    if kernel::takes_more(form) {
        values.extend(kernel::MORE_VALUES);
    }
    let tensor = form.tensor.as_ref().map(|tensor| {
        let bytes = tensor.memory();
        let address = memory.add(&bytes, bytes.len());
        let map: Vec<u8> =
            tensor.map(address).encode().into_iter().flat_map(u64::to_le_bytes).collect();
        (address, map)
    });
    if let Some((_, map)) = &tensor {
        values.push(map);
    }
    let handle = OBJECT.to_le_bytes();
    if object.is_some() {
        values.push(&handle);
    }
    let its = &program.kernels()[index];
    let mut params = vec![0; its.param_bytes()];
    for (value, param) in values.iter().zip(&its.params) {
        params[param.offset..param.offset + value.len()].copy_from_slice(value);
    }
    let mut launch = Launch::new(&program, index);
    (launch.grid, launch.block) = (shape.grid, shape.block);
    launch.params = &params;
    launch.variables = &variables;
    launch.steps = 100_000_000;
    run(&launch, &memory).map_err(|fault| format!("{}: {fault}", code(fault.kind)))?;
    let surface = texels.filter(|_| memory.surface.is_some());
    let written = surface.or(tensor.filter(|_| form.written() != 0).map(|(address, _)| address));
    Ok((memory.bytes(BASE + STEP), written.map_or(Vec::new(), |address| memory.bytes(address))))
}
