//! Raw graph calls for the tests of the software driver, and the objects that these tests share.

pub(crate) const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
pub(crate) const UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;

/// Makes a raw call and returns its code.
macro_rules! code {
    ($call:expr) => {{
        // SAFETY: the pointers refer to local variables or are null. The handles are alive, or the
        // software driver, which does not dereference them, reports their use.
        let code: CUresult = unsafe { $call };
        code
    }};
}

/// Makes a raw call that must succeed.
macro_rules! succeeds {
    ($call:expr) => {{
        let code = crate::graph::calls::code!($call);
        assert!(code.is_success(), "{code:?}: {}", stringify!($call));
    }};
}

/// Makes a raw call that must fail with a code.
macro_rules! refused {
    ($code:expr, $call:expr) => {{
        let code = crate::graph::calls::code!($call);
        assert_eq!(code, $code, "{}", stringify!($call));
    }};
}

/// Returns the value that a raw call writes to its first parameter.
macro_rules! out {
    ($function:ident($($argument:expr),*)) => {{
        let mut made = cuda_safe::sys::Zeroable::zeroed();
        crate::graph::calls::succeeds!($function(&raw mut made, $($argument),*));
        made
    }};
}

use crate::prelude::*;
use crate::stream::callbacks::one_misuse;
pub(crate) use {code, out, refused, succeeds};

pub(crate) const IMAGE: &str = concat!(include_str!("kernels.ptx"), "\0");

/// The objects that the tests share.
pub(crate) struct Bench {
    pub(crate) context: CUcontext,
    pub(crate) stream: CUstream,
    pub(crate) module: CUmodule,
    /// `append(log, value)` appends a value to a log, whose first element is its length.
    pub(crate) append: CUfunction,
    /// `choose(handle, value)` sets a conditional handle.
    pub(crate) choose: CUfunction,
    /// `count_down(handle, counter)` decrements a counter and sets a conditional handle to it.
    pub(crate) count_down: CUfunction,
    /// A log of 64 elements.
    pub(crate) log: u64,
    _end: Option<AtEnd>,
}

/// Starts the software driver as an H200. At the end nothing may be alive, and there must be no misuse.
pub(crate) fn without_misuse() -> Bench {
    without_misuse_on(Profile::h200())
}

pub(crate) fn without_misuse_on(profile: Profile) -> Bench {
    Bench::new(profile).at_end(|stream, module| {
        succeeds!(cuStreamSynchronize(stream));
        succeeds!(cuStreamDestroy_v2(stream));
        MADE.take().into_iter().rev().for_each(Made::destroy);
        succeeds!(cuModuleUnload(module));
        assert_eq!(cuda_sim::misuses(), [""; 0]);
        assert_eq!(alive(), Alive { retains: 1, ..Default::default() });
    })
}

/// Starts the software driver as an H200. At the end there must be one misuse.
pub(crate) fn misused(words: &'static str) -> Bench {
    Bench::new(Profile::h200()).at_end(|_, _| one_misuse(words))
}

impl Bench {
    pub(crate) fn new(profile: Profile) -> Self {
        start(profile);
        succeeds!(cuInit(0));
        let context = out!(cuDevicePrimaryCtxRetain(0));
        succeeds!(cuCtxSetCurrent(context));
        let module = out!(cuModuleLoadData(IMAGE.as_ptr().cast()));
        let bench = Self {
            context,
            stream: out!(cuStreamCreate(1)),
            module,
            append: out!(cuModuleGetFunction(module, c"append".as_ptr())),
            choose: out!(cuModuleGetFunction(module, c"choose".as_ptr())),
            count_down: out!(cuModuleGetFunction(module, c"count_down".as_ptr())),
            log: memory(256),
            _end: None,
        };
        bench.clear();
        bench
    }

    fn at_end(self, check: impl FnOnce(CUstream, CUmodule) + 'static) -> Self {
        let (stream, module) = (self.stream, self.module);
        Self { _end: Some(AtEnd::new(move || check(stream, module))), ..self }
    }

    /// Empties the log.
    pub(crate) fn clear(&self) {
        let zeros = [0u32; 64];
        succeeds!(cuMemcpyHtoD_v2(self.log, zeros.as_ptr().cast(), 256));
    }

    /// Waits for the stream and returns the values in the log.
    pub(crate) fn logged(&self) -> Vec<u32> {
        succeeds!(cuStreamSynchronize(self.stream));
        let log = read::<64>(self.log);
        log[1..=log[0] as usize].to_vec()
    }

    /// Adds a kernel that appends a value to the log.
    pub(crate) fn append(&self, graph: CUgraph, after: &[CUgraphNode], value: u32) -> CUgraphNode {
        let (log, value) = (self.log, value);
        let arguments = [(&raw const log).cast(), (&raw const value).cast()];
        kernel_node(graph, after, self.append, &arguments)
    }

    pub(crate) fn launch(&self, executable: CUgraphExec) {
        succeeds!(cuGraphLaunch(executable, self.stream));
    }

    /// Launches a graph once, and returns the values that it has logged.
    pub(crate) fn run(&self, graph: CUgraph) -> Vec<u32> {
        let executable = instantiate(graph);
        self.clear();
        self.launch(executable);
        let logged = self.logged();
        destroy_executable(executable);
        logged
    }
}

