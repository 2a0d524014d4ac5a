//! The effect of an operation, when it runs.

use super::kernel::{self, Launch};
use super::{Call, Done, Failure, Work, interpret};
use crate::account::{note_unregistered, setting};
use crate::code::Code;
use crate::memory::{Memory, pinned_byte};
use crate::races::Access;
use cuda_sys::CUstreamAtomicReductionOpType;
use std::sync::atomic::Ordering;

/// Runs the work of an operation.
pub(super) fn run(work: Work, memory: &mut Memory, tick: u64) -> Done {
    let done = match work {
        Work::Kernel(call) => match run_kernel(*call, memory) {
            Ok(()) => Ok(()),
            Err(failure) => return Done::Fatal(failure),
        },
        Work::CopyIn { to, bytes } => {
            memory.target(to, bytes.len()).map(|target| target.copy_from_slice(&bytes))
        }
        Work::CopyInPinned { to, from, len } => copy_in(memory, to, from, len),
        Work::CopyOut { from, to, len } => copy_out(memory, from, to, len),
        Work::CopyOutHost { from, to, len } => {
            memory.note_host_access(to, len, Access::Write);
            memory.check_copy(memory.running_function, from, len);
            memory.bytes(from, len).map(|source| {
                let target = core::ptr::with_exposed_provenance_mut(to);
                // SAFETY: the caller of the function that enqueued the copy guarantees that `len` bytes
                // are writable until the copy is complete. The source has the same length and does not
                // overlap the target.
                unsafe { core::ptr::copy_nonoverlapping(source.as_ptr(), target, len) };
            })
        }
        Work::CopyInHost { to, from, len } => {
            memory.note_host_access(from, len, Access::Read);
            memory.target(to, len).map(|target| {
                let source = core::ptr::with_exposed_provenance(from);
                // SAFETY: the caller of the function that enqueued the copy guarantees that `len` bytes
                // are readable until the copy is complete. The target has the same length and does not
                // overlap the source.
                unsafe { core::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), len) };
            })
        }
        Work::CopyOnHost { from, to, len, must_be_pinned } => {
            let is_pinned = |address| memory.is_pinned(address, len);
            if must_be_pinned && !(is_pinned(from) && is_pinned(to)) {
                let what = format!("pinned memory of a copy, {len} bytes, was freed");
                return Done::Fatal(what.into());
            }
            memory.note_host_access(from, len, Access::Read);
            memory.note_host_access(to, len, Access::Write);
            let source = core::ptr::with_exposed_provenance::<u8>(from);
            let target = core::ptr::with_exposed_provenance_mut(to);
            // SAFETY: the caller of the function that enqueued the copy guarantees that both ranges can
            // be accessed until the copy is complete.
            unsafe { core::ptr::copy(source, target, len) };
            Ok(())
        }
        Work::CopyOnDevice { from, to, len } => copy_on_device(memory, from, to, len),
        Work::Fill { at, pattern, count } => {
            memory.target(at, pattern.len() * count).map(|target| fill(target, &pattern))
        }
        Work::Decompress(its) => its.run(memory),
        Work::Fabric(its) => its.run(memory),
        Work::WriteValue { at, bytes } => {
            memory.check_signal(at, &bytes);
            write_value(memory, at, &bytes)
        }
        Work::ReduceValue { at, value, size, reduction } => {
            reduce_value(memory, at, value, size, reduction)
        }
        Work::WaitValue { at, size, .. } => match memory.word(at, size) {
            Some(_) => {
                memory.forget_sources();
                Ok(())
            }
            None => Err(format!(
                "a wait for a value at {at:#x}, which is not allocated or is poisoned when the wait runs"
            )),
        },
        Work::Allocate(address) => {
            memory.note_lifetime(address, Access::Allocate);
            memory.make_ready(address)
        }
        Work::Attach(address, attached) => {
            memory.attach(address, attached);
            Ok(())
        }
        Work::Free(address) => {
            memory.note_lifetime(address, Access::Free);
            memory.free_in_order(address);
            Ok(())
        }
        Work::SetConditionals(values) => {
            for (handle, value) in values {
                memory.reset_conditional(handle, value);
            }
            Ok(())
        }
        Work::All(parts) => {
            for part in parts {
                match run(part, memory, tick) {
                    Done::Well => {}
                    other => return other,
                }
            }
            return Done::Well;
        }
        Work::Arrive(joint) => joint.arrive(memory),
        Work::Leave(joint) => joint.leave(memory),
        Work::Record { event } => return Done::Recorded(event, tick),
        // Callbacks and conditional nodes do not run here.
        Work::HostFn { .. }
        | Work::WaitFor { .. }
        | Work::Conditional(_)
        | Work::EndOfBody(_)
        | Work::CopyByCall
        | Work::Nothing => Ok(()),
    };
    match done {
        Ok(()) => Done::Well,
        Err(what) => Done::Fatal(what.into()),
    }
}

