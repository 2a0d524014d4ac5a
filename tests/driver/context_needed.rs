//! Which calls need a current context, and whose: with none, with another of the device, and with a
//! green context's. As an H200 (driver 580) answers.

use crate::kernels::VECTOR;
use cuda_safe::sys::{self, CUresult};
use cuda_safe::sys::{CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream};
use std::ffi::{CString, c_void};
use std::ptr::null_mut;

/// Of the primary context.
struct Its {
    stream: CUstream,
    event: CUevent,
    module: CUmodule,
    function: CUfunction,
    memory: CUdeviceptr,
    pinned: *mut c_void,
    pool: sys::CUmemoryPool,
    text: CString,
}

/// What a call needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// What it names says where it belongs.
    Nothing,
    /// It works in the current context.
    AContext,
    /// It works in the current context, with things of the primary one.
    ThePrimary,
}

type Call = (&'static str, Needs, fn(&Its) -> CUresult);

/// A row of the table: the name, what it needs, and the call on things that are alive, which leaves
/// what it makes for the end of the process.
macro_rules! call {
    ($name:literal, $needs:ident, |$its:ident| $call:expr) => {
        // SAFETY: handles are of `Its`, which are alive; pointers are to locals or to its memory, of
        // the sizes that are given.
        ($name, Needs::$needs, |$its| unsafe { $call })
    };
}

const CALLS: [Call; 45] = [
    call!("cuStreamQuery", Nothing, |its| sys::cuStreamQuery(
        its.stream
    )),
    call!("cuStreamSynchronize", Nothing, |its| {
        sys::cuStreamSynchronize(its.stream)
    }),
    call!("cuStreamWaitEvent", Nothing, |its| sys::cuStreamWaitEvent(
        its.stream, its.event, 0
    )),
    call!("cuStreamGetPriority", Nothing, |its| {
        let mut priority = 0;
        sys::cuStreamGetPriority(its.stream, &raw mut priority)
    }),
    call!("cuStreamGetId", Nothing, |its| {
        let mut id = 0;
        sys::cuStreamGetId(its.stream, &raw mut id)
    }),
    call!("cuEventRecord", Nothing, |its| sys::cuEventRecord(
        its.event, its.stream
    )),
    call!(
        "cuEventSynchronize",
        Nothing,
        |its| sys::cuEventSynchronize(its.event)
    ),
    call!("cuEventQuery", Nothing, |its| sys::cuEventQuery(its.event)),
    call!("cuLaunchKernel", Nothing, |its| launch(its, its.stream)),
    call!("cuLaunchKernel on stream 0", ThePrimary, |its| launch(
        its,
        null_mut()
    )),
    call!("cuLaunchHostFunc", Nothing, |its| {
        unsafe extern "C" fn nothing(_: *mut c_void) {}
        sys::cuLaunchHostFunc(its.stream, Some(nothing), null_mut())
    }),
    call!("cuMemcpyHtoDAsync", Nothing, |its| {
        sys::cuMemcpyHtoDAsync_v2(its.memory, its.pinned, 64, its.stream)
    }),
    call!("cuMemcpyHtoDAsync pageable", Nothing, |its| {
        sys::cuMemcpyHtoDAsync_v2(its.memory, [0u8; 64].as_ptr().cast(), 64, its.stream)
    }),
    call!("cuMemcpyDtoHAsync", Nothing, |its| {
        sys::cuMemcpyDtoHAsync_v2(its.pinned, its.memory, 64, its.stream)
    }),
    call!("cuMemcpyDtoDAsync", Nothing, |its| {
        sys::cuMemcpyDtoDAsync_v2(its.memory, its.memory + 512, 64, its.stream)
    }),
    call!("cuMemcpyHtoD", AContext, |its| {
        sys::cuMemcpyHtoD_v2(its.memory, [0u8; 64].as_ptr().cast(), 64)
    }),
    call!("cuMemcpyDtoH", AContext, |its| {
        sys::cuMemcpyDtoH_v2([0u8; 64].as_mut_ptr().cast(), its.memory, 64)
    }),
    call!("cuMemsetD8Async", Nothing, |its| {
        sys::cuMemsetD8Async(its.memory, 1, 64, its.stream)
    }),
    call!("cuMemAlloc", AContext, |_its| {
        let mut address = 0;
        sys::cuMemAlloc_v2(&raw mut address, 64)
    }),
    call!("cuMemAllocAsync", Nothing, |its| {
        let mut address = 0;
        sys::cuMemAllocAsync(&raw mut address, 64, its.stream)
    }),
    call!("cuMemAllocAsync, cuMemFreeAsync", Nothing, |its| {
        let mut address = 0;
        let _ = sys::cuMemAllocAsync(&raw mut address, 64, its.stream);
        sys::cuMemFreeAsync(address, its.stream)
    }),
    call!("cuMemAllocFromPoolAsync", Nothing, |its| {
        let mut address = 0;
        sys::cuMemAllocFromPoolAsync(&raw mut address, 64, its.pool, its.stream)
    }),
    call!("cuMemAllocManaged", AContext, |_its| {
        let mut address = 0;
        sys::cuMemAllocManaged(&raw mut address, 64, 1)
    }),
    call!("cuMemHostAlloc", AContext, |_its| {
        let mut host = null_mut();
        sys::cuMemHostAlloc(&raw mut host, 64, 0)
    }),
    call!("cuMemGetInfo", AContext, |_its| {
        let (mut free, mut total) = (0, 0);
        sys::cuMemGetInfo_v2(&raw mut free, &raw mut total)
    }),
    call!("cuPointerGetAttribute", Nothing, |its| {
        let mut id = 0u64;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID;
        sys::cuPointerGetAttribute((&raw mut id).cast(), attribute, its.memory)
    }),
    call!("cuMemGetAddressRange", AContext, |its| {
        let (mut start, mut size) = (0, 0);
        sys::cuMemGetAddressRange_v2(&raw mut start, &raw mut size, its.memory)
    }),
    call!("cuStreamCreate", AContext, |_its| {
        let mut stream = null_mut();
        sys::cuStreamCreate(&raw mut stream, 1)
    }),
    call!("cuEventCreate", AContext, |_its| {
        let mut event = null_mut();
        sys::cuEventCreate(&raw mut event, 0)
    }),
    call!("cuModuleLoadData", AContext, |its| {
        let mut module = null_mut();
        sys::cuModuleLoadData(&raw mut module, its.text.as_ptr().cast())
    }),
    call!("cuModuleGetFunction", Nothing, |its| {
        let mut function = null_mut();
        sys::cuModuleGetFunction(&raw mut function, its.module, c"add".as_ptr())
    }),
    call!("cuFuncGetAttribute", Nothing, |its| {
        let mut value = 0;
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        sys::cuFuncGetAttribute(&raw mut value, attribute, its.function)
    }),
    call!(
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        AContext,
        |its| {
            let mut blocks = 0;
            let flags = 0;
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                &raw mut blocks,
                its.function,
                32,
                0,
                flags,
            )
        }
    ),
    call!("cuLibraryLoadData", Nothing, |its| library(its).1),
    call!("cuLibraryGetKernel", Nothing, |its| {
        let mut kernel = null_mut();
        sys::cuLibraryGetKernel(&raw mut kernel, library(its).0, c"nothing".as_ptr())
    }),
    call!("cuKernelGetFunction", AContext, |its| {
        let (mut kernel, mut function) = (null_mut(), null_mut());
        let _ = sys::cuLibraryGetKernel(&raw mut kernel, library(its).0, c"nothing".as_ptr());
        sys::cuKernelGetFunction(&raw mut function, kernel)
    }),
    call!("cuStreamBeginCapture", Nothing, |its| {
        let code = begin(its);
        end(its);
        code
    }),
    call!("cuStreamEndCapture", Nothing, |its| {
        let _ = begin(its);
        end(its).1
    }),
    call!("cuGraphInstantiate", AContext, |its| {
        let _ = begin(its);
        let mut executable = null_mut();
        sys::cuGraphInstantiateWithFlags(&raw mut executable, end(its).0, 0)
    }),
    call!("cuGraphDestroy", Nothing, |its| {
        let _ = begin(its);
        sys::cuGraphDestroy(end(its).0)
    }),
    call!("cuCtxSynchronize", AContext, |_its| sys::cuCtxSynchronize()),
    call!("cuStreamIsCapturing", Nothing, |its| {
        let mut status = sys::CUstreamCaptureStatus::default();
        sys::cuStreamIsCapturing(its.stream, &raw mut status)
    }),
    call!("cuMemcpyPeerAsync", Nothing, |its| {
        let mut context = null_mut();
        let _ = sys::cuStreamGetCtx(its.stream, &raw mut context);
        sys::cuMemcpyPeerAsync(
            its.memory,
            context,
            its.memory + 512,
            context,
            64,
            its.stream,
        )
    }),
    call!("cuStreamGetCtx", Nothing, |its| {
        let mut context = null_mut();
        sys::cuStreamGetCtx(its.stream, &raw mut context)
    }),
    call!("cuStreamGetFlags", Nothing, |its| {
        let mut flags = 0;
        sys::cuStreamGetFlags(its.stream, &raw mut flags)
    }),
];

