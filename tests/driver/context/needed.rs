//! Which calls need a current context and which context, measured with no current context, with
//! another context of the device, and with a green context. The answers are those of an H200
//! (driver 580).

use crate::common::{self, child};
use crate::green::{partition, resource};
use crate::launch::packed::one_thread;
use cuda_safe::context::CurrentContext;
use cuda_safe::sys::{
    self, CUdeviceptr, CUevent, CUfunction, CUgraphExec, CUmodule, CUresult, CUstream,
};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;

/// A small module: the calls load it many times.
const NOTHING: &str =
    ".version 6.0\n.target sm_52\n.address_size 64\n.visible .entry nothing() { ret; }";

/// The same with a parameter.
const WITH_PARAMETER: &CStr = c".version 6.0\n.target sm_52\n.address_size 64\n.visible .entry nothing(.param .u32 one) { ret; }";

/// The objects of the primary context.
struct Its {
    stream: CUstream,
    event: CUevent,
    module: CUmodule,
    function: CUfunction,
    kernel: sys::CUkernel,
    memory: CUdeviceptr,
    pinned: *mut c_void,
    pool: sys::CUmemoryPool,
    page: Box<Page>,
    executable: CUgraphExec,
    green: sys::CUgreenCtx,
    text: CString,
    /// Selects the objects of the current round.
    round: Cell<usize>,
    spare: [Spare; 4],
}

impl Its {
    /// Returns this round's object for a call that destroys or releases its argument.
    fn spare(&self) -> &Spare {
        &self.spare[self.round.get()]
    }
}

/// Further objects of the primary context.
struct Spare {
    stream: CUstream,
    event: CUevent,
    module: CUmodule,
    memory: CUdeviceptr,
    pinned: *mut c_void,
    registered: Box<Page>,
    executable: CUgraphExec,
}