thread_local! {
    /// The objects that [`without_misuse`] destroys at the end.
    static MADE: RefCell<Vec<Made>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Made {
    Graph(CUgraph),
    Executable(CUgraphExec),
    Event(CUevent),
    Memory(u64),
}

impl Made {
    fn destroy(self) {
        match self {
            Self::Graph(graph) => succeeds!(cuGraphDestroy(graph)),
            Self::Executable(executable) => succeeds!(cuGraphExecDestroy(executable)),
            Self::Event(event) => succeeds!(cuEventDestroy_v2(event)),
            Self::Memory(address) => succeeds!(cuMemFree_v2(address)),
        }
    }
}

/// Registers an object that a test need not destroy.
fn made<T: Copy>(object: T, kind: fn(T) -> Made) -> T {
    MADE.with_borrow_mut(|all| all.push(kind(object)));
    object
}

/// Leaves an object to the test or to another object.
fn forget(object: Made) {
    MADE.with_borrow_mut(|all| all.retain(|its| *its != object));
}

fn destroy_made(object: Made) {
    forget(object);
    object.destroy();
}

/// Destroys a graph.
pub(crate) fn destroy(graph: CUgraph) {
    destroy_made(Made::Graph(graph));
}

pub(crate) fn destroy_executable(executable: CUgraphExec) {
    destroy_made(Made::Executable(executable));
}

pub(crate) fn destroy_event(event: CUevent) {
    destroy_made(Made::Event(event));
}

pub(crate) fn free_memory(address: u64) {
    destroy_made(Made::Memory(address));
}

/// Leaves a graph to the node that it is moved into, or to the driver.
pub(crate) fn moved(graph: CUgraph) -> CUgraph {
    forget(Made::Graph(graph));
    graph
}

pub(crate) fn memory(bytes: usize) -> u64 {
    made(out!(cuMemAlloc_v2(bytes)), Made::Memory)
}

pub(crate) fn event() -> CUevent {
    made(out!(cuEventCreate(0)), Made::Event)
}

pub(crate) fn read<const N: usize>(address: u64) -> [u32; N] {
    let mut values = [0; N];
    succeeds!(cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), address, 4 * N));
    values
}

pub(crate) fn graph() -> CUgraph {
    made(out!(cuGraphCreate(0)), Made::Graph)
}

pub(crate) fn instantiate(graph: CUgraph) -> CUgraphExec {
    made(out!(cuGraphInstantiateWithFlags(graph, 0)), Made::Executable)
}

pub(crate) fn empty_node(graph: CUgraph, after: &[CUgraphNode]) -> CUgraphNode {
    out!(cuGraphAddEmptyNode(graph, after.as_ptr(), after.len()))
}

/// Returns the parameters of a kernel of one thread.
pub(crate) fn kernel_params(
    function: CUfunction,
    arguments: &[*const c_void],
) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: arguments.as_ptr().cast_mut().cast(),
        extra: null_mut(),
        kern: null_mut(),
        ctx: null_mut(),
    }
}

pub(crate) fn kernel_node(
    graph: CUgraph,
    after: &[CUgraphNode],
    function: CUfunction,
    arguments: &[*const c_void],
) -> CUgraphNode {
    let params = kernel_params(function, arguments);
    out!(cuGraphAddKernelNode_v2(graph, after.as_ptr(), after.len(), &raw const params))
}

pub(crate) fn fill(at: u64, value: u32, count: usize) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS { dst: at, pitch: 0, value, elementSize: 4, width: count, height: 1 }
}

pub(crate) fn fill_node(
    graph: CUgraph,
    after: &[CUgraphNode],
    params: &CUDA_MEMSET_NODE_PARAMS,
) -> CUgraphNode {
    out!(cuGraphAddMemsetNode(
        graph,
        after.as_ptr(),
        after.len(),
        core::ptr::from_ref(params),
        null_mut()
    ))
}

/// One side of a copy.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Host(*const c_void),
    Device(u64),
}

/// Returns a 1-D copy.
pub(crate) fn copy(from: Side, to: Side, bytes: usize) -> CUDA_MEMCPY3D {
    let mut copy = CUDA_MEMCPY3D::zeroed();
    match from {
        Side::Host(host) => {
            copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
            copy.srcHost = host;
        }
        Side::Device(address) => {
            copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
            copy.srcDevice = address;
        }
    }
    match to {
        Side::Host(host) => {
            copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
            copy.dstHost = host.cast_mut();
        }
        Side::Device(address) => {
            copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
            copy.dstDevice = address;
        }
    }
    (copy.WidthInBytes, copy.Height, copy.Depth) = (bytes, 1, 1);
    copy
}

pub(crate) fn copy_node(
    graph: CUgraph,
    after: &[CUgraphNode],
    copy: &CUDA_MEMCPY3D,
) -> CUgraphNode {
    out!(cuGraphAddMemcpyNode(
        graph,
        after.as_ptr(),
        after.len(),
        core::ptr::from_ref(copy),
        null_mut()
    ))
}
