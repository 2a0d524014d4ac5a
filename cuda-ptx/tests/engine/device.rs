//! A device with a list of allocations.

use cuda_ptx::check::{Finding, SiteId};
use cuda_ptx::{Access, Device, Fault, Launch, Program, Region, Validity, run, syntax};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The address of the first allocation.
const BASE: u64 = 0x7000_0000_0000;
/// The distance between allocations.
const STEP: u64 = 1 << 32;
/// The first multicast address.
const MULTICAST: u64 = 0x6000_0000_0000;

/// Words, and the number of bytes, which may be some less if a test wants it.
#[derive(Debug)]
struct Allocation {
    words: Vec<AtomicU64>,
    len: u64,
    /// The bits that were written, if they are tracked.
    written: Option<Vec<AtomicU64>>,
    is_host_visible: bool,
}

/// A device for tests.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    allocations: Vec<Allocation>,
    /// The allocations that each multicast address reaches.
    teams: Vec<Vec<u64>>,
    pub(crate) printed: Mutex<String>,
    pub(crate) conditionals: Mutex<Vec<(u64, u32)>>,
    pub(crate) findings: Mutex<Vec<Finding>>,
}

impl Memory {
    /// Allocates memory with these bytes and returns its address.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> u64 {
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            AtomicU64::new(u64::from_le_bytes(word))
        });
        self.allocations.push(Allocation {
            words: words.collect(),
            len: bytes.len() as u64,
            written: None,
            is_host_visible: false,
        });
        BASE + STEP * (self.allocations.len() as u64 - 1)
    }

    /// Allocates zeros, and tracks which bits are written. None are so far.
    pub(crate) fn unwritten(&mut self, bytes: usize) -> u64 {
        let address = self.bytes(&vec![0; bytes]);
        self.track(address, 0);
        address
    }

    /// Allocates zeros that count as written, and tracks later writes.
    pub(crate) fn written(&mut self, bytes: usize) -> u64 {
        let address = self.bytes(&vec![0; bytes]);
        self.track(address, u64::MAX);
        address
    }

    /// Allocates zeros that the host can see.
    pub(crate) fn of_host(&mut self, bytes: usize) -> u64 {
        let address = self.bytes(&vec![0; bytes]);
        self.allocations.last_mut().unwrap().is_host_visible = true;
        address
    }

    /// Returns a multicast address that reaches allocations.
    pub(crate) fn multicast_of(&mut self, members: &[u64]) -> u64 {
        self.teams.push(members.to_vec());
        MULTICAST + STEP * (self.teams.len() as u64 - 1)
    }

    /// Frees memory. Its address is not used again.
    pub(crate) fn free(&mut self, address: u64) {
        self.allocations[((address - BASE) / STEP) as usize].len = 0;
    }

    fn track(&mut self, address: u64, bits: u64) {
        let its = &mut self.allocations[((address - BASE) / STEP) as usize];
        its.written = Some(its.words.iter().map(|_| AtomicU64::new(bits)).collect());
    }

    fn find(&self, address: u64) -> Option<(u64, &Allocation)> {
        let index = address.checked_sub(BASE)? / STEP;
        Some((BASE + STEP * index, self.allocations.get(usize::try_from(index).ok()?)?))
    }

    /// Allocates numbers of 32 bits.
    pub(crate) fn words(&mut self, words: &[u32]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.bytes(&bytes)
    }

    /// Returns the numbers of an allocation.
    pub(crate) fn read(&self, address: u64) -> Vec<u32> {
        let Allocation { words, len, .. } = &self.allocations[((address - BASE) / STEP) as usize];
        let all = words.iter().flat_map(|word| {
            let word = word.load(Ordering::Relaxed);
            [word as u32, (word >> 32) as u32]
        });
        all.take((*len / 4) as usize).collect()
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
        let (start, its) = self.find(address).ok_or("nothing is allocated there")?;
        Ok(Region { end: start + its.len, ..Region::new(start, &its.words) })
    }

    fn validity(&self, address: u64, len: u64) -> Validity<'_> {
        let Some((start, its)) = self.find(address) else {
            let end = address.saturating_add(len);
            return Validity { start: address, end, written: None, is_host_visible: false };
        };
        let end = start + its.len;
        let written = its.written.as_deref();
        let written = written.map(|words| Region { end, ..Region::new(start, words) });
        Validity { start, end, written, is_host_visible: its.is_host_visible }
    }

    fn multicast(
        &self,
        address: u64,
        len: u64,
        access: Access,
        by: SiteId,
    ) -> Result<Vec<Region<'_>>, String> {
        let offset = address.checked_sub(MULTICAST).ok_or("no device is there")?;
        let team = usize::try_from(offset / STEP).ok().and_then(|at| self.teams.get(at));
        let members = team.ok_or("no device is there")?.iter().map(|start| start + offset % STEP);
        let region = |start| {
            let whole = self.region(start, len, access, by)?;
            Ok(Region { start, end: whole.end.min(start + len), ..whole })
        };
        members.map(region).collect()
    }

    fn print(&self, text: &str) {
        self.printed.lock().unwrap().push_str(text);
    }

    fn allocate(&self, _size: u64) -> Option<u64> {
        None
    }

    fn free(&self, address: u64) -> Result<(), String> {
        Err(format!("{address:#x} is not an allocation of the heap"))
    }

    fn finding(&self, finding: Finding) {
        self.findings.lock().unwrap().push(finding);
    }

    fn set_conditional(&self, handle: u64, value: u32) -> Result<(), String> {
        self.conditionals.lock().unwrap().push((handle, value));
        Ok(())
    }
}

/// Links one text.
pub(crate) fn link(text: &str) -> Program {
    let module = syntax::parse(text).unwrap_or_else(|error| panic!("{error}"));
    Program::link(&[module]).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the bytes of parameters of 64 bits.
pub(crate) fn params(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Runs the first kernel of a text with parameters of 64 bits.
pub(crate) fn launch(
    text: &str,
    memory: &Memory,
    (grid, block): (u32, u32),
    values: &[u64],
) -> Result<(), Box<Fault>> {
    launch_with(text, memory, (grid, block), values, |_| {})
}

/// The same, after changes to the launch.
pub(crate) fn launch_with(
    text: &str,
    memory: &Memory,
    (grid, block): (u32, u32),
    values: &[u64],
    change: impl FnOnce(&mut Launch<'_>),
) -> Result<(), Box<Fault>> {
    let program = link(text);
    let params = params(values);
    let mut launch = Launch::new(&program, 0);
    (launch.grid, launch.block) = ([grid, 1, 1], [block, 1, 1]);
    launch.params = &params;
    launch.steps = 50_000_000;
    change(&mut launch);
    run(&launch, memory)
}

/// Returns a module with a kernel of parameters `p0`, `p1` .. of 64 bits, and registers of all types.
pub(crate) fn kernel(params: usize, body: &str) -> String {
    let params: Vec<String> = (0..params).map(|at| format!(".param .u64 p{at}")).collect();
    format!(
        ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry k({})\n{{\n\
         .reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<60>; .reg .b64 %d<60>; .reg .f32 %f<20>;\n\
         .reg .f64 %g<20>;\n{body}\nret;\n}}\n",
        params.join(", ")
    )
}
