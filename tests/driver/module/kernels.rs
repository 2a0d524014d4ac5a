//! The kernels that tests run, with typed parameters.

use crate::common::alone;
use cuda_safe::launch::Params;
use cuda_safe::{Context, LaunchConfig, Module, Result, Stream, TypedKernel};
use cuda_safe::{DeviceBuffer, DeviceSliceMut, PinnedBuffer};
use std::collections::BTreeSet;

pub(crate) const ARGUMENTS: &str = include_str!("../../kernels/arguments.ptx");
pub(crate) const VECTOR: &str = include_str!("../../kernels/vector.ptx");
pub(crate) const SMID: &str = include_str!("../../kernels/smid.ptx");
pub(crate) const SHARED: &str = include_str!("../../kernels/shared.ptx");
pub(crate) const MEET: &str = include_str!("../../kernels/meet.ptx");
pub(crate) const HOPPER: &str = include_str!("../../kernels/hopper.ptx");
pub(crate) const GLOBALS: &str = include_str!("../../kernels/globals.ptx");
pub(crate) const APPLY: &str = include_str!("../../kernels/apply.ptx");
pub(crate) const PATTERN: &str = include_str!("../../kernels/pattern.ptx");
pub(crate) const CONDITIONAL: &str = include_str!("../../kernels/conditional.ptx");
pub(crate) const TEXTURE: &str = include_str!("../../kernels/texture.ptx");
pub(crate) const TWICE: &str = include_str!("../../kernels/twice.ptx");

/// Returns a kernel of a newly loaded module.
pub(crate) fn kernel<P: Params>(context: &Context, ptx: &str, name: &str) -> TypedKernel<P> {
    kernel_of(&Module::from_ptx(context, &alone(ptx, name)).expect("the test kernels"), name)
}

pub(crate) fn kernel_of<P: Params>(module: &Module, name: &str) -> TypedKernel<P> {
    let kernel = module.kernel(name).expect("a kernel");
    kernel.typed().expect("its parameters")
}

pub(crate) fn vector(context: &Context) -> Module {
    Module::from_ptx(context, VECTOR).expect("the test kernels")
}

/// Returns the kernel that takes no parameters and does nothing.
pub(crate) fn nothing(context: &Context) -> TypedKernel<()> {
    kernel(context, VECTOR, "nothing")
}

/// `x[i] = x[i] * factor + offset`
pub(crate) struct Scale(TypedKernel<(&'static mut [i32], i32, i32, u32)>);

impl Scale {
    pub(crate) fn new(context: &Context) -> Self {
        Self(kernel(context, VECTOR, "scale"))
    }

    pub(crate) fn run<'a>(
        &self,
        stream: &Stream,
        x: impl Into<DeviceSliceMut<'a, i32>>,
        factor: i32,
        offset: i32,
    ) -> Result<()> {
        let x = x.into();
        let n = u32::try_from(x.len()).expect("a test buffer");
        let config = LaunchConfig::for_elements(x.len(), 128)?;
        // SAFETY: the kernel accesses the first n elements of the memory, which has n.
        unsafe { self.0.launch(stream, config, (x, factor, offset, n)) }
    }
}

/// Clock cycles of about 100 ms of work. The software driver has no time: work is pending until a call waits for it.
pub(crate) const LONG: u32 = if cfg!(miri) { 1 } else { 200_000_000 };
/// Blocks that fill every SM, if each takes [`SHORT`] cycles. The software driver distributes blocks evenly.
pub(crate) const FILLING: u32 = if cfg!(miri) { 132 } else { 64 * 132 };
pub(crate) const SHORT: u32 = if cfg!(miri) { 1 } else { 50_000 };
/// The threads of such a block. Only the first records the SM.
pub(crate) const WARP: u32 = if cfg!(miri) { 1 } else { 32 };

/// Keeps a stream busy, and records the SMs that it ran on.
pub(crate) struct RecordSmid(TypedKernel<(&'static mut [u32], u32)>);

impl RecordSmid {
    pub(crate) fn new(context: &Context) -> Self {
        Self(kernel(context, SMID, "record_smid"))
    }

    /// Launches `blocks` blocks that take `cycles` clock cycles each.
    pub(crate) fn run(&self, stream: &Stream, blocks: u32, cycles: u32) -> DeviceBuffer<u32> {
        let mut smids = DeviceBuffer::zeroed(stream, blocks as usize).expect("memory");
        let config = LaunchConfig::linear(blocks, WARP);
        // SAFETY: the kernel writes one element for each block, and the buffer has that many.
        unsafe { self.0.launch(stream, config, (&mut smids, cycles)) }.expect("a launch");
        smids
    }

    /// Returns the SMs that work on the stream runs on.
    pub(crate) fn sms(&self, stream: &Stream) -> BTreeSet<u32> {
        // Under Miri, one block more than a partition has SMs finds an SM too many.
        let blocks = match stream.green_context() {
            Some(green) if cfg!(miri) => green.sm_count() + 1,
            _ => FILLING,
        };
        let smids = self.run(stream, blocks, SHORT);
        smids.to_vec().expect("the SM numbers").into_iter().collect()
    }
}

/// About 100 ms of work on a stream. It keeps its module alive, because unloading the module would
/// wait for the work.
///
/// Tests that check whether something waited run in a child process: waits of other tests hold
/// locks in the driver, and a query could then take longer than the work.
pub(crate) struct Busy {
    #[allow(dead_code, reason = "kept alive, not read")]
    smids: DeviceBuffer<u32>,
    #[allow(dead_code, reason = "kept alive, not read")]
    record: RecordSmid,
}

impl Busy {
    pub(crate) fn new(context: &Context, stream: &Stream) -> Self {
        let record = RecordSmid::new(context);
        Self { smids: record.run(stream, 1, LONG), record }
    }
}

/// A kernel that writes to an unmapped address.
pub(crate) struct Fault(TypedKernel<(u64, i32, i32, u32)>);

impl Fault {
    pub(crate) fn new(context: &Context) -> Result<Self> {
        Module::from_ptx(context, &alone(VECTOR, "scale"))?.kernel("scale")?.typed().map(Self)
    }

    /// Launches the kernel. The process cannot use the device afterwards.
    pub(crate) fn launch(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the contract is violated on purpose. The device detects the fault, and the process does
        // not use the device afterwards.
        unsafe { self.0.launch(stream, LaunchConfig::linear(1, 32), (64, 1, 1, 32)) }
    }
}

/// Launches such a kernel, and returns it.
pub(crate) fn launch_fault(stream: &Stream) -> Result<Fault> {
    let fault = Fault::new(stream.context())?;
    fault.launch(stream)?;
    Ok(fault)
}

/// Returns pinned memory with these elements.
pub(crate) fn pinned(context: &Context, elements: &[i32]) -> PinnedBuffer<i32> {
    let mut buffer = PinnedBuffer::zeroed(context, elements.len()).expect("pinned memory");
    buffer.copy_from_slice(elements);
    buffer
}