/// The number of bytes that fills and copies read at once, so that they stay in the processor's cache. A
/// multiple of the size of each pattern.
const PART: usize = 128 << 10;

/// Copies within device memory, in parts, so that a copy needs little memory of the host.
fn copy_on_device(memory: &mut Memory, from: u64, to: u64, len: usize) -> Result<(), String> {
    memory.bytes(from, len)?;
    // Before the target, which may overlap the source, is written.
    let written = memory.written_bits(from, len);
    memory.target(to, len)?;
    let mut part = vec![0; len.min(PART)];
    // Backwards if the target is after the source, which it may overlap.
    let parts = len.div_ceil(PART);
    for number in 0..parts {
        let number = if to > from { parts - 1 - number } else { number };
        let at = number * PART;
        let part = &mut part[..PART.min(len - at)];
        part.copy_from_slice(memory.bytes(from + at as u64, part.len())?);
        memory.target(to + at as u64, part.len())?.copy_from_slice(part);
    }
    if let Some(written) = written {
        memory.set_written_bits(to, &written);
    }
    Ok(())
}

/// Writes a pattern repeatedly, with calls that the C library makes at memory speed in every build.
fn fill(target: &mut [u8], pattern: &[u8]) {
    if let [byte] = pattern {
        target.fill(*byte);
        return;
    }
    let Some(start) = target.get_mut(..pattern.len()) else {
        return;
    };
    start.copy_from_slice(pattern);
    let mut written = pattern.len();
    while written < target.len() {
        let more = written.min(target.len() - written).min(PART);
        target.copy_within(..more, written);
        written += more;
    }
}

/// Returns whether a word fulfills the condition of a wait.
pub(super) fn holds(condition: u32, word: u64, value: u64, size: usize) -> bool {
    use cuda_sys::CUstreamWaitValue_flags as Wait;
    let all = if size == 4 { u64::from(u32::MAX) } else { u64::MAX };
    match Wait(condition) {
        // The difference, as a signed number, is not negative.
        Wait::CU_STREAM_WAIT_VALUE_GEQ => word.wrapping_sub(value) & all <= all >> 1,
        Wait::CU_STREAM_WAIT_VALUE_EQ => word == value,
        Wait::CU_STREAM_WAIT_VALUE_AND => word & value != 0,
        _ => !(word | value) & all != 0,
    }
}

pub(super) fn write_value(memory: &mut Memory, at: u64, bytes: &[u8]) -> Result<(), String> {
    let Some(host) = memory.host_reached(at, bytes.len()) else {
        memory.target(at, bytes.len())?.copy_from_slice(bytes);
        return Ok(());
    };
    memory.note_host_access(host, bytes.len(), Access::Write);
    for (offset, byte) in bytes.iter().enumerate() {
        // SAFETY: the byte is in pinned memory, as checked above, and the lock is held.
        let target = unsafe { pinned_byte(host + offset) };
        target.store(*byte, Ordering::Relaxed);
    }
    Ok(())
}

/// Changes a word. All work runs under one lock, so this is atomic.
fn reduce_value(
    memory: &mut Memory,
    at: u64,
    value: u64,
    size: usize,
    reduction: CUstreamAtomicReductionOpType,
) -> Result<(), String> {
    let Some(word) = memory.word(at, size) else {
        return Err(format!(
            "an atomic operation on a value at {at:#x}, which is not allocated or is poisoned when the operation runs"
        ));
    };
    let changed = match reduction {
        CUstreamAtomicReductionOpType::CU_STREAM_ATOMIC_REDUCTION_OP_AND => word & value,
        CUstreamAtomicReductionOpType::CU_STREAM_ATOMIC_REDUCTION_OP_OR => word | value,
        _ => word.wrapping_add(value),
    };
    write_value(memory, at, &changed.to_le_bytes()[..size])
}

