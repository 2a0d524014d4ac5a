//! The objects of the driver.

use super::capture::Branch;
use super::graph::node::Shown;
use super::green::Queues;
use crate::code::{Contents, KernelInfo, Variable};
use crate::exec::{FunctionSettings, Placed};
use crate::state::process::logs::Logs;
use core::ffi::c_char;
use cuda_ptx::Program;
use cuda_sys::CUresult;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) id: u64,
    pub(crate) kind: ContextKind,
    /// The legacy default stream, with which the context's blocking streams synchronize.
    pub(crate) legacy: usize,
    pub(crate) settings: Settings,
    /// Number of `cuCtxAttach` calls without a `cuCtxDetach`.
    pub(crate) attached: usize,
    /// The operation after which all further work of the context runs.
    pub(crate) after: Option<u64>,
    /// The last operation of each blocking stream on which work was enqueued since work was last
    /// enqueued on the legacy default stream. The next work on that stream runs after all of them and
    /// clears this map. It also has copies to or from the device in the default streams of other contexts.
    pub(crate) given: BTreeMap<usize, u64>,
    /// The number of these after the unneeded ones were last removed.
    pub(crate) given_kept: usize,
}

/// The settings of a context.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) flags: u32,
    pub(crate) cache: u32,
    /// By number. Limits that were not set are absent.
    pub(crate) limits: BTreeMap<u32, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContextKind {
    Primary,
    Created,
    /// The view of a green context.
    View(usize),
}

#[derive(Debug)]
pub(crate) struct Green {
    pub(crate) device: usize,
    pub(crate) id: u64,
    /// In order.
    pub(crate) sms: Arc<[u32]>,
    /// The number of SMs that the driver reports. It is larger if groups overlap.
    pub(crate) sm_count: u32,
    /// The step between the sizes of its parts (measured).
    pub(crate) alignment: u32,
    /// The ids of the green contexts that this one is a part of.
    pub(crate) wholes: Vec<u64>,
    pub(crate) queues: Queues,
    /// The context that `cuCtxFromGreenCtx` returns.
    pub(crate) view: usize,
}

#[derive(Debug)]
pub(crate) struct Stream {
    /// The context that owns its memory and kernels. For a stream of a green context this is the primary
    /// context.
    pub(crate) context: usize,
    pub(crate) green: Option<usize>,
    /// The stream is a default stream: the program neither creates nor destroys it.
    pub(crate) is_default: bool,
    /// The stream is the legacy default stream of a context or of a green context's view.
    pub(crate) is_legacy: bool,
    /// The stream's green context was destroyed. The stream can only be destroyed.
    pub(crate) is_detached: bool,
    pub(crate) id: u64,
    pub(crate) blocking: bool,
    pub(crate) priority: i32,
    /// The attributes that were set, by number.
    pub(crate) attributes: BTreeMap<u32, [c_char; 64]>,
    /// The last operation that was enqueued, complete or not.
    pub(crate) last: Option<u64>,
    /// Its position in a capture, if it takes part in one.
    pub(crate) capture: Option<Branch>,
    /// Memory to which queries of its capture return pointers.
    pub(crate) shown: Shown,
}

impl Stream {
    /// Returns a blocking stream of the default priority.
    pub(crate) fn new(context: usize, green: Option<usize>, id: u64) -> Self {
        Self {
            context,
            green,
            is_default: false,
            is_legacy: false,
            is_detached: false,
            id,
            blocking: true,
            priority: 0,
            attributes: BTreeMap::new(),
            last: None,
            capture: None,
            shown: Shown::default(),
        }
    }

    /// Returns its green context, or its context if it has none.
    pub(crate) fn home(&self) -> usize {
        self.green.unwrap_or(self.context)
    }
}

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: usize,
    pub(crate) timing: bool,
    /// Whether other processes may open it.
    pub(crate) interprocess: bool,
    /// Its position in a capture, if its last record was on a stream that takes part in one.
    pub(crate) captured: Option<Branch>,
    /// The operation of its last record.
    pub(crate) recorded: Option<u64>,
    /// When that operation ran, as a number of executor steps.
    pub(crate) time: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Module {
    /// Why the code of a library cannot be used. A driver does not read the code before it is first used
    /// (measured).
    pub(crate) refused: Option<CUresult>,
    /// `None` for a library, which belongs to every context.
    pub(crate) context: Option<usize>,
    pub(crate) kernels: Arc<[Arc<KernelInfo>]>,
    /// The PTX of the kernels, unless they are machine code.
    pub(crate) program: Option<Arc<Program>>,
    /// The first kernel of each name.
    pub(crate) kernel_names: HashMap<CString, usize>,
    pub(crate) variables: Arc<[Variable]>,
    /// The addresses of the variables in each context that has them, in their order.
    pub(crate) placed: BTreeMap<usize, Arc<Placed>>,
    /// The function handles returned for its kernels.
    pub(crate) functions: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) module: usize,
    pub(crate) context: Option<usize>,
    pub(crate) kernel: usize,
    pub(crate) settings: FunctionSettings,
    /// Whether the handle is a kernel of a library (`CUkernel`), which is also accepted as a function by
    /// launches, but not by nodes of graphs.
    pub(crate) is_kernel: bool,
    /// For a kernel of a library, its function, if it was queried.
    pub(crate) function: Option<usize>,
}

/// A linker (`CUlinkState`).
#[derive(Debug, Default)]
pub(crate) struct Linker {
    /// The contents of all inputs. The program is linked at the end.
    pub(crate) contents: Contents,
    /// Whether an input is machine code without PTX.
    pub(crate) has_machine_code: bool,
    pub(crate) log: Logs,
    /// The output. It lives as long as the linker.
    pub(crate) image: Option<Vec<u8>>,
}
