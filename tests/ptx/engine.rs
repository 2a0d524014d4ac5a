//! The engine of `cuda-ptx` as this test calls it.

use crate::form::Shape;
use cuda_ptx::{Access, Device, Launch, Program, Region, run, syntax};
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
    fn region(&self, address: u64, _len: u64, _access: Access) -> Result<Region<'_>, String> {
        let index = address.checked_sub(BASE).map(|offset| offset / STEP);
        let found = index.and_then(|index| Some((index, self.ranges.get(index as usize)?)));
        let (index, (words, size)) = found.ok_or("nothing is there")?;
        let start = BASE + STEP * index;
        Ok(Region { base: start, words, start, end: start + size, is_writable: true })
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

/// Runs a kernel whose first two parameters are the addresses of `input` and of `output_len` bytes,
/// which are 0 before. `more` are its other parameters. Returns the output.
///
/// # Errors
/// The error of the parser, of the decoder or of the run.
pub(crate) fn run_on_engine(
    ptx: &str,
    kernel: &str,
    shape: Shape,
    input: &[u8],
    more: &[&[u8]],
    output_len: usize,
) -> Result<Vec<u8>, String> {
    let module = syntax::parse(ptx).map_err(|error| error.to_string())?;
    let program = Program::link(&[module]).map_err(|error| error.to_string())?;
    let index = program.kernel(kernel).ok_or("there is no such kernel")?;
    let mut memory = Memory { ranges: Vec::new(), heap: 0, allocated: AtomicU64::new(0) };
    let addresses = [memory.add(input, input.len()), memory.add(&[], output_len)];
    memory.heap = memory.add(&[], if ptx.contains("malloc") { HEAP } else { 0 });
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
    values.extend(more);
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
    run(&launch, &memory).map_err(|fault| fault.to_string())?;
    let (words, size) = &memory.ranges[1];
    let bytes = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
    Ok(bytes.take(*size as usize).collect())
}