unsafe fn launch(its: &Its, stream: CUstream) -> CUresult {
    // SAFETY: the kernel is alive, takes nothing and does nothing.
    unsafe {
        sys::cuLaunchKernel(
            its.function,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            stream,
            null_mut(),
            null_mut(),
        )
    }
}

unsafe fn library(its: &Its) -> (sys::CUlibrary, CUresult) {
    let mut library = null_mut();
    let (options, values) = (null_mut(), null_mut());
    // SAFETY: the text ends with a NUL, and there are no options.
    let code = unsafe {
        sys::cuLibraryLoadData(
            &raw mut library,
            its.text.as_ptr().cast(),
            options,
            values,
            0,
            null_mut(),
            null_mut(),
            0,
        )
    };
    (library, code)
}

unsafe fn begin(its: &Its) -> CUresult {
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream is alive.
    unsafe { sys::cuStreamBeginCapture_v2(its.stream, mode) }
}

unsafe fn end(its: &Its) -> (sys::CUgraph, CUresult) {
    let mut graph = null_mut();
    // SAFETY: the stream is alive.
    let code = unsafe { sys::cuStreamEndCapture(its.stream, &raw mut graph) };
    (graph, code)
}

mod provoked {
    use super::*;
    use crate::common::{self, child};
    use crate::green::{resource, smallest};
    use crate::need;
    use cuda_safe::green::GreenContext;
    use cuda_safe::{Context, ContextFlags, DeviceBuffer, MemoryPool, PinnedBuffer};
    use cuda_safe::{Module, Stream};