/// Host memory to register. Nothing reads or writes it.
#[repr(align(4096))]
struct Page(#[allow(dead_code, reason = "as said")] [u8; 4096]);

impl Page {
    fn new() -> Box<Self> {
        Box::new(Self([0; 4096]))
    }

    fn start(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// Which context a call needs to be current.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// No context: its arguments determine the context.
    Nothing,
    /// Any context: the call applies to the current context.
    AContext,
    /// The primary context: the call applies to the current context and uses objects of the primary
    /// one.
    ThePrimary,
}

type Call = (&'static str, Needs, fn(&Its) -> CUresult);

/// A row of the table: the name, the needed context, and the call with live arguments. Objects that
/// the call creates stay until the process exits.
macro_rules! call {
    ($name:literal, $needs:ident, |$its:ident| $call:expr) => {
        // SAFETY: the handles belong to `Its` and are alive, and the pointers refer to local
        // variables or to its memory, of the given sizes.
        ($name, Needs::$needs, |$its| unsafe { $call })
    };
}

const CALLS: [Call; 65] = [
    call!("cuStreamQuery", Nothing, |its| sys::cuStreamQuery(its.stream)),
    call!("cuStreamSynchronize", Nothing, |its| sys::cuStreamSynchronize(its.stream)),
    call!("cuStreamWaitEvent", Nothing, |its| sys::cuStreamWaitEvent(its.stream, its.event, 0)),
    call!("cuStreamGetPriority", Nothing, |its| sys::cuStreamGetPriority(its.stream, &mut 0)),
    call!("cuStreamGetId", Nothing, |its| sys::cuStreamGetId(its.stream, &mut 0)),
    call!("cuEventRecord", Nothing, |its| sys::cuEventRecord(its.event, its.stream)),
    call!("cuEventSynchronize", Nothing, |its| sys::cuEventSynchronize(its.event)),
    call!("cuEventQuery", Nothing, |its| sys::cuEventQuery(its.event)),
    call!("cuLaunchKernel", Nothing, |its| launch(its.function, its.stream)),
    call!("cuLaunchKernel on stream 0", ThePrimary, |its| launch(its.function, null_mut())),
    call!("cuLaunchKernel of a CUkernel", Nothing, |its| launch(its.kernel.cast(), its.stream)),
    call!("cuLaunchKernelEx", Nothing, |its| {
        let config = one_thread(its.stream);
        sys::cuLaunchKernelEx(&raw const config, its.function, null_mut(), null_mut())
    }),
    call!("cuLaunchCooperativeKernel", Nothing, |its| {
        let (function, stream) = (its.function, its.stream);
        sys::cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, null_mut())
    }),
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
    call!("cuMemcpyAsync", Nothing, |its| {
        sys::cuMemcpyAsync(its.memory, its.memory + 512, 64, its.stream)
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
    call!("cuMemsetD8", AContext, |its| sys::cuMemsetD8_v2(its.memory, 1, 64)),
    call!("cuMemAlloc", AContext, |_its| sys::cuMemAlloc_v2(&mut 0, 64)),
    call!("cuMemFree", Nothing, |its| sys::cuMemFree_v2(its.spare().memory)),
    call!("cuMemAllocAsync", Nothing, |its| sys::cuMemAllocAsync(&mut 0, 64, its.stream)),
    call!("cuMemAllocAsync, cuMemFreeAsync", Nothing, |its| {
        let mut address = 0;
        let _ = sys::cuMemAllocAsync(&raw mut address, 64, its.stream);
        sys::cuMemFreeAsync(address, its.stream)
    }),
    call!("cuMemAllocFromPoolAsync", Nothing, |its| {
        sys::cuMemAllocFromPoolAsync(&mut 0, 64, its.pool, its.stream)
    }),
    call!("cuMemAllocManaged", AContext, |_its| sys::cuMemAllocManaged(&mut 0, 64, 1)),
    call!("cuMemHostAlloc", AContext, |_its| sys::cuMemHostAlloc(&mut null_mut(), 64, 0)),
    call!("cuMemFreeHost", Nothing, |its| sys::cuMemFreeHost(its.spare().pinned)),
    call!("cuMemHostRegister, cuMemHostUnregister", AContext, |its| {
        let start = its.page.start();
        let code = sys::cuMemHostRegister_v2(start, size_of::<Page>(), 0);
        if code.is_success() {
            let _ = sys::cuMemHostUnregister(start);
        }
        code
    }),
    call!("cuMemHostUnregister", Nothing, |its| {
        sys::cuMemHostUnregister(its.spare().registered.start())
    }),
    call!("cuMemGetInfo", AContext, |_its| sys::cuMemGetInfo_v2(&mut 0, &mut 0)),
    call!("cuPointerGetAttribute", Nothing, |its| {
        let mut id = 0u64;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID;
        sys::cuPointerGetAttribute((&raw mut id).cast(), attribute, its.memory)
    }),
    call!("cuMemGetAddressRange", AContext, |its| {
        sys::cuMemGetAddressRange_v2(&mut 0, &mut 0, its.memory)
    }),
    call!("cuIpcGetMemHandle", AContext, |its| {
        sys::cuIpcGetMemHandle(&mut sys::CUipcMemHandle::default(), its.memory)
    }),
    call!("cuStreamCreate", AContext, |_its| sys::cuStreamCreate(&mut null_mut(), 1)),
    call!("cuStreamDestroy", Nothing, |its| sys::cuStreamDestroy_v2(its.spare().stream)),
    call!("cuEventCreate", AContext, |_its| sys::cuEventCreate(&mut null_mut(), 0)),
    call!("cuEventDestroy", Nothing, |its| sys::cuEventDestroy_v2(its.spare().event)),
    call!("cuModuleLoadData", AContext, |its| {
        sys::cuModuleLoadData(&mut null_mut(), its.text.as_ptr().cast())
    }),
    call!("cuModuleGetFunction", Nothing, |its| {
        sys::cuModuleGetFunction(&mut null_mut(), its.module, c"nothing".as_ptr())
    }),
    call!("cuModuleUnload", Nothing, |its| sys::cuModuleUnload(its.spare().module)),
    call!("cuFuncGetAttribute", Nothing, |its| {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        sys::cuFuncGetAttribute(&mut 0, attribute, its.function)
    }),
    call!("cuFuncSetAttribute", Nothing, |its| {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        sys::cuFuncSetAttribute(its.function, attribute, 1024)
    }),
    call!("cuOccupancyMaxActiveBlocksPerMultiprocessor", AContext, |its| {
        let (function, flags) = (its.function, 0);
        sys::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&mut 0, function, 32, 0, flags)
    }),
    ("cuLibraryLoadData", Needs::Nothing, |its| library(&its.text).1),
    call!("cuLibraryGetKernel", Nothing, |its| {
        sys::cuLibraryGetKernel(&mut null_mut(), library(&its.text).0, c"nothing".as_ptr())
    }),
    call!("cuKernelGetFunction", AContext, |its| {
        sys::cuKernelGetFunction(&mut null_mut(), kernel_of(library(&its.text).0))
    }),
    call!("cuKernelGetParamInfo", AContext, |_its| {
        sys::cuKernelGetParamInfo(kernel_of(library(WITH_PARAMETER).0), 0, &mut 0, &mut 0)
    }),
    call!("cuStreamBeginCapture", Nothing, |its| {
        let code = begin(its.stream);
        let _ = end(its.stream);
        code
    }),
    call!("cuStreamEndCapture", Nothing, |its| {
        let _ = begin(its.stream);
        end(its.stream).1
    }),
    call!("cuGraphInstantiate", AContext, |its| {
        let _ = begin(its.stream);
        let mut executable = null_mut();
        sys::cuGraphInstantiateWithFlags(&raw mut executable, end(its.stream).0, 0)
    }),
    call!("cuGraphLaunch", Nothing, |its| sys::cuGraphLaunch(its.executable, its.stream)),
    call!("cuGraphExecDestroy", Nothing, |its| sys::cuGraphExecDestroy(its.spare().executable)),
    call!("cuGraphMemsetNodeSetParams", Nothing, |its| {
        let (mut graph, mut node, mut context) = (null_mut(), null_mut(), null_mut());
        let fill = sys::CUDA_MEMSET_NODE_PARAMS {
            dst: its.memory,
            elementSize: 1,
            width: 64,
            height: 1,
            ..Default::default()
        };
        let _ = sys::cuStreamGetCtx(its.stream, &raw mut context);
        let _ = sys::cuGraphCreate(&raw mut graph, 0);
        let (from, none) = (&raw const fill, null_mut());
        let _ = sys::cuGraphAddMemsetNode(&raw mut node, graph, none, 0, from, context);
        sys::cuGraphMemsetNodeSetParams(node, from)
    }),
    call!("cuGraphDestroy", Nothing, |its| {
        let _ = begin(its.stream);
        sys::cuGraphDestroy(end(its.stream).0)
    }),
    call!("cuGreenCtxStreamCreate, cuStreamDestroy", Nothing, |its| {
        let mut stream = null_mut();
        let code = sys::cuGreenCtxStreamCreate(&raw mut stream, its.green, 1, 0);
        let _ = sys::cuStreamDestroy_v2(stream);
        code
    }),
    call!("cuGreenCtxRecordEvent", Nothing, |its| {
        sys::cuGreenCtxRecordEvent(its.green, its.event)
    }),
    call!("cuCtxSynchronize", AContext, |_its| sys::cuCtxSynchronize()),
    call!("cuStreamIsCapturing", Nothing, |its| {
        sys::cuStreamIsCapturing(its.stream, &mut sys::CUstreamCaptureStatus::default())
    }),
    call!("cuMemcpyPeerAsync", Nothing, |its| {
        let mut context = null_mut();
        let _ = sys::cuStreamGetCtx(its.stream, &raw mut context);
        sys::cuMemcpyPeerAsync(its.memory, context, its.memory + 512, context, 64, its.stream)
    }),
    call!("cuStreamGetCtx", Nothing, |its| sys::cuStreamGetCtx(its.stream, &mut null_mut())),
    call!("cuStreamGetFlags", Nothing, |its| sys::cuStreamGetFlags(its.stream, &mut 0)),
];

unsafe fn launch(function: CUfunction, stream: CUstream) -> CUresult {
    // SAFETY: the kernel is alive, takes no parameters and does nothing.
    unsafe { sys::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()) }
}

fn library(text: &CStr) -> (sys::CUlibrary, CUresult) {
    let (mut library, text) = (null_mut(), text.as_ptr().cast());
    let (to, none, of_none) = (&raw mut library, null_mut(), null_mut());
    let (no, of_no) = (null_mut(), null_mut());
    // SAFETY: the text ends with a NUL, and there are no options.
    let code = unsafe { sys::cuLibraryLoadData(to, text, none, of_none, 0, no, of_no, 0) };
    (library, code)
}

unsafe fn kernel_of(library: sys::CUlibrary) -> sys::CUkernel {
    let mut kernel = null_mut();
    // SAFETY: the library is alive, the name ends with a NUL, and the pointer refers to a local
    // variable.
    let code = unsafe { sys::cuLibraryGetKernel(&raw mut kernel, library, c"nothing".as_ptr()) };
    assert_eq!(code, CUresult::CUDA_SUCCESS);
    kernel
}

unsafe fn begin(stream: CUstream) -> CUresult {
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream is alive.
    unsafe { sys::cuStreamBeginCapture_v2(stream, mode) }
}

unsafe fn end(stream: CUstream) -> (sys::CUgraph, CUresult) {
    let mut graph = null_mut();
    // SAFETY: the stream is alive.
    let code = unsafe { sys::cuStreamEndCapture(stream, &raw mut graph) };
    (graph, code)
}

/// Returns an executable graph of one launch.
unsafe fn executable(function: CUfunction, stream: CUstream) -> CUgraphExec {
    let mut executable = null_mut();
    // SAFETY: the stream is alive.
    let began = unsafe { begin(stream) };
    // SAFETY: the kernel and the stream are alive.
    let launched = unsafe { launch(function, stream) };
    // SAFETY: the stream is alive.
    let (graph, ended) = unsafe { end(stream) };
    // SAFETY: the graph is alive, and the pointer refers to a local variable.
    let made = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) };
    assert_eq!([began, launched, ended, made], [CUresult::CUDA_SUCCESS; 4]);
    executable
}

