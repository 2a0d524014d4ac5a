//! Kernels that run by their PTX.

use super::{Call, Failure};
use crate::account::note_limit;
use crate::checks::check::SiteId;
use crate::checks::{self, Finding, check};
use crate::coverage;
use crate::memory::{Known, Memory, Use};
use crate::thread;
use cuda_ptx::texture::{Texels, Texture};
use cuda_ptx::{Access, Device, Edge, FaultKind, Launch, Program, Region, Validity};
use cuda_sys::CUresult;
use std::io::Write;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bytes of local memory that a thread may use, as many as on a GPU.
const STACK: u32 = 512 << 10;

/// Runs a kernel by its PTX.
pub(super) fn run(program: &Arc<Program>, call: &Call, memory: &mut Memory) -> Result<(), Failure> {
    let name = &call.kernel.info.name;
    // A panic must not unwind into C.
    let done = catch_unwind(AssertUnwindSafe(|| thread::kernel(|| launch(program, call, memory))));
    let done = done.unwrap_or_else(|_| Err(Failure::from("the engine panicked".to_owned())));
    done.map_err(|Failure { code, text }| Failure {
        code,
        text: format!("kernel \"{name}\": {text}"),
    })
}

fn launch(program: &Arc<Program>, call: &Call, memory: &mut Memory) -> Result<(), Failure> {
    let invalid = |text: String| Failure { code: CUresult::CUDA_ERROR_INVALID_PTX, text };
    let info = &call.kernel.info;
    let kernel = program.kernel(&info.name).ok_or_else(|| invalid("not in its PTX".into()))?;
    let variables: Vec<u64> = program
        .variables()
        .iter()
        .map(|its| {
            let placed = call.kernel.variables.as_ref();
            placed.and_then(|placed| placed.find(&its.name, false)).map_or(0, |(at, _)| at)
        })
        .collect();
    relocate(program, call, &variables, memory);
    let kernel_code = &program.kernels()[kernel];
    let mut params = vec![0; kernel_code.param_bytes()];
    for (argument, param) in call.arguments.iter().zip(&kernel_code.params) {
        if let Some(to) = params.get_mut(param.offset..param.offset + argument.len()) {
            to.copy_from_slice(argument);
        }
    }
    let mut launch = Launch::new(program, kernel);
    launch.grid = call.grid;
    launch.block = call.block;
    launch.cluster = call.cluster;
    launch.is_clustered = call.cluster != [1; 3];
    launch.dynamic_shared = call.shared;
    launch.params = &params;
    launch.variables = &variables;
    launch.stack = STACK;
    launch.is_cooperative = call.cooperative;
    launch.sms = &call.sms;
    launch.sm_count = u32::try_from(call.sms.len()).unwrap_or(1);
    launch.seed = memory.seed;
    launch.checks = memory.checks;
    // Races are noted in the order of the accesses.
    let threads = call.grid.iter().chain(&call.block).map(|extent| u64::from(*extent));
    let is_large = threads.fold(1, u64::saturating_mul) > SMALL;
    if is_large && !kernel_code.depends_on_order() && memory.accesses.is_none() {
        launch.threads = std::thread::available_parallelism().map_or(1, usize::from);
    }
    if let Some(interleavings) = &mut memory.interleavings {
        launch.interleaving = interleavings.next().filter(|_| kernel_code.depends_on_order());
        launch.steps = ENDLESS;
    }
    if let Some(log) = &mut memory.accesses {
        log.begin_kernel(program, kernel, call.block);
    }
    let counted = coverage::counters(program);
    launch.counts = counted.as_ref().and_then(|counted| counted.kernel(kernel));
    let device = Memories { memory: Mutex::new(memory), call };
    let done = cuda_ptx::run(&launch, &device);
    device.lock().release_heap();
    // The output of `vprintf` may be in a buffer.
    let _ = std::io::stdout().flush();
    done.map_err(|fault| Failure { code: code_of(fault.kind), text: fault.to_string() })
}

/// A kernel that is explored and runs more operations than this is treated as endless.
const ENDLESS: u64 = 1 << 22;

/// Launches with at most so many threads run on one thread of the host, as others would start later than they end.
const SMALL: u64 = 1 << 14;

