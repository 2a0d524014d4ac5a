//! The works of `plain.c` through `cuda-sys`, line by line.

use crate::operations::HOSTS;
use crate::work::{Work, Works, fail};
use cuda_sys::{
    CUcontext, CUdevResource, CUdevResourceType, CUdeviceptr, CUevent, CUfunction, CUgreenCtx,
    CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig, CUresult, CUstream,
    CUstreamCaptureMode,
};
use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::ptr::null_mut;

/// Objects that live until the process exits.
#[derive(Clone, Copy)]
pub(crate) struct Objects {
    pub(crate) context: CUcontext,
    pub(crate) streams: [CUstream; 4],
    pub(crate) event: CUevent,
    /// An event that was recorded once.
    pub(crate) waited: CUevent,
    pub(crate) buffers: [CUdeviceptr; 4],
    pub(crate) hosts: [*mut c_void; HOSTS],
    pub(crate) none: CUfunction,
    pub(crate) three: CUfunction,
    pub(crate) sixteen: CUfunction,
    pub(crate) green: Option<(CUgreenCtx, CUdevResource)>,
}

#[cold]
#[inline(never)]
pub(crate) fn refused(call: &str, code: CUresult) -> ! {
    fail(&format_args!("{call} returned {code}"))
}

macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the handles belong to objects that live until the process exits. The pointers are to
        // local variables, or to as much memory as the call is told.
        let code = unsafe { ::cuda_sys::$function($($argument),*) };
        if !code.is_success() {
            $crate::raw::refused(stringify!($function), code);
        }
    }};
}
pub(crate) use call;

/// A `CUlaunchAttribute` with an integer value. As in C, the rest of the value is not initialized.
#[repr(C, align(8))]
struct Numbered {
    id: CUlaunchAttributeID,
    pad: MaybeUninit<[u8; 4]>,
    number: c_int,
    rest: MaybeUninit<[u8; 60]>,
}

const _: () = {
    assert!(size_of::<Numbered>() == size_of::<CUlaunchAttribute>());
    assert!(offset_of!(Numbered, number) == offset_of!(CUlaunchAttribute, value));
};

impl Numbered {
    #[inline]
    const fn new(id: CUlaunchAttributeID, number: c_int) -> Self {
        let (pad, rest) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        Self { id, pad, number, rest }
    }
}

pub(crate) const KIB4: usize = 4096;
pub(crate) const NON_BLOCKING: u32 = 1;
pub(crate) const NO_TIMING: u32 = 2;

/// Launches the kernel with three arguments.
#[inline(always)]
pub(crate) fn launch_three(three: CUfunction, memory: [CUdeviceptr; 2], stream: CUstream) {
    let (a, b, c) = (memory[0], memory[1], 8u32);
    let mut all = [pointer(&a), pointer(&b), pointer(&c)];
    let all = all.as_mut_ptr();
    call!(cuLaunchKernel(three, 1, 1, 1, 32, 1, 1, 0, stream, all, null_mut()));
}