impl Spare {
    /// Creates the objects in the current context, which the stream and the function must belong
    /// to.
    unsafe fn new(function: CUfunction, stream: CUstream, text: &CStr) -> Self {
        let mut its = Self {
            stream: null_mut(),
            event: null_mut(),
            module: null_mut(),
            memory: 0,
            pinned: null_mut(),
            registered: Page::new(),
            // SAFETY: the caller upholds the same contract.
            executable: unsafe { executable(function, stream) },
        };
        let image = text.as_ptr().cast();
        let made = [
            // SAFETY: here and below, the pointers refer to fields of a local variable.
            unsafe { sys::cuStreamCreate(&raw mut its.stream, 1) },
            // SAFETY: as above.
            unsafe { sys::cuEventCreate(&raw mut its.event, 0) },
            // SAFETY: as above, and the text ends with a NUL.
            unsafe { sys::cuModuleLoadData(&raw mut its.module, image) },
            // SAFETY: as above.
            unsafe { sys::cuMemAlloc_v2(&raw mut its.memory, 64) },
            // SAFETY: as above.
            unsafe { sys::cuMemHostAlloc(&raw mut its.pinned, 64, 0) },
            // SAFETY: the memory stays alive until it is unregistered.
            unsafe { sys::cuMemHostRegister_v2(its.registered.start(), size_of::<Page>(), 0) },
        ];
        assert_eq!(made, [CUresult::CUDA_SUCCESS; 6]);
        its
    }
}