/// Writes the addresses that initial values of variables contain, once for each context.
fn relocate(program: &Program, call: &Call, addresses: &[u64], memory: &mut Memory) {
    let Some(placed) = &call.kernel.variables else { return };
    if placed.is_relocated.swap(true, std::sync::atomic::Ordering::Relaxed) {
        return;
    }
    for (variable, address) in program.variables().iter().zip(addresses) {
        if variable.relocations.is_empty() {
            continue;
        }
        let size = usize::try_from(variable.size).unwrap_or(usize::MAX);
        if let Ok(bytes) = memory.bytes_for(*address, size, Use::Write) {
            variable.relocations.iter().for_each(|its| its.apply(bytes, addresses));
        }
    }
}

/// Returns the code of an error (measured on an H200, except for those of waits without end).
fn code_of(kind: FaultKind) -> CUresult {
    match kind {
        FaultKind::IllegalAddress | FaultKind::StackOverflow => {
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        }
        FaultKind::Assert => CUresult::CUDA_ERROR_ASSERT,
        FaultKind::IllegalInstruction | FaultKind::InvalidProgramCounter => {
            CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
        }
        FaultKind::MisalignedAddress => CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
        FaultKind::InvalidAddressSpace => CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
        FaultKind::Deadlock | FaultKind::StepLimit => CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
        _ => CUresult::CUDA_ERROR_LAUNCH_FAILED,
    }
}

/// `cudaStreamGraphTailLaunch`, `cudaStreamGraphFireAndForget` and `cudaStreamGraphFireAndForgetAsSibling`.
const STREAMS_OF_GRAPHS: [u64; 3] = [1 << 56, 2 << 56, 3 << 56];

/// The memory that a kernel may access.
struct Memories<'a> {
    memory: Mutex<&'a mut Memory>,
    call: &'a Call,
}

impl<'a> Memories<'a> {
    fn lock(&self) -> MutexGuard<'_, &'a mut Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for Memories<'_> {
    fn region(
        &self,
        address: u64,
        len: u64,
        access: Access,
        by: SiteId,
    ) -> Result<Region<'_>, String> {
        let Call { context, device, .. } = *self.call;
        let wanted = if access == Access::Read { Use::Read } else { Use::Write };
        let range = (address, usize::try_from(len).unwrap_or(usize::MAX));
        let mut memory = self.lock();
        let found = memory.check_reach(range, context, device, wanted);
        let found =
            found.and_then(|()| memory.region_for(range, wanted, access == Access::Atomic, by));
        let (start, host, size) = found.map_err(|what| without_bytes(what, address, len))?;
        let region = match memory.registered_around(address) {
            // SAFETY: the memory is registered until the kernel ends: the driver is locked. `region_for` has compared
            // the alignments. The device accesses the memory by such operations only, and the program must not access
            // memory on the host while a device uses it.
            Some(memory) => unsafe { registered_region(address..address + len, memory) },
            // SAFETY: the same holds for allocations, which have whole words.
            None => unsafe { words(start, host, size) },
        };
        let end = region.end.min(start + size as u64);
        let start = region.start.max(start);
        Ok(Region { start, end, is_writable: wanted == Use::Write, ..region })
    }

    fn validity(&self, address: u64, _len: u64) -> Validity<'_> {
        let Known { range, written, is_host_visible } = self.lock().known(address);
        let size = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        // SAFETY: the words are alive until the kernel ends, as the allocation is, which has whole words. They are
        // accessed as atomic words only.
        let words = |host| unsafe { words(range.start, host, size) };
        let written = written.map(words);
        Validity { start: range.start, end: range.end, written, is_host_visible }
    }

    fn multicast(
        &self,
        address: u64,
        len: u64,
        access: Access,
        by: SiteId,
    ) -> Result<Vec<Region<'_>>, String> {
        let device = self.call.device;
        let wanted = if access == Access::Read { Use::Read } else { Use::Write };
        let size = usize::try_from(len).unwrap_or(usize::MAX);
        let how = (wanted, access == Access::Atomic);
        let found = self.lock().multicast_regions((address, size), device, how, by);
        let found = found.map_err(|what| without_bytes(what, address, len))?;
        // SAFETY: the bytes are in a view of physical memory, which a binding keeps until the kernel ends: the driver is
        // locked. A view has whole pages, and so whole words. For the accesses see `region`.
        let words = |(start, host)| unsafe { words(start, host, size) };
        let of = |place| Region { is_writable: wanted == Use::Write, ..words(place) };
        Ok(found.into_iter().map(of).collect())
    }

    fn print(&self, text: &str) {
        // A closed output is no error of the kernel.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }

    fn allocate(&self, size: u64) -> Option<u64> {
        let Call { context, device, .. } = *self.call;
        self.lock().allocate_on_heap(size, context, device)
    }

    fn free(&self, address: u64) -> Result<(), String> {
        self.lock().free_on_heap(address)
    }

    fn finding(&self, error: check::Finding) {
        let memory = self.lock();
        let place = match error.address {
            Some(check::Address::Global(at)) => Some(memory.memory_of(at..at + 1)),
            _ => None,
        };
        let (function, seed) = (memory.running_function, memory.seed);
        checks::report(Finding { error, memory: place, function, seed });
    }

    fn limit(&self, text: &str) {
        let name = &self.call.kernel.info.name;
        note_limit(format!("kernel \"{name}\": {text}"));
    }

    fn set_conditional(&self, handle: u64, value: u32) -> Result<(), String> {
        self.lock().set_conditional(handle, value, self.call.executable)
    }

    fn launch_graph(&self, graph: u64, stream: u64) -> Result<(), String> {
        if !STREAMS_OF_GRAPHS.contains(&stream) {
            return Err(format!(
                "a graph is launched in the stream {stream:#x}, which is not one for graphs"
            ));
        }
        self.lock().launch_graph(self.call.executable, graph)
    }

    fn texture(&self, handle: u64) -> Result<Arc<Texture>, String> {
        self.lock().texture(self.call.context, handle)
    }

    fn surface(&self, handle: u64) -> Result<Arc<Texels>, String> {
        self.lock().surface(self.call.context, handle)
    }
}

