//! Finds a data race between two streams with the software driver.
//!
//! `cargo run --example races` runs a small pipeline twice: one stream uploads data, and another one scales it
//! with a kernel. The first version forgets the event between the two streams, and the software driver
//! reports the race. The second version has the event.
//!
//! The streams are those of `cuda-safe`, but the copy and the launch are raw calls on raw memory, as in a
//! program in C: safe code of `cuda-safe` has no data races.

mod support;

use core::ffi::c_void;
use cuda_safe::sys::{
    CUdeviceptr, CUfunction, CUmodule, CUresult, cuLaunchKernel, cuMemAlloc_v2, cuMemAllocHost_v2,
    cuMemFree_v2, cuMemFreeHost, cuMemcpyHtoDAsync_v2, cuModuleGetFunction, cuModuleLoadData,
    cuModuleUnload,
};
use cuda_safe::{Context, Device, Stream};
use cuda_sim::Profile;
use std::error::Error;
use std::process::ExitCode;

/// Kernels for GPUs. The software driver runs the function below under the kernel's name.
const MODULE: &str = concat!(include_str!("../tests/kernels/vector.ptx"), "\0");

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const LEN: u32 = 1024;
const BYTES: usize = LEN as usize * size_of::<i32>();

fn main() -> ExitCode {
    support::main(run)
}

fn run() -> Result {
    cuda_sim::install(Profile::h200().with_race_detection())?;
    let context = Context::primary(&Device::get(0)?)?;

    println!("A pipeline without an event between its streams:");
    pipeline(&context, false)?;
    let found = cuda_sim::races();
    // The driver has printed each race on stderr.
    for cuda_sim::races::Race { first, second, .. } in &found {
        let (a, b) = (first.function, second.function);
        println!("  {a} on {}, and {b} on {}", first.place, second.place);
    }

    println!("The same pipeline with the event:");
    pipeline(&context, true)?;
    let more = cuda_sim::races().len() - found.len();
    println!("  {more} races");
    if (found.len(), more) == (1, 0) {
        Ok(())
    } else {
        Err("one race was expected in the first pipeline, and none in the second".into())
    }
}

/// Uploads data on one stream, and scales it on another one.
fn pipeline(context: &Context, is_ordered: bool) -> Result {
    let (uploads, computations) = (context.stream()?, context.stream()?);
    let uploaded = context.event()?;
    let _current = context.make_current()?;
    let memory = Memory::allocate()?;

    // SAFETY: both sides have this size, and live until the streams are synchronized.
    check(unsafe { cuMemcpyHtoDAsync_v2(memory.device, memory.host, BYTES, uploads.as_raw()) })?;
    if is_ordered {
        uploaded.record(&uploads)?;
        computations.wait_event(&uploaded)?;
    }
    memory.scale(&computations)?;

    uploads.synchronize()?;
    computations.synchronize()?;
    Ok(())
}

/// Raw memory, and the kernel that uses it.
struct Memory {
    device: CUdeviceptr,
    host: *mut c_void,
    module: CUmodule,
}

impl Memory {
    /// Allocates memory in the current context. If this fails, the example ends, and with it the process.
    fn allocate() -> Result<Self> {
        let (mut device, mut host, mut module) = (0, core::ptr::null_mut(), core::ptr::null_mut());
        // SAFETY: the pointer refers to a local variable.
        check(unsafe { cuMemAlloc_v2(&raw mut device, BYTES) })?;
        // SAFETY: the pointer refers to a local variable.
        check(unsafe { cuMemAllocHost_v2(&raw mut host, BYTES) })?;
        // SAFETY: the pointer refers to a local variable, and the module is a C string.
        check(unsafe { cuModuleLoadData(&raw mut module, MODULE.as_ptr().cast()) })?;
        Ok(Self { device, host, module })
    }

    /// Enqueues the kernel.
    fn scale(&self, stream: &Stream) -> Result {
        let mut function: CUfunction = core::ptr::null_mut();
        // SAFETY: the pointer refers to a local variable, and the module is loaded.
        check(unsafe { cuModuleGetFunction(&raw mut function, self.module, c"scale".as_ptr()) })?;
        let (mut x, mut factor, mut offset, mut n) = (self.device, 3_i32, 1_i32, LEN);
        let mut arguments: [*mut c_void; 4] = [
            (&raw mut x).cast(),
            (&raw mut factor).cast(),
            (&raw mut offset).cast(),
            (&raw mut n).cast(),
        ];
        let (arguments, options) = (arguments.as_mut_ptr(), core::ptr::null_mut());
        let (blocks, threads, stream) = (LEN / 256, 256, stream.as_raw());
        // SAFETY: the arguments are those of the kernel, and its memory lives until the stream is
        // synchronized. The order of its accesses is the subject of this example.
        check(unsafe {
            cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, options)
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nothing uses the memory any more: the free waits for all work.
        let device = unsafe { cuMemFree_v2(self.device) };
        // SAFETY: as above.
        let host = unsafe { cuMemFreeHost(self.host) };
        // SAFETY: no kernel of the module runs any more.
        let module = unsafe { cuModuleUnload(self.module) };
        for code in [device, host, module] {
            if !code.is_success() {
                eprintln!("a release failed: {code}");
            }
        }
    }
}

fn check(code: CUresult) -> Result {
    match code.is_success() {
        true => Ok(()),
        false => Err(code.to_string().into()),
    }
}