pub(crate) fn works(o: Objects) -> Works {
    let stream = o.streams[0];
    let mut works: Works = vec![
        (
            "make current, current already",
            Work::each(move || {
                let mut now = null_mut();
                call!(cuCtxGetCurrent(&raw mut now));
                if now != o.context {
                    call!(cuCtxSetCurrent(o.context));
                }
            }),
        ),
        (
            "bind to the thread, bound already",
            Work::each(move || {
                let mut now = null_mut();
                call!(cuCtxGetCurrent(&raw mut now));
                if now != o.context {
                    call!(cuCtxSetCurrent(o.context));
                }
            }),
        ),
        (
            "make current and back",
            Work::each(move || {
                let mut now = null_mut();
                call!(cuCtxGetCurrent(&raw mut now));
                if now == o.context {
                    return;
                }
                call!(cuCtxPushCurrent_v2(o.context));
                call!(cuCtxGetCurrent(&raw mut now));
                if now != o.context {
                    fail(&"the pushed context is not current");
                }
                call!(cuCtxPopCurrent_v2(&raw mut now));
            }),
        ),
        ("event record", Work::each(move || call!(cuEventRecord(o.event, stream)))),
        (
            "stream waits for an event",
            Work::each(move || call!(cuStreamWaitEvent(stream, o.waited, 0))),
        ),
        (
            "event query",
            Work::each(move || {
                // SAFETY: the event lives until the process exits.
                let code = unsafe { cuda_sys::cuEventQuery(o.event) };
                if !code.is_success() && code != CUresult::CUDA_ERROR_NOT_READY {
                    refused("cuEventQuery", code);
                }
            }),
        ),
        (
            "event create, destroy",
            Work::each(|| {
                let mut made = null_mut();
                call!(cuEventCreate(&raw mut made, NO_TIMING));
                call!(cuEventDestroy_v2(made));
            }),
        ),
        (
            "the same, where no context is current",
            Work::each(move || {
                let (mut now, mut made) = (null_mut(), null_mut());
                call!(cuCtxGetCurrent(&raw mut now));
                if now == o.context {
                    return;
                }
                call!(cuCtxPushCurrent_v2(o.context));
                call!(cuEventCreate(&raw mut made, NO_TIMING));
                call!(cuCtxGetCurrent(&raw mut now));
                if now != o.context {
                    fail(&"the pushed context is not current");
                }
                call!(cuCtxPopCurrent_v2(&raw mut now));
                call!(cuEventDestroy_v2(made));
            }),
        ),
        (
            "stream create, destroy",
            Work::each(|| {
                let mut made = null_mut();
                call!(cuStreamCreateWithPriority(&raw mut made, NON_BLOCKING, 0));
                call!(cuStreamDestroy_v2(made));
            }),
        ),
        (
            "launch, no argument",
            Work::each(move || {
                call!(cuLaunchKernel(o.none, 1, 1, 1, 32, 1, 1, 0, stream, null_mut(), null_mut()));
            }),
        ),
        (
            "launch, 3 arguments",
            Work::each(move || launch_three(o.three, [o.buffers[0], o.buffers[1]], stream)),
        ),
        (
            "launch, 16 arguments",
            Work::each(move || {
                let (a, n) = ([o.buffers[0]; 8], [1u32, 2, 3, 4, 5, 6, 7, 8]);
                let mut all = [
                    pointer(&a[0]),
                    pointer(&a[1]),
                    pointer(&a[2]),
                    pointer(&a[3]),
                    pointer(&a[4]),
                    pointer(&a[5]),
                    pointer(&a[6]),
                    pointer(&a[7]),
                    pointer(&n[0]),
                    pointer(&n[1]),
                    pointer(&n[2]),
                    pointer(&n[3]),
                    pointer(&n[4]),
                    pointer(&n[5]),
                    pointer(&n[6]),
                    pointer(&n[7]),
                ];
                let all = all.as_mut_ptr();
                call!(cuLaunchKernel(o.sixteen, 1, 1, 1, 32, 1, 1, 0, stream, all, null_mut()));
            }),
        ),
        (
            "launch, 2 attributes",
            Work::each(move || {
                type Id = CUlaunchAttributeID;
                let mut attributes = [
                    Numbered::new(Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 1),
                    Numbered::new(Id::CU_LAUNCH_ATTRIBUTE_PRIORITY, 0),
                ];
                let launch = CUlaunchConfig {
                    gridDimX: 1,
                    gridDimY: 1,
                    gridDimZ: 1,
                    blockDimX: 32,
                    blockDimY: 1,
                    blockDimZ: 1,
                    sharedMemBytes: 0,
                    hStream: stream,
                    attrs: attributes.as_mut_ptr().cast(),
                    numAttrs: 2,
                };
                call!(cuLaunchKernelEx(&raw const launch, o.none, null_mut(), null_mut()));
            }),
        ),
        ("allocate, free 1 MiB in stream order", Work::each(move || allocate(stream))),
        (
            "the same, after the handle of another stream was taken",
            Work::each(move || allocate(stream)),
        ),
        ("the same, by a caching pool", Work::each(move || allocate(stream))),
        (
            "the same, where others capture",
            Work::each(move || {
                let mut made = 0;
                let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
                call!(cuMemAllocAsync(&raw mut made, 1 << 20, stream));
                call!(cuThreadExchangeStreamCaptureMode(&raw mut mode));
                call!(cuMemFreeAsync(made, stream));
                call!(cuThreadExchangeStreamCaptureMode(&raw mut mode));
            }),
        ),
        (
            "copy 4 KiB to the device",
            Work::batch(move |n| {
                for i in 0..n {
                    call!(cuMemcpyHtoDAsync_v2(o.buffers[0], o.hosts[i % HOSTS], KIB4, stream));
                }
            }),
        ),
        (
            "copy 4 KiB from the device",
            Work::batch(move |n| {
                for i in 0..n {
                    call!(cuMemcpyDtoHAsync_v2(o.hosts[i % HOSTS], o.buffers[0], KIB4, stream));
                }
            }),
        ),
        (
            "copy to the device, 4 streams",
            Work::batch(move |n| {
                for i in 0..n {
                    let (to, on) = (o.buffers[i % 4], o.streams[i % 4]);
                    call!(cuMemcpyHtoDAsync_v2(to, o.hosts[i % HOSTS], KIB4, on));
                }
            }),
        ),
        (
            "copy from the device, 4 streams",
            Work::batch(move |n| {
                for i in 0..n {
                    let (from, on) = (o.buffers[i % 4], o.streams[i % 4]);
                    call!(cuMemcpyDtoHAsync_v2(o.hosts[i % HOSTS], from, KIB4, on));
                }
            }),
        ),
        (
            "copy 4 KiB on the device",
            Work::each(move || {
                let [to, from, ..] = o.buffers;
                call!(cuMemcpyDtoDAsync_v2(to, from, KIB4, stream));
            }),
        ),
        (
            "memset 4 KiB",
            Work::each(move || {
                call!(cuMemsetD8Async(o.buffers[0], 0, KIB4, stream));
            }),
        ),
    ];
    let Some((green, mut group)) = o.green else {
        return works;
    };
    works.push(("green: split", Work::each(|| split(&mut [const { MaybeUninit::uninit() }; 2]))));
    works.push((
        "green: create, destroy",
        Work::each(move || {
            let made = partition(&raw mut group);
            call!(cuGreenCtxDestroy(made));
        }),
    ));
    works.push((
        "green: split to stream, and back",
        Work::each(move || {
            let mut groups = [const { MaybeUninit::uninit() }; 2];
            split(&mut groups);
            let (made, mut stream) = (partition(groups.as_mut_ptr().cast()), null_mut());
            call!(cuGreenCtxStreamCreate(&raw mut stream, made, NON_BLOCKING, 0));
            call!(cuStreamDestroy_v2(stream));
            call!(cuGreenCtxDestroy(made));
        }),
    ));
    works.push((
        "green: stream create, destroy",
        Work::each(move || {
            let mut made = null_mut();
            call!(cuGreenCtxStreamCreate(&raw mut made, green, NON_BLOCKING, 0));
            call!(cuStreamDestroy_v2(made));
        }),
    ));
    works
}