/// Removes the bytes from an error, since the report of the engine names them.
fn without_bytes(error: String, address: u64, len: u64) -> String {
    match error.strip_prefix(&format!("{len} bytes at {address:#x} ")) {
        Some(rest) => format!("they {rest}"),
        None => error,
    }
}

/// Returns the whole words of registered memory, or an edge of it: the memory may start and end within a word, and the
/// bytes around it are not the device's.
///
/// # Safety
/// The bytes of the range are at the address on the host, whose alignment is the same. They are alive as long as the
/// region, and are accessed by the atomic operations of such regions only.
unsafe fn registered_region<'a>(
    access: Range<u64>,
    (memory, host): (Range<u64>, usize),
) -> Region<'a> {
    let host_of = |address: u64| host + (address - memory.start) as usize;
    let (start, end) = (memory.start.next_multiple_of(8), memory.end & !7);
    if start <= access.start && access.end <= end {
        // SAFETY: the words are part of the memory, whose bytes are alive.
        return unsafe { words(start, host_of(start), (end - start) as usize) };
    }
    for size in [4, 2, 1] {
        let start = access.start & !(size - 1);
        let end = start + size;
        if start < memory.start || memory.end < end || end < access.end {
            continue;
        }
        let pointer = core::ptr::with_exposed_provenance_mut::<u8>(host_of(start));
        let edge = match size {
            // SAFETY: the bytes are part of the memory, which is alive. Their address is a multiple of their count.
            4 => Edge::Four(unsafe { AtomicU32::from_ptr(pointer.cast()) }),
            // SAFETY: as above.
            2 => Edge::Two(unsafe { AtomicU16::from_ptr(pointer.cast()) }),
            // SAFETY: as above.
            _ => Edge::One(unsafe { AtomicU8::from_ptr(pointer) }),
        };
        return Region { edge: Some(edge), end, ..Region::new(start, &[]) };
    }
    // The engine refuses an access that is not aligned.
    Region { end: access.end, ..Region::new(access.start, &[]) }
}

/// Returns the words of `size` bytes, whose address on the device is `start`.
///
/// # Safety
/// The bytes at `host`, and those of their first and last word, are alive as long as the region, and are accessed as
/// atomic words only.
unsafe fn words<'a>(start: u64, host: usize, size: usize) -> Region<'a> {
    let before = (start & 7) as usize;
    let pointer = core::ptr::with_exposed_provenance(host - before);
    let count = (before + size).div_ceil(8);
    // SAFETY: the caller guarantees that the words are alive, and accessed as atomic words.
    let words = unsafe { core::slice::from_raw_parts(pointer, count) };
    Region { start, end: start + size as u64, ..Region::new(start - before as u64, words) }
}