    /// What a call answers; a wait between it and the next keeps errors of work apart.
    fn wrong(its: &Its, stream: &Stream, others: bool, none: bool, how: &str) -> Vec<String> {
        let ask = |(name, needs, call): &Call| {
            let expected = match needs {
                Needs::AContext | Needs::ThePrimary if none => CUresult::CUDA_ERROR_INVALID_CONTEXT,
                Needs::ThePrimary if others => CUresult::CUDA_ERROR_INVALID_HANDLE,
                _ => CUresult::CUDA_SUCCESS,
            };
            let seen = call(its);
            stream.synchronize().expect("nothing is broken");
            (seen != expected).then(|| format!("{name} with {how}: {seen:?}"))
        };
        CALLS.iter().filter_map(ask).collect()
    }

    #[test]
    fn calls_need_a_context_where_nothing_that_they_name_says_which() {
        need!(common::gpu());
        need!(common::since(12, 4));
        child::in_child(&[], || {
            let resource = need!(resource());
            let context = Context::primary(&resource.device()).expect("a context");
            let stream = context.stream().expect("a stream");
            let event = context.event().expect("an event");
            event.record(&stream).expect("a record");
            let module = Module::from_ptx(&context, VECTOR).expect("a module");
            let kernel = module.kernel("nothing").expect("is in the module");
            let memory = DeviceBuffer::<u8>::plain_zeroed(&stream, 1024).expect("memory");
            let pinned = PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
            let pool = MemoryPool::default_of(&context).expect("a pool");
            let its = Its {
                stream: stream.as_raw(),
                event: event.as_raw(),
                module: module.as_raw(),
                function: kernel.as_raw(),
                memory: memory.as_raw(),
                pinned: pinned.as_ptr().cast_mut().cast(),
                pool: pool.as_raw(),
                text: CString::new(VECTOR).expect("no NUL"),
            };
            let own = Context::create(&context.device(), ContextFlags::empty());
            let own = own.expect("a context");
            let group = smallest(resource).groups.remove(0);
            let green = GreenContext::new([group]).expect("a partition");
            stream.synchronize().expect("a wait");
            let mut seen = wrong(&its, &stream, false, true, "none");
            let current = own.make_current().expect("current");
            seen.extend(wrong(&its, &stream, true, false, "another"));
            current.finish().expect("is on top");
            let current = green.make_current().expect("current");
            seen.extend(wrong(&its, &stream, false, false, "a green one"));
            drop(current);
            let current = context.make_current().expect("current");
            seen.extend(wrong(&its, &stream, false, false, "its own"));
            current.finish().expect("is on top");
            assert!(seen.is_empty(), "{seen:#?}");
        });
    }
}