mod provoked {
    use super::*;
    use cuda_safe::memory::MemoryPool;
    use cuda_safe::module::Library;
    use cuda_safe::{Context, ContextFlags, DeviceBuffer};
    use cuda_safe::{Module, PinnedBuffer, Stream};

    /// Makes all calls and returns the unexpected answers. A wait after each call keeps the errors
    /// of asynchronous work apart.
    fn wrong(its: &Its, stream: &Stream, others: bool, none: bool, how: &str) -> Vec<String> {
        let ask = |(name, needs, call): &Call| {
            let expected = match needs {
                Needs::AContext | Needs::ThePrimary if none => CUresult::CUDA_ERROR_INVALID_CONTEXT,
                Needs::ThePrimary if others => CUresult::CUDA_ERROR_INVALID_HANDLE,
                _ => CUresult::CUDA_SUCCESS,
            };
            let seen = call(its);
            stream.synchronize().expect("no error");
            // Some functions need a driver newer than 12.4.
            let is_there = seen != CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER;
            (seen != expected && is_there).then(|| format!("{name} with {how}: {seen:?}"))
        };
        let wrong = CALLS.iter().filter_map(ask).collect();
        its.round.set(its.round.get() + 1);
        wrong
    }

    #[test]
    fn calls_need_a_current_context_unless_an_argument_determines_it() {
        child::with_stream(|context, stream| {
            or_skip!(common::since(12, 4));
            let resource = or_skip!(resource());
            let event = context.event().expect("an event");
            event.record(&stream).expect("a record");
            let module = Module::from_ptx(&context, NOTHING).expect("a module");
            let kernel = module.kernel("nothing").expect("a kernel");
            let memory = DeviceBuffer::<u8>::zeroed_sync(&stream, 1024).expect("memory");
            let pinned = PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
            let pool = MemoryPool::default_of(&context).expect("a pool");
            let library = Library::from_ptx(NOTHING).expect("a library");
            let text = CString::new(NOTHING).expect("no NUL");
            let green = partition(resource);
            let (function, raw) = (kernel.as_raw(), stream.as_raw());
            let prepare = |_: &CurrentContext| {
                // SAFETY: the context of the stream and the kernel is current.
                let spare = [(); 4].map(|()| unsafe { Spare::new(function, raw, &text) });
                // SAFETY: both objects are alive.
                let executable = unsafe { executable(function, raw) };
                // SAFETY: the library is alive.
                let kernel = unsafe { kernel_of(library.as_raw()) };
                // The first launch loads the kernel. SAFETY: both are alive.
                assert_eq!(unsafe { launch(kernel.cast(), raw) }, CUresult::CUDA_SUCCESS);
                (spare, executable, kernel)
            };
            let (spare, executable, its_kernel) = context.with_current(prepare).expect("current");
            let its = Its {
                stream: raw,
                event: event.as_raw(),
                module: module.as_raw(),
                function,
                kernel: its_kernel,
                memory: memory.as_raw(),
                pinned: pinned.as_ptr().cast_mut().cast(),
                pool: pool.as_raw(),
                page: Page::new(),
                executable,
                green: green.as_raw(),
                text,
                round: Cell::new(0),
                spare,
            };
            let own = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
            stream.synchronize().expect("a wait");
            let mut seen = wrong(&its, &stream, false, true, "none");
            let current = own.make_current().expect("current");
            seen.extend(wrong(&its, &stream, true, false, "another"));
            current.end().expect("on top");
            let current = green.make_current().expect("current");
            seen.extend(wrong(&its, &stream, false, false, "a green one"));
            drop(current);
            let current = context.make_current().expect("current");
            seen.extend(wrong(&its, &stream, false, false, "its own"));
            current.end().expect("on top");
            assert!(seen.is_empty(), "{seen:#?}");
        });
    }
}