#[inline(always)]
fn allocate(stream: CUstream) {
    let mut made = 0;
    call!(cuMemAllocAsync(&raw mut made, 1 << 20, stream));
    call!(cuMemFreeAsync(made, stream));
}

/// Splits off two groups of 16 SMs into the caller's array. As in C, nothing is zeroed first.
#[inline(always)]
fn split(groups: &mut [MaybeUninit<CUdevResource>; 2]) {
    const SM: CUdevResourceType = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    let (mut whole, mut rest) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let mut count = 2;
    call!(cuDeviceGetDevResource(0, whole.as_mut_ptr(), SM));
    call!(cuDevSmResourceSplitByCount(
        groups.as_mut_ptr().cast(),
        &raw mut count,
        whole.as_ptr(),
        rest.as_mut_ptr(),
        0,
        16
    ));
}

#[inline(always)]
fn partition(group: *mut CUdevResource) -> CUgreenCtx {
    let (mut description, mut made) = (null_mut(), null_mut());
    call!(cuDevResourceGenerateDesc(&raw mut description, group, 1));
    call!(cuGreenCtxCreate(&raw mut made, description, 0, 1));
    made
}

pub(crate) fn pointer<T>(value: &T) -> *mut c_void {
    (&raw const *value).cast_mut().cast()
}