fn run_kernel(call: Call, memory: &mut Memory) -> Result<(), Failure> {
    let name = &call.kernel.info.name;
    if let Some(body) = &call.kernel.body {
        let mut launch = Launch::new(memory, &call);
        let done = kernel::run(body, &mut launch);
        return done.map_err(|what| format!("kernel \"{name}\": {what}").into());
    }
    let why = match &call.kernel.code {
        Code::Ptx(program) => return interpret::run(program, &call, memory),
        Code::Machine => {
            let target = match call.kernel.info.limits.target {
                0 => String::new(),
                target => format!(" for sm_{target}"),
            };
            format!(
                "has only machine code{target}, so it cannot run: compile it to PTX (Numba does so without the \
                 package nvidia-nvjitlink), register"
            )
        }
        Code::None => "is not registered, so it cannot run: register".to_owned(),
    };
    note_unregistered(name);
    Err(Failure::from(format!(
        "kernel \"{name}\" {why} a function for it with {}, or let unregistered kernels do nothing with {}",
        setting("cuda_sim::kernel::register", "cuSimRegisterKernel"),
        setting(
            "Profile::ignoring_unregistered_kernels",
            "cuda-sim run --ignore-kernels, or CUDA_SIM_KERNELS=ignore"
        )
    )))
}

fn copy_in(memory: &mut Memory, to: u64, from: usize, len: usize) -> Result<(), String> {
    if !memory.is_pinned(from, len) {
        return Err(format!("the pinned source of a copy, {len} bytes, was freed"));
    }
    memory.check_source(from, len);
    memory.note_host_access(from, len, Access::Read);
    let target = memory.target(to, len)?;
    let source = core::ptr::with_exposed_provenance(from);
    // SAFETY: the source is alive and `len` bytes long, as checked above, and the lock is held, under which
    // it is freed. The program must not write it on the host while a device reads it. The target has the
    // same length.
    unsafe { core::ptr::copy(source, target.as_mut_ptr(), len) };
    Ok(())
}

fn copy_out(memory: &mut Memory, from: u64, to: usize, len: usize) -> Result<(), String> {
    if !memory.is_pinned(to, len) {
        return Err(format!("the pinned target of a copy, {len} bytes, was freed"));
    }
    memory.note_host_access(to, len, Access::Write);
    memory.check_copy(memory.running_function, from, len);
    let source = memory.bytes(from, len)?;
    let target = core::ptr::with_exposed_provenance_mut(to);
    // SAFETY: the target is alive and `len` bytes long, as checked above, and the lock is held, under which
    // it is freed. The program must not access it on the host while a device writes it. The source has the
    // same length.
    unsafe { core::ptr::copy(source.as_ptr(), target, len) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{PART, fill, holds};

    #[test]
    fn a_wait_ends_as_its_condition_says() {
        let (at_least, equal, and, nor) = (0, 1, 2, 3);
        for (condition, word, value, ends) in [
            (at_least, 5_u32, 5, true),
            (at_least, 4, 5, false),
            (at_least, 0, u32::MAX, true),
            (equal, 5, 5, true),
            (equal, 4, 5, false),
            (and, 1, 3, true),
            (and, 6, 2, true),
            (and, 4, 3, false),
            (nor, 1, 2, true),
            (nor, 0xffff_0000, 0x0000_ffff, false),
            (nor, u32::MAX, 1, false),
        ] {
            let held = holds(condition, u64::from(word), u64::from(value), 4);
            assert_eq!(held, ends, "{condition} {word:#x} {value:#x}");
        }
    }

    #[test]
    fn a_fill_repeats_its_pattern() {
        for count in (0..40).chain([PART, PART + 5]) {
            for pattern in [&[7][..], &[1, 2], &[1, 2, 3, 4]] {
                let mut target = vec![0; count * pattern.len()];
                fill(&mut target, pattern);
                assert_eq!(target, pattern.repeat(count));
            }
        }
    }
}
